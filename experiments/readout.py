"""`python -m experiments.readout`: what the read-out alone is worth: raw coordinates and untrained GRUs under
a ridge probe.

NW-UCLA (views 1, 2 → 3), UTD-MHAD and MSR-Action3D (odd → even subjects), full rotation, 32 frames. Ridge:
features standardised on the training clips, penalty chosen on the validation split of the training part. Raw
coordinates also by a linear SVM whose C is chosen in the same way. Untrained encoders: two layers of 2 × 96
units, joint, motion and bone streams, every pooling, three seeds. Writes `results/readout.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from experiments.files import RESULTS
from experiments.stores import SETS, prepared_store
from halp.core.errors import InputError
from halp.data.store import Store
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import RawCoordinates, embed, evaluate
from halp.evaluation.results import mean_and_std, versions

STREAMS = ("joint", "motion", "bone")
POOLINGS = ("mean", "max", "mean+max", "thirds", "thirds-max")
# Up to 1: a validation split has about half of the training clips and asks for a stronger penalty than all of
# them need. With penalties up to 30 raw coordinates had 69.8 / 73.7 / 58.2 on test; that was seen before the
# list was cut.
PENALTIES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
COSTS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)


def untrained(store: Store, stream: str, pooling: str, seed: int) -> PretrainedEncoder:
    """A GRU as it begins, without any training."""
    torch.manual_seed(seed)
    settings = EncoderSettings(name="gru", hidden=96, layers=2, pooling=pooling)
    inner = build_encoder(settings, store.topology, store.persons)
    return PretrainedEncoder(inner, store.topology, stream=stream, persons=store.persons, frames=32).eval()


def ridge(encoder: PretrainedEncoder, store: Store, split: str, validation: str) -> tuple[float, float]:
    """Test and validation accuracy."""
    found = evaluate(
        encoder,
        store,
        "ridge",
        split,
        validation=validation,
        penalties=PENALTIES,
        device="cpu",
        progress=False,
    )
    return found.accuracy, found.metrics["validation"]


def support_vectors(store: Store, split: str, validation: str) -> tuple[float, float]:
    """Test and validation accuracy of a linear SVM on raw coordinates, with the C that validates best."""
    features = embed(RawCoordinates(store.topology, persons=store.persons), store, progress=False)

    def accuracy(parts: tuple[Any, Any], cost: float) -> float:
        train, test = parts
        classifier = make_pipeline(StandardScaler(), LinearSVC(C=cost, max_iter=5000, random_state=0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            classifier.fit(features[train], store.labels[train])
        return 100 * float((classifier.predict(features[test]) == store.labels[test]).mean())

    scores = {cost: accuracy(store.split(validation), cost) for cost in COSTS}
    best = max(scores, key=lambda cost: scores[cost])
    return accuracy(store.split(split), best), scores[best]


def measure(seeds: int, folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Row → set → test and validation accuracies."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, (split, validation) in SETS.items():
        store = prepared_store(name, folder)
        rows = {"raw, linear SVM": [support_vectors(store, split, validation.name)]}
        raw = RawCoordinates(store.topology, persons=store.persons)
        rows["raw, ridge"] = [ridge(raw, store, split, validation.name)]
        for stream in STREAMS:
            for pooling in POOLINGS:
                rows[f"untrained GRU, {stream}, {pooling}"] = [
                    ridge(untrained(store, stream, pooling, seed), store, split, validation.name)
                    for seed in range(seeds)
                ]
        for row, pairs in rows.items():
            test, valid = (mean_and_std([pair[which] for pair in pairs]) for which in (0, 1))
            found.setdefault(row, {})[name] = {"test": test, "validation": valid}
    return found


def _shown(pair: tuple[float, float | None]) -> str:
    return f"{pair[0]:.1f}" if pair[1] is None else f"{pair[0]:.1f} ± {pair[1]:.1f}"


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="Raw coordinates and untrained GRUs under a ridge probe.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/real_data/stores"), help="where stores go")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        found = measure(options.seeds, options.out)
    except InputError as error:
        Console(stderr=True).print(f"{error}; set HALP_SHARED to the folder that holds data/")
        return 2
    table = Table("ridge, % (validation)", *SETS)
    for row, sets in found.items():
        cells = [
            f"{_shown(sets[name]['test'])} ({np.round(sets[name]['validation'][0], 1)})" for name in SETS
        ]
        table.add_row(row, *cells)
    Console(width=120).print(table)
    RESULTS.mkdir(exist_ok=True)
    data = {
        "command": " ".join(["python -m experiments.readout", *arguments]),
        "versions": versions(),
        "rows": found,
    }
    (RESULTS / "readout.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
