"""The share of hallucinated positives that the filter keeps: one definition for reports, README and `reproduce`.

The share at the end of training is the mean over the last tenth of the logged steps with hallucinated positives, which are
the steps since HaLP started; at least one of them. A single logged step is one batch, whose share moves by several points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halp.training.run import Run

END = 0.1  # the part of the logged steps that counts as the end of training


def kept_curve(run: Run) -> tuple[list[float], list[float]]:
    """Steps and the mean share kept in the tenth of the logged steps up to each of them; it ends at `kept_share`.

    The share is that of the run's first stream; both lists are empty for a run without hallucinated positives.
    """
    steps, shares = logged(run, "kept")
    return steps, trailing_mean(shares, _end_lines(len(shares)))


def kept_share(run: Run) -> float | None:
    """Share of positives that the filter kept at the end of training, in [0, 1]; None without hallucinated positives."""
    _, shares = logged(run, "kept")
    return float(np.mean(shares[-_end_lines(len(shares)) :])) if shares else None


def logged(run: Run, metric: str) -> tuple[list[float], list[float]]:
    """Steps and values of a metric of the run's first stream, or of the whole run, in the order of logging."""
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
