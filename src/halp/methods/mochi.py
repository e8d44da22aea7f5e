"""MoCHi's loss: InfoNCE with further negatives that are mixed from the hardest ones of every query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halp.errors import InputError
from halp.losses.hard_negatives import draw_mixes, info_nce_with_mixes, mix_hard_negatives
from halp.losses.infonce import contrast_accuracy, info_nce
from halp.methods.base import Metrics, StepContext
from halp.methods.infonce import LateTerm
from halp.methods.queue import KeyQueue
from halp.methods.term import StreamBatch, register_term, require_queue


@dataclass(frozen=True)
class MochiSettings:
    """Hard negative mixing. The defaults are those of MoCHi for a queue of 16384: a sixteenth, a sixteenth, a 128th of it."""

    hardest: int = 1024  # N: the negatives nearest to a query, which are mixed
    pairs: int = 1024  # s: mixes of two of them
    with_query: int = 128  # s': mixes of one of them and the query
    query_share: float = 0.5  # the largest share of the query in such a mix
    start_epoch: int = 10  # plain InfoNCE before

    def __post_init__(self) -> None:
        if self.hardest < 1 or min(self.pairs, self.with_query, self.start_epoch) < 0:
            raise InputError(
                f"mochi: hardest = {self.hardest} has to be at least 1; pairs = {self.pairs}, with_query = {self.with_query} "
                f"and start_epoch = {self.start_epoch} cannot be negative"
            )
        if not 0 < self.query_share < 1:
            raise InputError(f"mochi: query_share = {self.query_share} has to lie between 0 and 1")


def _check_mochi(settings: MochiSettings, streams: Sequence[str], queue: int) -> None:
    require_queue("mochi", settings.hardest, f"mochi.hardest = {settings.hardest}", queue)


@register_term("mochi", MochiSettings, check=_check_mochi, contrast=True)
class MochiTerm(LateTerm):
    """Mixed negatives from the start epoch on and once the queue holds real keys only; it takes the place of InfoNCE."""

    def active(self, queue: KeyQueue, context: StepContext) -> bool:
        """Whether negatives are mixed at this context."""
        wanted = self.settings.pairs + self.settings.with_query > 0
        return wanted and self.started(self.settings.start_epoch, queue, context)

    def forward(
        self, streams: Mapping[str, StreamBatch], queue: KeyQueue, context: StepContext
    ) -> tuple[Tensor, Metrics]:
        if not self.active(queue, context):
            return self.before(streams, queue, context)
        losses: list[Tensor] = []
        metrics: Metrics = {}
        for stream, batch in streams.items():
            synthetic = self._mix(batch.query, queue.keys(stream), context)
            losses.append(info_nce_with_mixes(batch.query, batch.key, queue.keys(stream), synthetic, self.temperature))
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
