"""`python -m experiments.two_persons`: how the features of two persons are joined.

No set of interactions is at hand, so clips of two people are put together: 40 pairs of actions, eight times
each, from the first folds of the training parts of UTD-MHAD and MSR-Action3D, three draws. `halp-base` encodes
persons alone and takes the larger of two numbers; compared are the mean, the maximum and the minimum (or the
mean) beside each other, and the mean beside the difference, each before the invariance. kNN (k = 1), one label
per pair (20 draws), ridge with all labels. Writes `results/two_persons.json`; a stopped command
resumes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from experiments.few_labels import PlainProbe
from experiments.files import kept_arrays, save_results
from experiments.training_pays import Task, open_stores, open_tasks
from halp.evaluation.protocols.ridge import choose_ridge_penalty, fit_ridge, group_folds
from halp.evaluation.results import versions
from halp.features.embed import embed
from halp.features.loading import load_encoder

Array = npt.NDArray[Any]
Join = Callable[[Array, Array], Array]
SETS, PAIRS, TIMES, SEEDS, DRAWS = ("utd-mhad", "msr-action3d"), 40, 8, 3, 20
MEASURES = ("knn", "1 label", "ridge")


def joins(invariance: torch.nn.Module) -> dict[str, Join]:
    """Ways to make one vector of two."""

    def shrunk(rows: Array) -> Array:
        return np.asarray(invariance(torch.from_numpy(rows)).numpy())

    def beside(*parts: Array) -> Array:
        return np.concatenate([shrunk(part) for part in parts], axis=1)

    return {
        "maximum": lambda a, b: shrunk(np.maximum(a, b)),
        "mean": lambda a, b: shrunk((a + b) / 2),
        "maximum and mean": lambda a, b: beside(np.maximum(a, b), (a + b) / 2),
        "maximum and minimum": lambda a, b: beside(np.maximum(a, b), np.minimum(a, b)),
        "mean and difference": lambda a, b: np.hstack(
            [shrunk((a + b) / 2), np.abs(shrunk(a) - shrunk(b)) / 2]
        ),
    }


def together(
    labels: Array, part: Array, pairs: Array, draw: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Clips of the first and of the second person, in either order, and which pair of actions they show."""
    rows = [
        draw.permutation([draw.choice(part[labels[part] == action]) for action in pair])
        for pair in pairs
        for _ in range(TIMES)
    ]
    first, second = np.transpose(rows)
    return first, second, np.repeat(np.arange(len(pairs)), TIMES)


def measure(own: Array, mine: Array, other: Array, wanted: Array) -> dict[str, float]:
    """Accuracies in per cent."""
    mean, scale = own.mean(0), own.std(0).clip(1e-6)
    parts = [(part - mean) / scale for part in (own, other)]
    probe = PlainProbe(*(part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts))
    one = []
    for draw in range(DRAWS):
        order = np.random.default_rng(draw).permutation(len(mine))
        places = np.concatenate([order[mine[order] == pair][:1] for pair in range(PAIRS)])
        one.append((probe.scores(places, mine[places]).argmax(1) == wanted).mean())
    penalty, _ = choose_ridge_penalty(own, mine, group_folds(np.arange(len(mine)) % TIMES, 4), PAIRS)
    ridge = (fit_ridge(own, mine, penalty, PAIRS).predict(other) == wanted).mean()
    knn = (mine[probe.across.argmax(1)] == wanted).mean()
    return {name: 100 * float(value) for name, value in zip(MEASURES, (knn, np.mean(one), ridge))}


def one_draw(
    task: Task, encoder: Any, store: Any, ways: dict[str, Join], seed: int, out: Path
) -> dict[str, float]:
    """Accuracies by way and measure, of one draw of pairs."""
    path, (train, test) = out / f"{task.name}-vectors.npz", task.parts[0]
    vectors = kept_arrays(path, lambda: {"all": embed(encoder, store, progress=False)})["all"]
    classes, draw = np.intersect1d(task.labels[train], task.labels[test]), np.random.default_rng(seed)
    every = np.transpose(np.triu_indices(len(classes), 1))
    pairs = classes[every[draw.permutation(len(every))[:PAIRS]]]
    sides = [together(task.labels, part, pairs, draw) for part in (train, test)]
    found = {}
    for name, join in ways.items():
        (own, mine), (other, wanted) = [(join(vectors[a], vectors[b]), y) for a, b, y in sides]
        found |= {f"{name}: {key}": value for key, value in measure(own, mine, other, wanted).items()}
    return found


def main(arguments: Sequence[str]) -> int:
    """Encode, join, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/two-persons"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    encoder = load_encoder("halp-base")
    encoder.persons = 1
    ways, encoder.encoder.invariance = joins(encoder.encoder.invariance), torch.nn.Identity()
    stores, found = open_stores(options.out, None), {}
    for task in open_tasks(stores, True):
        if task.name not in SETS:
            continue
        for seed in range(SEEDS):
            make = partial(one_draw, task, encoder, stores[task.store], ways, seed, options.out)
            for key, value in kept_arrays(options.out / f"{task.name}-{seed}.npz", make).items():
                name, _, measured = key.partition(": ")
                place = found.setdefault(name, {}).setdefault(measured, {})
                place.setdefault(task.name, []).append(round(float(value), 4))
        print(
            task.name,
            {n: {m: np.mean(v[task.name]) for m, v in row.items()} for n, row in found.items()},
            flush=True,
        )
    data = {"command": "python -m experiments.two_persons", "seeds": SEEDS, "versions": versions()}
    save_results("two_persons", data | {"accuracy": found})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
