"""Confidence intervals (95 %) of means, of shares and of differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.data.spans import Event

Floats = npt.NDArray[np.float64]
FEWEST_DRAWN = 5  # recordings or people; fewer cannot tell how they differ
COUNTED = "one recording is counted completely, not sampled; see the summary over people"


def mean_interval(values: npt.ArrayLike, step: float = 0.0, *, serial: bool = False) -> list[float] | None:
    """Student's interval of a mean; None if fewer than two values are known.

    It holds for values that are independent of each other and not too skewed. `step` is the time between two
    frames, if the values are durations: their spread counts as that of two rounded times, 0.41 steps, where
    it happens to be less, and the interval is that of the logarithm, so that its ends are positive. `serial`:
    neighbours share a boundary that depends on both, which makes them alike and their spread too small; it is
    widened by their correlation, plus 1 / n, by which that is too low in a sample.

    >>> [round(end, 3) for end in mean_interval([1.0, 2.0, 3.0]) or ()]
    [-0.484, 4.484]
    >>> [round(end, 3) for end in mean_interval([1.0, 2.0, 3.0], step=0.01) or ()]
    [0.578, 6.926]
    """
    from scipy.stats import t

    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    count = len(known)
    if count < 2:
        return None
    mean = float(known.mean())
    spread = max(float(known.std(ddof=1)), step / math.sqrt(6))
    if serial and (apart := known - mean).any():
        alike = float(apart[1:] @ apart[:-1] / (apart @ apart)) + 1 / count
        spread *= math.sqrt(1 + 2 * (1 - 1 / count) * max(alike, 0.0))
    reach = float(t.ppf(0.975, count - 1)) * spread / math.sqrt(count)
    if step and mean > 0:
        return [mean * math.exp(-reach / mean), mean * math.exp(reach / mean)]
    return [0.0 if step else mean - reach, mean + reach]


def described(values: npt.ArrayLike, step: float = 0.0) -> dict[str, Any]:
    """Mean, standard deviation, number and interval of the mean of known values; for `step` see
    `mean_interval`.
    """
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    return {
        "n": len(known),
        "mean": float(known.mean()) if len(known) else None,
        "std": float(known.std(ddof=1)) if len(known) > 1 else None,
        "interval": mean_interval(known, step),
    }


def bootstrap_interval(
    values: Floats, statistic: Callable[[Floats], Floats], *, resamples: int = 2000, seed: int = 0
) -> list[float] | None:
    """Percentile interval of a statistic of rows `(n, …)`, resampled; `statistic` takes `(R, n, …)`.

    With fewer than ten rows it is too narrow; with one row there is none.
    """
    if len(values) < 2:
        return None
    drawn = values[np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))]
    return [float(end) for end in np.nanpercentile(statistic(drawn), [2.5, 97.5])]


def sums_interval(
    rows: npt.ArrayLike, statistic: Callable[[Floats], Floats], scale: str = "plain"
) -> list[float] | None:
    """Jackknife interval of a statistic of the sums of rows `(n, k)`, such as a ratio of two of them.

    Rows are recordings or people, left out as wholes, so that what belongs to one of them stays together.
    `statistic` takes sums `(R, k)`; on the scale `share` it lies between 0 and 1, on `correlation` between
    -1 and 1. None below `FEWEST_DRAWN` rows, and where leaving one out changes nothing or is not defined.
    """
    from scipy.special import expit, logit
    from scipy.stats import t

    values = np.asarray(rows, dtype=np.float64)
    count = len(values)
    if count < FEWEST_DRAWN:
        return None
    scales = {
        "plain": (np.asarray, np.asarray),
        "share": (logit, expit),
        "correlation": (np.arctanh, np.tanh),
    }
    there, back = scales[scale]
    with np.errstate(all="ignore"):
        found = there(statistic(np.concatenate([values.sum(0)[None], values.sum(0) - values])))
    if not np.isfinite(found).all() or np.ptp(found[1:]) == 0:
        return None
    reach = t.ppf(0.975, count - 1) * math.sqrt((count - 1) * found[1:].var())
    return [float(back(found[0] - reach)), float(back(found[0] + reach))]


def share_interval(count: int, total: int) -> list[float] | None:
    """The exact interval of a share (Clopper and Pearson); None if nothing was counted.

    >>> [round(end, 4) for end in share_interval(0, 10) or ()]
    [0.0, 0.3085]
    """
    from scipy.stats import beta

    if not total:
        return None
    low = float(beta.ppf(0.025, count, total - count + 1)) if count else 0.0
    return [low, float(beta.ppf(0.975, count + 1, total - count)) if count < total else 1.0]


def median_interval(values: npt.ArrayLike) -> list[float] | None:
    """Interval of a median by order statistics, at least 95 % for any distribution; None below six values.

    >>> median_interval([1, 2, 3, 4, 5, 6])
    [1.0, 6.0]
    """
    from scipy.stats import binom

    known = np.sort(np.asarray(values, dtype=np.float64))
    left_out = int(binom.ppf(0.025, len(known), 0.5)) if len(known) else 0
    return None if left_out < 1 else [float(known[left_out - 1]), float(known[-left_out])]


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


def asymmetry_interval(
    left: npt.ArrayLike, right: npt.ArrayLike, *, resamples: int = 2000, seed: int = 0
) -> list[float] | None:
    """Bootstrap interval of `asymmetry` of two means over strides; None below five per side."""
    sides = [np.asarray(side, dtype=np.float64) for side in (left, right)]
    if min(map(len, sides)) < FEWEST_DRAWN:
        return None
    rng = np.random.default_rng(seed)
    one, other = (side[rng.integers(0, len(side), (resamples, len(side)))].mean(1) for side in sides)
    drawn = 200 * (one - other) / np.where(one + other == 0, np.nan, one + other)
    return [float(end) for end in np.nanpercentile(drawn, [2.5, 97.5])] if np.isfinite(drawn).any() else None


def rate_interval(seconds: Sequence[float] | None) -> list[float] | None:
    """The interval of a rate per minute from that of the mean seconds of one.

    >>> rate_interval([1.0, 2.0])
    [30.0, 60.0]
    """
    return [60 / seconds[1], 60 / seconds[0]] if seconds is not None and seconds[0] > 0 else None


def without_interval(answer: Any) -> str:
    """In words, which numbers of an answer have no interval, and why; empty if it does not say.

    >>> class Counts:
    ...     def to_json(self):
    ...         return [{"count": 3, "size": 2.0, "no_interval": {"count": "counted", "size": "counted", "a.b": "?"}}]
    >>> without_interval(Counts())
    'Without an interval: count, size (counted).'
    """
    if isinstance(answer, Sequence) and len(answer) and isinstance(answer[0], Event):
        return ""  # hits and predictions have a score each
    document = answer.to_json()
    rows = [row for row in (document if isinstance(document, list) else [document]) if isinstance(row, dict)]
    reasons: dict[str, list[str]] = {}
    for row in rows:
        for place, reason in row.get("no_interval", {}).items():
            first = place.partition(".")[0]
            if ("*" in first or row.get(first) not in (None, [], {})) and place not in reasons.setdefault(
                reason, []
            ):
                reasons[reason].append(place)
    said = [
        f"{', '.join(names)} ({reason})".replace("*_", "").replace("*", "")
        for reason, names in reasons.items()
        if names
    ]
    alone = dict.fromkeys(row["interval_reason"] for row in rows if row.get("interval_reason"))
    text = f"Without an interval: {'; '.join(said)}." if said else ""
    return " ".join([text, *(f"There are no intervals: {reason}." for reason in alone)]).strip()


def rounded(value: Any) -> Any:
    """Round the numbers of nested tables to six decimals."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value


