"""Displacements as classes: in which direction and how far every joint has moved since some frames before (GL-Transformer)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


@torch.no_grad()
def displacement_classes(
    places: Tensor, interval: int, bin: float, bins: int, present: Tensor
) -> tuple[Tensor, Tensor]:
    """Classes of direction and of magnitude, `(B, T, P, V)` each, of x(t − interval) − x(t) for `(B, T, P, V, C)`.

    Before the interval has passed the first frame counts. Direction: the signs (−, 0, +) of the coordinates as digits to base
    3, the first the lowest. Magnitude: 0 for none at all, then `bins` of equal width, the last one open; `bins` + 1 for a
    person who is not `present` `(B, P)`.

    >>> x = torch.tensor([0.0, 0.0, -0.025])[None, :, None, None, None].expand(-1, -1, -1, -1, 3)
    >>> [classes.flatten().tolist() for classes in displacement_classes(x, 1, 0.01, 14, torch.ones(1, 1).bool())]
    [[13, 13, 26], [0, 0, 5]]
    """
    before = torch.arange(places.shape[1], device=places.device).sub(interval).clamp_min(0)
    moved = places[:, before] - places
    digits = moved.sign().long() + 1
    direction = (digits * 3 ** torch.arange(places.shape[4], device=places.device)).sum(4)
    length = moved.square().sum(4).sqrt()
    magnitude = (torch.div(length, bin, rounding_mode="floor") + 1).clamp_max(bins).long()
    magnitude = magnitude.masked_fill(length == 0, 0)
    return direction, magnitude.masked_fill(~present[:, None, :, None], bins + 1)


@torch.no_grad()
def rising_coordinates(moved: Tensor) -> Tensor:
    """Classes `(…)` of displacements `(…, C)`: which coordinates grow, as binary digits, the first the lowest.

    >>> rising_coordinates(torch.tensor([[0.1, 0.0, 0.3], [-0.1, 0.2, -0.3]])).tolist()
    [5, 2]
    """
    return ((moved > 0).long() * 2 ** torch.arange(moved.shape[-1], device=moved.device)).sum(-1)


def token_weights(intervals: int, joints: int, centre: int, weight: float, *, all_intervals: bool = True) -> Tensor:
    """Weights `(R, V)` for `weighted_cross_entropy`: the mean over joints plus `weight` times that over the centre joint.

    Without `all_intervals` the centre counts as such in the first interval alone and among the joints in the others.
    """
    is_centre = torch.zeros(intervals, joints, dtype=torch.bool)
    is_centre[: None if all_intervals else 1, centre] = True
    return torch.where(is_centre, weight / is_centre.sum(), 1 / (~is_centre).sum().clamp_min(1))


def weighted_cross_entropy(logits: Tensor, classes: Tensor, weight: Tensor) -> Tensor:
    """Cross-entropy of `(B, T, R, P, V, K)` logits, mean over frames and persons, summed with weights `(R, V)`: `(B,)`."""
    error = F.cross_entropy(logits.movedim(5, 1), classes, reduction="none")
    return (error.mean((1, 3)) * weight).sum((1, 2))
