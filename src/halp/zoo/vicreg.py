"""VICReg for skeletons, the loss of UmURL and USDRL: two views through one encoder agree, each coordinate
varies over the batch, and none repeats another. No queue, no key encoder, no negatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from halp.extend import TwoViewMethod, TwoViewSettings, limited, register_method

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
    """Weighted sum of the mean squared difference of two views `(B, D)` and both regularisers of each.

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


@dataclass(frozen=True)
class VicregSettings(TwoViewSettings):
    """The projection head and the weights of the loss. The defaults are those of UmURL."""

    section: ClassVar[str] = "vicreg"
    width: int = 4096
    invariance: float = limited(5.0, least=0)
    variance: float = limited(5.0, least=0)
    covariance: float = limited(1.0, least=0)


@register_method("vicreg", VicregSettings)
class VicregMethod(TwoViewMethod):
    """Two views that agree, vary and do not repeat themselves."""

    settings: VicregSettings

    def compare(self, first: Tensor, second: Tensor) -> Tensor:
        chosen = self.settings
        return vicreg(first, second, chosen.invariance, chosen.variance, chosen.covariance)
