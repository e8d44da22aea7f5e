"""`python -m experiments.training_pays CMU --ntu RAW`: what `halp-base` owes to its training, on sets that it
never saw.

CMU is the store of `tools.encoders.corpus`, RAW a folder of NTU-60 files (ten classes here). Frozen encoders
on NW-UCLA, UTD-MHAD, MSR-Action3D, UTKinect (the first of its half splits) and NTU-10 (x-sub, x-view): kNN
(k = 1), one and five labelled clips per class (ridge, 20 draws for each of three seeds), all on unit vectors
of features standardised on the training clips, without labels; ridge with all labels, its penalty chosen by folds over
subjects or cameras of the training part. Compared are

- raw coordinates;
- `untrained`: the architecture with a fresh GRU and no invariance, scales fitted to CMU windows, three seeds;
- `untrained, invariance fitted`: the same with what `halp-base` fits in closed form;
- `without invariance`: the trained GRU and the kernels alone;
- `large directions shrunk, no views`: the same, shrunk along the directions in which clean CMU windows differ
  most, in the same closed form: what the invariance would be without any view;
- `halp-base`;
- `three real cameras`: features without invariance, shrunk along what differs between the three Kinects that
  saw one performance of NTU-10, instead of invented views of motion capture; on the other sets;
- `labels of the other sets`: features without invariance, shrunk along what differs within the classes of the
  *other* sets, (S + floor)^(−1/2): what a linear map can learn from all the labels there are. It is a
  ceiling, not an encoder.

Differences to `untrained`, paired by label draw, have 95 % hierarchical intervals over its seeds, label draws and
test people (of NTU-10 x-view too); those of the mean take the sets as they are.
`--validate` measures on folds of the training parts instead. What was encoded is kept in `--out`. Writes
`results/training_pays.json` and `.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from experiments.files import DATA, kept_arrays, save_results
from experiments.hierarchical import hierarchical_interval, interval, resampled_means
from experiments.transfer import LAYOUTS, SETS, few_right, parts_of, standardised
from halp.core.errors import InputError
from halp.data.ingest.prepare import prepare
from halp.data.store import Store, open_store
from halp.encoders.kernel_fusion import Invariance
from halp.evaluation import RawCoordinates, embed
from halp.evaluation.protocols.knn import knn_predict
from halp.evaluation.protocols.ridge import choose_ridge_penalty, fit_ridge, group_folds
from halp.evaluation.results import versions
from halp.features.loading import load_encoder
from halp.skeleton import get_topology
from tools.encoders.halp_base import FLOOR, fit_views
from tools.encoders.kinect_views import plain_base, untrained

Array = npt.NDArray[Any]
MEASURES = ("knn", "1 label", "5 labels", "ridge")
TWIN, FITTED_TWIN, PLAIN, OURS = (
    "untrained",
    "untrained, invariance fitted",
    "without invariance",
    "halp-base",
)
CONTROL = "large directions shrunk, no views"
RAW, CEILING = "raw coordinates", "labels of the other sets"
CAMERAS = "three real cameras"
SEEDS, DRAWS = 3, 20
FOLDS = 5
FLOORS = (0.1, 0.5)  # of the mean eigenvalue, of the ceiling; the better one counts
NTU_FOLD = (2000, 700)  # clips drawn of each side where NTU-10 is validated


@dataclass(frozen=True)
class Task:
    """A split of a set: which store, labels, what folds go by, and pairs of training and test clips."""

    name: str
    store: str
    labels: Array
    groups: Array
    parts: list[tuple[Array, Array]]


def open_stores(folder: Path, ntu: Path | None) -> dict[str, Store]:
    """The sets as `halp-base` wants them, prepared once."""
    topology, steps = LAYOUTS["body-16"]
    sources = {name: ("interchange", DATA / f"{name}.npz") for name in SETS}
    if ntu:
        sources["ntu-10"] = ("ntu", ntu)
    stores = {}
    for name, (kind, source) in sources.items():
        path = folder / f"{name}-store"
        if not (path / "store.json").exists():
            prepare(kind, source, path, topology=topology, normalisation=steps)
        stores[name] = open_store(path)
    return stores


def open_tasks(stores: Mapping[str, Store], validate: bool) -> list[Task]:
    """The splits, or folds of their training parts."""
    tasks = []
    for name, store in stores.items():
        splits = {name: next(parts_of(name, store))} if name in SETS else {}
        splits |= {f"{name} {split}": store.split(split) for split in ("xsub", "xview") if name not in SETS}
        for label, (train, test) in splits.items():
            groups = store.cameras if name == "nw-ucla" or label.endswith("xview") else store.subjects
            parts = [(train, test)]
            if validate:
                parts = [(train[fit], train[held]) for fit, held in group_folds(groups[train], FOLDS)]
                if name not in SETS:
                    draw = np.random.default_rng(0)
                    parts = [
                        tuple(draw.permutation(side)[:most] for side, most in zip(p, NTU_FOLD))
                        for p in parts[:2]
                    ]  # type: ignore[misc]
            tasks.append(Task(label, name, np.asarray(store.labels), np.asarray(groups), parts))
    return tasks


def encoders(cmu: Store) -> dict[str, Any]:
    """Makers of the encoders that are compared, by the name of their file."""

    def twin(seed: int, fitted: bool) -> Any:
        encoder = untrained(seed, cmu)
        if fitted:
            shape = load_encoder("halp-base").encoder.invariance.directions.shape
            encoder.encoder.invariance = Invariance(*shape)
            fit_views(encoder.encoder, cmu, encoder.frames)
        return encoder.eval()

    def control() -> Any:
        encoder = plain_base()
        windows = embed(encoder, cmu, progress=False)[cmu.split("xsub")[0]]
        invariance = Invariance(*load_encoder("halp-base").encoder.invariance.directions.shape)
        invariance.fit(torch.from_numpy(windows)[:, None], FLOOR)  # as if all windows were views of one clip
        encoder.encoder.invariance = invariance
        return encoder.eval()

    found: dict[str, Any] = {
        RAW: lambda: RawCoordinates(get_topology("body-16"), persons=1),
        PLAIN: plain_base,
        OURS: lambda: load_encoder("halp-base"),
        CONTROL: control,
    }
    for seed in range(SEEDS):
        found[f"{TWIN}, seed {seed}"] = lambda seed=seed: twin(seed, False)
        found[f"{FITTED_TWIN}, seed {seed}"] = lambda seed=seed: twin(seed, True)
    return found


def encode(
    stores: Mapping[str, Store], makers: Mapping[str, Any], folder: Path
) -> dict[str, dict[str, Array]]:
    """Features by method and set, kept in files."""
    found: dict[str, dict[str, Array]] = {}
    for method, maker in makers.items():
        encoder = None
        for name, store in stores.items():
            path = folder / f"{method}-{name}.npy".replace(" ", "_")
            if not path.exists():
                encoder = encoder or maker()
                encoder.persons = 1
                np.save(path, embed(encoder, store, progress=False))
            found.setdefault(method, {})[name] = np.load(path)
    return found


def within_classes(features: Array, labels: Array) -> Array:
    """The covariance of features within classes."""
    centred = features.copy()
    for label in np.unique(labels):
        centred[labels == label] -= centred[labels == label].mean(0)
    return np.asarray(centred.T @ centred / len(centred))


def ceilings(
    features: Mapping[str, Array], stores: Mapping[str, Store], console: Console
) -> dict[str, dict[str, Array]]:
    """Features shrunk along what differs within the classes of all other sets, by floor and set."""
    spreads = {
        name: within_classes(features[name], np.asarray(store.labels)) for name, store in stores.items()
    }
    found: dict[str, dict[str, Array]] = {}
    for left in stores:
        mean = sum(spread for name, spread in spreads.items() if name != left) / (len(spreads) - 1)
        values, axes = (part.numpy() for part in torch.linalg.eigh(torch.from_numpy(mean)))
        values = values.clip(0) / values.mean()
        for floor in FLOORS:
            turned = (features[left] @ axes) * (values + floor) ** -0.5
            found.setdefault(f"{CEILING}, floor {floor}", {})[left] = turned @ axes.T
        console.print(f"{CEILING}: {left}")
    return found


def real_views(features: Mapping[str, Array], ntu: Store) -> dict[str, Array]:
    """Features of the other sets, shrunk along what differs between the cameras that saw one performance of
    NTU.
    """
    seen: dict[tuple[str, str], list[int]] = {}
    for row, name in enumerate(ntu.names):
        seen.setdefault((name[:4], name[8:]), []).append(row)  # all of S001C001P001R001A001 but the camera
    rows = np.array([cameras for cameras in seen.values() if len(cameras) == 3]).T
    shape = load_encoder("halp-base").encoder.invariance.directions.shape
    invariance = Invariance(*shape)
    invariance.fit(torch.from_numpy(features["ntu-10"][rows]), FLOOR)
    return {name: invariance(torch.from_numpy(features[name])).numpy() for name in SETS}


def right(
    task: Task, features: Array, train: Array, test: Array, scale: str, seeds: Sequence[int]
) -> dict[str, Array]:
    """By measure, whether each test clip is classified rightly: `(seeds, draws, clips)`, 1 where nothing is
    drawn.
    """
    unit = standardised(features, train, scale)
    labels, wanted = task.labels[train], task.labels[test]
    found = {"knn": (knn_predict(unit[train], labels, unit[test]) == wanted)[None, None]}
    for shots, name in ((1, "1 label"), (5, "5 labels")):
        draws = [[(seed, draw) for draw in range(DRAWS)] for seed in seeds]
        found[name] = np.stack([few_right(unit, task.labels, train, test, shots, own) for own in draws])
    count = int(task.labels.max()) + 1
    folds = group_folds(task.groups[train], 3)
    penalty, _ = choose_ridge_penalty(features[train], labels, folds, count, scale=scale)
    guess = fit_ridge(features[train], labels, penalty, count, scale).predict(features[test])
    found["ridge"] = (guess == wanted)[None, None]
    return found


def measure(task: Task, features: Array, scale: str, seeds: Sequence[int]) -> dict[str, Array]:
    """The same over all parts, one after the other."""
    rows = [right(task, features, train, test, scale, seeds) for train, test in task.parts]
    return {name: np.concatenate([row[name] for row in rows], axis=-1) for name in MEASURES}


def measured(
    features: Mapping[str, Mapping[str, Array]],
    tasks: Sequence[Task],
    folder: Path,
    part: str,
    console: Console,
) -> dict[str, dict[str, dict[str, Array]]]:
    """Which test clips are classified rightly, by method, task and measure; an encoder of several seeds draws
    labels with its own.
    """
    cells: dict[str, dict[str, dict[str, Array]]] = {}
    for method, sets in features.items():
        for task in (task for task in tasks if task.store in sets):
            path = folder / f"{method}-{task.name}-{part}.npz".replace(" ", "_")
            scale = "one" if method == RAW else "each"
            seeds = [int(method.partition(", seed ")[2])] if ", seed " in method else range(SEEDS)
            cell = kept_arrays(path, lambda: measure(task, sets[task.store], scale, seeds))  # noqa: B023
            cells.setdefault(method, {})[task.name] = cell
            means = {name: round(100 * float(value.mean()), 1) for name, value in cell.items()}
            console.print(method, task.name, means)
    return cells


def merged(cells: Mapping[str, Mapping[str, Mapping[str, Array]]]) -> dict[str, dict[str, dict[str, Array]]]:
    """Seeds side by side; of the floors of the ceiling the better one by kNN and one label in the
    mean.
    """
    groups: dict[str, list[Any]] = {}
    for method, sets in cells.items():
        groups.setdefault(method.partition(", seed")[0].partition(", floor")[0], []).append(sets)
    found = {}
    for method, members in groups.items():
        if method == CEILING:
            members = [
                max(
                    members,
                    key=lambda sets: sum(s["knn"].mean() + s["1 label"].mean() for s in sets.values()),
                )
            ]
        found[method] = {
            task: {name: np.concatenate([sets[task][name] for sets in members]) for name in MEASURES}
            for task in members[0]
        }
    return found


def markdown(table: Mapping[str, Any], gaps: Mapping[str, Any], tasks: Sequence[str], command: str) -> str:
    """Accuracies and differences, a table per measure."""
    lines = ["# What training adds, on sets that the encoder never saw", "", "Top-1 in per cent.", ""]
    for name in MEASURES:
        lines += [
            f"## {name}",
            "",
            f"| | {' | '.join(tasks)} | mean |",
            "| --- |" + " --- |" * (len(tasks) + 1),
        ]
        for method, row in table.items():
            cells = [f"{row[task][name]:.1f}" if task in row else "" for task in [*tasks, "mean"]]
            lines.append(f"| {method} | {' | '.join(cells)} |")
        for method, row in gaps.items():
            cells = [
                "{:+.1f} ({:+.1f} to {:+.1f})".format(*row[task][name]).replace("-", "−")
                for task in [*tasks, "mean"]
            ]
            lines.append(f"| {method} less {TWIN} | {' | '.join(cells)} |".replace("-", "−"))
        lines.append("")
    return "\n".join([*lines, f"`{command}`", ""])


def gap(
    ours: Mapping[str, Mapping[str, Array]],
    twin: Mapping[str, Mapping[str, Array]],
    people: Mapping[str, Array],
    measures: Sequence[str] = MEASURES,
) -> dict[str, dict[str, list[float]]]:
    """Differences to the untrained twin in points, by task and in the mean, with their intervals."""
    found: dict[str, dict[str, list[float]]] = {}
    for name in measures:
        values = {task: 100.0 * ours[task][name] - 100.0 * twin[task][name] for task in people}
        for task, own in people.items():
            found.setdefault(task, {})[name] = hierarchical_interval(values[task], own).to_json()
        means = [
            resampled_means(values[task], own, seed=place) for place, (task, own) in enumerate(people.items())
        ]
        mean = float(np.mean([value.mean() for value in values.values()]))
        found.setdefault("mean", {})[name] = interval(mean, np.mean(means, axis=0)).to_json()
    return found


def main(arguments: Sequence[str]) -> int:
    """Encode, measure, write."""
    parser = argparse.ArgumentParser(
        description="What halp-base owes to its training, on sets that it never saw."
    )
    parser.add_argument("store", type=Path, help="made by tools/encoders/corpus.py")
    parser.add_argument("--ntu", type=Path, help="folder of NTU-60 files")
    parser.add_argument(
        "--validate", action="store_true", help="folds of the training parts only, printed as JSON"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/training_pays"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(stderr=True)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        cmu, stores = open_store(options.store), open_stores(options.out, options.ntu)
    except InputError as error:
        console.print(f"{error}; data is looked for in HALP_SHARED/data")
        return 2
    tasks = open_tasks(stores, options.validate)
    part = "folds" if options.validate else "test"
    features = encode(stores, encoders(cmu), options.out)
    cells = measured(features, tasks, options.out, part, console)
    more = ceilings(features[PLAIN], stores, console)  # slow, so after all others
    if options.ntu:
        more[CAMERAS] = real_views(features[PLAIN], stores["ntu-10"])
    cells |= measured(more, tasks, options.out, part, console)
    found = merged(cells)
    names = [task.name for task in tasks]
    table = {
        method: {
            task: {name: round(100 * float(row[name].mean()), 4) for name in MEASURES}
            for task, row in sets.items()
        }
        for method, sets in found.items()
    }
    for row in table.values():
        if len(row) == len(names):
            row["mean"] = {
                name: round(float(np.mean([row[task][name] for task in names])), 4) for name in MEASURES
            }
    if options.validate:
        print(json.dumps(table, indent=1))
        return 0
    people = {task.name: np.asarray(stores[task.store].subjects)[task.parts[0][1]] for task in tasks}
    gaps = {
        method: gap(found[method], found[TWIN], people) for method in (OURS, CONTROL, FITTED_TWIN, CEILING)
    }
    command = f"python -m experiments.training_pays CMU{' --ntu RAW' if options.ntu else ''}"
    text = markdown(table, gaps, names, command)
    print(text)
    data = {
        "command": command,
        "seeds": SEEDS,
        "versions": versions(),
        "accuracy": table,
        "differences": gaps,
    }
    save_results("training_pays", data, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
