"""ISC's loss: every representation of a clip queries the keys and the queue of every other one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from halp.contrast.losses import info_nce, info_nce_in_batch
from halp.contrast.queue import KeyQueue
from halp.methods.terms import Metrics, Moment, StreamBatch


class CrossTerm(nn.Module):
    """InfoNCE across representations: query of a, key of b, queue of b, for all ordered pairs, summed.

    Without a queue the other clips' keys of representation b are the negatives.
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, streams: Mapping[str, StreamBatch], queue: KeyQueue, moment: Moment) -> tuple[Tensor, Metrics]:
        losses: list[Tensor] = []
        metrics: Metrics = {}
        for stream, batch in streams.items():
            found = [
                info_nce(batch.query, other.key, queue.keys(name), self.temperature)
                if queue.size
                else info_nce_in_batch(batch.query, other.key, self.temperature)
                for name, other in streams.items()
                if name != stream
            ]
            losses += found
            if moment.watched:
                query = batch.query.detach()
                others = [
                    (query * other.key.detach()).sum(1).mean() for name, other in streams.items() if name != stream
                ]
                metrics[f"{stream}/loss_cross"] = torch.stack(found).detach().sum()
                metrics[f"{stream}/similarity_key_query"] = torch.stack(others).mean()
                metrics[f"{stream}/spread"] = query.std(0).mean()
        return torch.stack(losses).sum(), metrics
