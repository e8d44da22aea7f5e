"""How similarities evolve over training (the supplement's figures 4 and 5), read from the metrics of runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halp.analysis.kept_positives import logged
from halp.training.run import Run

SIMILARITIES = {
    "key – query": "similarity_key_query",
    "positive – query": "similarity_positive_query",
    "key – queue": "similarity_key_queue",
    "positive – queue": "similarity_positive_queue",
}
Table = tuple[list[str], list[list[object]]]  # columns, rows


def smooth_curve(run: Run, metric: str, window: int = 5) -> tuple[list[float], list[float]]:
    """Steps and the running mean of a metric over a few logged steps; batches are noisy."""
    steps, values = logged(run, metric)
    if len(values) <= window:
        return steps, values
    padded = np.pad(np.asarray(values), (window // 2, window - 1 - window // 2), mode="edge")
    return steps, np.convolve(padded, np.ones(window) / window, mode="valid").tolist()


def similarities_by_epoch(runs: Sequence[Run]) -> Table:
    """Columns and one row per epoch: mean cosine of keys and positives to query and queue, over the runs' seeds."""
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


def evenly_chosen(rows: Sequence[list[object]], most: int = 12) -> list[list[object]]:
    """Evenly chosen rows for a page, the first and the last among them."""
    if len(rows) <= most:
        return list(rows)
    return [rows[index] for index in np.linspace(0, len(rows) - 1, most).round().astype(int)]
