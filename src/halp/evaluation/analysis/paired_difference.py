"""Means over seeds and paired differences with their confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from halp.core.errors import InputError


@dataclass(frozen=True)
class Difference:
    """A mean paired difference and the half width of its 95 % confidence interval (None with one pair)."""

    mean: float
    half_width: float | None
    pairs: int

    def __str__(self) -> str:
        sign = "+" if self.mean >= 0 else "−"
        width = "" if self.half_width is None else f" ± {self.half_width:.2f}"
        return f"{sign}{abs(self.mean):.2f}{width}"


def paired_difference(
    ours: Sequence[float], baseline: Sequence[float], *, comparisons: int = 1
) -> Difference:
    """Mean of ours − baseline over pairs of the same seed, with Student's 95 % interval.

    With several `comparisons` the intervals hold for all of them at once (Bonferroni).

    >>> str(paired_difference([2.0, 3.0, 4.0], [1.0, 2.0, 2.0]))
    '+1.33 ± 1.43'
    """
    if len(ours) != len(baseline) or not len(ours):
        raise InputError(f"{len(ours)} and {len(baseline)} figures cannot be paired; use the same seeds")
    gaps = np.asarray(ours, dtype=float) - np.asarray(baseline, dtype=float)
    half = None
    if len(gaps) > 1:
        half = float(
            stats.t.ppf(1 - 0.025 / comparisons, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps))
        )
    return Difference(float(gaps.mean()), half, len(gaps))
