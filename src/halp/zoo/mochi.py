"""MoCHi (Kalantidis et al., NeurIPS 2020): InfoNCE with negatives mixed from each query's hardest.

They lie between two of the hardest negatives, or between one of them and the query; plain InfoNCE before a
start epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from halp.extend import (
    CheckedSettings,
    KeyQueue,
    LateTerm,
    Metrics,
    StepContext,
    StreamBatch,
    StreamBatches,
    TermOutput,
    limited,
    register_term,
    require_queue,
)
from halp.losses import contrast_accuracy, info_nce, log_partition
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
    """Draw a batch's mixes: per query, `pairs` of negatives and `with_query` of negative and query."""
    first, second = torch.randint(hardest, (2, batch, pairs), generator=generator)
    share = torch.rand(batch, pairs, generator=generator)
    beside_query = torch.randint(hardest, (batch, with_query), generator=generator)
    query_share = largest_share * torch.rand(batch, with_query, generator=generator)
    return Mixes(first, second, share, beside_query, query_share)


@torch.no_grad()
def mix_hard_negatives(query: Tensor, negatives: Tensor, hardest: int, mixes: Mixes) -> Tensor:
    """Synthetic negatives `(B, s + s', D)` of unit length, from the `hardest` of negatives `(L, D)`.

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
    """InfoNCE with synthetic negatives `(B, S, D)` in the denominator; gradient through the query.

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


@dataclass(frozen=True)
class MochiSettings(CheckedSettings):
    """Hard negative mixing with MoCHi's defaults, shares of a queue of 16384: 1/16, 1/16, 1/128."""

    hardest: int = limited(1024, least=1)  # N: the negatives nearest to a query, which are mixed
    pairs: int = limited(1024, least=0)  # s: mixes of two of them
    with_query: int = limited(128, least=0)  # s': mixes of one of them and the query
    query_share: float = limited(0.5, above=0, below=1)  # the largest share of the query in such a mix
    start_epoch: int = limited(10, least=0)  # plain InfoNCE before


def _check_mochi(settings: MochiSettings, streams: Sequence[str], queue: int) -> None:
    require_queue("mochi", settings.hardest, f"mochi.hardest = {settings.hardest}", queue)


@register_term("mochi", MochiSettings, check=_check_mochi, contrast=True)
class MochiTerm(LateTerm):
    """Mixed negatives from the start epoch on and once the queue is full; replaces InfoNCE."""

    def active(self, queue: KeyQueue, context: StepContext) -> bool:
        """Whether negatives are mixed at this context."""
        wanted = self.settings.pairs + self.settings.with_query > 0
        return wanted and self.started(self.settings.start_epoch, queue, context)

    def forward(self, streams: StreamBatches, queue: KeyQueue, context: StepContext) -> TermOutput:
        if not self.active(queue, context):
            return self.before(streams, queue, context)
        losses: list[Tensor] = []
        metrics: Metrics = {}
        for stream, batch in streams.items():
            synthetic = self._mix(batch.query, queue.keys(stream), context)
            losses.append(
                info_nce_with_mixes(batch.query, batch.key, queue.keys(stream), synthetic, self.temperature)
            )
            if context.log_metrics:
                seen = self._metrics(batch, queue.keys(stream), synthetic)
                metrics |= {f"{stream}/{name}": value for name, value in seen.items()}
                metrics[f"{stream}/loss_mochi"] = losses[-1].detach()
        return torch.stack(losses).sum(), metrics

    def _mix(self, query: Tensor, negatives: Tensor, context: StepContext) -> Tensor:
        chosen = self.settings
        mixes = draw_mixes(
            len(query), chosen.hardest, chosen.pairs, chosen.with_query, chosen.query_share, context.generator
        )
        return mix_hard_negatives(query, negatives, chosen.hardest, mixes)

    @torch.no_grad()
    def _metrics(self, batch: StreamBatch, negatives: Tensor, synthetic: Tensor) -> Metrics:
        """Plain InfoNCE of the same batch, and how near the mixed negatives are to their query."""
        return {
            "loss_contrast": info_nce(batch.query, batch.key, negatives, self.temperature),
            "contrast_accuracy": contrast_accuracy(batch.query, batch.key, negatives),
            "similarity_mixed_query": torch.bmm(synthetic, batch.query[:, :, None]).mean(),
        }
