"""Losses of single poses (SeBiReNet): half the sum of squares, as its authors count it, a number per pose."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def half_square(difference: Tensor) -> Tensor:
    """½ Σ of the squares of everything that belongs to a row: `(N, …)` → `(N,)`.

    >>> half_square(torch.tensor([[1.0, 3.0], [0.0, 2.0]])).tolist()
    [5.0, 2.0]
    """
    return difference.flatten(1).square().sum(1) / 2


def bone_lengths(poses: Tensor, bones: Sequence[tuple[int, int]]) -> Tensor:
    """Distances `(N, bones)` of joints and their parents in poses `(N, V, C)`; bones are pairs (child, parent)."""
    child, parent = ([bone[end] for bone in bones] for end in (0, 1))
    return torch.linalg.vector_norm(poses[:, child] - poses[:, parent], dim=2)


def orthogonality(matrices: Tensor) -> Tensor:
    """½ ‖M·Mᵀ − 1‖² of each matrix `(N, K, K)`: 0 for rotations.

    >>> orthogonality(torch.eye(2)[None]).tolist()
    [0.0]
    """
    return half_square(matrices @ matrices.transpose(1, 2) - torch.eye(matrices.shape[1]).to(matrices))
