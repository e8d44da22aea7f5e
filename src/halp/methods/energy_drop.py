"""EADM of AimCLR: drops from a feature map what stands out most, so that a query has to do without it.

Attention of a cell is the inverse of its energy: a = sigmoid(d² / (4 (variance + λ)) + 1/2), d its distance from the mean of
its channel over frames and joints. Joints, then single cells, whose attention reaches the threshold are set to zero, and what
is left is scaled up by the share that was dropped in the whole batch. No gradient passes through the masks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from halp.distributed import sum_over_processes

EPSILON = 1e-4  # λ


def attention(x: Tensor) -> Tensor:
    """Attention of every cell of maps `(N, T, V, C)`, within each channel of each map."""
    squared = (x - x.mean((1, 2), keepdim=True)).square()
    variance = squared.sum((1, 2), keepdim=True) / max(x.shape[1] * x.shape[2] - 1, 1)
    return torch.sigmoid(squared / (4 * (variance + EPSILON)) + 0.5)


def energy_drop(maps: Tensor, threshold: float = 0.7) -> Tensor:
    """Maps without their most salient joints and cells: `(B, P, T, V, C)`, or `(B, T, C)` of an encoder without joints."""
    x = maps.flatten(0, 1) if maps.ndim == 5 else maps[:, :, None]
    with torch.no_grad():
        salience = attention(x.float())
        cells = salience < threshold
        factor = cells / _kept_share(cells)
        if x.shape[2] > 1:  # one joint alone cannot stand out
            joints = (salience.mean((1, 3)) < threshold)[:, None, :, None]
            factor = factor * (joints / _kept_share(joints))
    return (x * factor.to(x.dtype)).view(maps.shape)


def _kept_share(mask: Tensor) -> Tensor:
    """Share of a mask that is kept in the batch of all processes; at least one entry counts as kept."""
    kept, size = sum_over_processes(torch.stack([mask.sum(), torch.tensor(mask.numel(), device=mask.device)]))
    return kept.clamp_min(1) / size
