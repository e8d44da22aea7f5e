"""NNM of AimCLR: the queue rows nearest to any query of a clip, normal or extreme, are positives besides its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from halp.errors import choose
from halp.losses.infonce import log_partition

READINGS = ("mean", "sum")


class Neighbours(NamedTuple):
    """Queue rows `(B, n)` that queries of the same clip propose, and which of them are not repeated in their row."""

    rows: Tensor
    distinct: Tensor


@torch.no_grad()
def union_of_nearest(queries: Sequence[Tensor], queue: Tensor, top: int = 1) -> Neighbours:
    """The `top` rows of the queue `(L, D)` nearest to each of several queries `(B, D)` of a clip, each counted once."""
    near = [torch.topk(query @ queue.T, top, dim=1).indices for query in queries]
    rows = torch.cat(near, dim=1).sort(dim=1).values
    distinct = torch.ones_like(rows, dtype=torch.bool)
    distinct[:, 1:] = rows[:, 1:] != rows[:, :-1]
    return Neighbours(rows, distinct)


def nearest_positives_loss(
    query: Tensor, key: Tensor, queue: Tensor, found: Neighbours, temperature: float = 0.07, reading: str = "mean"
) -> Tensor:
    """Contrast of queries `(B, D)` with several positives: their keys and the distinct neighbours in the queue `(L, D)`.

    `mean`: − mean over the positives of log softmax, as the public code has it. `sum`: − log of the sum of their
    probabilities, as the paper has it. Gradient through the query only.

    >>> axes, none = torch.eye(3), Neighbours(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.bool))
    >>> round(float(nearest_positives_loss(axes[:1], axes[:1], axes[1:], none, temperature=1.0)), 4)  # InfoNCE
    0.5514
    """
    positives = torch.cat([key.detach()[:, None], queue.detach()[found.rows]], dim=1)
    similarity = torch.einsum("bd,bnd->bn", query, positives) / temperature
    counted = torch.nn.functional.pad(found.distinct, (1, 0), value=True)
    if choose("reading of nearest positives", reading, READINGS) == "sum":
        aim = similarity.masked_fill(~counted, -torch.inf).logsumexp(1)
    else:
        aim = (similarity * counted).sum(1) / counted.sum(1)
    return (log_partition(query, key, queue, temperature) - aim).mean()
