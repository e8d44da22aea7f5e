"""`python -m experiments.few_labels [--ntu RAW]`: few labels, plain and with the training clips that have
none.

The four Kinect sets of `experiments.transfer` and, with RAW (a folder of NTU-60 files, ten classes here),
NTU-10 by both splits. 1, 3, 5 and 10 labelled clips per class, 20 draws for each seed. Rows: raw coordinates
(one scale), MiniRocket, the untrained twin of `halp-base` (three seeds) and `halp-base`. `plain` is one probe
for all: features standardised on the training clips, ridge on unit vectors of the labelled clips. Its penalty
is tuned for every row and number of labels alike, by the mean accuracy on folds of the training parts of the four
Kinect sets. `adapted` is `halp.tasks.adapt` with the other training clips as clips without labels: the method that
`halp classify fit` would take (by cross-validation where the labels allow it). Intervals are
hierarchical: seeds, label draws, test people. `--validate` measures on folds of the training parts. What was
measured is kept in `--out`. Writes `results/few_labels.json` and `.md`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from threadpoolctl import threadpool_limits

from experiments.files import save_results
from experiments.hierarchical import hierarchical_interval, interval, resampled_means
from experiments.training_pays import Task, open_stores, open_tasks
from experiments.transfer import UNIT_PENALTY, _rocket, _twin
from halp.evaluation import RawCoordinates, embed
from halp.evaluation.results import versions
from halp.features.loading import load_encoder
from halp.tasks.adapt import Neighbourhood
from halp.tasks.classifier import PLAIN, choose, fit_classifier
from halp.tasks.heads import column_scale, unit

Array = npt.NDArray[Any]
SHOTS = (1, 3, 5, 10)
DRAWS, SEEDS, POOL = 20, 3, 3000
PENALTIES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
TUNING = (3, 10)  # folds and draws of labels that choose a penalty
MEAN = "mean of four"  # of the Kinect sets; NTU-10 took no part in any choice
RAW, ROCKET, TWIN, OURS = "raw coordinates", "MiniRocket", "untrained twin", "halp-base"
ROWS = (
    (RAW, "plain"),
    (ROCKET, "plain"),
    (TWIN, "plain"),
    (TWIN, "adapted"),
    (OURS, "plain"),
    (OURS, "adapted"),
)
GAPS = (
    ((OURS, "adapted"), (OURS, "plain")),
    ((TWIN, "adapted"), (TWIN, "plain")),
    ((OURS, "plain"), (TWIN, "plain")),
    ((OURS, "plain"), (ROCKET, "plain")),
    ((OURS, "plain"), (RAW, "plain")),
)


def encode(task: Task, store: Any, encoder: str, seed: int, train: Array, path: Path) -> Array:
    """Features of all clips of a set, kept in a file; nothing but training clips without labels is fitted
    to.
    """
    if not path.exists():
        inner = SimpleNamespace(stores={"body-16": store})
        fitted = np.sort(np.random.default_rng(0).permutation(train)[:2000])
        makers: dict[str, Callable[[], Array]] = {
            RAW: lambda: embed(RawCoordinates(store.topology, persons=1), store, progress=False),
            ROCKET: lambda: _rocket(True, 64, seed).features(inner, fitted),  # type: ignore[arg-type]
            TWIN: lambda: _twin("halp-base", seed).features(inner, fitted),  # type: ignore[arg-type]
            OURS: lambda: embed(_alone("halp-base"), store, progress=False),
        }
        np.save(path, makers[encoder]())
    return np.load(path)


def _alone(name: str) -> Any:
    encoder = load_encoder(name)
    encoder.persons = 1  # these sets show one person
    return encoder


class PlainProbe:
    """Ridge on unit vectors of the pool and of test clips: products once, little per draw of labels."""

    def __init__(self, own: Array, other: Array) -> None:
        self.among, self.across = own @ own.T, other @ own.T

    @classmethod
    def standardised(cls, vectors: Array, pool: Array, test: Array, one_scale: bool = False) -> PlainProbe:
        """Of vectors that are standardised on the pool."""
        mean, scale = vectors[pool].mean(0), column_scale(vectors[pool], one_scale)
        return cls(*(unit((vectors[part] - mean) / scale) for part in (pool, test)))

    def scores(self, places: Array, labels: Array, penalty: float = UNIT_PENALTY) -> Array:
        """Scores `(test, C)` from labelled places of the pool."""
        wanted = np.eye(int(labels.max()) + 1)[labels]
        gram = self.among[np.ix_(places, places)] + penalty * np.eye(len(places))
        return np.asarray(self.across[:, places] @ np.linalg.solve(gram, wanted - wanted.mean(0)))


class Measurement:
    """One set, one encoder, one seed: which test clips are right, by way, shots and draw."""

    def __init__(
        self,
        task: Task,
        vectors: Array,
        train: Array,
        test: Array,
        seed: int,
        encoder: str,
        penalties: Mapping[int, float],
    ) -> None:
        self.vectors, self.test, self.seed, self.encoder = (
            np.asarray(vectors, np.float32),
            test,
            seed,
            encoder,
        )
        self.penalties = penalties
        order = np.random.default_rng(seed).permutation(train)
        self.pool = np.sort(order[:POOL])
        self.labels, self.groups = np.asarray(task.labels), np.asarray(task.groups)
        self.classes = int(self.labels.max()) + 1
        self.near: Neighbourhood | None = None
        self.probe: PlainProbe | None = None
        self.chosen: dict[str, int] = {}

    def draw(self, shots: int, number: int) -> Array:
        """Places in the pool of so many clips per class."""
        order = np.random.default_rng([self.seed, number]).permutation(len(self.pool))
        labels = self.labels[self.pool][order]
        return np.concatenate([order[labels == label][:shots] for label in np.unique(labels)])

    def right(self, way: str, shots: int, number: int) -> Array:
        """Which test clips are right `(N,)`."""
        places = self.draw(shots, number)
        rows = self.pool[places]
        if way == "plain":
            self.probe = self.probe or PlainProbe.standardised(
                self.vectors, self.pool, self.test, self.encoder == RAW
            )
            return np.asarray(
                self.probe.scores(places, self.labels[rows], self.penalties[shots]).argmax(1)
                == self.labels[self.test]
            )
        there, labels = np.unique(self.labels[rows], return_inverse=True)
        names = [str(label) for label in there]
        groups = np.arange(len(rows))
        near = None
        if way == "adapted":
            if self.near is None:
                vectors = self.vectors[self.pool]
                self.near = Neighbourhood.of(vectors[:0], vectors, most=POOL)
            near = self.near
        choice = choose(
            self.vectors[rows], labels, len(there), groups, "auto", self.seed, neighbourhood=near, rows=places
        )
        self.chosen[f"{shots}: {choice.method}"] = self.chosen.get(f"{shots}: {choice.method}", 0) + 1
        if near is not None and choice.method != PLAIN:
            head = near.head(choice.method, places, labels, len(there))
            best = head.logits(self.vectors[self.test]).argmax(1)
        else:
            fitted = fit_classifier(
                self.vectors[rows], labels, names, units=groups, kind=choice.candidate.kind
            )
            best = fitted.predict(self.vectors[self.test]).best
        return np.asarray(there[best] == self.labels[self.test])


def tuned(stores: Mapping[str, Any], encoder: str, folder: Path) -> dict[int, float]:
    """The penalty of the plain probe by number of labels: best in the mean of the folds of the Kinect sets'
    training parts.
    """
    path = folder / f"penalties-{encoder.replace(' ', '_')}.json"
    if not path.exists():
        right: dict[tuple[int, float], list[float]] = {}
        whole = {task.name: task.parts[0][0] for task in open_tasks(stores, False)}
        for task in (task for task in open_tasks(stores, True) if is_kinect(task.name)):
            vectors = encode(
                task, stores[task.store], encoder, 0, whole[task.name], kept(folder, encoder, task)
            )
            for train, test in task.parts[: TUNING[0]]:
                one = Measurement(task, vectors, train, test, 0, encoder, {})
                for shots, penalty in itertools.product(SHOTS, PENALTIES):
                    one.penalties = {shots: penalty}
                    draws = [one.right("plain", shots, draw).mean() for draw in range(TUNING[1])]
                    right.setdefault((shots, penalty), []).append(float(np.mean(draws)))
        best = {shots: max(PENALTIES, key=lambda penalty: np.mean(right[shots, penalty])) for shots in SHOTS}
        path.write_text(json.dumps(best))
    return {int(shots): penalty for shots, penalty in json.loads(path.read_text()).items()}


def kept(folder: Path, encoder: str, task: Task, seed: int = 0, tag: str = "test0") -> Path:
    """The file of the features of a set."""
    return folder / f"features-{encoder}-{task.name}-{tag}-{seed}.npy".replace(" ", "_")


def measure(
    task: Task,
    store: Any,
    row: tuple[str, str],
    penalties: Mapping[int, float],
    folder: Path,
    tag: str,
    part: int = 0,
) -> dict[str, Array]:
    """Right answers `(seeds, draws, clips)` by shots, and what was chosen how often; from a file where it was
    measured before.
    """
    encoder, way = row
    name = f"{encoder}-{way}-{task.name}-{tag}{part}".replace(" ", "_")
    path = folder / f"{name}.npz"
    if not path.exists():
        train, test = task.parts[part]
        found: dict[int, list[Array]] = {}
        chosen: dict[str, int] = {}
        own = SEEDS if encoder in (TWIN, OURS) and way == "plain" else 1
        for seed in range(own):
            file = kept(folder, encoder, task, seed if encoder != OURS else 0, f"{tag}{part}")
            vectors = encode(task, store, encoder, seed, train, file)
            one = Measurement(task, vectors, train, test, seed, encoder, penalties)
            for shots in SHOTS:
                found.setdefault(shots, []).append(
                    np.stack([one.right(way, shots, draw) for draw in range(DRAWS)])
                )
            chosen |= {key: chosen.get(key, 0) + count for key, count in one.chosen.items()}
        words = [f"{key} {count}" for key, count in chosen.items()]
        arrays = {str(shots): np.stack(values) for shots, values in found.items()}
        np.savez_compressed(path, chosen=np.array(words, dtype=str), **arrays)  # type: ignore[arg-type]
    with np.load(path, allow_pickle=False) as cell:
        return dict(cell)


def is_kinect(task: str) -> bool:
    """Whether a task is one of the four Kinect sets, and not NTU-10."""
    return not task.startswith("ntu-10")


def gap(found: Any, people: dict[str, Array], ours: Any, other: Any, shots: int) -> dict[str, Any]:
    """Difference per set and in the mean of the Kinect sets, with hierarchical intervals, in points."""
    result: dict[str, Any] = {}
    together: list[Array] = []
    means: list[float] = []
    for name, tested in people.items():
        first, second = found[ours][name][str(shots)], found[other][name][str(shots)]
        seeds = min(len(first), len(second))
        values = 100.0 * first[:seeds] - 100.0 * second[:seeds]
        result[name] = hierarchical_interval(values, tested).to_json()
        if is_kinect(name):
            together.append(resampled_means(values, tested, seed=len(together)))
            means.append(float(values.mean()))
    result[MEAN] = interval(float(np.mean(means)), np.mean(together, axis=0)).to_json()
    return result


def markdown(result: Any, tasks: Sequence[str]) -> str:
    """Accuracies and differences, a table per number of labels."""
    lines = ["# Few labels, plain and adapted", "", "Top-1 in per cent; differences with 95 % intervals.", ""]
    for shots in SHOTS:
        lines += [
            f"## {shots} labels per class",
            "",
            f"| | {' | '.join(tasks)} | {MEAN} |",
            "| --- |" + " --- |" * (len(tasks) + 1),
        ]
        for name, row in result["accuracy"].items():
            lines.append(
                f"| {name} | {' | '.join(f'{row[str(shots)][task]:.1f}' for task in [*tasks, MEAN])} |"
            )
        for name, row in result["differences"].items():
            cells = ["{:+.1f} ({:+.1f} to {:+.1f})".format(*row[str(shots)][task]) for task in [*tasks, MEAN]]
            lines.append(
                f"| {name} | {' | '.join(cells)} |".replace("-", "−").replace("halp−base", "halp-base")
            )
        lines.append("")
    return "\n".join([*lines, f"`{result['command']}`", ""])


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ntu", type=Path, help="folder of NTU-60 files")
    parser.add_argument("--validate", action="store_true", help="the first fold of each training part")
    parser.add_argument("--out", type=Path, default=Path("runs/few_labels"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(stderr=True)
    options.out.mkdir(parents=True, exist_ok=True)
    stores = open_stores(options.out, options.ntu)
    tasks = open_tasks(stores, options.validate)
    found: dict[Any, dict[str, dict[str, Array]]] = {}
    with threadpool_limits(1):
        penalties = {encoder: tuned(stores, encoder, options.out) for encoder, _ in ROWS}
        for row in sorted(ROWS, key=lambda row: (row[0] == TWIN, row[0] != OURS)):  # the slowest last
            for task in tasks:
                tag = "fold" if options.validate else "test"
                cell = measure(task, stores[task.store], row, penalties[row[0]], options.out, tag)
                found.setdefault(row, {})[task.name] = cell
                console.print(
                    *row,
                    task.name,
                    {s: round(100 * float(cell[str(s)].mean()), 1) for s in SHOTS},
                    cell["chosen"],
                )
    people = {task.name: np.asarray(stores[task.store].subjects)[task.parts[0][1]] for task in tasks}
    names = [task.name for task in tasks]
    accuracy: dict[str, Any] = {}
    for row, cells in ((row, found[row]) for row in ROWS):
        for shots in SHOTS:
            values = {name: round(100 * float(cells[name][str(shots)].mean()), 4) for name in names}
            accuracy.setdefault(", ".join(row), {})[str(shots)] = values | {
                MEAN: round(float(np.mean([values[name] for name in names if is_kinect(name)])), 4)
            }
    gaps = {
        f"{', '.join(a)} − {', '.join(b)}": {str(shots): gap(found, people, a, b, shots) for shots in SHOTS}
        for a, b in GAPS
    }
    chosen = {name: found[OURS, "adapted"][name]["chosen"].tolist() for name in names}
    command = (
        "python -m"
        f" experiments.few_labels{' --ntu RAW' if options.ntu else ''}{' --validate' * options.validate}"
    )
    result = {
        "command": command,
        "draws": DRAWS,
        "seeds": SEEDS,
        "versions": versions(),
        "penalties": penalties,
        "accuracy": accuracy,
    }
    result |= {"differences": gaps, "chosen": chosen}
    text = markdown(result, names)
    print(text)
    if not options.validate:
        save_results("few_labels", result, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
