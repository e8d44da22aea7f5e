"""`python -m experiments.user_head`: a head per user (4,176 → 256) on the frozen `halp-base`, trained without
labels.

Positives are mutual nearest neighbours among the user's clips (k = 3) and two crops of each clip (80 % of its
length); InfoNCE at 0.2 against the batch; 200 steps of AdamW, through 512 principal components for speed.
First folds of the training parts of the four Kinect sets, three seeds, 20 label draws. **Criterion, fixed
before the run**: with one label per class the head is 1 point above `plain` *and* above the closed-form metric
of the same neighbours in the mean of the sets, beyond the hierarchical interval; otherwise it is dropped.
Writes `results/user_head.json`; a stopped command resumes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import cross_entropy, normalize

from experiments.few_labels import PlainProbe
from experiments.files import kept_arrays, save_results
from experiments.training_pays import Task, open_stores, open_tasks
from halp.augment.pool import ClipPool
from halp.evaluation.analysis.hierarchical import hierarchical_interval, interval, resampled_means
from halp.evaluation.results import versions
from halp.features.embed import embed
from halp.features.encode import encode_crops
from halp.features.loading import load_encoder
from halp.tasks.adapt import fit_metric, mutual_neighbours
from halp.tasks.heads import column_scale, unit

Array = npt.NDArray[Any]
WIDTH, COMPONENTS, STEPS, BATCH, RATE, WARMTH = 256, 512, 200, 256, 1e-3, 0.2
SEEDS, DRAWS, SHOTS = 3, 20, (1, 5)
POSITIVES = ("neighbours", "views", "neighbours and views")


def crops(encoder: Any, store: Any, seed: int) -> Array:
    """Vectors of two random crops of every clip `(2, N, F)`, 80 % of its length."""
    pool, draw, found = ClipPool.from_store(store), torch.Generator().manual_seed(seed), []
    for _ in range(2):
        length = (0.8 * pool.lengths).long().clamp(min=1)
        start = (torch.rand(len(length), generator=draw) * (pool.lengths - length + 1)).long()
        rows = torch.arange(len(length))
        found.append(np.concatenate(list(encode_crops(encoder, pool, rows, start, length, progress=False))))
    return np.stack(found)


def train_head(rows: Array, first: Array, second: Array, seed: int) -> torch.nn.Linear:
    """A linear head that brings the rows of each pair of positives together."""
    torch.manual_seed(seed)
    head, table = torch.nn.Linear(rows.shape[1], WIDTH, bias=False), torch.from_numpy(rows)
    torch.nn.init.normal_(head.weight, std=rows.shape[1] ** -0.5)
    optimiser = torch.optim.AdamW(head.parameters(), RATE)
    for _ in range(STEPS):
        chosen = torch.randperm(len(first))[:BATCH]
        one, other = (normalize(head(table[side[chosen]])) for side in (first, second))
        loss = cross_entropy(one @ other.T / WARMTH, torch.arange(len(one)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return head


def variants(vectors: Array, views: Array, pool: Array, seed: int) -> dict[str, Array]:
    """Vectors of all clips by method; nothing but the pool is fitted to, and no label."""
    mean, scale = vectors[pool].mean(0), column_scale(vectors[pool])
    scaled, cut = ((part - mean) / scale for part in (vectors, views))
    near = mutual_neighbours(unit(scaled[pool]) @ unit(scaled[pool]).T)
    table = np.concatenate([scaled[pool], *cut[:, pool]]).astype(np.float32)
    axes = torch.pca_lowrank(torch.from_numpy(table), min(COMPONENTS, len(pool)), center=False)[2].numpy()
    table = table @ axes
    count = np.arange(len(pool))
    pairs = {
        "neighbours": near,
        "views": (len(pool) + count, 2 * len(pool) + count),
        "neighbours and views": (
            np.concatenate([near[0], len(pool) + count]),
            np.concatenate([near[1], 2 * len(pool) + count]),
        ),
    }
    found = {"plain": unit(scaled), "metric": fit_metric(vectors[pool])(vectors)}
    for name in POSITIVES:
        first, second = map(torch.from_numpy, pairs[name])
        with torch.inference_mode(False):
            head = train_head(table, first, second, seed)
        found[f"head, {name}"] = unit(scaled.astype(np.float32) @ axes @ head.weight.detach().numpy().T)
    return found


def right(vectors: Array, labels: Array, pool: Array, test: Array, seed: int) -> dict[str, Array]:
    """Which held-out clips are right `(draws, clips)` by unit vectors: kNN, one and five labels."""
    probe, mine = PlainProbe(vectors[pool], vectors[test]), labels[pool]
    wanted = labels[test]
    found = {"knn": (mine[probe.across.argmax(1)] == wanted)[None]}
    for shots in SHOTS:
        rows = []
        for draw in range(DRAWS):
            order = np.random.default_rng([seed, draw]).permutation(len(pool))
            places = np.concatenate([order[mine[order] == label][:shots] for label in np.unique(mine)])
            rows.append(probe.scores(places, mine[places]).argmax(1) == wanted)
        found[f"{shots} label{'s' * (shots > 1)}"] = np.stack(rows)
    return found


def answers(encoder: Any, store: Any, task: Task, seed: int, out: Path) -> dict[str, Array]:
    """Which held-out clips are right, by method and measure."""

    def encoded() -> dict[str, Array]:
        return {"vectors": embed(encoder, store, progress=False), "views": crops(encoder, store, 0)}

    both, (pool, test) = kept_arrays(out / f"{task.name}-vectors.npz", encoded), task.parts[0]
    return {
        f"{method}: {name}": values
        for method, mapped in variants(both["vectors"], both["views"], pool, seed).items()
        for name, values in right(mapped, task.labels, pool, test, seed).items()
    }


def main(arguments: Sequence[str]) -> int:
    """Train, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/user-head"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    stores, encoder = open_stores(options.out, None), load_encoder("halp-base")
    encoder.persons = 1
    accuracy: dict[str, Any] = {}
    gaps: dict[str, Any] = {}
    for number, task in enumerate(open_tasks(stores, True)):
        store, test = stores[task.store], task.parts[0][1]
        cells: dict[str, dict[str, list[Array]]] = {}
        for seed in range(SEEDS):
            make = partial(answers, encoder, store, task, seed, options.out)
            for key, values in kept_arrays(options.out / f"{task.name}-{seed}.npz", make).items():
                method, _, name = key.partition(": ")
                cells.setdefault(method, {}).setdefault(name, []).append(values)
        people = np.asarray(store.subjects)[test]
        for method, row in cells.items():
            for name, values in row.items():
                mine = 100.0 * np.stack(values)
                accuracy.setdefault(method, {}).setdefault(name, {})[task.name] = round(float(mine.mean()), 4)
                for other in ("plain", "metric") if method.startswith("head") else ():
                    gap = mine - 100.0 * np.stack(cells[other][name])
                    place = gaps.setdefault(f"{method} − {other}", {}).setdefault(name, {})
                    place[task.name] = hierarchical_interval(gap, people).to_json()
                    place.setdefault("all", []).append(
                        (float(gap.mean()), resampled_means(gap, people, seed=number))
                    )
        print(
            task.name,
            {m: {n: v[task.name] for n, v in row.items()} for m, row in accuracy.items()},
            flush=True,
        )
    for row in gaps.values():
        for place in row.values():
            means, drawn = zip(*place.pop("all"))
            place["mean"] = interval(float(np.mean(means)), np.mean(drawn, axis=0)).to_json()
    result = {
        "command": "python -m experiments.user_head",
        "seeds": SEEDS,
        "draws": DRAWS,
        "versions": versions(),
    }
    save_results("user_head", result | {"accuracy": accuracy, "differences": gaps})
    print({name: {m: place["mean"] for m, place in row.items()} for name, row in gaps.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
