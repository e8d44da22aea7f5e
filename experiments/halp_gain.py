"""`python -m experiments.halp_gain CMU_STORE`: what HaLP adds to MoCo and to CMD, seed by seed, and what that
depends on.

A small encoder (GRU, one layer of 2 × 48 units, maximum over the thirds of a clip) is trained on a fixed draw
of CMU windows. MoCo and HaLP with both pulls, as published and balanced, share their warm-up and the settings
of the recipe `cpu-moco`; none was tuned. Around the base cell one thing varies at a time: clips, queue,
weight μ, hardness λ, epochs after the warm-up; another cell has CMD and HaLP + CMD in three streams. Frozen
encoders are judged by kNN (k = 1) and ridge (penalty by folds over whole subjects or cameras of the training
part) on held-out CMU subjects (classes from the index text) and on the four Kinect sets of
`experiments/transfer.py`, beside the untrained encoder and raw coordinates. Differences are paired by seed;
intervals are Student's at 95 %, corrected for the number of sets (Bonferroni). With 16,384 clips the store
has to be made with
`--stride 1.0667`. Finished runs are found again, and `--cells` lets several commands share the work. Writes
`results/halp_gain.json`, `.md` and `.svg`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from experiments.files import RESULTS, save_results
from experiments.halp_gain_report import markdown, paired_gain, similarity_figure
from experiments.prototype_quality import prototype_quality
from experiments.transfer import FOLDS, Task, open_tasks
from halp.augment import ClipPool, centre_views
from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.store import Store, open_store
from halp.data.store_writer import StoreWriter
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import RawCoordinates, embed
from halp.evaluation.protocols.knn import knn_predict
from halp.evaluation.protocols.ridge import choose_ridge_penalty, fit_ridge, group_folds
from halp.evaluation.results import versions
from halp.methods import MocoMethod
from halp.methods.momentum import MomentumPair
from halp.training import open_run, pretrain
from halp.training.recipe import load_recipe
from halp.training.run import Run

Array = npt.NDArray[Any]
Parts = Sequence[tuple[Array, Array]]
PULLS = {"HaLP": "paper", "HaLP, balanced": "balanced"}
WARM_UP = 10  # epochs
LABELLED = 1500  # clips of each side that CMU is evaluated on
ENCODER: dict[str, Any] = {"name": "gru", "hidden": 48, "layers": 1, "pooling": "thirds-max"}
FRAMES = 16
CMU = "CMU, held-out subjects"
CURVES = (
    "similarity_key_query",
    "similarity_positive_query",
    "similarity_key_queue",
    "similarity_positive_queue",
)


@dataclass(frozen=True)
class Cell:
    """One size of the experiment; the defaults are the base cell."""

    clips: int = 4096
    queue: int = 2048
    epochs: int = 10  # after the warm-up
    weight: float = 1.0
    hardness: float = 0.8
    cmd: bool = False

    @property
    def baseline(self) -> str:
        """The method without HaLP."""
        return "CMD" if self.cmd else "MoCo"

    def methods(self) -> dict[str, str | None]:
        """Names of the methods and their pull."""
        suffix = " + CMD" if self.cmd else ""
        return {
            self.baseline: None,
            **{name.replace("HaLP", f"HaLP{suffix}"): pull for name, pull in PULLS.items()},
        }

    def folder(self, seed: int, pull: str | None) -> str:
        """The name of a run; cells that differ in HaLP alone share the run without it."""
        name = f"{self.baseline.lower()}-clips{self.clips}-queue{self.queue}-epochs{self.epochs}-seed{seed}"
        return name if pull is None else f"{name}-{pull}-weight{self.weight:g}-hardness{self.hardness:g}"


SWEEPS: dict[str, tuple[float, ...]] = {
    "queue": (512, 2048, 16384),
    "weight": (0.3, 1, 3),
    "clips": (1024, 4096, 16384),
    "epochs": (10, 20),
    "hardness": (0.2, 0.8),
}
CELLS: dict[str, Cell] = {"base": Cell(), "cmd": Cell(cmd=True)}
CELLS |= {
    f"{name}={value:g}": dataclasses.replace(Cell(), **cast(dict[str, Any], {name: value}))
    for name, values in SWEEPS.items()
    for value in values
    if value != getattr(Cell(), name)
}


@dataclass(frozen=True)
class Benchmark:
    """What encoders are judged on: CMU windows with labels and the Kinect sets."""

    labelled: Store
    sides: tuple[Array, Array]
    tasks: Sequence[Task]

    def sets(self) -> list[tuple[str, Store, Array, Parts]]:
        """Name, store, groups that folds hold out, and pairs of training and test clips."""
        found: list[tuple[str, Store, Array, Parts]] = [
            (CMU, self.labelled, np.asarray(self.labelled.subjects), [self.sides])
        ]
        return found + [(task.name, task.stores["body-16"], task.groups, task.parts) for task in self.tasks]


def draw_store(source: Store, clips: Array, path: Path) -> Store:
    """A store of some clips, made once."""
    if not (path / "store.json").exists():
        normalisation = source.normalisation
        with StoreWriter(
            path, source.topology, persons=1, class_names=source.class_names, normalisation=normalisation
        ) as writer:
            for clip in clips:
                frames = np.array(source.clip(int(clip)))
                writer.add(
                    Clip(
                        frames, str(source.names[clip]), int(source.labels[clip]), int(source.subjects[clip])
                    )
                )
    return open_store(path)


def train(cell: Cell, store: Store, seed: int, folder: Path) -> dict[str, Run]:
    """The method without HaLP, and HaLP with both pulls from its warm-up."""
    epochs = WARM_UP + cell.epochs
    common = [
        f"seed={seed}", f"epochs={epochs}", "split=all", f"views.frames={FRAMES}", f"contrast.queue={cell.queue}",
        *(f"encoder.{name}={value}" for name, value in ENCODER.items()),
        f"optimiser.milestones=[{round(0.8 * epochs)}]", f"saving.checkpoint_epochs={WARM_UP}", f"saving.keep={epochs}",
        "saving.log_every=8",
    ]  # fmt: skip
    names = ("cpu-cmd", "cpu-halp-cmd") if cell.cmd else ("cpu-moco", "cpu-halp")
    runs: dict[str, Run] = {}
    for method, pull in cell.methods().items():
        path = folder / cell.folder(seed, pull)
        if not (path / "finished").exists():
            settings, fork = list(common), None
            if pull is not None:
                settings += [
                    f"halp.start_epoch={WARM_UP}",
                    f"halp.negatives={str(pull == 'balanced').lower()}",
                ]
                settings += [f"halp.weight={cell.weight}", f"halp.hardness={cell.hardness}"]
                fork = None if path.exists() else min((runs[cell.baseline].path / "checkpoints").iterdir())
            recipe = load_recipe(names[pull is not None], settings)
            pretrain(recipe, store, path, resume=path.exists(), fork=fork, progress=False)
            (path / "finished").touch()
        runs[method] = open_run(path)
    return runs


def probe(features: Array, store: Store, groups: Array, parts: Parts) -> dict[str, float]:
    """kNN and ridge accuracies in per cent, mean over the parts."""
    labels = np.asarray(store.labels)
    classes = int(labels.max()) + 1
    found: dict[str, list[float]] = {"knn": [], "ridge": []}
    for fit, test in parts:
        found["knn"].append(
            float((knn_predict(features[fit], labels[fit], features[test]) == labels[test]).mean())
        )
        penalty, _ = choose_ridge_penalty(
            features[fit], labels[fit], group_folds(groups[fit], FOLDS), classes
        )
        ridge = fit_ridge(features[fit], labels[fit], penalty, classes).predict(features[test])
        found["ridge"].append(float((ridge == labels[test]).mean()))
    return {name: 100 * float(np.mean(values)) for name, values in found.items()}


def probe_all(encoders: Sequence[PretrainedEncoder], benchmark: Benchmark) -> dict[str, dict[str, float]]:
    """Set → probe → accuracy; features of several encoders count side by side."""
    found = {}
    for name, store, groups, parts in benchmark.sets():
        features = [embed(encoder, store, progress=False) for encoder in encoders]
        features = [one / np.linalg.norm(one, axis=1, keepdims=True).clip(1e-9) for one in features]
        found[name] = probe(np.concatenate(features, 1), store, groups, parts)
    return found


def run_encoder(run: Run, stream: str) -> PretrainedEncoder:
    """A run's encoder for stores that were prepared with the steps of the corpus already."""
    encoder = run.encoder(stream)
    encoder.normalisation = []
    return encoder


