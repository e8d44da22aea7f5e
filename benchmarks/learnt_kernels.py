"""`python -m benchmarks.learnt_kernels CMU`: motion patches, learnt by k-means, beside the kernels of `halp-base`.

Patches of nine frames of a body part, less their mean, whitened by patches of CMU training windows; k-means on the sphere gives
100 patches for each of five parts. A patch gives two numbers: the share of frames in which it is the nearest one (as in Hydra)
and its largest similarity. Beside `halp-base`, at (nearly) equal width: the same with random directions instead of learnt
ones, and one more bank of the random kernels that `halp-base` has. Five seeds each. Only folds of the training parts of the
four Kinect sets (ridge; kNN) and held-out CMU subjects (`benchmarks.reweighting` says how) are looked at: the bet was that
ridge gains half a point over more random kernels, and the test clips are for what passes. Writes `results/learnt_kernels.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor
from torch.nn import functional as F

from benchmarks.baselines import save_results
from benchmarks.invariance import knn
from benchmarks.reweighting import Array, decide, labelled_windows, plain_base, replace_persons
from benchmarks.transfer import open_tasks, validated
from halp.augment import ClipPool, centre_views
from halp.data.store import Store, open_store
from halp.encoders.kernel_fusion import KernelShares
from halp.evaluation import embed
from halp.evaluation.analysis.paired_difference import paired_difference
from halp.evaluation.results import versions

FRAMES, LENGTH, WORDS, WINDOWS, PATCHES, ROUNDS, SEEDS = 64, 9, 100, 4000, 60_000, 15, 5
Describe = Callable[[Tensor], Tensor]


def bodies(store: Store, clips: Array | None = None) -> Tensor:
    """The most moving person of clips, `(N, 64, V, 3)`."""
    every = np.arange(len(store)) if clips is None else clips
    return centre_views(ClipPool.from_store(store), torch.from_numpy(every), FRAMES)[:, :, 0]


def patches(series: Tensor) -> Tensor:
    """Patches `(N, 64 − 8, 9 · channels)` of series `(N, 64, channels)`, each less its mean over time."""
    cut = series.unfold(1, LENGTH, 1)
    return (cut - cut.mean(3, keepdim=True)).flatten(2)


def dictionary(series: Tensor, seed: int, learn: bool) -> Describe:
    """Whitening and words from series of training windows; what they say about other series, `(N, 2 · words)`."""
    draws = torch.Generator().manual_seed(seed)
    every = patches(series).flatten(0, 1)
    sample = every[torch.randperm(len(every), generator=draws)[:PATCHES]]
    variance, axes = torch.linalg.eigh(sample.T @ sample / len(sample))
    whiten = axes / (variance + 0.01 * variance.mean()).sqrt()
    white = F.normalize(sample @ whiten, dim=1)
    words = F.normalize(torch.randn(WORDS, white.shape[1], generator=draws), dim=1)
    if learn:
        words = white[torch.randperm(len(white), generator=draws)[:WORDS]]
        for _ in range(ROUNDS):
            sums = torch.zeros_like(words).index_add_(0, (white @ words.T).argmax(1), white)
            words = torch.where(sums.norm(dim=1, keepdim=True) > 0, F.normalize(sums, dim=1), words)

    def describe(others: Tensor) -> Tensor:
        likeness = F.normalize(patches(others) @ whiten, dim=2) @ words.T
        wins = F.one_hot(likeness.argmax(2), WORDS).float().mean(1)
        return torch.cat([wins, likeness.amax(1)], dim=1)

    return describe


def extra(kind: str, seed: int, store: Store, clips: Array) -> Describe:
    """More features of bodies, standardised by CMU windows."""
    windows = bodies(store, clips)
    if kind == "random kernels":
        torch.manual_seed(seed)
        bank = KernelShares(windows.flatten(2).shape[2])
        mean = windows.flatten(2).mean((0, 1))
        bank.fit(windows[:1000].flatten(2) - mean)
        describe: Describe = lambda some: bank(some.flatten(2) - mean)  # noqa: E731
    else:
        parts = [list(joints) for joints in store.topology.body_parts.values()]
        words = [dictionary(windows[:, :, part].flatten(2), seed, kind == "learnt patches") for part in parts]
        describe = lambda some: torch.cat([word(some[:, :, part].flatten(2)) for word, part in zip(words, parts)], 1)  # noqa: E731
    known = torch.cat([describe(piece) for piece in windows.split(500)])
    shift, spread = known.mean(0), known.std(0).clamp_min(0.2 * float(known.std(0).median()))
    return lambda some: torch.cat([(describe(piece) - shift) / spread for piece in some.split(500)])


@torch.inference_mode()
def main(arguments: Sequence[str]) -> int:
    """Describe, validate, write."""
    parser = argparse.ArgumentParser(description="Learnt motion patches beside the kernels of halp-base.")
    parser.add_argument("store", type=Path, help="made by benchmarks/corpus.py")
    parser.add_argument("--out", type=Path, default=Path("runs/reweighting"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console, store, encoder = Console(stderr=True), open_store(options.store), plain_base()
    rows, labels, gallery = labelled_windows(store, np.random.default_rng(0))
    tasks = open_tasks(options.out / "sets")
    base = {task.name: embed(encoder, task.stores["body-16"], progress=False) for task in tasks}
    cmu = embed(replace_persons(encoder), store, progress=False)[rows]
    clips = np.sort(np.random.default_rng(0).choice(store.split("xsub")[0], WINDOWS, replace=False))

    def figures(describe: Describe | None) -> dict[str, float]:
        found: dict[str, float] = {}
        for task in tasks:
            features = base[task.name]
            if describe is not None:
                features = np.concatenate([features, describe(bodies(task.stores["body-16"])).numpy()], axis=1)
            train = task.parts[0][0]
            found[f"{task.name}, ridge"] = validated(task, features, train)[1]
            nearest = [knn(features, task.labels, train[a], train[b]) for a, b in task.folds(train)]
            found[f"{task.name}, kNN"] = float(np.mean(nearest))
        held = cmu if describe is None else np.concatenate([cmu, describe(bodies(store, rows)).numpy()], axis=1)
        found["held-out CMU, kNN"] = decide([held], labels, gallery)["kNN, clean"]
        for measure in ("ridge", "kNN"):
            found[f"mean {measure}"] = float(np.mean([found[f"{task.name}, {measure}"] for task in tasks]))
        return {name: round(value, 2) for name, value in found.items()}

    runs: dict[str, list[dict[str, float]]] = {"halp-base": [figures(None)]}
    console.print(f"halp-base: {runs['halp-base'][0]}")
    for kind in ("learnt patches", "random patches", "random kernels"):
        for seed in range(SEEDS):
            runs.setdefault(kind, []).append(figures(extra(kind, seed, store, clips)))
            console.print(f"{kind}, seed {seed}: {runs[kind][-1]}")
    result: dict[str, Any] = {
        "command": "python -m benchmarks.learnt_kernels CMU",
        "versions": versions(),
        "runs": runs,
    }
    result["learnt patches less"] = {
        other: {
            name: str(paired_difference(*([run[name] for run in runs[kind]] for kind in ("learnt patches", other))))
            for name in runs[other][0]
        }
        for other in ("random patches", "random kernels")
    }
    console.print(result["learnt patches less"])
    save_results("learnt_kernels", result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
