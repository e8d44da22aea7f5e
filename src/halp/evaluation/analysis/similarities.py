"""How similarities evolve over training (the supplement's figures 4 and 5), read from the metrics of runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halp.training.run import Run

END = 0.1  # the part of the logged steps that counts as the end of training


def kept_curve(run: Run) -> tuple[list[float], list[float]]:
    """Steps and mean share kept over the preceding tenth of the logged steps; it ends at `kept_share`.

    The share is that of the run's first stream; both lists are empty for a run without hallucinated
    positives.
    """
    steps, shares = logged(run, "kept")
    return steps, trailing_mean(shares, _end_lines(len(shares)))


def kept_share(run: Run) -> float | None:
    """Share of positives kept by the filter at the end of training, in [0, 1]; None without positives."""
    _, shares = logged(run, "kept")
    return float(np.mean(shares[-_end_lines(len(shares)) :])) if shares else None


def logged(run: Run, metric: str) -> tuple[list[float], list[float]]:
    """Steps and values of a metric, of the run's first stream or the whole run, in the order of logging."""
    lines, key = run.metrics(), f"{run.recipe.streams[0]}/{metric}"
    if not any(key in line for line in lines):
        key = metric
    lines = [line for line in lines if key in line]
    return [float(line["step"]) for line in lines], [float(line[key]) for line in lines]


def trailing_mean(values: Sequence[float], window: int) -> list[float]:
    """Mean of each value and those before it, `window` values in all, fewer at the beginning.

    >>> trailing_mean([1.0, 3.0, 5.0], 2)
    [1.0, 2.0, 4.0]
    """
    array = np.asarray(values, dtype=float)
    return [float(array[max(0, end - window) : end].mean()) for end in range(1, len(array) + 1)]


def _end_lines(lines: int) -> int:
    return max(1, round(END * lines))


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
    """Columns and one row per epoch: mean cosine of keys and positives to query and queue, over seeds."""
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
