"""Run every command of two versions on the same recordings and compare exit codes, JSON and CSV.

    python -m benchmarks.surface --against REVISION [--only NAME …]

Both versions start from the recordings of `examples/make_recordings.py` as they were in REVISION. A version
may add keys and columns but not lose any: numbers must agree to 1e-5 and lists must have equal lengths. Where
a command has several spellings, each version uses the first that it accepts.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TOLERANCE = 1e-5
UNCOMPARED = {
    "seconds",
    "version",
    "halp",
    "commit",
    "created",
    "cache",
    "run",
    "python",
    "packages",
    "fingerprint",
}
SAME_COLUMN = {
    "name": "recording",
    "end": "stop",
    "probability": "score",
}  # contract words and those of events
TRAIN = "batch_size=8 epochs=2 seed=3 contrast.queue=16 encoder.hidden=12 halp.recent=12 halp.prototypes=3"
# command → its spellings; $json stands for `--json`, tables are written to CSV files in the working folder
COMMANDS: dict[str, list[str]] = {
    "encoders": ["encoders $json"],
    "formats": ["formats $json"],
    "recipes": ["recipes --all $json", "recipes $json"],
    "recipe": ["recipes small $json"],
    "search": ["search halp-base recordings/wave/person1_1.bvh --in recordings -k 5 --out search.csv $json"],
    "search-windows": [
        "search halp-base recordings/wave/person1_1.bvh --in long.bvh --window 2 --stride 1 $json"
    ],
    "cluster": ["cluster halp-base recordings --groups 3 --out cluster.csv $json"],
    "compare": [
        "compare halp-base recordings/wave/person1_1.bvh recordings/wave/person2_1.bvh --out compare.csv"
        " $json"
    ],
    "embed": ["embed halp-base recordings embed.csv --compact $json"],
    "fit": ["classify fit halp-base recordings model --pattern '{label}/{subject}_*.bvh' $json"],
    "predict": ["classify predict model recordings --out predict.csv $json"],
    "suggest": ["classify predict model recordings --suggest 3 $json"],
    "segment": ["segment halp-base long.bvh --model model --window 2 --stride 0.5 --out segments.csv $json"],
    "segment-groups": ["segment halp-base long.bvh --window 2 --groups 3 --out groups.csv $json"],
    "events": ["events segments.csv events.textgrid $json"],
    "stats": ["stats segments.csv --bins 5 --out stats $json"],
    "agreement": ["agreement segments.csv groups.csv $json"],
    "motifs": ["motifs halp-base recordings --window 1 --motifs 3 --out motifs.csv $json"],
    "repetitions": ["repetitions recordings/squat/person1_1.bvh --out repetitions.csv $json"],
    "angles": ["angles recordings/squat --out angles.csv $json"],
    "deviation": [
        "deviation halp-base recordings/wave recordings/squat/person1_1.bvh --people people.csv --window 1"
        " $json"
    ],
    "poses": ["poses recordings/wave/person1_1.bvh poses --to trc"],
    "export": ["export halp-base package $json"],
    "prepare": ["prepare bvh recordings store --pattern '{label}/{subject}_*.bvh' $json"],
    "inspect": ["inspect store $json"],
    "split": ["split store --by subject --hold-out person4 $json"],
    "merge": ["merge store --out merged"],
    "pretrain": [f"pretrain small --data store --run run --set split=subject {TRAIN} $json"],
    "evaluate": ["evaluate run --protocol knn $json"],
    "report": ["report run --out report.html"],
    "reproduce": ["reproduce semi --list $json"],
    "explore": ["explore recordings --static page"],
    "unknown option": ["search halp-base recordings/wave/person1_1.bvh --in recordings --option nonsense=1"],
    "missing file": ["search halp-base recordings/none.bvh --in recordings"],
    "wrong encoder": ["embed halp-bass recordings nothing.npz"],
    "not a model": ["classify predict recordings recordings"],
}


class Version:
    """One version of halp: where its code lies, and the folder in which its commands work."""

    def __init__(self, root: Path, folder: Path):
        self.folder = folder
        folder.mkdir()
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(root / "src"),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        }
        self.environment["HALP_CACHE"] = str(folder / "cache")

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the first spelling that this version accepts."""
        for spelling in COMMANDS[name]:
            arguments = shlex.split(spelling.replace("$json", "--json"))
            command = [sys.executable, "-c", "from halp.cli import main; main()", *arguments]
            answer = subprocess.run(
                command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
            )
            if answer.returncode != 2:
                break
        return answer


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yield where two JSON values differ; keys that were added are fine."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before:
            if key not in after:
                yield f"{where}.{key} is gone"
            elif key not in UNCOMPARED:
                yield from differences(before[key], after[key], f"{where}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{where} has {len(after)} items, had {len(before)}"
        for place, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from differences(old, new, f"{where}[{place}]")
    elif isinstance(before, float) and isinstance(after, int | float):
        if not (
            math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=TOLERANCE) or before != before != after
        ):
            yield f"{where} is {after!r}, was {before!r}"
    elif before != after:
        yield f"{where} is {after!r}, was {before!r}"


