"""CrosSCLR's losses: plain contrast until a start epoch, then positives mined across streams in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halp.contrast.mining import Mined, mining_loss
from halp.contrast.queue import KeyQueue
from halp.errors import InputError
from halp.methods.terms import InfoNCETerm, Metrics, Moment, StreamBatch


@dataclass(frozen=True)
class MiningSettings:
    """Cross-stream positive mining. The defaults are those of CrosSCLR."""

    start_epoch: int = 150  # plain InfoNCE before
    top: int = 1  # positives that a partner proposes

    def __post_init__(self) -> None:
        if self.start_epoch < 0 or self.top < 1:
            raise InputError(
                f"mining: start_epoch = {self.start_epoch} cannot be negative and top = {self.top} has to be at least 1"
            )


class MiningTerm(nn.Module):
    """Mined positives from the start epoch on and once the queue holds real keys only; it takes the place of InfoNCE.

    All key encoders go on following their query encoders, which in the public code only that of motion does.
    """

    def __init__(self, settings: MiningSettings, streams: Sequence[str], temperature: float) -> None:
        super().__init__()
        self.settings, self.streams, self.temperature = settings, tuple(streams), temperature
        self.before = InfoNCETerm(temperature)

    def active(self, queue: KeyQueue, moment: Moment) -> bool:
        """Whether positives are mined at this moment."""
        return moment.epoch >= self.settings.start_epoch and queue.full

    def forward(self, streams: Mapping[str, StreamBatch], queue: KeyQueue, moment: Moment) -> tuple[Tensor, Metrics]:
        if not self.active(queue, moment):
            return self.before(streams, queue, moment)
        mined = mining_loss(
            {stream: batch.query for stream, batch in streams.items()},
            {stream: batch.key for stream, batch in streams.items()},
            {stream: queue.keys(stream) for stream in streams},
            top=self.settings.top,
            temperature=self.temperature,
        )
        return torch.stack(list(mined.losses.values())).sum(), _watch(streams, mined) if moment.watched else {}


@torch.no_grad()
def _watch(streams: Mapping[str, StreamBatch], mined: Mined) -> Metrics:
    """Losses of every stream, and the share of clips for which all streams propose the same row."""
    metrics: Metrics = {}
    for stream, batch in streams.items():
        metrics[f"{stream}/loss_mining"] = mined.losses[stream].detach()
        metrics[f"{stream}/loss_contrast"] = mined.contrast[stream]
        metrics[f"{stream}/similarity_key_query"] = (batch.query * batch.key).sum(1).mean()
    first = torch.stack([rows[:, 0] for rows in mined.rows.values()])
    metrics["mining_agreement"] = (first == first[0]).all(0).float().mean()
    return metrics
