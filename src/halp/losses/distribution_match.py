"""D3M of AimCLR: an extremely augmented query should find the keys as near as the normally augmented query of its clip does.

With s(x) = x·[key, negatives] / T and p(x) = softmax s(x), the cross-entropy of p(extreme) under the target p(normal) is
log Σ exp s(extreme) − Σ_j p_j(normal) s_j(extreme). The second part is the product of the extreme query with one vector, the
key expected under p(normal): logits of all columns are held for the normal query alone, and for a moment.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from halp.losses.infonce import log_partition


@torch.no_grad()
def expected_key(query: Tensor, key: Tensor, negatives: Tensor, temperature: float = 0.07) -> Tensor:
    """Mean of [key, negatives] weighted by softmax(query·[key, negatives] / T), for every query `(B, D)`; no gradient."""
    own = (query * key).sum(1, keepdim=True) / temperature
    similarity = (query / temperature) @ negatives.T
    largest = torch.maximum(own, similarity.amax(1, keepdim=True))
    weights, share = similarity.sub_(largest).exp_(), (own - largest).exp()
    return (share * key + weights @ negatives) / (share + weights.sum(1, keepdim=True))


def distribution_match(
    query: Tensor, extreme: Sequence[Tensor], key: Tensor, negatives: Tensor, temperature: float = 0.07
) -> Tensor:
    """Mean over extreme queries and the batch of the cross-entropy to the normal query's distribution.

    Queries and keys are `(B, D)`, negatives `(L, D)`. The normal query is the target and has no gradient.

    >>> axes = torch.eye(3)
    >>> loss = distribution_match(axes[:1], [axes[:1]], axes[:1], axes[1:], temperature=1.0)
    >>> round(float(loss), 4)  # of a query with itself: the entropy of softmax(1, 0, 0)
    0.9753
    """
    target = expected_key(query.detach(), key.detach(), negatives.detach(), temperature) / temperature
    losses = [(log_partition(one, key, negatives, temperature) - (one * target).sum(1)).mean() for one in extreme]
    return torch.stack(losses).mean()
