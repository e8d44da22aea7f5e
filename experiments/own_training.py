"""`python -m experiments.own_training [--ntu RAW]`: `halp-base` frozen, trained further on clips of the
user, and an encoder from scratch.

Training parts of the four Kinect sets of `experiments.training_pays`, the clips of `halp demo` (people kept
apart) and, with RAW (a folder of NTU-60 files), NTU-10 x-sub; of three sets also fewer clips, drawn anew for
each seed. The recipe `own` starts from `halp-base`, by MoCo and by MoCo with HaLP, paired by seed; `small` is
HaLP from scratch. kNN (k = 1), one labelled clip per class (ridge on unit vectors, 20 draws for each seed),
ridge with all labels (up to 1,500 clips), all with the clips that were trained on as the labelled ones;
standardised on them.
Intervals are hierarchical over seeds, draws and test people. All sets get a seed before any gets the next; a
stopped command resumes: which clips were right is kept in `results/own_training`, a file for each set and
number of clips (so commands side by side need `--sets` of their own), and `--kept` trains nothing. Writes
`results/own_training.json`.
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
from experiments.files import RESULTS, kept_arrays, read_arrays, save_results
from experiments.hierarchical import hierarchical_interval
from experiments.training_pays import Task, open_stores, open_tasks
from experiments.transfer import LAYOUTS
from halp.data.normalise import normalise
from halp.data.splits import Split
from halp.data.store import Store, open_store
from halp.data.store_writer import StoreWriter
from halp.data.synthetic import ACTIONS, synthetic_clips, synthetic_splits
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
NTU = "ntu-10 xsub"
SETS = {"utd-mhad": 10, "msr-action3d": 10, "utkinect": 10, "nw-ucla": 10, "demo": 10, NTU: 3}  # seeds
CURVE = {"nw-ucla": (50, 100, 250, 500), "demo": (100, 250, 500), NTU: (250, 1000)}
FROZEN, SCRATCH, CURVE_SEEDS = "frozen", "from scratch", 3
TERMS = {"MoCo": '["infonce"]', "HaLP": '["infonce", "halp"]'}
MEASURES, DRAWS = ("knn", "1 label", "ridge"), 20
CELLS = RESULTS / "own_training"
RIDGE_MOST = 1500  # training clips above which ridge would cost minutes each time


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


def trained(store: Any, train: Array, method: str, seed: int, folder: Path) -> Any:
    """An encoder trained on some clips of a store."""
    store.splits["own"] = Split("own", "name", tuple(np.asarray(store.names)[train].tolist()))
    changes = ["split=own", f"seed={seed}", "saving.checkpoint_epochs=1000"]
    shutil.rmtree(folder, ignore_errors=True)  # of a command that was stopped
    if method == SCRATCH:
        run = pretrain(load_recipe("small", changes), store, folder, progress=False)
    else:
        recipe = load_recipe("own", [*changes, f"terms={TERMS[method]}"])
        run = pretrain(recipe, store, folder, init="halp-base", progress=False)
    encoder = run.encoder()
    shutil.rmtree(folder)
    return encoder


def pack(cell: dict[str, Array]) -> Array:
    """Right and wrong answers `(rows, clips)` of all measures one below the other, a bit each."""
    return np.packbits(np.concatenate([cell[name] for name in MEASURES if name in cell]), axis=1)


def unpack(bits: Array, clips: int) -> dict[str, Array]:
    """The answers by measure; ridge was left out where a row is missing."""
    rows = np.unpackbits(bits, axis=1, count=clips).astype(bool)
    found = {"knn": rows[:1], "1 label": rows[1 : DRAWS + 1], "ridge": rows[DRAWS + 1 :]}
    return {name: value for name, value in found.items() if len(value)}


def measured(
    task: Task, store: Any, clips: int | None, method: str, seed: int, out: Path, kept: bool = False
) -> Any:
    """Which test clips are right by measure, from the file of the set where it was measured before; `kept`:
    or None.
    """
    train, test = task.parts[0]
    train = np.sort(np.random.default_rng(seed).permutation(train)[:clips])
    name = f"{task.name}-{len(train)}".replace(" ", "_")
    path, key = CELLS / f"{name}.npz", f"{method}, {seed}"
    if key in (cells := read_arrays(path)):
        return unpack(cells[key], len(test))
    if kept:
        return None
    if method == FROZEN:
        rows = np.sort(np.concatenate(task.parts[0]))
        vectors = kept_arrays(
            out / f"{task.name}-{FROZEN}.npz",
            lambda: {"vectors": encoded(load_encoder("halp-base"), store, rows)},
        )["vectors"]
    else:
        encoder = trained(store, train, method, seed, out / f"{name}-{method}-{seed}".replace(" ", "_"))
        vectors = encoded(encoder, store, np.sort(np.r_[train, test]))
    found = all_labels(vectors, task, train, test) | {"1 label": one_label(vectors, task, train, test, seed)}
    CELLS.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".half")  # a stop while this is written costs nothing
    with half.open("wb") as file:
        np.savez_compressed(file, **{**read_arrays(path), key: pack(found)})  # type: ignore[arg-type]
    half.replace(path)
    return found


def compared(cells: dict[str, dict[int, Any]], people: Array, clips: int) -> dict[str, Any]:
    """Accuracies by method, and differences with their intervals over the seeds that both methods have."""
    found: dict[str, Any] = {"clips": clips, "seeds": {method: len(rows) for method, rows in cells.items()}}
    values = {
        method: {
            name: {seed: 100.0 * row[name] for seed, row in rows.items()}
            for name in MEASURES
            if name in next(iter(rows.values()))
        }
        for method, rows in cells.items()
    }
    for method, row in values.items():
        found[method] = {name: round(float(np.mean(list(value.values()))), 4) for name, value in row.items()}
    pairs = [("MoCo", FROZEN), ("HaLP", FROZEN), (SCRATCH, FROZEN), ("HaLP", "MoCo")]
    for first, second in [pair for pair in pairs if set(pair) <= set(values)]:
        both = [seed for seed in cells[first] if seed in cells[second]]
        found[f"{first} − {second}"] = {
            name: hierarchical_interval(
                np.stack([value[seed] - values[second][name][seed] for seed in both]), people
            ).to_json()
            for name, value in values[first].items()
        }
    return found


def main(arguments: Sequence[str]) -> int:
    """Train, measure, print, write after every seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ntu", type=Path, help="folder of NTU-60 files")
    parser.add_argument("--out", type=Path, default=Path("runs/own-training"))
    parser.add_argument("--seeds", type=int, default=10, help="at most so many of each set")
    parser.add_argument("--most", type=int, default=10**6, help="no trainings on more clips than this")
    parser.add_argument("--sets", nargs="+", help="these sets alone")
    parser.add_argument("--methods", nargs="+", choices=(FROZEN, *TERMS, SCRATCH), help="these alone")
    parser.add_argument("--kept", action="store_true", help="train nothing; write what was measured")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    LAYOUTS["body-16"] = ("body-16", tuple(load_encoder("halp-base").normalisation))  # gaps filled
    stores = open_stores(options.out, options.ntu)
    tasks = {task.name: task for task in open_tasks(stores, False)}
    stores["demo"] = demo = demo_store(options.out / "demo-store")
    labels, people = (np.asarray(column) for column in (demo.labels, demo.subjects))
    tasks["demo"] = Task("demo", "demo", labels, people, [demo.split("xsub")])
    plan: list[tuple[str, int | None, tuple[str, ...], int]]
    plan = [(name, None, (FROZEN, *TERMS), seeds) for name, seeds in SETS.items()]
    plan += [(name, None, (SCRATCH,), CURVE_SEEDS) for name in SETS if name != NTU]
    for name, counts in CURVE.items():
        plan += [(name, count, (FROZEN, "HaLP", SCRATCH), CURVE_SEEDS) for count in counts]
    cells: dict[tuple[str, int | None], dict[str, dict[int, Any]]] = {}
    for seed in range(min(options.seeds, max(SETS.values()))):
        for name, clips, methods, seeds in plan:
            if seed >= seeds or name not in tasks or name not in (options.sets or tasks):
                continue
            for method in options.methods or methods:
                if method not in methods:
                    continue
                task, store = tasks[name], stores[tasks[name].store]
                if method != FROZEN and (clips or len(task.parts[0][0])) > options.most:
                    continue
                with threadpool_limits(1):
                    cell = measured(task, store, clips, method, seed, options.out, options.kept)
                if cell is None:
                    continue
                cells.setdefault((name, clips), {}).setdefault(method, {})[seed] = cell
                print(
                    seed,
                    name,
                    clips,
                    method,
                    {k: round(100 * v.mean(), 1) for k, v in cell.items()},
                    flush=True,
                )
        found = {}
        for (name, clips), row in cells.items():
            train, test = tasks[name].parts[0]
            count = min(clips or len(train), len(train))
            found[f"{name}, {count} clips"] = compared(
                row, np.asarray(stores[tasks[name].store].subjects)[test], count
            )
        command = f"python -m experiments.own_training{' --ntu RAW' if options.ntu else ''}"
        save_results(
            "own_training", {"command": command, "draws": DRAWS, "versions": versions(), "sets": found}
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
