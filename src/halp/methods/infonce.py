"""MoCo's loss: InfoNCE of every stream against its queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from halp.losses.infonce import contrast_accuracy, info_nce, info_nce_in_batch
from halp.methods.base import StepContext
from halp.methods.queue import KeyQueue
from halp.methods.term import StreamBatches, TermOutput, register_term


class ContrastTerm(nn.Module):
    """Base of terms that contrast queries with keys; without a queue the batch's other keys are the negatives."""

    def __init__(self, settings: Any = None, streams: Sequence[str] = (), temperature: float = 0.07) -> None:
        super().__init__()
        self.temperature = temperature

    def contrast(self, query: Tensor, key: Tensor, queue: KeyQueue, stream: str) -> Tensor:
        """InfoNCE of queries and keys `(B, D)` against the queue of a stream."""
        if queue.size:
            return info_nce(query, key, queue.keys(stream), self.temperature)
        return info_nce_in_batch(query, key, self.temperature)


@register_term("infonce", contrast=True)
class InfoNCETerm(ContrastTerm):
    """InfoNCE in every stream."""

    def forward(self, streams: StreamBatches, queue: KeyQueue, context: StepContext) -> TermOutput:
        losses, metrics = [], {}
        for stream, batch in streams.items():
            losses.append(self.contrast(batch.query, batch.key, queue, stream))
            if context.log_metrics:
                metrics[f"{stream}/loss_contrast"] = losses[-1].detach()
                if queue.size:
                    metrics[f"{stream}/contrast_accuracy"] = contrast_accuracy(
                        batch.query, batch.key, queue.keys(stream)
                    )
        return torch.stack(losses).sum(), metrics


class LateTerm(nn.Module):
    """Base of terms that are InfoNCE until they start, and then take its place; `before` is that InfoNCE."""

    def __init__(self, settings: Any, streams: Sequence[str] = (), temperature: float = 0.07) -> None:
        super().__init__()
        self.settings, self.temperature = settings, temperature
        self.before = InfoNCETerm(temperature=temperature)

    @staticmethod
    def started(epoch: int, queue: KeyQueue, context: StepContext) -> bool:
        """Whether that epoch has come and the queue holds real keys only."""
        return context.epoch >= epoch and queue.full
