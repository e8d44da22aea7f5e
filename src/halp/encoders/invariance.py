"""Closed-form invariance: a linear map of frozen features that keeps what the views of one clip have in common.

Features are whitened by their covariance over all clips. What is left of the covariance between views of one clip has
eigenvalues from 0, a direction that no augmentation moves, to 1, one that tells augmentations apart and nothing else (the
linear case of CCA and VICReg). No gradient and no label: two eigenproblems, deterministic, and it cannot collapse.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class InvariantProjection:
    """Features `(N, F)` → `(N, D)`, most invariant direction first; `moved` `(D,)` is the share that views change."""

    mean: Tensor
    matrix: Tensor
    moved: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        return (features - self.mean) @ self.matrix


@torch.no_grad()
def fit_invariance(views: Tensor, size: int = 256, *, components: int = 512, power: float = 1.0) -> InvariantProjection:
    """The map for features of several views of each clip, `(n, views, F)`.

    Parameters
    ----------
    views
        Features of at least two views of every clip.
    size
        How many numbers come out; at most `components`.
    components
        Principal components that are whitened; directions with less variance are noise and are dropped.
    power
        A direction counts by `(1 − moved) ** power`; 0 whitens only.
    """
    count, number, width = views.shape
    flat = views.reshape(-1, width).float()
    mean = flat.mean(0)
    centred = flat - mean
    variance, axes = torch.linalg.eigh(centred.T @ centred / len(centred))
    components = min(components, width, len(flat) - 1)
    variance, axes = variance.flip(0)[:components], axes.flip(1)[:, :components]
    whiten = axes / variance.clamp_min(1e-6 * variance[0]).sqrt()
    white = (centred @ whiten).view(count, number, components)
    within = (white - white.mean(1, keepdim=True)).flatten(0, 1)
    moved, turn = torch.linalg.eigh(within.T @ within / (count * (number - 1)))
    size = min(size, components)
    moved = moved[:size].clamp(0, 1)
    return InvariantProjection(mean, whiten @ turn[:, :size] * (1 - moved) ** power, moved)
