"""Contrastive losses: pure functions from unit vectors to a scalar."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from halp.sphere import unit


def logits(query: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Similarities of queries `(B, D)` to a queue over the temperature, `(B, L)`; no gradient to the queue.

    Dividing the queue copies it, so that new keys may be written before the gradient is taken.
    """
    return query @ (queue.detach() / temperature).T


def info_nce(query: Tensor, key: Tensor, negatives: Tensor, temperature: float = 0.07) -> Tensor:
    """InfoNCE of Eq. 1: queries and keys `(B, D)`, negatives `(L, D)`; gradient through the query only.

    >>> axes = torch.eye(3)
    >>> round(float(info_nce(axes[:1], axes[:1], axes[1:], temperature=1.0)), 4)
    0.5514
    """
    positive = (query * key.detach()).sum(1) / temperature
    # not by `log_partition`: with the positive computed twice the gradient would be summed in another order
    against = log_sum_exp(query, negatives, temperature)
    return (torch.logaddexp(positive, against) - positive).mean()


def log_partition(query: Tensor, key: Tensor, negatives: Tensor, temperature: float = 0.07) -> Tensor:
    """The denominator of InfoNCE, log Σ exp(q·[key, negatives] / T), per query `(B,)`; differentiable."""
    positive = (query * key.detach()).sum(1) / temperature
    return torch.logaddexp(positive, log_sum_exp(query, negatives, temperature))


def log_sum_exp(query: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    """log Σ exp(q·n / T) over the negatives `(L, D)`, for every query `(B,)`; gradient through the query."""
    return _LogSumExp.apply(query, negatives.detach(), temperature)


class _LogSumExp(torch.autograd.Function):
    """log Σ exp(q·n / T) over the negatives `(L, D)`, for every query `(B, D)`.

    The gradient is computed in the forward pass, while the similarities are at hand: what the backward pass
    needs is `(B, D)` instead of `(B, L)`, and the queue may be written meanwhile without having been copied.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, negatives: Tensor, temperature: float) -> Tensor:
        similarity = (query / temperature) @ negatives.T
        largest = similarity.amax(1, keepdim=True)
        weights = similarity.sub_(largest).exp_()
        total = weights.sum(1, keepdim=True)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward((weights @ negatives).div_(temperature * total))
        return (largest + total.log())[:, 0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return grad[:, None] * slope, None, None


def info_nce_in_batch(query: Tensor, key: Tensor, temperature: float = 0.07) -> Tensor:
    """InfoNCE without a queue: the negatives of a query are the keys of the other clips of its batch."""
    logits = query @ key.detach().T / temperature
    return F.cross_entropy(logits, torch.arange(len(query), device=query.device))


def nt_xent_of_pairs(first: Tensor, second: Tensor, temperature: float, *, own: float = -torch.inf) -> Tensor:
    """NT-Xent over 2B vectors, `(B, D)` each, of any length: row i has to find row i of the other.

    The similarity of a vector with itself is replaced by `own`: −∞ leaves it out of the sum. Gradient to
    both.

    >>> axes = torch.eye(2)
    >>> round(float(nt_xent_of_pairs(axes, axes, 1.0)), 4)
    0.5514
    """
    x = F.normalize(torch.cat([first, second]), dim=1)
    count = len(first)
    itself = torch.eye(2 * count, dtype=torch.bool, device=x.device)
    similarity = (x @ x.T).masked_fill(itself, own) / temperature
    partner = torch.arange(2 * count, device=x.device).roll(count)
    return F.cross_entropy(similarity, partner)


def mixed_key(key: Tensor, partner: Tensor, share: float) -> Tensor:
    """Keys `(B, D)` mixed with those of their partners `(B,)`, unit((1 − share)·k + share·k_partner).

    >>> mixed_key(torch.eye(2), torch.tensor([1, 0]), 0.0).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return unit(torch.lerp(key, key[partner.to(key.device)], share))


@torch.no_grad()
def contrast_accuracy(query: Tensor, key: Tensor, negatives: Tensor) -> Tensor:
    """Share of the queries that are closer to their own key than to any negative."""
    return ((query * key).sum(1) > (query @ negatives.T).amax(1)).float().mean()
