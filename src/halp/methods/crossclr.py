"""CrosSCLR's losses: plain contrast until a start epoch, then positives mined across streams in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from halp.config import CheckedSettings, limited
from halp.losses.mined_positives import Mined, mining_loss
from halp.methods.base import Metrics, StepContext
from halp.methods.infonce import LateTerm
from halp.methods.queue import KeyQueue
from halp.methods.term import StreamBatches, TermOutput, register_term, require_queue, require_streams


@dataclass(frozen=True)
class CrossClrSettings(CheckedSettings):
    """Cross-stream positive mining. The defaults are those of CrosSCLR."""

    start_epoch: int = limited(150, least=0)  # plain InfoNCE before
    top: int = limited(1, least=1)  # positives that a partner proposes


def _check_mining(settings: CrossClrSettings, streams: Sequence[str], queue: int) -> None:
    require_streams("crossclr", streams, "takes positives from another stream")
    require_queue("crossclr", settings.top, f"crossclr.top = {settings.top}", queue)


@register_term("crossclr", CrossClrSettings, check=_check_mining, contrast=True)
class CrossClrTerm(LateTerm):
    """Mined positives from the start epoch on and once the queue holds real keys only; it takes the place of InfoNCE.

    All key encoders go on following their query encoders, which in the public code only that of motion does.
    """

    def active(self, queue: KeyQueue, context: StepContext) -> bool:
        """Whether positives are mined at this context."""
        return self.started(self.settings.start_epoch, queue, context)

    def forward(self, streams: StreamBatches, queue: KeyQueue, context: StepContext) -> TermOutput:
        if not self.active(queue, context):
            return self.before(streams, queue, context)
        mined = mining_loss(
            {stream: batch.query for stream, batch in streams.items()},
            {stream: batch.key for stream, batch in streams.items()},
            {stream: queue.keys(stream) for stream in streams},
            top=self.settings.top,
            temperature=self.temperature,
        )
        return torch.stack(list(mined.losses.values())).sum(), _metrics(mined) if context.log_metrics else {}


@torch.no_grad()
def _metrics(mined: Mined) -> Metrics:
    """Losses of every stream, and the share of clips for which all streams propose the same row."""
    metrics: Metrics = {}
    for stream, loss in mined.losses.items():
        metrics[f"{stream}/loss_mining"] = loss.detach()
        metrics[f"{stream}/loss_contrast"] = mined.contrast[stream]
    first = torch.stack([rows[:, 0] for rows in mined.rows.values()])
    metrics["mining_agreement"] = (first == first[0]).all(0).float().mean()
    return metrics
