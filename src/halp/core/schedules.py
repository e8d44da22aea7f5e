"""Learning rates over epochs, for trainings and for the classifiers of protocols."""

from __future__ import annotations

from collections.abc import Sequence


def stepped_rate(rate: float, epoch: float, milestones: Sequence[int], gamma: float) -> float:
    """Learning rate in an epoch: multiplied by gamma at every milestone.

    >>> stepped_rate(0.01, 349, (350,), 0.1), stepped_rate(0.01, 350, (350,), 0.1)
    (0.01, 0.001)
    """
    return rate * gamma ** sum(epoch >= milestone for milestone in milestones)