def judged(run: Run, benchmark: Benchmark) -> dict[str, Any]:
    """Accuracies, curves and quality of prototypes of a run; kept beside it."""
    saved = run.path / "judged.json"
    if not saved.exists():
        streams = list(run.recipe.streams)
        found: dict[str, Any] = {"joint": probe_all([run_encoder(run, "joint")], benchmark)}
        if len(streams) > 1:
            found["fused"] = probe_all([run_encoder(run, stream) for stream in streams], benchmark)
        found["curves"] = curves(run)
        found["quality"] = quality(run, benchmark.labelled)
        saved.write_text(json.dumps(found), encoding="utf-8")
    return dict(json.loads(saved.read_text(encoding="utf-8")))


@torch.no_grad()
def quality(run: Run, store: Store) -> dict[str, float]:
    """Purity of prototypes and share of false positives on the keys of labelled windows, by the momentum
    encoder.
    """
    model = cast(MocoMethod, run.model().eval())
    clips = centre_views(ClipPool.from_store(store), torch.arange(len(store)), FRAMES)
    keys = cast(MomentumPair, model.pairs["joint"]).key(clips)
    labels = torch.from_numpy(np.array(store.labels))
    return dataclasses.asdict(prototype_quality(keys, labels, generator=torch.Generator().manual_seed(0)))


