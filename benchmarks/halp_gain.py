"""`python -m benchmarks.halp_gain CMU_STORE`: what HaLP adds to MoCo, as published and with the balanced pull, seed by seed.

A small encoder (GRU, one layer of 2 × 48 units, maximum over time) is trained on a fixed draw of CMU windows. The three methods
of a seed share their warm-up by MoCo and the settings, which are those of the recipe `cpu-halp`; none was tuned. Frozen, kNN
(k = 1) and ridge (penalty 1) on held-out CMU subjects (classes from the index text) and on the four Kinect sets of
`benchmarks/transfer.py`. Differences are paired by seed; intervals are those of Student's t at 95 %, each corrected for the
number of sets (Bonferroni). Finished runs are found again. Writes `results/halp_gain.json` and `.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from scipy import stats

from benchmarks.baselines import RESULTS
from benchmarks.transfer import Task, open_tasks
from halp.clips.clip import Clip
from halp.clips.store import Store, StoreWriter, open_store
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.evaluation import embed
from halp.evaluation.protocols.knn import knn_predict
from halp.evaluation.protocols.ridge import fit_ridge
from halp.evaluation.results import versions
from halp.training import open_run, pretrain
from halp.training.recipe import load_recipe

Array = npt.NDArray[Any]
METHODS = {"MoCo": None, "HaLP, paper's pull": "paper", "HaLP, balanced pull": "balanced"}
PROBES = ("knn", "ridge")
PENALTY = 1.0
LABELLED = 1500  # clips of each side that CMU is evaluated on


def draw_store(source: Store, clips: Array, path: Path) -> Store:
    """A store of some clips, made once."""
    if not (path / "store.json").exists():
        normalisation = source.normalisation
        with StoreWriter(
            path, source.topology, persons=1, class_names=source.class_names, normalisation=normalisation
        ) as writer:
            for clip in clips:
                frames = np.array(source.clip(int(clip)))
                writer.add(Clip(frames, str(source.names[clip]), int(source.labels[clip]), int(source.subjects[clip])))
    return open_store(path)


def train(store: Store, seed: int, epochs: int, warm_up: int, folder: Path) -> dict[str, Path]:
    """MoCo, and HaLP in two versions from its warm-up: run folders by method."""
    common = [
        f"seed={seed}", f"epochs={epochs}", "split=all", "encoder.hidden=48", "encoder.layers=1", "encoder.pooling=max",
        "views.frames=16", f"optimiser.milestones=[{round(0.8 * epochs)}]", "saving.every=1", f"saving.keep={epochs}",
    ]  # fmt: skip
    runs = {}
    for method, pull in METHODS.items():
        path = folder / f"{pull or 'moco'}-seed{seed}"
        runs[method] = path
        done = (path / "finished").exists()
        if done:
            continue
        if pull is None:
            pretrain(load_recipe("cpu-moco", common), store, path, resume=path.exists(), progress=False)
        else:
            recipe = load_recipe("cpu-halp", [*common, f"halp.start_epoch={warm_up}", f"halp.pull={pull}"])
            checkpoints = sorted((runs["MoCo"] / "checkpoints").iterdir())
            fork = None if path.exists() else checkpoints[warm_up - 1]
            pretrain(recipe, store, path, resume=path.exists(), fork=fork, progress=False)
        (path / "finished").touch()
    return runs


def probe(encoder: PackagedEncoder, store: Store, parts: Sequence[tuple[Array, Array]]) -> dict[str, float]:
    """kNN and ridge accuracies in per cent, mean over the parts."""
    encoder.normalisation = []  # the sets were prepared with the steps of the corpus, and empty frames dropped
    features, labels = embed(encoder, store, progress=False), store.labels
    classes = int(labels.max()) + 1
    found: dict[str, list[float]] = {name: [] for name in PROBES}
    for fit, test in parts:
        found["knn"].append(float((knn_predict(features[fit], labels[fit], features[test]) == labels[test]).mean()))
        ridge = fit_ridge(features[fit], labels[fit], PENALTY, classes).predict(features[test])
        found["ridge"].append(float((ridge == labels[test]).mean()))
    return {name: 100 * float(np.mean(values)) for name, values in found.items()}


def interval(ours: Sequence[float], other: Sequence[float], comparisons: int) -> tuple[float, float]:
    """Mean difference and half of its 95 % interval, corrected for so many comparisons."""
    gaps = np.array(ours) - np.array(other)
    quantile = stats.t.ppf(1 - 0.025 / comparisons, len(gaps) - 1)
    return float(gaps.mean()), float(quantile * gaps.std(ddof=1) / np.sqrt(len(gaps)))


def similarity(run: Path) -> float | None:
    """Mean similarity of keys to the queue over the last epoch."""
    values: dict[int, list[float]] = {}
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        for name, value in entry.items():
            if name.endswith("similarity_key_queue"):
                values.setdefault(int(entry["epoch"]), []).append(value)
    return float(np.mean(values[max(values)])) if values else None


def markdown(found: dict[str, Any], sets: Sequence[str], command: str) -> str:
    """Accuracies and paired differences."""
    lines = ["# What HaLP adds to MoCo", "", f"Top-1 in per cent, mean over {len(found['seeds'])} seeds.", ""]
    for name in PROBES:
        lines += [f"## {name}", "", f"| | {' | '.join(sets)} |", "| --- |" + " --- |" * len(sets)]
        for method in METHODS:
            cells = [f"{np.mean(found['accuracies'][method][one][name]):.1f}" for one in sets]
            lines.append(f"| {method} | {' | '.join(cells)} |")
        for method in list(METHODS)[1:]:
            pairs = [found["differences"][method][one][name] for one in sets]
            lines.append(f"| {method} − MoCo | {' | '.join(f'{mean:+.2f} ± {half:.2f}' for mean, half in pairs)} |")
        lines.append("")
    return "\n".join([*lines, f"`{command}`", ""])


def evaluate_all(runs: dict[str, Path], tasks: Sequence[Task], cmu: tuple[Store, Array, Array]) -> dict[str, Any]:
    """Method → set → probe → accuracy, for one seed."""
    result: dict[str, Any] = {}
    for method, path in runs.items():
        saved = path / "probes.json"
        if not saved.exists():
            encoder = open_run(path).encoder("joint")
            values = {"CMU, held-out subjects": probe(encoder, cmu[0], [(cmu[1], cmu[2])])}
            for task in tasks:
                values[task.name] = probe(encoder, task.stores["body-16"], task.parts)
            saved.write_text(json.dumps(values), encoding="utf-8")
        result[method] = json.loads(saved.read_text(encoding="utf-8"))
    return result


def main(arguments: Sequence[str]) -> int:
    """Train, evaluate, write."""
    parser = argparse.ArgumentParser(description="What HaLP adds to MoCo, seed by seed.")
    parser.add_argument("store", type=Path, help="made by benchmarks/corpus.py")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--clips", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/halp_gain"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    command = " ".join(["python -m benchmarks.halp_gain", "STORE", *arguments[1:]])
    try:
        source = open_store(options.store)
        train_part, test_part = source.split("xsub")
        order = np.random.default_rng(0)
        clips = np.sort(order.choice(train_part, options.clips, replace=False))
        sides = [part[source.labels[part] >= 0] for part in (train_part, test_part)]
        chosen = [np.sort(order.choice(side, min(LABELLED, len(side)), replace=False)) for side in sides]
        small = draw_store(source, clips, options.out / f"store-{options.clips}")
        judged = draw_store(source, np.concatenate(chosen), options.out / "labelled")
        cut = len(chosen[0])
        cmu = (judged, np.arange(cut), np.arange(cut, len(judged)))
        tasks = open_tasks(options.out / "sets")
        seeds: list[int] = []
        per_seed: list[dict[str, Any]] = []
        squeeze: dict[str, list[float | None]] = {method: [] for method in METHODS}
        for seed in range(options.seeds):
            runs = train(small, seed, options.epochs, options.epochs // 2, options.out / "runs")
            per_seed.append(evaluate_all(runs, tasks, cmu))
            seeds.append(seed)
            for method, path in runs.items():
                squeeze[method].append(similarity(path))
            Console(stderr=True).print(f"seed {seed}: {json.dumps(per_seed[-1])}")
    except InputError as error:
        Console(stderr=True).print(str(error))
        return 2
    sets = list(per_seed[0]["MoCo"])
    accuracies = {
        method: {one: {name: [run[method][one][name] for run in per_seed] for name in PROBES} for one in sets}
        for method in METHODS
    }
    differences = {
        method: {
            one: {
                name: interval(accuracies[method][one][name], accuracies["MoCo"][one][name], len(sets))
                for name in PROBES
            }
            for one in sets
        }
        for method in list(METHODS)[1:]
    }
    found = {"command": command, "versions": versions(), "seeds": seeds, "similarity_key_queue": squeeze}
    found |= {"accuracies": accuracies, "differences": differences}
    text = markdown(found, sets, command)
    print(text)
    (RESULTS / "halp_gain.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (RESULTS / "halp_gain.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
