"""`python -m tools.encoders.compact STORE [--fit PACKAGE]`: the few numbers of `halp-base` that search uses,
and what they cost.

`--fit` writes the projection into a package: the directions in which vectors of the CMU training windows
(STORE, see
`tools.encoders.corpus`) are longest, without labels, turned at random, so that standardising the numbers, as
probes do, leaves distances alone. (Evening the directions out, by half or wholly, is worse on folds of the
sets' training clips since the vectors themselves are shrunk along what views move.) Without `--fit`, for full
and compact vectors: kNN and ridge on the four sets of `experiments.transfer`; how many of the ten nearest
vectors stay (recall@10). Figures go to `results/compact.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import torch

import halp
from experiments.files import save_results
from experiments.transfer import Task, open_tasks
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder, write_package
from halp.evaluation.protocols.knn import knn_predict
from halp.evaluation.protocols.ridge import choose_ridge_penalty, fit_ridge
from halp.features.embed import embed
from halp.tasks.index import recall_of, search_exactly

Vectors = npt.NDArray[np.float32]
OUTPUTS = 256
QUERIES = 500


def fit(vectors: Vectors, outputs: int = OUTPUTS, seed: int = 0) -> dict[str, torch.Tensor]:
    """The tensors of a projection `(F, outputs)` onto the longest directions of vectors."""
    width = vectors.shape[1]
    products = vectors.T @ vectors / len(vectors)
    _, directions = scipy.linalg.eigh(products, subset_by_index=[width - outputs, width - 1])
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(outputs, outputs)))[0]
    matrix = torch.from_numpy(directions @ turn).half()
    return {"shift": torch.zeros(width), "spread": torch.ones(width), "matrix": matrix}


def measure(encoder: PretrainedEncoder, store: Store, cache: Path) -> dict[str, Any]:
    """Accuracies, recall and sizes, full and compact."""
    matrix = encoder.projection["matrix"].float().numpy()
    figures: dict[str, Any] = {"features": list(matrix.shape), "sets": {}}
    for task in open_tasks(cache):
        full = embed(encoder, task.stores["body-16"], progress=False)
        few = full @ matrix
        accuracies = {
            name: _accuracies(task, vectors) for name, vectors in (("full", full), ("compact", few))
        }
        figures["sets"][task.name] = {**accuracies, "recall@10": _recall(full, few)}
    held_out = embed(encoder, store, progress=False)[store.split("xsub")[1]]
    figures["held-out CMU windows, recall@10"] = _recall(held_out, held_out @ matrix)
    return figures


def _accuracies(task: Task, vectors: Vectors) -> dict[str, float]:
    """Per cent of the test clips that kNN (k = 1, cosine) and ridge get right, the mean over the splits of a
    set.
    """
    right: dict[str, list[float]] = {"knn": [], "ridge": []}
    classes = int(task.labels.max()) + 1
    for train, test in task.parts:
        predicted = knn_predict(vectors[train], task.labels[train], vectors[test], k=1)
        right["knn"].append(float(np.mean(predicted == task.labels[test])))
        penalty, _ = choose_ridge_penalty(vectors[train], task.labels[train], task.folds(train), classes)
        model = fit_ridge(vectors[train], task.labels[train], penalty, classes)
        right["ridge"].append(float(np.mean(model.predict(vectors[test]) == task.labels[test])))
    return {name: round(100 * float(np.mean(values)), 1) for name, values in right.items()}


def _recall(full: Vectors, few: Vectors) -> float:
    """Share of the ten nearest full vectors, the query itself left out, that are among the ten nearest few
    numbers.
    """
    chosen = np.random.default_rng(0).permutation(len(full))[:QUERIES]
    nearest = [search_exactly(vectors, vectors[chosen], 11)[0][:, 1:] for vectors in (few, full)]
    return round(recall_of(*nearest), 3)


def main(arguments: Sequence[str]) -> int:
    """Fit where it is asked for, and measure."""
    parser = argparse.ArgumentParser(description="The compact output of halp-base and what it costs.")
    parser.add_argument("store", type=Path, help="windows of CMU, see tools.encoders.corpus")
    parser.add_argument("--fit", type=Path, help="package that gets the projection")
    parser.add_argument(
        "--sets", type=Path, default=Path("stores/transfer"), help="where the prepared sets are kept"
    )
    options = parser.parse_args(arguments)
    store = halp.open_store(options.store)
    encoder = halp.load_encoder(options.fit or "halp-base")
    if options.fit:
        encoder.projection = fit(embed(encoder, store)[store.split("xsub")[0]])
        write_package(encoder, options.fit)
        return 0
    save_results("compact", measure(encoder, store, options.sets))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
