"""`python -m benchmarks.ensemble CMU`: how far frozen encoders go together, with all labels, on the four Kinect sets.

Members are `halp-base`, the same without its invariance, and fresh encoders of its architecture (other kernels, an untrained
GRU), scales fitted to CMU windows; each with ridge on its own features, the penalty chosen by folds over subjects or cameras
of the training part; scores are averaged. The folds also choose how many members take part, in this order; then the test
clips are met once (UTKinect: mean of ten half splits). What was encoded is kept in `--out`. Writes `results/ensemble.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.baselines import save_results
from benchmarks.halp_base import FITTED
from benchmarks.reweighting import plain_base
from benchmarks.transfer import Array, Task, open_tasks
from halp.augment import ClipPool, centre_views
from halp.core.errors import InputError
from halp.data.store import Store, open_store
from halp.encoders.pretrained import PretrainedEncoder, build_architecture
from halp.evaluation import embed
from halp.evaluation.protocols.ridge import choose_ridge_penalty, fit_ridge
from halp.evaluation.results import versions
from halp.features.loading import load_encoder

FRESH = 6


def members(cmu: Store) -> Iterator[tuple[str, Any]]:
    """Names and makers of the encoders."""

    def fresh(seed: int) -> PretrainedEncoder:
        encoder = load_encoder("halp-base")
        torch.manual_seed(1000 + seed)
        inner = build_architecture({**encoder.architecture, "invariant": 0}, encoder.topology, encoder.persons)
        inner.input_norm.load_state_dict(encoder.encoder.input_norm.state_dict())
        windows = np.sort(np.random.default_rng(seed).permutation(cmu.split("xsub")[0])[:FITTED])
        inner.fit(centre_views(ClipPool.from_store(cmu), torch.from_numpy(windows), encoder.frames))
        encoder.encoder = inner.eval()
        return encoder

    yield "halp-base", lambda: load_encoder("halp-base")
    yield "without invariance", plain_base
    for seed in range(FRESH):
        yield f"fresh, seed {seed}", lambda seed=seed: fresh(seed)


def scores(task: Task, features: Array, fit: Array, asked: Array) -> Array:
    """Ridge scores of clips, with the penalty that folds of the fitted clips choose."""
    classes = int(task.labels.max()) + 1
    penalty, _ = choose_ridge_penalty(features[fit], task.labels[fit], task.folds(fit), classes)
    return fit_ridge(features[fit], task.labels[fit], penalty, classes).scores(features[asked])


def accuracies(task: Task, all_features: Sequence[Array], parts: Sequence[tuple[Array, Array]]) -> list[float]:
    """Per cent right of the first 1, 2, … members together, mean over the parts."""
    rows = []
    for fit, asked in parts:
        together = np.cumsum([scores(task, features, fit, asked) for features in all_features], axis=0)
        rows.append([100 * float((sums.argmax(1) == task.labels[asked]).mean()) for sums in together])
    return [round(float(value), 2) for value in np.mean(rows, axis=0)]


def main(arguments: Sequence[str]) -> int:
    """Encode, choose by folds, test once, write."""
    parser = argparse.ArgumentParser(description="Ensembles of frozen encoders with all labels.")
    parser.add_argument("store", type=Path, help="made by benchmarks/corpus.py")
    parser.add_argument("--out", type=Path, default=Path("runs/ensemble"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(stderr=True)
    try:
        cmu, tasks = open_store(options.store), open_tasks(options.out)
    except InputError as error:
        console.print(f"{error}; set HALP_SHARED to the folder that holds data/")
        return 2
    found: dict[str, Any] = {}
    makers = dict(members(cmu))
    features: dict[str, list[Array]] = {task.name: [] for task in tasks}
    for name, maker in makers.items():
        encoder = maker()
        for task in tasks:
            features[task.name].append(embed(encoder, task.stores["body-16"], progress=False))
        console.print(name)
    for task in tasks:
        train = task.parts[0][0]
        folds = [(train[fit], train[held]) for fit, held in task.folds(train)]
        validated = accuracies(task, features[task.name], folds)
        chosen = int(np.argmax(validated))
        tested = accuracies(task, features[task.name], task.parts)
        found[task.name] = {
            "folds": validated,
            "chosen members": chosen + 1,
            "test": tested[chosen],
            "test, halp-base alone": tested[0],
            "test, all numbers of members": tested,
        }
        console.print(task.name, found[task.name])
    save_results(
        "ensemble",
        {
            "command": "python -m benchmarks.ensemble CMU",
            "members": list(makers),
            "versions": versions(),
            "sets": found,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
