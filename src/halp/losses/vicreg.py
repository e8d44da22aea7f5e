"""VICReg: embeddings of two views agree (invariance), vary over the batch (variance), and no two columns vary alike."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-4  # below the root of the variance


def covariance_matrix(x: Tensor) -> Tensor:
    """Covariance `(D, D)` of the columns of `(B, D)` over the batch; a single row does not vary."""
    centred = x - x.mean(0)
    return centred.T @ centred / max(len(x) - 1, 1)


def variance_and_covariance(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over columns of relu(1 − √(variance + ε)), and Σ_{i ≠ j} cov_ij² / D, of embeddings `(B, D)`.

    >>> variance_and_covariance(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))  # both columns vary enough, and alike
    (tensor(0.), tensor(4.))
    """
    covariance = covariance_matrix(x)
    variance = covariance.diagonal()
    spread = torch.relu(1 - (variance + EPSILON).sqrt()).mean()
    return spread, (covariance - variance.diag()).square().sum() / x.shape[1]


def vicreg(
    first: Tensor, second: Tensor, invariance: float = 5.0, variance: float = 5.0, covariance: float = 1.0
) -> Tensor:
    """The weighted sum of the squared difference of two views `(B, D)`, mean over all entries, and both regularisers of each.

    Gradient through both views.

    >>> rows = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    >>> float(vicreg(rows, rows)), float(vicreg(rows, -rows))
    (0.0, 40.0)
    """
    loss = invariance * F.mse_loss(first, second)
    for view in (first, second):
        spread, repetition = variance_and_covariance(view)
        loss = loss + variance * spread + covariance * repetition
    return loss
