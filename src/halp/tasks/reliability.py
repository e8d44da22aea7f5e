"""Reliability of two accounts or several raters: Cohen's kappa, and the intraclass correlation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def kappa(one: npt.ArrayLike, two: npt.ArrayLike) -> float | None:
    """Cohen's kappa; None if both use a single label, where agreement by chance is certain."""
    from sklearn.metrics import cohen_kappa_score

    if len(np.unique(np.concatenate([np.asarray(one), np.asarray(two)]))) < 2:
        return None
    return float(cohen_kappa_score(one, two))


def kappas(tables: Floats) -> Floats:
    """Cohen's kappa of contingency tables `(R, labels * labels)`, NaN if it is undefined.

    >>> kappas(np.array([[20.0, 5.0, 10.0, 15.0]])).round(3).tolist()
    [0.4]
    """
    size = round(np.sqrt(tables.shape[1]))
    counts = tables.reshape(len(tables), size, size)
    whole = counts.sum((1, 2))
    chance = (counts.sum(1) * counts.sum(2)).sum(1) / whole**2
    return np.asarray((np.trace(counts, axis1=1, axis2=2) / whole - chance) / (1 - chance))


def icc(values: npt.ArrayLike) -> float | None:
    """Intraclass correlation ICC(2,1) of `(targets, raters)`: absolute agreement; None if undefined.

    Two-way random effects after Shrout and Fleiss (1979).
    """
    n, k, rows, columns, rest = _squares(values)
    if n < 2 or k < 2:
        return None
    below = rows + (k - 1) * rest + k * (columns - rest) / n
    return float((rows - rest) / below) if below > 0 else None


def icc_interval(values: npt.ArrayLike) -> list[float] | None:
    """The 95 % interval of `icc`, after McGraw and Wong (1996); None below three targets, or where undefined.

    >>> rated = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    >>> [round(end, 3) for end in icc_interval(rated) or ()]
    [0.019, 0.761]
    """
    from scipy.stats import f

    n, k, rows, columns, rest = _squares(values)
    own = icc(values)
    if own is None or n < 3 or rest <= 0 or own >= 1:
        return None
    a = k * own / (n * (1 - own))
    b = 1 + k * own * (n - 1) / (n * (1 - own))
    within = (a * columns + b * rest) ** 2
    freedom = within / ((a * columns) ** 2 / (k - 1) + (b * rest) ** 2 / ((n - 1) * (k - 1)))
    low, high = f.ppf(0.975, n - 1, freedom), f.ppf(0.975, freedom, n - 1)
    spread = k * columns + (k * n - k - n) * rest
    return [
        float(n * (rows - low * rest) / (low * spread + n * rows)),
        float(n * (high * rows - rest) / (spread + n * high * rows)),
    ]


def _squares(values: npt.ArrayLike) -> tuple[Any, ...]:
    """Numbers of targets and raters, and mean squares of targets, of raters, and of the rest."""
    table = np.asarray(values, dtype=np.float64)
    n, k = table.shape
    if n < 2 or k < 2:
        return n, k, 0.0, 0.0, 0.0
    mean = table.mean()
    rows = k * ((table.mean(1) - mean) ** 2).sum() / (n - 1)
    columns = n * ((table.mean(0) - mean) ** 2).sum() / (k - 1)
    rest = ((table - table.mean(1, keepdims=True) - table.mean(0) + mean) ** 2).sum() / ((n - 1) * (k - 1))
    return n, k, rows, columns, rest
