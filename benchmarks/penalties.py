"""`python -m benchmarks.penalties`: which penalty of the exact linear solver suits raw coordinates and untrained encoders.

Chosen on the validation splits of the training subjects and views; the test clips take no part. The two differ, and the
best for raw coordinates differs from set to set: the baselines of every table therefore choose their own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.baselines import RESULTS
from benchmarks.real_data import SETS, prepared_store
from halp.core.errors import InputError
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import RawCoordinates, evaluate
from halp.training.recipe import load_recipe
from halp.training.run import build_method

PENALTIES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def encoders(store: Store) -> dict[str, tuple[PretrainedEncoder, int]]:
    """The two baselines, and how many training crops each is fitted on."""
    recipe = load_recipe("cpu-moco")
    model = build_method(recipe, store.topology, store.persons)
    inner = model.get_submodule("pairs.joint.query.encoder")
    untrained = PretrainedEncoder(inner, store.topology, persons=store.persons, frames=recipe.views.frames)
    return {"raw": (RawCoordinates(store.topology, persons=store.persons), 0), "untrained": (untrained.eval(), 4)}


def main() -> int:
    """Measure, print, write `results/penalties.json`."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, list[float]]] = {}
    try:
        for name, (_, validation) in SETS.items():
            store = prepared_store(name, Path("runs/real_data/stores"))
            for kind, (encoder, crops) in encoders(store).items():
                options: dict[str, Any] = {"solver": "exact", "crops": crops, "progress": False}
                found.setdefault(kind, {})[name] = [
                    evaluate(encoder, store, "linear", validation.name, penalty=penalty, **options).accuracy
                    for penalty in PENALTIES
                ]
    except InputError as error:
        Console(stderr=True).print(f"{error}; set HALP_SHARED to the folder that holds data/")
        return 2
    table = Table("encoder", "set", *(f"{penalty:g}" for penalty in PENALTIES))
    for kind, sets in found.items():
        sets["mean"] = [round(float(mean), 2) for mean in np.mean(list(sets.values()), axis=0)]
        for name, values in sets.items():
            table.add_row(kind, name, *(f"{value:.1f}" for value in values))
    Console(width=140).print(table)
    RESULTS.mkdir(exist_ok=True)
    data = {"split": "validation", "penalties": PENALTIES, "accuracy": found}
    (RESULTS / "penalties.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
