"""Hard negative mixing (MoCHi): synthetic negatives between the hardest ones of a query, and between these and the query."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from halp.losses.infonce import info_nce, log_partition
from halp.sphere import unit


class Mixes(NamedTuple):
    """Which of a query's hardest negatives are mixed and in what shares; places count from 0 to N − 1."""

    first: Tensor  # (B, s)
    second: Tensor  # (B, s)
    share: Tensor  # (B, s) of the first, in [0, 1)
    beside_query: Tensor  # (B, s')
    query_share: Tensor  # (B, s') in [0, the largest share)


def draw_mixes(
    batch: int, hardest: int, pairs: int, with_query: int, largest_share: float, generator: torch.Generator
) -> Mixes:
    """Draw the mixes of a whole batch: `pairs` of two negatives and `with_query` of a negative and the query, per query."""
    first, second = torch.randint(hardest, (2, batch, pairs), generator=generator)
    share = torch.rand(batch, pairs, generator=generator)
    beside_query = torch.randint(hardest, (batch, with_query), generator=generator)
    query_share = largest_share * torch.rand(batch, with_query, generator=generator)
    return Mixes(first, second, share, beside_query, query_share)


@torch.no_grad()
def mix_hard_negatives(query: Tensor, negatives: Tensor, hardest: int, mixes: Mixes) -> Tensor:
    """Synthetic negatives `(B, s + s', D)` of unit length for queries `(B, D)`, from the `hardest` of negatives `(L, D)`.

    The first s are unit(a·n_i + (1 − a)·n_j), the others unit(b·query + (1 − b)·n_j).
    """
    first, second, share, beside_query, query_share = (drawn.to(query.device) for drawn in mixes)
    # in the order of the queue: two similarities that differ by rounding do not change places
    rows = torch.topk(query @ negatives.T, hardest, dim=1).indices.sort(1).values
    n_i, n_j, n_k = (negatives[rows.gather(1, place)] for place in (first, second, beside_query))
    between = torch.lerp(n_j, n_i, share[..., None].to(query))
    towards_query = torch.lerp(n_k, query[:, None].expand_as(n_k), query_share[..., None].to(query))
    return unit(torch.cat([between, towards_query], dim=1))


def info_nce_with_mixes(
    query: Tensor, key: Tensor, negatives: Tensor, synthetic: Tensor, temperature: float = 0.07
) -> Tensor:
    """InfoNCE whose denominator also runs over the synthetic negatives `(B, S, D)` of each query; gradient through the query.

    Without any it is InfoNCE.

    >>> axes = torch.eye(3)
    >>> plain = info_nce(axes[:1], axes[:1], axes[1:], 1.0)
    >>> bool(info_nce_with_mixes(axes[:1], axes[:1], axes[1:2], axes[2:][None], 1.0).isclose(plain))
    True
    """
    if synthetic.shape[1] == 0:
        return info_nce(query, key, negatives, temperature)
    positive = (query * key.detach()).sum(1) / temperature
    mixed = torch.bmm(synthetic.detach(), query[:, :, None])[..., 0] / temperature
    partition = torch.logaddexp(log_partition(query, key, negatives, temperature), mixed.logsumexp(1))
    return (partition - positive).mean()
