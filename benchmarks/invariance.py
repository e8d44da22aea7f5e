"""`python -m benchmarks.invariance CMU [--ntu STORE]`: closed-form invariance on the features of `halp-base`.

CMU is the store of `benchmarks/corpus.py`. Several augmented views of training windows are encoded once; `fit_invariance`
gives a linear map. Its components, size and power are chosen by kNN on windows of held-out CMU subjects; the chosen map alone
then meets the test clips of the four Kinect sets and of NTU-10 (`--ntu`, prepared with the steps of `halp-base`; a draw of its
training and test clips), beside the same features as they are. Every trial goes to `results/invariance.json`.

Features are whitened by their covariance over all clips. What is left of the covariance between views of one clip has
eigenvalues from 0, a direction that no augmentation moves, to 1, one that tells augmentations apart and nothing else (the
linear case of CCA and VICReg). No gradient and no label: two eigenproblems, deterministic, and it cannot collapse.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor

from benchmarks.baselines import save_results
from benchmarks.transfer import FEW_PENALTY, open_tasks
from halp.augment import ClipPool, ViewMaker
from halp.data.store import Store, open_store
from halp.evaluation import embed
from halp.evaluation.protocols.knn import knn_predict
from halp.evaluation.protocols.ridge import choose_ridge_penalty, fit_ridge, group_folds
from halp.evaluation.results import versions
from halp.features.embed import encode_centres, source_pool
from halp.features.loading import load_encoder
from halp.features.source import open_source
from halp.training.recipe import load_recipe

Array = npt.NDArray[Any]
LABELLED = 600  # windows of each side that a map is chosen by
NTU_CLIPS = (1000, 500)  # training and test clips of each split
GRID = [(m, d, p) for m in (64, 128, 256, 512) for d in (64, 128, 256) for p in (0.0, 1.0, 2.0) if d <= m]
DRAWS = 5


@dataclass(frozen=True)
class InvariantProjection:
    """Features `(N, F)` → `(N, D)`, most invariant direction first; `moved` `(D,)` is the share that views change."""

    mean: Tensor
    matrix: Tensor
    moved: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        return (features - self.mean) @ self.matrix


@torch.no_grad()
def fit_invariance(views: Tensor, size: int = 256, *, components: int = 512, power: float = 1.0) -> InvariantProjection:
    """The map for features of several views of each clip, `(n, views, F)`.

    Parameters
    ----------
    views
        Features of at least two views of every clip.
    size
        How many numbers come out; at most `components`.
    components
        Principal components that are whitened; directions with less variance are noise and are dropped.
    power
        A direction counts by `(1 − moved) ** power`; 0 whitens only.
    """
    count, number, width = views.shape
    flat = views.reshape(-1, width).float()
    mean = flat.mean(0)
    centred = flat - mean
    variance, axes = torch.linalg.eigh(centred.T @ centred / len(centred))
    components = min(components, width, len(flat) - 1)
    variance, axes = variance.flip(0)[:components], axes.flip(1)[:, :components]
    whiten = axes / variance.clamp_min(1e-6 * variance[0]).sqrt()
    white = (centred @ whiten).view(count, number, components)
    within = (white - white.mean(1, keepdim=True)).flatten(0, 1)
    moved, turn = torch.linalg.eigh(within.T @ within / (count * (number - 1)))
    size = min(size, components)
    moved = moved[:size].clamp(0, 1)
    return InvariantProjection(mean, whiten @ turn[:, :size] * (1 - moved) ** power, moved)


@torch.inference_mode()
def encode_views(encoder: Any, store: Store, clips: Tensor, views: int, path: Path) -> Tensor:
    """Features `(n, views, F)` of augmented views as `halp-base` was trained with; kept in a file."""
    if not path.exists():
        settings = load_recipe("cmu-moco", [f"views.frames={encoder.frames}"]).views
        maker = ViewMaker(settings, {"view": None}, store.topology, ClipPool.from_store(store), 0)
        pieces = [
            torch.stack([encoder(maker.make(rows, view, batch)["view"]) for view in range(views)], dim=1)
            for batch, rows in enumerate(clips.split(128))
        ]
        np.save(path, torch.cat(pieces).numpy().astype(np.float16))
    return torch.from_numpy(np.load(path)).float()


def centres(encoder: Any, pool: ClipPool, clips: Array) -> Array:
    return np.concatenate(list(encode_centres(encoder, pool, torch.from_numpy(clips), progress=False)))


def unit(features: Array) -> Array:
    return features / np.linalg.norm(features, axis=1, keepdims=True).clip(1e-9)


def knn(features: Array, labels: Array, train: Array, test: Array) -> float:
    features = unit(features).astype(np.float32)
    return 100 * float((knn_predict(features[train], labels[train], features[test]) == labels[test]).mean())


def few(features: Array, labels: Array, train: Array, test: Array, shots: int, *, draws: int = DRAWS) -> float:
    """Mean over draws of so many labelled clips per class, ridge with a fixed penalty as in `transfer`."""
    classes, right = int(labels.max()) + 1, []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(train)
        rows = np.concatenate([order[labels[order] == label][:shots] for label in range(classes)])
        guess = fit_ridge(features[rows], labels[rows], FEW_PENALTY, classes).predict(features[test])
        right.append(100 * float((guess == labels[test]).mean()))
    return float(np.mean(right))


def probe(features: Array, labels: Array, groups: Array, parts: Sequence[tuple[Array, Array]]) -> dict[str, float]:
    """kNN, one and five labels per class, and ridge with a validated penalty: means over the parts."""
    figures: dict[str, list[float]] = {}
    for train, test in parts:
        figures.setdefault("knn", []).append(knn(features, labels, train, test))
        for shots in (1, 5):
            figures.setdefault(f"{shots} per class", []).append(few(features, labels, train, test, shots))
        classes = int(labels.max()) + 1
        penalty, _ = choose_ridge_penalty(features[train], labels[train], group_folds(groups[train], 5), classes)
        guess = fit_ridge(features[train], labels[train], penalty, classes).predict(features[test])
        figures.setdefault("ridge", []).append(100 * float((guess == labels[test]).mean()))
    return {name: round(float(np.mean(values)), 2) for name, values in figures.items()}


def apply(projection: InvariantProjection | None, features: Array) -> Array:
    return features if projection is None else projection(torch.from_numpy(features).float()).numpy()


def main(arguments: Sequence[str]) -> int:
    """Fit, choose on CMU, test once, write."""
    parser = argparse.ArgumentParser(description="Closed-form invariance on the features of halp-base.")
    parser.add_argument("store", type=Path, help="made by benchmarks/corpus.py")
    parser.add_argument("--ntu", type=Path, help="NTU-10, prepared with the steps of halp-base")
    parser.add_argument("--windows", type=int, default=1500)
    parser.add_argument("--views", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/invariance"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(stderr=True)
    options.out.mkdir(parents=True, exist_ok=True)
    encoder, store = load_encoder("halp-base"), open_store(options.store)
    encoder.encoder.invariance = torch.nn.Identity()  # the features of 0.2.0
    encoder.persons = 1  # the most moving one; a second one costs as much time again
    train, held = store.split("xsub")
    order = np.random.default_rng(0)
    clips = torch.from_numpy(np.sort(order.choice(train, min(options.windows, len(train)), replace=False)))
    sides = [np.sort(order.choice(side[store.labels[side] >= 0], LABELLED, replace=False)) for side in (train, held)]
    rows = np.concatenate(sides)
    cmu, labels = centres(encoder, ClipPool.from_store(store), rows), np.asarray(store.labels)[rows]
    halves = np.arange(LABELLED), np.arange(LABELLED, 2 * LABELLED)
    trials: list[dict[str, Any]] = [{"map": "none", "knn": round(knn(cmu, labels, *halves), 2)}]
    fitted: dict[str, InvariantProjection] = {}
    views = encode_views(encoder, store, clips, options.views, options.out / "views.npy")
    torch.manual_seed(0)
    mean = views.mean((0, 1))
    _, _, axes = torch.pca_lowrank(views.flatten(0, 1), q=max(GRID)[0])  # once, so that every trial is small
    reduced = (views - mean) @ axes
    for components, size, power in GRID:
        label = f"{components} components, {size} numbers, power {power:g}"
        inner = fit_invariance(reduced, size, components=components, power=power)
        fitted[label] = InvariantProjection(mean, axes @ inner.matrix, inner.moved)
        score = knn(apply(fitted[label], cmu), labels, *halves)
        trials.append({"map": label, "knn": round(score, 2), "moved": round(float(inner.moved.mean()), 3)})
        console.print(f"{label}: {score:.2f}")
    best = max(trials[1:], key=lambda trial: trial["knn"])["map"]
    console.print(f"chosen: {best}; no map: {trials[0]['knn']}")
    figures: dict[str, Any] = {}

    def test(name: str, features: Array, labels: Array, groups: Array, pairs: Sequence[tuple[Array, Array]]) -> None:
        figures[name] = {
            title: probe(apply(projection, features), labels, groups, pairs)
            for title, projection in (("halp-base", None), ("with the map", fitted[best]))
        }
        console.print(f"{name}: {figures[name]}")
        save_results("invariance", {"versions": versions(), "chosen": best, "trials": trials, "test": figures})

    for task in open_tasks(options.out / "sets"):
        features = embed(encoder, task.stores["body-16"], progress=False)
        test(task.name, features, task.labels, task.groups, task.parts)
    if options.ntu:
        ntu = open_store(options.ntu)
        pool = source_pool(encoder, open_source(ntu))
        pool = ClipPool(pool.frames[:, :1].contiguous(), pool.offsets, pool.lengths, pool.device)
        for split, groups in (("xsub", ntu.subjects), ("xview", ntu.cameras)):
            drawn = [
                np.sort(order.choice(side, count, replace=False)) for side, count in zip(ntu.split(split), NTU_CLIPS)
            ]
            rows = np.concatenate(drawn)
            pair = np.arange(NTU_CLIPS[0]), np.arange(NTU_CLIPS[0], len(rows))
            features = centres(encoder, pool, rows)
            test(f"ntu10 {split}", features, np.asarray(ntu.labels)[rows], np.asarray(groups)[rows], [pair])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
