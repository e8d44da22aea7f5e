"""Numbers with their error: 95 % confidence intervals of means, of shares and of differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def mean_interval(values: npt.ArrayLike) -> list[float] | None:
    """Student's interval of a mean; None where fewer than two values are known.

    It holds for values that are independent of each other and not too skewed.

    >>> [round(end, 3) for end in mean_interval([1.0, 2.0, 3.0]) or ()]
    [-0.484, 4.484]
    """
    from scipy.stats import t

    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if len(known) < 2:
        return None
    reach = float(t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / math.sqrt(len(known)))
    return [float(known.mean()) - reach, float(known.mean()) + reach]


def described(values: npt.ArrayLike) -> dict[str, Any]:
    """Mean, standard deviation, number and interval of the mean of the values that are known."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    return {
        "n": len(known),
        "mean": float(known.mean()) if len(known) else None,
        "std": float(known.std(ddof=1)) if len(known) > 1 else None,
        "interval": mean_interval(known),
    }


def bootstrap_interval(
    values: Floats, statistic: Callable[[Floats], Floats], *, resamples: int = 2000, seed: int = 0
) -> list[float] | None:
    """Percentile interval of a statistic of rows `(n, …)`, drawn with replacement; `statistic` takes `(R, n,
    …)`.

    With fewer than ten rows it is too narrow; with one row there is none.
    """
    if len(values) < 2:
        return None
    drawn = values[np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))]
    return [float(end) for end in np.nanpercentile(statistic(drawn), [2.5, 97.5])]


def welch_interval(first: npt.ArrayLike, second: npt.ArrayLike) -> list[float] | None:
    """Welch's interval of a difference of means of two groups; None if a group has fewer than two values."""
    from scipy.stats import ttest_ind

    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if min(len(one), len(other)) < 2:
        return None
    if not (one.std() or other.std()):
        return [float(one.mean() - other.mean())] * 2
    interval = ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    return [float(interval.low), float(interval.high)]


def asymmetry(left: float | None, right: float | None) -> float | None:
    """200 · (left − right) / (left + right), in per cent: 0 is alike, positive is more on the left.

    >>> asymmetry(3.0, 1.0)
    100.0
    """
    if left is None or right is None or not left + right:
        return None
    return float(200 * (left - right) / (left + right))


def names_of(known: Sequence[str], most: int = 12) -> str:
    """A short list of what there is, for messages."""
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")


def rounded(value: Any) -> Any:
    """Numbers of nested tables with six decimals."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value


def with_interval(value: float | None, interval: Sequence[float] | None, digits: int = 2) -> str:
    """A number with its interval, for tables; the number alone where nothing tells its error.

    >>> with_interval(1.5, [1.0, 2.0]), with_interval(1.5, None), with_interval(None, None)
    ('1.50 [1.00, 2.00]', '1.50', '')
    """
    if value is None:
        return ""
    between = "" if interval is None else f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"
    return f"{value:.{digits}f}{between}"


def headed(row: Mapping[str, Any], headings: Mapping[str, str]) -> dict[str, Any]:
    """A row for people: units in the names of columns.

    >>> headed({"label": "walk", "total": 3.0}, {"total": "total (s)"})
    {'label': 'walk', 'total (s)': 3.0}
    """
    return {headings.get(name, name): value for name, value in row.items()}
