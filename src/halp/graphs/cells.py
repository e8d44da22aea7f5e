"""One cell of the table: a method on a set with a seed. A finished cell is one small JSON file, whole or absent."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from halp.errors import InputError
from halp.files import read_json, write_json
from halp.graphs.data import GraphSet
from halp.graphs.evaluation import svm_accuracies
from halp.graphs.settings import GraphSettings
from halp.graphs.training import GraphTraining

METHODS = ("untrained", "graphcl", "halp")


@dataclass(frozen=True)
class Cell:
    """Accuracies of one method on one set with one seed, which is that of the training and of the folds."""

    set: str
    seed: int
    method: str
    accuracy: float  # mean over the folds
    folds: list[float]
    seconds: dict[str, float]  # of training since the last cell of this seed, and of evaluation
    fingerprint: str  # of the data and of the settings that this method depends on


def fingerprint(graphs: GraphSet, settings: GraphSettings, method: str) -> str:
    """What a cell depends on, in 12 characters: cells of other settings may lie in the same folder."""
    chosen: dict[str, Any] = settings.as_dict()
    if method != "halp":
        del chosen["halp"]
    if method == "untrained":
        loops = chosen["augment"]["self_loops"]
        chosen = {key: chosen[key] for key in ("width", "layers", "svm", "folds", "inner_folds")} | {
            "self_loops": loops
        }
    digest = hashlib.sha256(json.dumps([method, chosen], sort_keys=True).encode())
    for part in (graphs.sources, graphs.targets, graphs.node_labels, graphs.starts, graphs.labels):
        digest.update(part.numpy().tobytes())
    return digest.hexdigest()[:12]


def cell_path(folder: Path, name: str, seed: int, method: str, key: str) -> Path:
    """Where a cell is saved."""
    return folder / f"{name}-seed{seed}-{method}-{key}.json"


def read_cell(path: Path) -> Cell:
    """A finished cell."""
    try:
        return Cell(**read_json(path))
    except TypeError:
        raise InputError(f"'{path}' is not a result of this sweep; remove it, and it will be computed again") from None


@contextmanager
def one_core() -> Iterator[None]:
    """Inside, torch and the linear algebra of numpy use one thread: results do not depend on how many processes work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


@one_core()
def run_cells(
    graphs: GraphSet,
    settings: GraphSettings,
    seed: int,
    methods: Sequence[str],
    folder: Path,
    tick: Callable[[float], None] = lambda cost: None,
) -> None:
    """Train and evaluate the named methods of one seed and save a cell for each as soon as it is there.

    GraphCL and HaLP are one training up to HaLP's start epoch and share every draw afterwards.
    """
    training = GraphTraining(graphs, settings, seed)
    epoch, fold = costs(graphs)
    since = time.monotonic()

    def save(one: GraphTraining, method: str) -> None:
        nonlocal since
        trained = time.monotonic()
        accuracies = svm_accuracies(
            one.embed(),
            graphs.labels.numpy(),
            seed=seed,
            folds=settings.folds,
            inner_folds=settings.inner_folds,
            scaled=settings.svm == "scaled",
            tick=lambda: tick(fold),
        )
        seconds = {"training": round(trained - since, 2), "evaluation": round(time.monotonic() - trained, 2)}
        key = fingerprint(graphs, settings, method)
        mean = sum(accuracies) / len(accuracies)
        cell = Cell(graphs.name, seed, method, mean, accuracies, seconds, key)
        write_json(cell_path(folder, graphs.name, seed, method, key), asdict(cell))
        since = time.monotonic()

    if "untrained" in methods:
        save(training, "untrained")
    if set(methods) <= {"untrained"}:
        return
    training.run(min(settings.halp.start_epoch, settings.epochs), lambda: tick(epoch))
    branches = {"graphcl": training.fork(weight=0.0), "halp": training}
    for method in ("graphcl", "halp"):
        if method in methods:
            save(branches[method].run(tick=lambda: tick(epoch)), method)


def costs(graphs: GraphSet) -> tuple[float, float]:
    """Roughly, in seconds: an epoch of training and a fold of evaluation. Only for the time left."""
    edges = len(graphs.sources) + len(graphs.node_labels)
    return 1.2e-6 * edges, 0.06 + 0.6e-6 * len(graphs) ** 2


def expected_cost(graphs: GraphSet, settings: GraphSettings, methods: Iterable[str]) -> float:
    """What `run_cells` will report by `tick` altogether."""
    epoch, fold = costs(graphs)
    methods = set(methods)
    trained = methods - {"untrained"}
    shared = min(settings.halp.start_epoch, settings.epochs) if trained else 0
    epochs = shared + len(trained) * (settings.epochs - min(settings.halp.start_epoch, settings.epochs))
    return epochs * epoch + len(methods) * settings.folds * fold
