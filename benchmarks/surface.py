"""Run every command of two versions on the same recordings and compare exit codes, JSON and CSV.

    python -m benchmarks.surface --against REVISION [--only NAME …]

Both versions start from the recordings of `examples/make_recordings.py` and the shipped encoder as they were
in REVISION, and every command reads what the earlier version's commands wrote before it, so that a difference
is the command's own. A version may add keys and columns but not lose any: numbers must agree to 1e-5 and
lists must have equal lengths. What differs on purpose is named in `INTENDED`, and printed with its reason; any
other difference fails. Where a command has several spellings, each version uses the first that it accepts.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

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
    "peak_memory",
}
SAME_COLUMN = {"name": "recording", "end": "stop", "probability": "score", "similarity": "score"}  # of events
UNITS = ("_s", "_deg", "_deg_per_s")  # that names of columns end in since then
ROW = ("table", "row")  # keys that name an item of a list, whatever its place
TRAIN = "batch_size=8 epochs=2 seed=3 contrast.queue=16 encoder.hidden=12 halp.recent=12 halp.prototypes=3"


class Intended(NamedTuple):
    """A difference that is meant: a pattern of its whole text, by how much numbers may differ at the most, and
    why.
    """

    pattern: str
    reason: str
    within: float = math.inf


UNROUNDED = Intended(
    r"\w+\.csv\.(start|stop)\[\d+\] is .*",
    "tables hold times as they were computed; they were rounded to milliseconds",
    6e-4,
)
ONE_VOCABULARY = Intended(
    r"(segments|groups|predict)\.csv\.state is gone",
    "a row of a table speaks of its span once; where nobody is seen its label is 'nobody'",
)
FROM_ONE = Intended(
    r".*\bperson(\[\d+\])? is 1(\.0)?, was 0(\.0)?", "persons are counted from 1, as in `halp people`"
)
INTENDED: dict[str, list[Intended]] = {
    "encoders": [
        Intended(
            r"\.halp-(base|view)\.normalisation( has .*|\[\d\] is '(fill-gaps|drop-empty|centre|rotate-mean|picture)', .*)",
            "release 2 of the shipped encoders fills gaps before its other steps",
        )
    ],
    "formats": [
        Intended(r"\.(synthetic|ntu) is '.*", "wording"),
        Intended(r"\.amass is .*", "parameters of a body model are read too"),
    ],
    "fit": [
        Intended(
            r"\.curve\.\d+\[[01]\] is .*",
            "the learning curve standardises by the training part of each fold; held-out clips shaped it",
            0.03,
        )
    ],
    "predict": [UNROUNDED, ONE_VOCABULARY],
    "suggest": [
        Intended(
            r"\[\d\]\.(name|uncertainty|distance) is .*",
            "models keep labelled vectors in eight bits: a labelled clip is not quite at distance 0 of itself",
        )
    ],
    "cluster": [Intended(r"cluster\.csv\.group is gone", "the group of a row is its label")],
    "compare": [
        Intended(
            r"compare\.csv\.(other_start|other_end|difference|joints) is gone",
            "the table holds events with the difference as score; here there are none",
        )
    ],
    "segment": [UNROUNDED, ONE_VOCABULARY],
    "segment-groups": [
        UNROUNDED,
        ONE_VOCABULARY,
        Intended(
            r"\[\d+\]\.rejected is None, was False|groups\.csv\.rejected\[\d+\] is '', was 'False'",
            "groups cannot be rejected",
        ),
    ],
    "repetitions": [FROM_ONE],
    "angles": [FROM_ONE],
    "inspect": [
        Intended(r"\.columns\.fps\.\S+ is gone", "frame rates are shown rounded"),
        Intended(r"\.findings\[\d\]\.(problem|remedy) is .*", "wording, and the step `steady`"),
    ],
    "deviation": [
        Intended(
            r"\[\d\]\.(score|joints|moments).*",
            "vectors are no longer centred on the reference, around which all movements were about equally far",
        )
    ],
    "reproduce": [
        Intended(r"\..*\.runs is gone", "every row of the paper's tables can be run"),
        Intended(
            r"\.semi\S* ASSL\..*", "the paper's row of ASSL can be run since it was written after the paper"
        ),
    ],
}
# command → its spellings; $json stands for `--json`, $base for the encoder and $plain for it without its
# projection to fewer numbers (in which groups of windows are found since then); tables are CSV files in the
# working folder
COMMANDS: dict[str, list[str]] = {
    "encoders": ["encoders $json"],
    "formats": ["formats $json"],
    "recipes": ["recipes --all $json", "recipes $json"],
    "recipe": ["recipes small $json"],
    "search": ["search $base recordings/wave/person1_1.bvh --in recordings -k 5 --out search.csv $json"],
    "search-windows": [
        "search $base recordings/wave/person1_1.bvh --in long.bvh --window 2 --stride 1 $json"
    ],
    "cluster": ["cluster $base recordings --groups 2 --out cluster.csv $json"],
    "compare": [
        "compare $base recordings/wave/person1_1.bvh recordings/squat/person2_1.bvh --out compare.csv $json"
    ],
    "embed": ["embed $base recordings embed.csv --compact $json"],
    "fit": ["classify fit $base recordings model --pattern '{label}/{subject}_*.bvh' $json"],
    "predict": ["classify predict model recordings --out predict.csv $json"],
    "suggest": ["classify predict model recordings --suggest 3 $json"],
    "segment": ["segment $base long.bvh --model model --window 2 --stride 0.5 --out segments.csv $json"],
    "segment-groups": ["segment $plain long.bvh --window 2 --groups 3 --out groups.csv $json"],
    "events": ["events segments.csv events.textgrid $json"],
    "stats": ["stats segments.csv --bins 5 --out stats $json"],
    "agreement": ["agreement segments.csv groups.csv $json"],
    "motifs": ["motifs $base recordings --window 1 --motifs 3 --out motifs.csv $json"],
    "repetitions": ["repetitions recordings/squat/person1_1.bvh --out repetitions.csv $json"],
    "angles": ["angles recordings/squat --out angles.csv $json"],
    "deviation": [
        "deviation $base recordings/wave recordings/squat/person1_1.bvh --people people.csv --window 1 $json"
    ],
    "poses": ["poses recordings/wave/person1_1.bvh poses --to trc"],
    "export": ["export $base package $json"],
    "prepare": ["prepare bvh recordings store --pattern '{label}/{subject}_*.bvh' $json"],
    "prepare-windows": ["prepare bvh long.bvh windows --window 2 $json"],
    "inspect": ["inspect store $json"],
    "split": ["split store --by subject --hold-out person4 $json"],
    "merge": ["merge store windows --out merged"],
    "pretrain": [f"pretrain small --data store --run run --set split=subject_name {TRAIN} $json"],
    "evaluate": ["evaluate run --protocol knn $json"],
    "report": ["report run --out report.html"],
    "reproduce": ["reproduce --list $json"],
    "explore": ["explore recordings --static page"],
    "unknown option": ["search $base recordings/wave/person1_1.bvh --in recordings --option nonsense=1"],
    "missing file": ["search $base recordings/none.bvh --in recordings"],
    "wrong encoder": ["embed halp-bass recordings nothing.npz"],
    "not a model": ["classify predict recordings recordings"],
}
REFUSED = ("unknown option", "missing file", "wrong encoder", "not a model")


class Version:
    """One version of halp: where its code lies, and the folder in which its commands work."""

    def __init__(self, root: Path, folder: Path, names: dict[str, str]):
        self.folder, self.names = folder, names
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
            arguments = [self.names.get(word, word) for word in shlex.split(spelling)]
            command = [sys.executable, "-c", "from halp.cli import main; main()", *arguments]
            answer = subprocess.run(
                command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
            )
            if answer.returncode != 2:
                break
        return answer


class Difference(NamedTuple):
    """Where two answers differ, what is there, and by how much if both are numbers."""

    text: str
    size: float = math.inf

    def intended(self, command: str) -> Intended | None:
        """The entry of `INTENDED` that this difference of a command is an instance of."""
        entries = INTENDED.get(command, [])
        fitting = (each for each in entries if re.fullmatch(each.pattern, self.text))
        return next((each for each in fitting if each.within == math.inf or self.size <= each.within), None)


def differences(before: Any, after: Any, where: str = "") -> Iterator[Difference]:
    """Yield where two JSON values differ; keys that were added are fine."""
    before, after = _by_name(before), _by_name(after)
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before:
            if key not in after:
                yield Difference(f"{where}.{key} is gone")
            elif key not in UNCOMPARED:
                yield from differences(before[key], after[key], f"{where}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield Difference(f"{where} has {len(after)} items, had {len(before)}")
        for place, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from differences(old, new, f"{where}[{place}]")
    elif isinstance(before, float) and isinstance(after, int | float):
        if not (
            math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=TOLERANCE) or before != before != after
        ):
            yield Difference(f"{where} is {after!r}, was {before!r}", abs(after - before))
    elif before != after:
        yield Difference(f"{where} is {after!r}, was {before!r}")


def _by_name(value: Any) -> Any:
    """A list whose items are named as a dictionary of them, anything else as it is."""
    named = (
        isinstance(value, list) and value and all(isinstance(one, dict) and {*ROW} <= {*one} for one in value)
    )
    rows = {" ".join(str(one[key]) for key in ROW): one for one in value} if named else {}
    return rows if named and len(rows) == len(value) else value


def table_differences(before: Path, after: Path) -> Iterator[Difference]:
    """Yield where two CSV tables differ; columns that were added or renamed to those of events are fine."""
    if not after.exists():
        yield Difference(f"{before.name} is not written")
        return
    old, new = ({key: list(column) for key, column in _columns(path)} for path in (before, after))
    for key in old:
        names = [key, SAME_COLUMN.get(key, key), *(key.removesuffix("_velocity") + unit for unit in UNITS)]
        if key.endswith("_velocity"):
            names.remove(key.removesuffix("_velocity") + "_deg")
        same = next((name for name in names if name in new), key)
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


def compare(name: str, before: Version, after: Version) -> list[Difference]:
    """Run one command with both versions and list what differs; later commands of both read the earlier
    version's tables.
    """
    with ThreadPoolExecutor(2) as pool:
        old, new = pool.map(lambda version: version.run(name), (before, after))
    # two versions that cannot start fail alike, which proves nothing
    if not new.returncode == old.returncode == (2 if name in REFUSED else 0):
        said = (new.stderr or old.stderr).strip()[-300:]
        return [Difference(f"exit code {new.returncode}, was {old.returncode}: {said}")]
    every: list[Difference] = []
    if "$json" in COMMANDS[name][0] and not old.returncode:
        every += differences(json.loads(old.stdout), json.loads(new.stdout))
    words = COMMANDS[name][0].split()
    folder = words[words.index("--out") + 1] if "--out" in words else "-"
    for table in sorted(before.folder.glob("*.csv")) + sorted(before.folder.glob(f"{folder}/*.csv")):
        if table.name == "people.csv" or (table.name not in words and table.parent.name != folder):
            continue
        other = after.folder / table.relative_to(before.folder)
        every += table_differences(table, other)
        shutil.copyfile(table, other)
    return every


def shown(name: str, every: list[Difference]) -> tuple[str, bool]:
    """A paragraph about a command, and whether it differs otherwise than intended."""
    meant = {one: entry for one in every if (entry := one.intended(name))}
    wrong = [one.text for one in every if one not in meant]
    reasons: dict[str, int] = {}
    for entry in meant.values():
        reasons[entry.reason] = reasons.get(entry.reason, 0) + 1
    verdict = f"{len(wrong)} DIFFER" if wrong else "intended" if meant else "equal"
    lines = [f"{count} intended: {reason}" for reason, count in reasons.items()] + wrong[:6]
    return "\n    ".join([f"{name:16} {verdict}", *lines]), bool(wrong)


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
            base, plain = old / "src" / "halp" / "encoders" / "shipped" / "halp-base", folder / "plain"
            shutil.copytree(base, plain)
            config = json.loads((plain / "config.json").read_text())
            del config["compact"]
            (plain / "config.json").write_text(json.dumps(config))
            names = {"$base": str(base), "$plain": str(plain), "$json": "--json"}
            before, after = Version(old, folder / "before", names), Version(ROOT, folder / "after", names)
            for version in (before, after):
                script = old / "examples" / "make_recordings.py"
                subprocess.run(
                    [sys.executable, script, "recordings"],
                    cwd=version.folder,
                    check=True,
                    capture_output=True,
                )
                takes = [(person, take) for person in range(1, 5) for take in range(1, 4)]
                # six people: a reference needs five
                people = [f"person{person}_{take},p{(3 * person + take) % 6}" for person, take in takes]
                (version.folder / "people.csv").write_text("\n".join(["recording,subject", *people, ""]))
            wrong = 0
            for command in chosen.only:
                said, differs = shown(command, compare(command, before, after))
                wrong += differs
                print(said, flush=True)
            print(
                f"{len(chosen.only) - wrong} of {len(chosen.only)} commands are equal or differ as intended"
            )
            return int(wrong > 0)
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=False)


if __name__ == "__main__":
    sys.exit(main())
