"""`python -m experiments.rejection [--encoder halp-base]`: how a few-label classifier treats people and
classes it never saw.

On each real set half of the people are labelled and the other half tested, and half of the classes are known.
Per known class 3, 5, 10 or all clips are labelled, of several people or of one. Measured on people who were
not labelled: accuracy on the known classes without rejection, the share of them that is rejected, the share
of clips of *unknown* classes that is rejected, all at the default rate; the area under the curve of the
similarity that decides; and the calibration error of the probabilities (ten bins). Labels of one person do
not calibrate a threshold: rejection is off there, and the columns "forced" say what the same rate would do.
Mean over even and odd classes and `--draws` draws, seeded by the draw; written to `results/rejection.json`.
`--adapt` lets the classifier use the other clips of the labelled people, of known and unknown classes alike,
without their labels (`halp.tasks.adapt`), with 3, 5 and 10 labels of several people; written to
`results/rejection_adapted.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

from experiments.files import RESULTS
from experiments.transfer import Array, Task, open_tasks
from halp.evaluation import embed
from halp.evaluation.results import versions
from halp.features.loading import load_encoder
from halp.tasks.adapt import Neighbourhood
from halp.tasks.calibration import REJECTION_RATE
from halp.tasks.classifier import fit_classifier
from halp.tasks.classify import disable_unreliable_rejection
from halp.tasks.labelling import validation_units

SHOTS = (3, 5, 10, None)


def measure(
    task: Task, vectors: Array, known: Array, shots: int | None, alone: bool, seed: int, adapt: bool = False
) -> dict[str, float]:
    """The metrics of one choice of known classes and labelled clips."""
    draw = np.random.default_rng([seed, shots or 0])
    people = task.stores["body-16"].subjects
    taught = np.unique(people)[::2]
    pool = np.isin(people, [draw.choice(taught)] if alone else taught)
    clips = [draw.permutation(np.flatnonzero(pool & (task.labels == label)))[:shots] for label in known]
    rows = np.concatenate(clips)
    labels = np.searchsorted(known, task.labels[rows])
    groups, grouped_by = validation_units(labels, people[rows].tolist(), np.arange(len(rows)))
    kind, near = "prototypes", None
    if adapt:
        others = np.setdiff1d(np.flatnonzero(pool), rows)
        kind, near = "adapted", Neighbourhood.of(vectors[rows], vectors[others])
    names = [str(label) for label in known]
    model = fit_classifier(vectors[rows], labels, names, units=groups, kind=kind, neighbourhood=near)
    model = disable_unreliable_rejection(model, grouped_by)
    test = np.flatnonzero(~np.isin(people, taught))
    is_known = np.isin(task.labels[test], known)
    found, forced = model.predict(vectors[test]), model.predict(vectors[test], reject=REJECTION_RATE)
    right = (known[found.best] == task.labels[test])[is_known]
    return {
        "labelled": len(rows),
        "accuracy": float(right.mean()),
        "known rejected": float(found.rejected[is_known].mean()),
        "unknown rejected": float(found.rejected[~is_known].mean()),
        "known rejected, forced": float(forced.rejected[is_known].mean()),
        "unknown rejected, forced": float(forced.rejected[~is_known].mean()),
        "area under the curve": float(roc_auc_score(is_known, found.similarity)),
        "calibration error": calibration_error(found.probability[is_known], right),
    }


def calibration_error(probability: Array, right: Array, bins: int = 10) -> float:
    """Mean distance of probability and accuracy over bins of equal width, weighted by their size."""
    place = np.minimum((probability * bins).astype(int), bins - 1)
    gaps = [abs(probability[place == one].mean() - right[place == one].mean()) for one in np.unique(place)]
    return float(np.average(gaps, weights=np.bincount(place)[np.unique(place)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="halp-base")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--adapt", action="store_true")
    arguments = parser.parse_args()
    encoder = load_encoder(arguments.encoder)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for task in open_tasks(Path(folder)):
            vectors, classes = embed(encoder, task.stores["body-16"], progress=False), np.unique(task.labels)
            for alone in (False,) if arguments.adapt else (False, True):
                for shots in SHOTS[:3] if arguments.adapt else SHOTS:
                    trials = [
                        measure(task, vectors, classes[first::2], shots, alone, seed, arguments.adapt)
                        for first in (0, 1)
                        for seed in range(arguments.draws)
                    ]
                    means = {
                        name: round(float(np.mean([trial[name] for trial in trials])), 4)
                        for name in trials[0]
                    }
                    labels = {
                        "labels per class": shots or "all",
                        "labels of": "one person" if alone else "several",
                    }
                    rows.append({"set": task.name, **labels, **means})
    record = {
        "command": " ".join(["python", "-m", "experiments.rejection", *sys.argv[1:]]),
        "encoder": arguments.encoder,
        "rejection_rate": REJECTION_RATE,
        "seeds": list(range(arguments.draws)),
        "versions": versions(),
        "rows": rows,
    }
    name = "rejection_adapted.json" if arguments.adapt else "rejection.json"
    (RESULTS / name).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
