"""Tries every fault at every file-system call of every writer: `make faults`, two processes, some minutes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import forked as subprocess

TESTS = Path(__file__).parents[1]


def try_faults(number: str, workers: int = 1) -> dict[str, dict[str, Any]]:
    """By writer: file-system calls, faults there are, faults tried, and what went wrong."""
    command = [sys.executable, "-m", "faults.worker", number]
    jobs = [
        subprocess.Popen([*command, str(part), str(workers)], cwd=TESTS, stdout=subprocess.PIPE, text=True)
        for part in range(workers)
    ]
    answers = [job.communicate()[0] for job in jobs]
    if failed := [job.returncode for job in jobs if job.returncode]:
        raise RuntimeError(f"a worker ended with {failed[0]}")
    found: dict[str, dict[str, Any]] = {}
    for line in "".join(answers).splitlines():
        row = json.loads(line)
        first = found.setdefault(row.pop("writer"), {**row, "tried": 0, "wrong": []})
        first["tried"] += row["tried"]
        first["wrong"] += row["wrong"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where the counts are recorded")
    parser.add_argument("--number", default="all", help="how many faults of every writer")
    chosen = parser.parse_args()
    rows = try_faults(chosen.number, workers=2)
    totals = {key: sum(row[key] for row in rows.values()) for key in ("calls", "points", "tried")}
    for name, row in rows.items():
        sys.stdout.write(f"{name}: {row['calls']} calls, {row['tried']} of {row['points']} faults tried\n")
        sys.stdout.writelines(f"  {one}\n" for one in row["wrong"])
    wrong = sum(len(row["wrong"]) for row in rows.values())
    sys.stdout.write(
        f"{totals['tried']} of {totals['points']} faults in {len(rows)} writers, {wrong} wrong\n"
    )
    if chosen.json:
        record = {"command": "make faults", **totals, "wrong": wrong, "writers": rows}
        chosen.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
