"""`python -m benchmarks.real_data [--streams] [--alone] [--select …]`: MoCo and HaLP on public Kinect sets.

One encoder a method and seed is trained without labels on the training parts of NW-UCLA, UTD-MHAD and MSR-Action3D and on
UTKinect together (`--alone`: one a set, on that set), by the recipes `cpu-moco` and `cpu-halp`; HaLP and MoCo of a seed
share their warm-up. It is evaluated on each of the three sets by kNN and a linear classifier. `--streams` adds CMD and
HaLP + CMD and fuses joint, motion and bone. What is finished is found again, so the same command goes on after a stop, and
several of them may train different `--seeds` at once. `--select` compares candidates on validation splits of the training
subjects and views instead; the test clips take no part in that. Data is looked for in `HALP_SHARED/data` (default
`../shared/data`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.baselines import DATA, RESULTS
from rich.console import Console

from halp.core.errors import InputError
from halp.data.ingest.prepare import prepare
from halp.data.merge import merge
from halp.data.splits import Split
from halp.data.store import Store, add_split, open_store
from halp.evaluation import RawCoordinates
from halp.evaluation.analysis.paired_difference import Difference, paired_difference
from halp.evaluation.evaluate_run import evaluate_cached, settings_for
from halp.evaluation.protocol import EncoderGroup
from halp.evaluation.results import mean_and_std, versions
from halp.reproduce.runner import SweepRunner
from halp.reproduce.scales import SCALES
from halp.reproduce.scheduler import Cell, DataSource, make_schedule
from halp.reproduce.tables import PaperTable, TableColumn, TableRow
from halp.training.loop import Interrupted
from halp.training.run_folder import RunFolder

NORMALISATION = ("drop-empty", "centre", "rotate-mean")
# the test split of each set, and a split of its training part for choosing settings
SETS: dict[str, tuple[str, Split]] = {
    "nw-ucla": ("xview", Split("xview-validation", "camera", (1,), (2,))),
    "utd-mhad": ("xsub", Split("xsub-validation", "subject", (1, 5), (3, 7))),
    "msr-action3d": ("xsub", Split("xsub-validation", "subject", (1, 5, 9), (3, 7))),
}
UNLABELLED = "utkinect"  # learned from, not tested on
POOLED = ("pooled", "pooled-validation")
PENALTY = 0.01  # of the linear classifier, chosen on the validation splits (docs/results.md)
PENALTIES = (0.001, 0.01, 0.1)
THREE = ["joint", "motion", "bone"]
SHARE_OF_QUEUE = {"cmd.share": 0.5}  # as in the recipe `cpu-cmd`: the queue is short
CANDIDATES: dict[str, tuple[str, ...]] = {
    "recipe": (),
    "mean": ("encoder.pooling=mean",),
    "weaker-views": ("views.shear=0.3", "views.corrupt_joints=0.3", "views.rotation=0.3"),
    "stronger-views": ("views.shear=1.0", "views.corrupt_joints=0.6", "views.rotation=0.8"),
    "wider": ("encoder.hidden=128",),
    "queue-1024": ("contrast.queue=1024",),
    "queue-256": ("contrast.queue=256",),
    "temperature-0.1": ("contrast.temperature=0.1",),
    "half-as-long": ("epochs=80", "halp.start_epoch=32", "optimiser.milestones=[64]"),
}
Accuracies = dict[str, dict[str, list[float]]]  # row → measure → one accuracy per seed
Sets = Mapping[str, Accuracies]


@dataclass(frozen=True)
class Measure:
    """How an encoder is judged: a protocol with its settings, on the joint stream or on all of them fused."""

    name: str
    protocol: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def fused(self) -> bool:
        """Whether all streams take part."""
        return self.protocol == "ensemble"


@dataclass(frozen=True)
class Experiment:
    """Methods that are compared, pairs of them whose difference is taken, and how they are judged.

    `settings` differ from the recipe for all methods alike.
    """

    name: str
    rows: tuple[TableRow, ...]
    pairs: tuple[tuple[str, str], ...]
    measures: tuple[Measure, ...]
    settings: tuple[str, ...] = ()


def _linear(penalty: float) -> dict[str, Any]:
    return {"solver": "exact", "penalty": penalty}


SINGLE = Experiment(
    "real_data",
    (TableRow("MoCo", "moco", baseline=True), TableRow("HaLP")),
    (("HaLP", "MoCo"),),
    (Measure("knn", "knn"), Measure("linear", "linear", _linear(PENALTY)), Measure("linear by SGD", "linear")),
)
STREAMS = Experiment(
    "real_data_streams",
    (
        TableRow("MoCo", "moco", {"streams": THREE, "terms": ["infonce"]}, baseline=True),
        TableRow("HaLP", "halp", {"streams": THREE, "terms": ["infonce", "halp"]}),
        TableRow("CMD", "moco", {"streams": THREE, "terms": ["infonce", "cmd"], **SHARE_OF_QUEUE}),
        TableRow("HaLP + CMD", "halp", {"streams": THREE, "terms": ["infonce", "cmd", "halp"], **SHARE_OF_QUEUE}),
    ),
    (("HaLP", "MoCo"), ("HaLP + CMD", "CMD")),
    (
        *SINGLE.measures[:2],
        Measure("three streams, knn", "ensemble", {"base": "knn"}),
        Measure("three streams, linear", "ensemble", _linear(PENALTY)),
    ),
    # three streams take three times as long: less than a third of the epochs
    ("epochs=50", "halp.start_epoch=20", "optimiser.milestones=[40]"),
)
SELECTION = dataclasses.replace(
    SINGLE,
    measures=(
        Measure("knn", "knn"),
        *(Measure(f"linear, penalty {penalty:g}", "linear", _linear(penalty)) for penalty in PENALTIES),
    ),
)


def prepared_store(name: str, folder: Path) -> Store:
    """The store of a set, made once, with full rotation and its validation split."""
    path = folder / name
    if not (path / "store.json").exists():
        splits = (SETS[name][1],) if name in SETS else ()
        prepare("interchange", DATA / f"{name}.npz", path, normalisation=NORMALISATION, splits=splits, progress=False)
    return open_store(path)


def pooled_store(folder: Path) -> Store:
    """All four sets in one store; both its splits leave out of training what the sets test or validate on."""
    path = folder / "pooled"
    if not (path / "store.json").exists():
        names = [*SETS, UNLABELLED]
        stores = [prepared_store(name, folder) for name in names]
        pooled = merge([store.path for store in stores], path, progress=False)
        everywhere = [f"{UNLABELLED}/{clip}" for clip in stores[-1].names]
        for number, split in enumerate(POOLED):
            parts: list[list[str]] = [everywhere.copy(), []]
            for name, store in zip(SETS, stores):
                for part, clips in zip(parts, store.split(_split(name, validation=bool(number)))):
                    part += [f"{name}/{store.names[clip]}" for clip in clips]
            add_split(pooled.path, Split(split, "name", tuple(parts[0]), tuple(parts[1])))
    return open_store(path)


def _split(name: str, *, validation: bool) -> str:
    test, other = SETS[name]
    return other.name if validation else test


def sources(alone: bool, validation: bool, folder: Path) -> Iterator[tuple[DataSource, str, list[str]]]:
    """What is trained on: a store, its split, and the sets that the encoder is for."""
    if not alone:
        yield DataSource("pooled", pooled_store(folder)), POOLED[validation], list(SETS)
        return
    for name in SETS:
        yield DataSource(name, prepared_store(name, folder)), _split(name, validation=validation), [name]


def measure(
    experiment: Experiment,
    seeds: Sequence[int],
    settings: Sequence[str],
    folder: Path,
    *,
    alone: bool,
    validation: bool,
) -> dict[str, Accuracies]:
    """Train what is missing and read the accuracies of every set."""
    sweep = SweepRunner(folder)
    found: dict[str, Accuracies] = {name: {} for name in SETS}
    for source, split, targets in sources(alone, validation, folder.parent / "stores"):
        table = PaperTable("real-data", "", "", "", (TableColumn("", protocol="knn"),), experiment.rows)
        plan = make_schedule(table, SCALES["small"], [source], splits=[split], seeds=seeds, settings=settings)
        sweep.train(plan.jobs.values())
        for name in targets:
            store = prepared_store(name, folder.parent / "stores")
            for cell in plan.cells:
                row = found[name].setdefault(cell.row.name, {})
                for one in experiment.measures:
                    value = accuracy(sweep, cell, store, _split(name, validation=validation), one)
                    if value is not None:
                        row.setdefault(one.name, []).append(value)
    return found


def accuracy(sweep: SweepRunner, cell: Cell, store: Store, split: str, how: Measure) -> float | None:
    """Accuracy of one encoder, from its file or measured now; None where it means nothing."""
    run = sweep.run_of(SCALES["small"], cell)
    if run is None:
        encoder: Any = RawCoordinates(store.topology, persons=store.persons)
        home = sweep.folder / "raw" / store.path.name
    else:
        members = {stream: run.encoder(stream, trained=cell.row.trained) for stream in run.recipe.streams}
        encoder, home = EncoderGroup(members) if how.fused else members["joint"], run.path
    settings = settings_for(encoder, how.protocol, {how.protocol: dict(how.settings)})
    if settings is None:
        return None
    return evaluate_cached(
        RunFolder(home), encoder, store, how.protocol, split, seeds=[cell.seed], settings=settings, progress=False
    ).accuracy


def averaged(sets: Sets, row: str, column: str) -> list[float]:
    """Mean over the sets, one a seed."""
    return [float(value) for value in np.mean([accuracies[row][column] for accuracies in sets.values()], axis=0)]


def differences(sets: Sets, ours: str, theirs: str) -> dict[str, dict[str, Difference]]:
    """Ours − theirs by set and measure, paired by seed; `all sets` pairs the means over the sets."""
    measures = list(next(iter(sets.values()))[ours])
    result = {
        name: {one: paired_difference(accuracies[ours][one], accuracies[theirs][one]) for one in measures}
        for name, accuracies in sets.items()
    }
    result["all sets"] = {
        one: paired_difference(averaged(sets, ours, one), averaged(sets, theirs, one)) for one in measures
    }
    return result


def markdown(sets: Sets, pairs: Sequence[tuple[str, str]], command: str) -> str:
    """A table a measure, with paired differences and their 95 % intervals."""
    gaps = {pair: differences(sets, *pair) for pair in pairs}
    lines = ["# Public Kinect sets", "", "Top-1 in per cent, mean ± standard deviation over the seeds.", ""]
    for one in next(iter(gaps.values()))["all sets"]:
        rows = [row for row, accuracies in next(iter(sets.values())).items() if one in accuracies]
        titles = [*rows, *(f"{ours} − {theirs}, 95 % interval" for ours, theirs in pairs)]
        lines += [f"## {one}", "", f"| set | {' | '.join(titles)} |", "| --- |" + " --- |" * len(titles)]
        for name, accuracies in sets.items():
            cells = [_shown(accuracies[row][one]) for row in rows] + [str(gaps[pair][name][one]) for pair in pairs]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        cells = [_shown(averaged(sets, row, one)) for row in rows] + [
            str(gaps[pair]["all sets"][one]) for pair in pairs
        ]
        lines += [f"| mean of the sets | {' | '.join(cells)} |", ""]
    return "\n".join([*lines, f"`{command}`", ""])


def _shown(values: Sequence[float]) -> str:
    # raw coordinates do not depend on a seed
    values = values[:1] if len(set(values)) == 1 else values
    mean, std = mean_and_std(values)
    return f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"


def write(sets: Sets, experiment: Experiment, path: Path, facts: Mapping[str, Any], command: str) -> None:
    """The accuracies as JSON, and as Markdown beside it."""
    gaps = {
        f"{ours} − {theirs}": {
            name: {one: dataclasses.asdict(gap) for one, gap in entry.items()}
            for name, entry in differences(sets, ours, theirs).items()
        }
        for ours, theirs in experiment.pairs
    }
    data = {**facts, "command": command, "versions": versions(), "figures": sets, "differences": gaps}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(markdown(sets, experiment.pairs, command), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Measure, or select; exit code 3 where it was stopped and can be gone on with."""
    parser = argparse.ArgumentParser(description="MoCo and HaLP on public Kinect sets.")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=list(range(5)), help="HaLP and MoCo share their warm-up"
    )
    parser.add_argument("--streams", action="store_true", help="three streams, with CMD and HaLP + CMD")
    parser.add_argument("--alone", action="store_true", help="train on each set by itself, not on all together")
    parser.add_argument("--select", nargs="*", choices=list(CANDIDATES), help="compare candidates on validation splits")
    parser.add_argument("--train-only", action="store_true", help="write no table: another process has the other seeds")
    parser.add_argument("--out", type=Path, default=Path("runs/real_data"), help="where stores and runs go")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # a core a process: others may train other seeds
    command = " ".join(["python -m benchmarks.real_data", *arguments])
    experiment = STREAMS if options.streams else SELECTION if options.select is not None else SINGLE
    suffix = "_alone" if options.alone else ""
    try:
        for candidate in [None] if options.select is None else options.select or CANDIDATES:
            settings = [*experiment.settings, *(CANDIDATES[candidate] if candidate else ())]
            how = {"alone": options.alone, "validation": candidate is not None}
            folder = options.out / f"{candidate or 'measured'}{suffix}"
            sets = measure(experiment, options.seeds, settings, folder, **how)
            Console().print(f"{candidate or ''}\n{markdown(sets, experiment.pairs, command)}")
            if not options.train_only:
                name = f"{experiment.name}{suffix}" if candidate is None else f"real_data_selection/{candidate}{suffix}"
                facts = {"seeds": options.seeds, "settings": settings, "normalisation": list(NORMALISATION)}
                write(sets, experiment, RESULTS / f"{name}.json", facts, command)
    except InputError as error:
        Console(stderr=True).print(f"{error}")
        return 2
    except Interrupted as stop:
        Console(stderr=True).print(f"{stop}; the same command goes on")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