def curves(run: Run) -> dict[str, list[float | None]]:
    """Mean of every similarity of the joint stream over each epoch; none where it was not logged."""
    values: dict[str, list[list[float]]] = {name: [[] for _ in range(run.recipe.epochs)] for name in CURVES}
    for line in run.metrics():
        for name in CURVES:
            if (value := line.get(f"joint/{name}")) is not None:
                values[name][int(line["epoch"])].append(value)
    return {
        name: [float(np.mean(epoch)) if epoch else None for epoch in epochs]
        for name, epochs in values.items()
    }


def untrained(seed: int, store: Store) -> PretrainedEncoder:
    """The encoder of all cells with the weights it begins with."""
    torch.manual_seed(seed)
    inner = build_encoder(EncoderSettings(**ENCODER), store.topology, 1)
    return PretrainedEncoder(inner, store.topology, stream="joint", persons=1, frames=FRAMES)


def open_benchmark(source: Store, folder: Path) -> Benchmark:
    """Labelled CMU windows of training and held-out subjects, and the Kinect sets."""
    order = np.random.default_rng(0)
    sides = [part[source.labels[part] >= 0] for part in source.split("xsub")]
    chosen = [np.sort(order.choice(side, min(LABELLED, len(side)), replace=False)) for side in sides]
    labelled = draw_store(source, np.concatenate(chosen), folder / "labelled")
    cut = len(chosen[0])
    return Benchmark(labelled, (np.arange(cut), np.arange(cut, len(labelled))), open_tasks(folder / "sets"))


