"""`python -m experiments.own_training [--ntu RAW]`: `halp-base` frozen, and trained further on clips of the
user.

Training parts of the four Kinect sets of `experiments.training_pays`, the clips of `halp demo` (people kept
apart) and, with RAW (a folder of NTU-60 files), 250 to 6,667 clips of NTU-10 x-sub. The recipe `own` starts
from `halp-base`, by MoCo and by MoCo with HaLP, paired by seed. kNN (k = 1), one labelled clip per class
(ridge on unit vectors, 20 draws for each seed), ridge with all labels (up to 1,500 clips); standardised on
the training clips.
Intervals are hierarchical over seeds, draws and test people. A stopped command resumes: what was measured is
kept in `--out`. Writes `results/own_training.json`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from experiments.few_labels import PlainProbe
from experiments.files import kept_arrays, save_results
from experiments.training_pays import Task, open_stores, open_tasks
from experiments.transfer import LAYOUTS
from halp.data.normalise import normalise
from halp.data.splits import Split
from halp.data.store import Store, open_store
from halp.data.store_writer import StoreWriter
from halp.data.synthetic import ACTIONS, synthetic_clips, synthetic_splits
from halp.evaluation.analysis.hierarchical import hierarchical_interval
from halp.evaluation.protocols.knn import knn_predict
from halp.evaluation.protocols.ridge import choose_ridge_penalty, fit_ridge, group_folds
from halp.evaluation.results import versions
from halp.features.embed import embed
from halp.features.loading import load_encoder
from halp.features.opening import open_source
from halp.skeleton import KINECT_V2, get_topology, map_joints
from halp.tasks.heads import unit
from halp.training import load_recipe, pretrain

Array = npt.NDArray[Any]
SETS = {"utkinect": 10, "msr-action3d": 10, "utd-mhad": 10, "nw-ucla": 10, "demo": 5}  # seeds
CURVE = {250: 3, 1000: 3, 4000: 1, 6667: 1}
TERMS = {"MoCo": '["infonce"]', "HaLP": '["infonce", "halp"]'}
MEASURES, DRAWS = ("knn", "1 label", "ridge"), 20
RIDGE_MOST = 1500  # training clips above which ridge would cost minutes each time
FROZEN = "frozen"


def demo_store(path: Path) -> Store:
    """The clips of `halp demo`, as `halp-base` wants them."""
    if not (path / "store.json").exists():
        topology, steps = get_topology("body-16"), LAYOUTS["body-16"][1]
        with StoreWriter(
            path,
            topology,
            persons=1,
            class_names=ACTIONS,
            splits=synthetic_splits(),
            normalisation=steps,
            origin={"generator": "synthetic", "count": 1440},
        ) as writer:
            for clip in synthetic_clips(1440):
                clip.frames = normalise(map_joints(clip.frames[:, :1], KINECT_V2, topology), topology, steps)
                writer.add(clip)
    return open_store(path)


def all_labels(vectors: Array, task: Task, train: Array, test: Array) -> dict[str, Array]:
    """Which test clips are right `(1, clips)` with all labels; ridge up to `RIDGE_MOST` clips."""
    labels, classes = task.labels, int(task.labels.max()) + 1
    wanted, scaled = labels[test], unit((vectors - vectors[train].mean(0)) / vectors[train].std(0).clip(1e-6))
    found = {"knn": knn_predict(scaled[train], labels[train], scaled[test]) == wanted}
    if len(train) <= RIDGE_MOST:
        folds = group_folds(task.groups[train], 5)
        penalty, _ = choose_ridge_penalty(vectors[train], labels[train], folds, classes)
        classifier = fit_ridge(vectors[train], labels[train], penalty, classes)
        found["ridge"] = classifier.predict(vectors[test]) == wanted
    return {name: value[None] for name, value in found.items()}


def one_label(vectors: Array, task: Task, train: Array, test: Array, seed: int) -> Array:
    """Which test clips are right `(draws, clips)` with one label per class."""
    labels, probe, right = task.labels, PlainProbe.standardised(vectors, train, test), []
    for draw in range(DRAWS):
        order = np.random.default_rng([seed, draw]).permutation(len(train))
        mine = labels[train][order]
        places = np.concatenate([order[mine == label][:1] for label in np.unique(mine)])
        right.append(probe.scores(places, labels[train][places]).argmax(1) == labels[test])
    return np.stack(right)


def encoded(encoder: Any, store: Store, rows: Array) -> Array:
    """Vectors of some clips of a store in their places; the others are zero."""
    encoder.persons = 1
    vectors = embed(encoder, open_source(store).select(rows), progress=False)
    found = np.zeros((len(store), vectors.shape[1]), np.float32)
    found[rows] = vectors
    return found


def measured(task: Task, store: Any, train: Array, test: Array, method: str, seed: int, out: Path) -> Any:
    """Which test clips are right by measure, from its file where it was measured before."""
    path, rows = out / f"{task.name}-{len(train)}-{method}-{seed}.npz", np.sort(np.r_[train, test])

    def frozen() -> dict[str, Array]:
        vectors = encoded(load_encoder("halp-base"), store, rows)
        return {"vectors": vectors, **all_labels(vectors, task, train, test)}

    def make() -> dict[str, Array]:
        if method == FROZEN:  # seeds draw labels only
            found = kept_arrays(out / f"{task.name}-{len(train)}-{FROZEN}.npz", frozen)
            vectors = found.pop("vectors")
            return {**found, "1 label": one_label(vectors, task, train, test, seed)}
        store.splits["own"] = Split("own", "name", tuple(np.asarray(store.names)[train].tolist()))
        recipe = load_recipe("own", ["split=own", f"terms={TERMS[method]}", f"seed={seed}"])
        run = pretrain(recipe, store, path.with_suffix(""), init="halp-base", progress=False)
        vectors = encoded(run.encoder(), store, rows)
        shutil.rmtree(path.with_suffix(""), ignore_errors=True)
        found = all_labels(vectors, task, train, test)
        return {**found, "1 label": one_label(vectors, task, train, test, seed)}

    return kept_arrays(path, make)


def compared(task: Task, store: Any, train: Array, test: Array, seeds: int, out: Path) -> dict[str, Any]:
    """Accuracies by method, and paired differences with their intervals."""
    cells = {
        method: [measured(task, store, train, test, method, seed, out) for seed in range(seeds)]
        for method in (FROZEN, *TERMS)
    }
    people, found = np.asarray(store.subjects)[test], {"clips": len(train), "seeds": seeds}
    values = {
        method: {name: 100.0 * np.stack([row[name] for row in rows]) for name in MEASURES if name in rows[0]}
        for method, rows in cells.items()
    }
    for method, row in values.items():
        found[method] = {name: round(float(value.mean()), 4) for name, value in row.items()}
    for first, second in (("MoCo", FROZEN), ("HaLP", FROZEN), ("HaLP", "MoCo")):
        found[f"{first} − {second}"] = {
            name: hierarchical_interval(value - values[second][name], people).to_json()
            for name, value in values[first].items()
        }
    return found


def main(arguments: Sequence[str]) -> int:
    """Train, measure, print, write after every set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ntu", type=Path, help="folder of NTU-60 files")
    parser.add_argument("--out", type=Path, default=Path("runs/own-training"))
    parser.add_argument("--seeds", type=int, default=10, help="at most so many of each set")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    LAYOUTS["body-16"] = ("body-16", tuple(load_encoder("halp-base").normalisation))  # gaps filled
    stores = open_stores(options.out, options.ntu)
    tasks = {task.name: task for task in open_tasks(stores, False)}
    stores["demo"] = demo = demo_store(options.out / "demo-store")
    labels, people = (np.asarray(column) for column in (demo.labels, demo.subjects))
    tasks["demo"] = Task("demo", "demo", labels, people, [demo.split("xsub")])
    plan = [(name, None, seeds) for name, seeds in SETS.items()]
    plan += [("ntu-10 xsub", clips, seeds) for clips, seeds in CURVE.items()] if options.ntu else []
    command = f"python -m experiments.own_training{' --ntu RAW' if options.ntu else ''}"
    found: dict[str, Any] = {}
    for name, clips, seeds in plan:
        task, (train, test) = tasks[name], tasks[name].parts[0]
        train = np.sort(np.random.default_rng(0).permutation(train)[:clips])
        with threadpool_limits(1):
            row = compared(task, stores[task.store], train, test, min(seeds, options.seeds), options.out)
        found[f"{name}, {len(train)} clips"] = row
        print(name, row, flush=True)
        save_results(
            "own_training", {"command": command, "draws": DRAWS, "versions": versions(), "sets": found}
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
