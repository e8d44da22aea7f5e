"""Fuzzing of all readers within a time budget: `make fuzz MINUTES=10`.

Where atheris is installed, libFuzzer changes the samples of every format by what the parsers' coverage tells;
elsewhere, and with `--blind`, they are changed at random. Every source is read under a limit of the address
space. Anything but clips, dropped clips or an `InputError` is kept in `tests/regressions`, where the tests
read it from then on.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fuzz.blind import BlindFuzz
from fuzz.guided import GuidedFuzz, available
from fuzz.samples import samples

from halp.data.readers import list_readers


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=1, help="how often every format has its turn")
    parser.add_argument(
        "--formats", nargs="*", default=(), help="only these (default: all, those on record last)"
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--blind", action="store_true", help="do not use coverage")
    parser.add_argument(
        "--corpus", type=Path, help="where what was found interesting is kept for the next time"
    )
    parser.add_argument("--json", type=Path, help="a record to which the counts are added")
    chosen = parser.parse_args()
    list_readers()  # loaded once here, or every child would load them again
    place = chosen.corpus or Path(tempfile.mkdtemp(prefix="halp-corpus-"))
    sources, chance = samples(), random.Random(chosen.seed)
    guided = available() and not chosen.blind
    formats: dict[str, Any] = {
        name: GuidedFuzz(name, reader, folder, place) if guided else BlindFuzz(name, reader, folder, chance)
        for name, (reader, folder) in sorted(sources.items(), key=lambda item: files_on(chosen.json, item[0]))
        if name in chosen.formats or not chosen.formats
    }
    recorded: dict[str, Counter[str]] = {}
    end, turns = time.monotonic() + 60 * chosen.minutes, chosen.rounds * len(formats)
    for turn in range(turns):
        one = formats[list(formats)[turn % len(formats)]]
        one.run(max(0, end - time.monotonic()) / (turns - turn))
        if turn >= turns - len(formats):
            sys.stdout.write(f"{one.sample}: {sum(one.counts.values())} files, {dict(one.counts)}\n")
            sys.stdout.flush()
        if chosen.json:
            seen = recorded.setdefault(one.sample, Counter())
            record(chosen.json, one, one.counts - seen, guided)
            recorded[one.sample] = one.counts.copy()
    for _, folder in sources.values():
        shutil.rmtree(folder, ignore_errors=True)
    if not chosen.corpus:
        shutil.rmtree(place, ignore_errors=True)
    bad = [text for one in formats.values() for text in one.kept]
    total = sum(sum(one.counts.values()) for one in formats.values())
    sys.stdout.write("".join(f"{text}\n" for text in bad) + f"{total} files, {len(bad)} bad\n")
    return int(bool(bad))


def load_record(path: Path | None) -> dict[str, Any]:
    """What was counted before."""
    there = path is not None and path.exists()
    return (
        json.loads(path.read_text())
        if path and there
        else {"command": "make fuzz", "files": 0, "formats": {}}
    )


def files_on(path: Path | None, sample: str) -> int:
    """How many files of a format are on record."""
    return int(load_record(path)["formats"].get(sample, {}).get("files", 0))


def record(path: Path, one: Any, new: Counter[str], guided: bool) -> None:
    """Add what was counted since the last time to the record of a format."""
    data = load_record(path)
    row = data["formats"].setdefault(
        one.sample, {"files": 0, "clips": 0, "refused": 0, "bad": 0, "unconfirmed": 0}
    )
    for kind, number in new.items():
        row[kind] += number
    row["files"] = row["clips"] + row["refused"] + row["bad"] + row["unconfirmed"]
    if guided:
        row["covered"] = max(row.get("covered", 0), one.covered)
    data["files"] = sum(row["files"] for row in data["formats"].values())
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
