"""Calibration of a classifier: temperature, rejection threshold and the interval of an accuracy."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError

Floats = npt.NDArray[np.float64]
Reject = float | str | None  # a rate, "auto" for that of the model, "none" or None for never
REJECTION_RATE = (
    0.05  # share of the labelled clips, each against other people, that may be called unlike everything
)


def fit_temperature(logits: Floats, labels: npt.NDArray[np.int64]) -> float:
    """The temperature at which held-out logits `(N, C)` have the smallest cross entropy.

    The wanted probability of the right class is (n + 1) / (n + 2) with n held-out answers, and what is left
    is shared by the
    others: a handful of right answers is no evidence for certainty. A single answer may still be surer than
        that.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    count, classes = logits.shape
    if classes < 2 or not count:
        return 1.0
    wanted = np.full(logits.shape, 1 / (count + 2) / (classes - 1))
    wanted[np.arange(count), labels] = (count + 1) / (count + 2)

    def loss(log_temperature: float) -> float:
        return float(-(wanted * log_softmax(logits / math.exp(log_temperature), axis=1)).sum(1).mean())

    return float(math.exp(minimize_scalar(loss, bounds=(-5.0, 5.0), method="bounded").x))


def nearest_similarities(directions: npt.NDArray[np.float32], units: npt.NDArray[np.int64]) -> Floats:
    """Each labelled vector's similarity to the nearest of another unit (recording or person), sorted."""
    similarities = directions @ directions.T
    similarities[units[:, None] == units[None]] = -np.inf
    nearest = similarities.max(1, initial=-np.inf).astype(np.float64)
    return np.sort(nearest[np.isfinite(nearest)])


def check_rejection(rate: Reject) -> Reject:
    """A rate in [0, 1), "auto", or None for "none"; numbers may be written as text.

    >>> check_rejection("none"), check_rejection("0.1")
    (None, 0.1)
    """
    if rate is None or rate == "none":
        return None
    if rate == "auto":
        return rate
    try:
        number = float(rate)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < 1:
        raise InputError(f"a rejection rate of {rate} is not possible; give 0 or more, below 1, or none")
    return number


def rejection_threshold(similarities: Floats, rate: float) -> float:
    """The similarity below which vectors are rejected: at most a share `rate` of known ones.

    The k-th smallest of n similarities, k = ⌊(n + 1) · rate⌋ (conformal prediction); −inf where n is too
    small for the rate.

    >>> rejection_threshold(np.array([0.9, 0.8, 0.7, 0.6]), 0.4)
    0.7
    >>> rejection_threshold(np.array([0.9, 0.8, 0.7, 0.6]), 0.1)
    -inf
    """
    place = min(math.floor((len(similarities) + 1) * rate + 1e-9), len(similarities))
    return float(np.sort(similarities)[place - 1]) if place else -math.inf


def accuracy_interval(
    right: npt.NDArray[np.bool_], recordings: npt.NDArray[np.int64], units: npt.NDArray[np.int64]
) -> tuple[float, float]:
    """A 95 % interval of the accuracy of answers `(N,)`: the wider of two.

    Wilson's interval, where the windows of a recording count once; and the accuracy ± t standard errors,
    where answers of one unit (a person) go together: s² = G / (G − 1) · Σ_g (Σ_{i in g} (right_i −
    accuracy))² / N².
    """
    from scipy.stats import t

    accuracy, count = float(right.mean()), len(np.unique(recordings))
    low, high = wilson(round(accuracy * count), count)
    number = len(np.unique(units))
    if number > 1:
        sums = np.bincount(np.unique(units, return_inverse=True)[1], right - accuracy)
        reach = t.ppf(0.975, number - 1) * math.sqrt(number / (number - 1) * float(sums @ sums)) / len(right)
        low, high = min(low, accuracy - reach), max(high, accuracy + reach)
    return float(max(0.0, min(low, accuracy))), float(min(1.0, max(high, accuracy)))


def wilson(right: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share.

    >>> [round(end, 3) for end in wilson(9, 10)]
    [0.596, 0.982]
    """
    from scipy.stats import binomtest

    if total < 1:
        return 0.0, 1.0
    interval = binomtest(right, total).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
