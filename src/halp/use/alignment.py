"""Dynamic time warping, vectorised over anti-diagonals: which moment of one recording is which moment of another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halp.errors import InputError

Floats = npt.NDArray[np.float64]


def align(cost: npt.NDArray[np.floating], band: int | None = None) -> tuple[npt.NDArray[np.int64], float]:
    """The cheapest monotone path through a cost matrix `(N, M)` from corner to corner: pairs `(L, 2)` and their summed cost.

    Steps go one row, one column or both at a time. `band` keeps the path within so many rows of the straight line.
    """
    cost = np.asarray(cost, dtype=np.float64)
    if cost.ndim != 2 or 0 in cost.shape or not np.isfinite(cost).all():
        raise InputError(f"a cost matrix of shape {cost.shape} with finite numbers only is needed to align")
    if band is not None:
        cost = np.where(_near_diagonal(cost.shape, band), cost, np.inf)
    total = accumulate(np.asarray(cost, dtype=np.float64))
    return _trace(total), float(total[-1, -1])


def accumulate(cost: Floats) -> Floats:
    """D(i, j) = cost(i, j) + min(D(i−1, j), D(i, j−1), D(i−1, j−1)), one anti-diagonal at a time."""
    rows, columns = cost.shape
    # Anti-diagonal d is a row here: entry i is (i, d − i), so that the three neighbours are slices of the two rows before.
    skewed = np.full((rows + columns - 1, rows), np.inf)
    i = np.arange(rows)[:, None]
    skewed[i + np.arange(columns)[None], i] = cost
    total = np.full_like(skewed, np.inf)
    total[0, 0] = skewed[0, 0]
    for d in range(1, rows + columns - 1):
        best = total[d - 1].copy()
        np.minimum(best[1:], total[d - 1, :-1], out=best[1:])
        if d > 1:
            np.minimum(best[1:], total[d - 2, :-1], out=best[1:])
        total[d] = best + skewed[d]
    return total[i + np.arange(columns)[None], i]


def _trace(total: Floats) -> npt.NDArray[np.int64]:
    """The path back from the last corner; of equal steps the diagonal one is taken."""
    row, column = total.shape[0] - 1, total.shape[1] - 1
    path = [(row, column)]
    while row or column:
        steps = [(row - 1, column - 1), (row - 1, column), (row, column - 1)]
        row, column = min((step for step in steps if min(step) >= 0), key=lambda step: total[step])
        path.append((row, column))
    return np.array(path[::-1], dtype=np.int64)


def _near_diagonal(shape: tuple[int, ...], band: int) -> npt.NDArray[np.bool_]:
    """Entries within `band` of the straight line between the corners; wide enough to leave a path."""
    if band < 1:
        raise InputError(f"a band of {band} leaves no path; choose at least 1")
    rows, columns = shape
    line = np.arange(rows)[:, None] * (columns - 1) / max(rows - 1, 1)
    reach = max(band, (columns - 1) / max(rows - 1, 1))
    return np.abs(line - np.arange(columns)[None]) <= reach
