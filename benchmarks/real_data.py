"""`python -m benchmarks.real_data [--seeds 5] [--sets …] [--select]`: untrained, MoCo and HaLP on three public Kinect sets.

Stores are prepared from `HALP_SHARED/data` (default `../shared/data`), every set is trained by the recipes `cpu-moco` and
`cpu-halp`, HaLP and MoCo of a seed from one warm-up, and evaluated by kNN and a linear classifier. What is finished is
found again, so the same command goes on after a stop. `--select` compares candidates on validation splits of the training
subjects and views instead; the test clips take no part in that. `--set` tries other settings, whose figures stay in the
folder of the runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.floors import DATA, RESULTS
from halp.clips.prepare import prepare
from halp.clips.splits import Split
from halp.clips.store import Store, open_store
from halp.errors import InputError
from halp.evaluation.results import mean_and_std, versions
from halp.reproduce.plan import Source, make_plan
from halp.reproduce.scales import SMALL
from halp.reproduce.statistics import Difference, paired_difference
from halp.reproduce.sweep import Sweep
from halp.reproduce.tables import Column, PaperTable, Row
from halp.training.loop import Interrupted

NORMALISATION = ("drop-empty", "centre", "rotate-mean")
# the test split of each set, and a split of its training part for choosing settings
SETS: dict[str, tuple[str, Split]] = {
    "nw-ucla": ("xview", Split("xview-validation", "camera", (1,), (2,))),
    "utd-mhad": ("xsub", Split("xsub-validation", "subject", (1, 5), (3, 7))),
    "msr-action3d": ("xsub", Split("xsub-validation", "subject", (1, 5, 9), (3, 7))),
}
PROTOCOLS = ("knn", "linear")
# from the validation splits, untrained and after four epochs (docs/results.md); --select shows others for trained encoders
PENALTY = 0.01
PENALTIES = (0.001, 0.01, 0.1, 1.0)
SCALE = dataclasses.replace(SMALL, options={**SMALL.options, "linear": {"solver": "exact", "penalty": PENALTY}})
TABLE = PaperTable(
    "real-data",
    "Public Kinect sets",
    "–",
    "Untrained, MoCo and HaLP, paired by seed and warm-up.",
    tuple(Column(protocol, protocol=protocol) for protocol in PROTOCOLS),
    (Row("MoCo", "moco", baseline=True), Row("HaLP")),
)
SELECTION = dataclasses.replace(
    TABLE,
    columns=(
        Column("knn", protocol="knn"),
        *(Column(f"linear, penalty {penalty:g}", settings={"penalty": penalty}) for penalty in PENALTIES),
    ),
)
CANDIDATES: dict[str, tuple[str, ...]] = {
    "recipe": (),
    "causal": ("encoder.direction=causal",),
    "last-state": ("encoder.pooling=last",),
    "wider": ("encoder.hidden=160",),
    "temperature-0.15": ("contrast.temperature=0.15",),
    "weaker-views": ("views.shear=0.2", "views.corrupt_joints=0.2", "views.rotation=0.2"),
    "stronger-views": ("views.shear=0.5", "views.corrupt_joints=0.5"),
    "frames-48": ("views.frames=48",),
}
Figures = dict[str, dict[str, list[float]]]  # row → column → one figure a seed


def prepared_store(name: str, folder: Path) -> Store:
    """The store of a set, made once, with full rotation and the validation split."""
    path = folder / "stores" / name
    if not (path / "store.json").exists():
        source = DATA / f"{name}.npz"
        prepare("interchange", source, path, normalisation=NORMALISATION, splits=(SETS[name][1],), progress=False)
    return open_store(path)


def measure(
    name: str, table: PaperTable, split: str, seeds: int, settings: Sequence[str], stores: Path, folder: Path
) -> Figures:
    """Train what is missing of one set and read its figures."""
    source = Source(name, prepared_store(name, stores))
    plan = make_plan(table, SCALE, [source], splits=[split], seeds=range(seeds), settings=settings)
    sweep = Sweep(folder)
    sweep.train(plan.jobs.values())
    found: Figures = {}
    for (row, column, _), values in sweep.figures(plan).items():
        found.setdefault(row, {})[table.columns[column].title] = values
    return found


def averaged(sets: Mapping[str, Figures], row: str, column: str) -> list[float]:
    """Mean over the sets, one a seed."""
    return [float(value) for value in np.mean([figures[row][column] for figures in sets.values()], axis=0)]


def columns_of(sets: Mapping[str, Figures]) -> list[str]:
    """What was measured of every set."""
    return list(next(iter(sets.values()))["HaLP"])


def differences(sets: Mapping[str, Figures]) -> dict[str, dict[str, Difference]]:
    """HaLP − MoCo by set and column, paired by seed; `all sets` pairs the means over the sets."""
    columns = columns_of(sets)
    result = {
        name: {column: paired_difference(figures["HaLP"][column], figures["MoCo"][column]) for column in columns}
        for name, figures in sets.items()
    }
    result["all sets"] = {
        column: paired_difference(averaged(sets, "HaLP", column), averaged(sets, "MoCo", column)) for column in columns
    }
    return result


def markdown(sets: Mapping[str, Figures], command: str) -> str:
    """A table a column, with paired differences and their 95 % intervals."""
    gaps = differences(sets)
    lines = ["# Public Kinect sets", "", "Top-1 in per cent, mean ± standard deviation over the seeds.", ""]
    for protocol in columns_of(sets):
        rows = list(next(iter(sets.values())))
        lines += [f"## {protocol}", "", f"| set | {' | '.join(rows)} | HaLP − MoCo, 95 % interval | pairs |"]
        lines.append("| --- |" + " --- |" * (len(rows) + 2))
        for name, figures in sets.items():
            cells = [_shown(figures[row][protocol]) for row in rows]
            lines.append(f"| {name} | {' | '.join(cells)} | {gaps[name][protocol]} | {gaps[name][protocol].pairs} |")
        gap = gaps["all sets"][protocol]
        lines += [f"| all sets |{' |' * len(rows)} {gap} | {gap.pairs} |", ""]
    return "\n".join([*lines, f"`{command}`", ""])


def _shown(values: Sequence[float]) -> str:
    # raw coordinates do not depend on a seed
    values = values[:1] if len(set(values)) == 1 else values
    mean, std = mean_and_std(values)
    return f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"


def write(sets: Mapping[str, Figures], path: Path, facts: Mapping[str, Any], command: str) -> None:
    """The figures as JSON, and as Markdown beside it."""
    data = {
        **facts,
        "command": command,
        "versions": versions(),
        "figures": sets,
        "differences": {
            name: {protocol: dataclasses.asdict(gap) for protocol, gap in entry.items()}
            for name, entry in differences(sets).items()
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(markdown(sets, command), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Measure, or select; exit code 3 where it was stopped and can be gone on with."""
    parser = argparse.ArgumentParser(description="Untrained, MoCo and HaLP on three public Kinect sets.")
    parser.add_argument("--seeds", type=int, default=5, help="seeds; HaLP and MoCo of one share their warm-up")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--select", nargs="*", choices=list(CANDIDATES), help="compare candidates on validation splits")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="override settings of both recipes")
    parser.add_argument("--out", type=Path, default=Path("runs/real_data"), help="where stores and runs go")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # at this size a second thread costs more than it does
    command = " ".join(["python -m benchmarks.real_data", *arguments])
    facts = {"seeds": list(range(options.seeds)), "settings": options.set, "normalisation": list(NORMALISATION)}
    tried = re.sub(r"[^\w.=-]", "_", "+".join(options.set))
    home = options.out / tried if tried else options.out
    results = home if tried else RESULTS
    try:
        if options.select is None:
            sets = {
                name: measure(name, TABLE, SETS[name][0], options.seeds, options.set, options.out, home)
                for name in options.sets
            }
            write(sets, results / "real_data.json", facts, command)
            Console().print(markdown(sets, command))
            return 0
        for candidate in options.select or CANDIDATES:
            settings = [*options.set, *CANDIDATES[candidate]]
            folder = home / "select" / candidate
            sets = {
                name: measure(name, SELECTION, SETS[name][1].name, options.seeds, settings, options.out, folder)
                for name in options.sets
            }
            path = results / "real_data_selection" / f"{candidate}.json"
            write(sets, path, {**facts, "settings": settings, "split": "validation"}, command)
            Console().print(f"{candidate}\n{markdown(sets, command)}")
    except InputError as error:
        Console(stderr=True).print(f"{error}")
        return 2
    except Interrupted as stop:
        Console(stderr=True).print(f"{stop}; the same command goes on")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
