"""Honest numbers around a classifier: probabilities that mean what they say, when to answer "none of these", intervals."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def softmax(logits: Floats, temperature: float = 1.0) -> Floats:
    """Probabilities `(N, C)`."""
    scaled = logits / temperature
    scaled = np.exp(scaled - scaled.max(1, keepdims=True))
    return scaled / scaled.sum(1, keepdims=True)


def fit_temperature(logits: Floats, labels: npt.NDArray[np.int64]) -> float:
    """The temperature at which held-out logits `(N, C)` have the smallest cross entropy.

    The wanted probability of the right class is (n + 1) / (n + 2) with n held-out answers, and what is left is shared by the
    others: a handful of right answers is no evidence for certainty.
    """
    from scipy.optimize import minimize_scalar

    count, classes = logits.shape
    if classes < 2 or not count:
        return 1.0
    wanted = np.full(logits.shape, 1 / (count + 2) / (classes - 1))
    wanted[np.arange(count), labels] = (count + 1) / (count + 2)

    def loss(log_temperature: float) -> float:
        return float(-(wanted * np.log(softmax(logits, math.exp(log_temperature)) + 1e-300)).sum(1).mean())

    return float(math.exp(minimize_scalar(loss, bounds=(-5.0, 5.0), method="bounded").x))


def nearest_similarities(directions: npt.NDArray[np.float32], groups: npt.NDArray[np.int64]) -> Floats:
    """For every labelled vector its similarity to the nearest one of another group (recording or person); NaN without one."""
    other = groups[:, None] != groups[None]
    found = np.where(other, directions @ directions.T, -np.inf).max(1, initial=-np.inf).astype(np.float64)
    found[~np.isfinite(found)] = np.nan
    return found


def novelty_threshold(similarities: Floats, share: float) -> float:
    """The similarity below which a vector is unlike everything: so many of the labelled ones, each left out, lie below.

    >>> novelty_threshold(np.array([0.9, 0.8, 0.7, 0.6]), 0.0)
    0.6
    >>> novelty_threshold(np.array([np.nan]), 0.05)
    -1.0
    """
    known = similarities[np.isfinite(similarities)]
    return float(np.quantile(known, share)) if len(known) else -1.0


def accuracy_interval(
    right: npt.NDArray[np.bool_], recordings: npt.NDArray[np.int64], groups: npt.NDArray[np.int64]
) -> tuple[float, float]:
    """A 95 % interval of the accuracy of answers `(N,)`: the wider of two.

    Wilson's interval, where the windows of a recording count once; and the accuracy ± t standard errors, where answers of
    one group (a person) go together: s² = G / (G − 1) · Σ_g (Σ_{i in g} (right_i − accuracy))² / N².
    """
    from scipy.stats import t

    accuracy, count = float(right.mean()), len(np.unique(recordings))
    low, high = wilson(round(accuracy * count), count)
    number = len(np.unique(groups))
    if number > 1:
        sums = np.bincount(np.unique(groups, return_inverse=True)[1], right - accuracy)
        reach = t.ppf(0.975, number - 1) * math.sqrt(number / (number - 1) * float(sums @ sums)) / len(right)
        low, high = min(low, accuracy - reach), max(high, accuracy + reach)
    return max(0.0, min(low, accuracy)), min(1.0, max(high, accuracy))


def wilson(right: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95 % interval of a share.

    >>> [round(end, 3) for end in wilson(9, 10)]
    [0.596, 0.982]
    """
    if total < 1:
        return 0.0, 1.0
    share = right / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    reach = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, middle - reach), min(1.0, middle + reach)
