"""The loss of GraphCL: NT-Xent in one direction, by default with the positive left out of the denominator."""

from __future__ import annotations

import torch
from torch import Tensor


def unit_or_zero(x: Tensor) -> Tensor:
    """Rows of unit length; a row of zeros stays zero and passes a finite gradient on, instead of NaN.

    >>> unit_or_zero(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    square = x.square().sum(1, keepdim=True)
    return x / torch.where(square > 0, square, torch.ones_like(square)).sqrt()


def nt_xent(query: Tensor, key: Tensor, temperature: float = 0.2, *, include_positive: bool = False) -> Tensor:
    """−mean over i of log(exp s_ii / Σ_j exp s_ij), s_ij = query_i · key_j / temperature, for unit rows `(B, D)`.

    The sum runs over j ≠ i, as in the public code of GraphCL, or over all j with `include_positive`.
    """
    similarity = query @ key.T / temperature
    positive = similarity.diagonal()
    if not include_positive:
        similarity = similarity.masked_fill(torch.eye(len(query), dtype=torch.bool, device=query.device), -torch.inf)
    return (torch.logsumexp(similarity, 1) - positive).mean()