def table_differences(before: Path, after: Path) -> Iterator[str]:
    """Yield where two CSV tables differ; columns that were added or renamed to those of events are fine."""
    if not after.exists():
        yield f"{before.name} is not written"
        return
    old, new = ({key: list(column) for key, column in _columns(path)} for path in (before, after))
    for key in old:
        same = key if key in new else SAME_COLUMN.get(key, key)
        yield from differences({same: old[key]}, {same: new[same]} if same in new else {}, before.name)


def _columns(path: Path) -> Iterator[tuple[str, list[float | str]]]:
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    for place, key in enumerate(head):
        yield key, [_number(row[place]) for row in rows]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def compare(name: str, before: Version, after: Version) -> list[str]:
    """Run one command with both versions and list what differs."""
    with ThreadPoolExecutor(2) as pool:
        old, new = pool.map(lambda version: version.run(name), (before, after))
    if old.returncode != new.returncode:
        return [
            f"exit code {new.returncode}, was {old.returncode}: {(new.stderr or old.stderr).strip()[-300:]}"
        ]
    found: list[str] = []
    if "$json" in COMMANDS[name][0] and not old.returncode:
        found += differences(json.loads(old.stdout), json.loads(new.stdout))
    for table in sorted(before.folder.glob("*.csv")) + sorted(before.folder.glob("stats/*.csv")):
        if table.name != "people.csv" and any(
            str(part) in COMMANDS[name][0] for part in (table.name, "--out stats")
        ):
            found += table_differences(table, after.folder / table.relative_to(before.folder))
    return found


def main() -> int:
    """Command line of the comparison; the exit code is 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--against", required=True, help="the revision to compare with")
    parser.add_argument(
        "--only", nargs="*", default=list(COMMANDS), help="commands to compare (and those they need)"
    )
    chosen = parser.parse_args()
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as name:
        folder, old = Path(name), Path(name) / "old"
        subprocess.run([*git, "add", "--detach", str(old), chosen.against], check=True, capture_output=True)
        try:
            before, after = Version(old, folder / "before"), Version(ROOT, folder / "after")
            for version in (before, after):
                script = old / "examples" / "make_recordings.py"
                subprocess.run(
                    [sys.executable, script, "recordings"],
                    cwd=version.folder,
                    check=True,
                    capture_output=True,
                )
                people = [
                    f"person{person}_{take},p{person}" for person in range(1, 5) for take in range(1, 4)
                ]
                (version.folder / "people.csv").write_text("\n".join(["recording,subject", *people, ""]))
            wrong = 0
            for command in chosen.only:
                found = compare(command, before, after)
                wrong += bool(found)
                shown = "equal" if not found else f"{len(found)} DIFFER"
                print(f"{command:16} {shown}", *found[:6], sep="\n    ", flush=True)
            print(f"{len(chosen.only) - wrong} of {len(chosen.only)} commands are equal")
            return int(wrong > 0)
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=False)


if __name__ == "__main__":
    sys.exit(main())
