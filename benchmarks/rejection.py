"""`python -m benchmarks.rejection [--encoder halp-base]`: how a few-label classifier treats people and classes it never saw.

For each real set the classifier is fitted on the training part (other people or another camera view) of every other class,
at the default share of 5 % that may be called none of these. On the test part: accuracy on the known classes without
rejection, the share of them wrongly called none of these, the share of the *unknown* classes rightly called so, the area
under the curve of the similarity that decides, and the calibration error of the probabilities (ten bins). Once with the
even, once with the odd classes known; the mean of both is written to `results/rejection.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

from benchmarks.baselines import RESULTS
from benchmarks.transfer import Array, Task, open_tasks
from halp.evaluation import embed
from halp.evaluation.results import versions
from halp.training import load_encoder
from halp.use.classifier import UNSURE, fit_classifier


def measure(task: Task, vectors: Array, known: Array) -> dict[str, float]:
    """The metrics of one choice of known classes."""
    train, test = task.parts[0]
    names = [str(one) for one in known]
    place = {int(label): number for number, label in enumerate(known)}
    fitted_on = train[np.isin(task.labels[train], known)]
    labels = np.array([place[int(label)] for label in task.labels[fitted_on]])
    model = fit_classifier(vectors[fitted_on], labels, names, groups=task.groups[fitted_on])
    is_known = np.isin(task.labels[test], known)
    forced = model.predict(vectors[test], reject=False)
    truth = np.array([place.get(int(label), -1) for label in task.labels[test]])
    right = (forced.label == truth)[is_known]
    rejected = model.predict(vectors[test]).label < 0
    return {
        "accuracy": float(right.mean()),
        "known called none of these": float(rejected[is_known].mean()),
        "unknown called none of these": float(rejected[~is_known].mean()),
        "area under the curve": float(roc_auc_score(is_known, forced.similarity)),
        "calibration error": calibration_error(forced.probability[is_known], right),
    }


def calibration_error(probability: Array, right: Array, bins: int = 10) -> float:
    """Mean distance of probability and accuracy over bins of equal width, weighted by their size."""
    place = np.minimum((probability * bins).astype(int), bins - 1)
    gaps = [abs(probability[place == one].mean() - right[place == one].mean()) for one in np.unique(place)]
    return float(np.average(gaps, weights=np.bincount(place)[np.unique(place)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="halp-base")
    arguments = parser.parse_args()
    encoder = load_encoder(arguments.encoder)
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for task in open_tasks(Path(folder)):
            store = task.stores["body-16"]
            vectors = embed(encoder, store, progress=False)
            halves = [measure(task, vectors, np.unique(task.labels)[first::2]) for first in (0, 1)]
            found[task.name] = {name: round(float(np.mean([half[name] for half in halves])), 4) for name in halves[0]}
    record = {"encoder": arguments.encoder, "unsure": UNSURE, "versions": versions(), "sets": found}
    (RESULTS / "rejection.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    table = Table("set", *next(iter(found.values())))
    for name, values in found.items():
        table.add_row(name, *(f"{value:.3f}" for value in values.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
