"""SkeletonBT, Barlow Twins for skeletons: two views through one encoder, whose embeddings agree in every
coordinate while different coordinates say different things. No queue, no key encoder, no negatives; stands
for SKT (Skeletal Twins), whose weights are not published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from halp.extend import TwoViewMethod, TwoViewSettings, limited, register_method

EPSILON = 1e-5  # that of BatchNorm


def standardise_columns(x: Tensor) -> Tensor:
    """Columns of `(B, D)` with mean 0 and variance 1, as by a BatchNorm without parameters."""
    variance, mean = torch.var_mean(x, dim=0, correction=0)
    return (x - mean) * torch.rsqrt(variance + EPSILON)


def cross_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Correlation `(D, D)` over the batch of the columns of `first` and `second`, both `(B, D)`."""
    return standardise_columns(first).T @ standardise_columns(second) / len(first)


def barlow_twins(first: Tensor, second: Tensor, off_diagonal: float = 2e-4) -> Tensor:
    """Σ_i (1 − c_ii)² + off_diagonal · Σ_{i ≠ j} c_ij², c the cross-correlation; gradient through both.

    >>> rows = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> round(float(barlow_twins(rows, rows)), 3), round(float(barlow_twins(rows, -rows)), 3)
    (0.0, 8.0)
    """
    correlation = cross_correlation(first, second)
    diagonal = correlation.diagonal()
    others = correlation.square().sum() - diagonal.square().sum()
    return (1 - diagonal).square().sum() + off_diagonal * others


@dataclass(frozen=True)
class BarlowSettings(TwoViewSettings):
    """The projection head and the loss. The defaults are those of SkeletonBT."""

    section: ClassVar[str] = "barlow"
    off_diagonal: float = limited(2e-4, least=0)  # weight of the correlations between different columns


@register_method("barlow", BarlowSettings)
class BarlowMethod(TwoViewMethod):
    """Two views whose embeddings correlate column by column."""

    settings: BarlowSettings

    def compare(self, first: Tensor, second: Tensor) -> Tensor:
        return barlow_twins(first, second, self.settings.off_diagonal)