def with_interval(value: float | None, interval: Sequence[float] | None, digits: int = 2) -> str:
    """A number with its interval, for tables; the number alone if its error is unknown.

    >>> with_interval(1.5, [1.0, 2.0]), with_interval(1.5, None), with_interval(None, None)
    ('1.50 [1.00, 2.00]', '1.50', '')
    """
    if value is None:
        return ""
    between = "" if interval is None else f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"
    return f"{value:.{digits}f}{between}"


def intervals_beside(row: Mapping[str, Any], digits: int = 2) -> dict[str, Any]:
    """A row for reading: every number with its interval in one cell, if it has one.

    >>> intervals_beside({"label": "walk", "f1": 0.5, "f1_interval": [0.4, 0.6]})
    {'label': 'walk', 'f1': '0.50 [0.40, 0.60]'}
    """
    return {
        name: with_interval(value, row[f"{name}_interval"], digits) if row.get(f"{name}_interval") else value
        for name, value in row.items()
        if not name.endswith("_interval")
    }


def headed(row: Mapping[str, Any], headings: Mapping[str, str]) -> dict[str, Any]:
    """A row for reading: units in column names.

    >>> headed({"label": "walk", "total": 3.0}, {"total": "total (s)"})
    {'label': 'walk', 'total (s)': 3.0}
    """
    return {headings.get(name, name): value for name, value in row.items()}