def measure(cell: Cell, source: Store, benchmark: Benchmark, seeds: int, folder: Path) -> dict[str, Any]:
    """Train and judge all seeds of a cell: read-out → method → set → probe → one accuracy per seed, and the
    rest.
    """
    train_part, _ = source.split("xsub")
    if len(train_part) < cell.clips:
        raise InputError(
            f"the store has {len(train_part)} training windows, and {cell.clips} are wanted; "
            "make it with overlapping windows: python -m tools.encoders.corpus RAW STORE --stride 1.0667"
        )
    clips = np.sort(
        np.random.default_rng(1).permutation(train_part)[: cell.clips]
    )  # smaller draws lie in larger ones
    store = draw_store(source, clips, folder / f"store-{cell.clips}")
    found: dict[str, Any] = {"settings": dataclasses.asdict(cell), "baseline": cell.baseline, "methods": {}}
    for seed in range(seeds):
        for method, run in train(cell, store, seed, folder / "runs").items():
            result = judged(run, benchmark)
            entry = found["methods"].setdefault(method, {"accuracies": {}, "curves": [], "quality": []})
            for readout in ("joint", "fused"):
                for name, probes in result.get(readout, {}).items():
                    for one, value in probes.items():
                        place = entry["accuracies"].setdefault(readout, {}).setdefault(name, {})
                        place.setdefault(one, []).append(round(value, 3))
            entry["curves"].append(result["curves"])
            entry["quality"].append(result["quality"])
    found["differences"] = paired_gain(found)
    for entry in found["methods"].values():
        entry["quality"] = {
            name: float(np.mean([one[name] for one in entry["quality"]])) for name in entry["quality"][0]
        }
        entry["curves"] = {
            name: [
                None if None in epoch else round(float(np.mean(epoch)), 4)
                for epoch in zip(*(one[name] for one in entry["curves"]))
            ]
            for name in CURVES
        }
    return found


def baselines(benchmark: Benchmark, seeds: int) -> dict[str, Any]:
    """Raw coordinates and the untrained encoder: set → probe → accuracies."""
    stores = {name: (store, groups, parts) for name, store, groups, parts in benchmark.sets()}
    found: dict[str, Any] = {"raw coordinates": {}, "untrained encoder": {}}
    for name, (store, groups, parts) in stores.items():
        raw = embed(RawCoordinates(store.topology, persons=1), store, progress=False)
        found["raw coordinates"][name] = {
            one: [value] for one, value in probe(raw, store, groups, parts).items()
        }
    per_seed = [probe_all([untrained(seed, benchmark.labelled)], benchmark) for seed in range(seeds)]
    for name in stores:
        found["untrained encoder"][name] = {
            one: [run[name][one] for run in per_seed] for one in ("knn", "ridge")
        }
    return found


def main(arguments: Sequence[str]) -> int:
    """Train, evaluate, write."""
    parser = argparse.ArgumentParser(description="What HaLP adds, seed by seed.")
    parser.add_argument("store", type=Path, help="made by tools/encoders/corpus.py")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--cells", nargs="+", default=list(CELLS), choices=list(CELLS), metavar="CELL")
    parser.add_argument("--out", type=Path, default=Path("runs/halp_gain"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(stderr=True)
    try:
        source = open_store(options.store)
        benchmark = open_benchmark(source, options.out)
        found: dict[str, Any] = {
            "command": f"python -m experiments.halp_gain STORE --seeds {options.seeds}",
            "versions": versions(),
            "baselines": baselines(benchmark, options.seeds),
            "cells": {},
        }
        for name in options.cells:
            found["cells"][name] = measure(CELLS[name], source, benchmark, options.seeds, options.out)
            console.print(f"{name}: {json.dumps(found['cells'][name]['differences'])}")
    except InputError as error:
        console.print(str(error))
        return 2
    text = markdown(found)
    print(text)
    if set(options.cells) == set(CELLS):
        save_results("halp_gain", found, text)
        (RESULTS / "halp_gain.svg").write_text(similarity_figure(found["cells"]["base"]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
