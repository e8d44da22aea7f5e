"""Barlow Twins: the embeddings of two views agree in every coordinate, and different coordinates say different things."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-5  # that of BatchNorm


def standardise_columns(x: Tensor) -> Tensor:
    """Every column of `(B, D)` with mean 0 and variance 1 over the batch, as a BatchNorm without parameters does."""
    variance, mean = torch.var_mean(x, dim=0, correction=0)
    return (x - mean) * torch.rsqrt(variance + EPSILON)


def cross_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Correlation `(D, D)` over the batch of every column of `first` with every column of `second`, both `(B, D)`."""
    return standardise_columns(first).T @ standardise_columns(second) / len(first)


def barlow_twins(first: Tensor, second: Tensor, off_diagonal: float = 2e-4) -> Tensor:
    """Σ_i (1 − c_ii)² + off_diagonal · Σ_{i ≠ j} c_ij², c the cross-correlation; gradient through both views `(B, D)`.

    >>> rows = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> round(float(barlow_twins(rows, rows)), 3), round(float(barlow_twins(rows, -rows)), 3)
    (0.0, 8.0)
    """
    correlation = cross_correlation(first, second)
    diagonal = correlation.diagonal()
    others = correlation.square().sum() - diagonal.square().sum()
    return (1 - diagonal).square().sum() + off_diagonal * others
