"""Hierarchical intervals: over training seeds, label draws within each seed, and people tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError

Floats = npt.NDArray[np.float64]
RESAMPLES = 10_000
_BLOCK = 500  # resamples held at once


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ({self.low:+.1f} to {self.high:+.1f})".replace("-", "−")

    def to_json(self) -> list[float]:
        return [round(value, 3) for value in (self.mean, self.low, self.high)]


def resampled_means(
    values: npt.NDArray[Any],
    people: npt.NDArray[Any] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Floats:
    """Means of values `(seeds, draws, clips)` with seeds, draws and people resampled: `(resamples,)`.

    Seeds are drawn with replacement, draws with replacement within every drawn seed, and people `(clips,)`
    with replacement once for all seeds and draws, with all their clips; without `people` every clip is a
    person. What exists once does not
    vary: with one seed the interval is about that seed alone.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 3 or not values.size:
        raise InputError(f"values (seeds, draws, clips) are needed, not an array of shape {values.shape}")
    seeds, draws, clips = values.shape
    persons = np.arange(clips) if people is None else np.unique(people, return_inverse=True)[1].ravel()
    if len(persons) != clips:
        raise InputError(f"{len(persons)} people cannot be those of {clips} clips")
    number = int(persons.max()) + 1
    sizes = np.bincount(persons, minlength=number).astype(float)
    sums = values @ (persons[:, None] == np.arange(number)).astype(float)  # (seeds, draws, people)
    chance = np.random.default_rng(seed)
    found = []
    for first in range(0, resamples, _BLOCK):
        block = min(_BLOCK, resamples - first)
        weights = chance.multinomial(number, np.full(number, 1 / number), size=block).astype(float)
        means = (sums.reshape(-1, number) @ weights.T / (weights @ sizes)).reshape(seeds, draws, block)
        chosen = chance.integers(seeds, size=(seeds, 1, block))
        drawn = chance.integers(draws, size=(seeds, draws, block))
        found.append(means[chosen, drawn, np.arange(block)].mean((0, 1)))
    return np.concatenate(found)


def interval(mean: float, resampled: Floats, *, level: float = 0.95) -> Interval:
    """The percentile interval of resampled means."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean, float(low), float(high))


def hierarchical_interval(
    values: npt.NDArray[Any], people: npt.NDArray[Any] | None = None, *, level: float = 0.95, **how: Any
) -> Interval:
    """Mean of values `(seeds, draws, clips)`, with an interval over seeds, label draws and people.

    >>> str(hierarchical_interval(np.ones((2, 3, 4)), resamples=10))
    '+1.0 (+1.0 to +1.0)'
    """
    return interval(float(np.mean(values)), resampled_means(values, people, **how), level=level)
