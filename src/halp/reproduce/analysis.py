"""The analysis figures of the supplement as series of numbers: similarities over training, and to every prototype."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halp.clips.store import Store
from halp.reports.run_report import prototype_similarities
from halp.training.run import Run

SIMILARITIES = {
    "key – query": "similarity_key_query",
    "positive – query": "similarity_positive_query",
    "key – queue": "similarity_key_queue",
    "positive – queue": "similarity_positive_queue",
}
Series = tuple[list[str], list[list[object]]]


def similarities(runs: Sequence[Run]) -> Series:
    """Columns and one row an epoch: mean cosine of keys and positives to query and queue, over the runs' seeds."""
    by_epoch: dict[int, dict[str, list[float]]] = {}
    for run in runs:
        stream = run.recipe.streams[0]
        for line in run.metrics():
            if f"{stream}/similarity_positive_query" not in line:
                continue
            entry = by_epoch.setdefault(line["epoch"] + 1, {title: [] for title in SIMILARITIES})
            for title, key in SIMILARITIES.items():
                if f"{stream}/{key}" in line:
                    entry[title].append(line[f"{stream}/{key}"])
    rows: list[list[object]] = [
        [epoch, *(round(float(np.mean(values)), 4) if values else None for values in entry.values())]
        for epoch, entry in sorted(by_epoch.items())
    ]
    return ["epoch", *SIMILARITIES], rows


def prototypes(run: Run, store: Store) -> Series:
    """Columns and one row a prototype, closest to the key first."""
    series = prototype_similarities(run, store)
    ranks = next(iter(series.values()))[0] if series else []
    rows: list[list[object]] = [
        [rank, *(round(values[place], 4) for _, values in series.values())] for place, rank in enumerate(ranks)
    ]
    return ["prototype", *series], rows


def thinned(rows: Sequence[list[object]], most: int = 12) -> list[list[object]]:
    """Evenly chosen rows for a page, the first and the last among them."""
    if len(rows) <= most:
        return list(rows)
    return [rows[index] for index in np.linspace(0, len(rows) - 1, most).round().astype(int)]
