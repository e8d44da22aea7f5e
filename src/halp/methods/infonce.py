"""MoCo's loss: InfoNCE of every stream against its queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from halp.losses.infonce import contrast_accuracy, info_nce, info_nce_in_batch
from halp.methods.base import Metrics, StepContext
from halp.methods.queue import KeyQueue
from halp.methods.term import StreamBatch, register_term


@register_term("infonce")
class InfoNCETerm(nn.Module):
    """InfoNCE in every stream; without a queue the batch's other keys are the negatives."""

    def __init__(self, settings: Any = None, streams: Sequence[str] = (), temperature: float = 0.07) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(
        self, streams: Mapping[str, StreamBatch], queue: KeyQueue, context: StepContext
    ) -> tuple[Tensor, Metrics]:
        losses, metrics = [], {}
        for stream, batch in streams.items():
            negatives = queue.keys(stream)
            if queue.size:
                losses.append(info_nce(batch.query, batch.key, negatives, self.temperature))
            else:
                losses.append(info_nce_in_batch(batch.query, batch.key, self.temperature))
            if context.log_metrics:
                metrics[f"{stream}/loss_contrast"] = losses[-1].detach()
                if queue.size:
                    metrics[f"{stream}/contrast_accuracy"] = contrast_accuracy(batch.query, batch.key, negatives)
        return torch.stack(losses).sum(), metrics
