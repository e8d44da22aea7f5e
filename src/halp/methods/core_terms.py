"""The terms of the core beside HaLP. MoCo: InfoNCE of every stream against its queue. ISC: every
representation of a clip queries the keys and the queue of every other one. CMD: every stream learns from
every other which past clips are near, by distillation over their aligned queues. CrosSCLR: plain contrast
until a start epoch, then positives mined across streams in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError
from halp.losses.distillation import kl_to_teacher, teacher_targets
from halp.losses.infonce import contrast_accuracy, info_nce, info_nce_in_batch, logits
from halp.losses.mined_positives import Mined, mining_loss
from halp.methods.base import Metrics, StepContext
from halp.methods.queue import KeyQueue
from halp.methods.term import StreamBatches, TermOutput, register_term, require_queue, require_streams


class ContrastTerm(nn.Module):
    """Base of terms that contrast queries with keys; without a queue, with other keys of the batch."""

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
    """Base of terms that replace InfoNCE once they start; `before` is that InfoNCE."""

    def __init__(self, settings: Any, streams: Sequence[str] = (), temperature: float = 0.07) -> None:
        super().__init__()
        self.settings, self.temperature = settings, temperature
        self.before = InfoNCETerm(temperature=temperature)

    @staticmethod
    def started(epoch: int, queue: KeyQueue, context: StepContext) -> bool:
        """Whether that epoch has come and the queue holds real keys only."""
        return context.epoch >= epoch and queue.full


def _check_isc(settings: Any, streams: Sequence[str], queue: int) -> None:
    if len(streams) < 2:
        raise InputError(
            f"terms: 'isc' contrasts representations, and streams = {list(streams)} is one alone; name at"
            ' least two, for example streams = ["joint", "joint@stgcn"]'
        )


@register_term("isc", check=_check_isc)
class IscTerm(ContrastTerm):
    """InfoNCE across representations: query of a, key of b, queue of b, for all ordered pairs, summed."""

    def forward(self, streams: StreamBatches, queue: KeyQueue, context: StepContext) -> TermOutput:
        losses: list[Tensor] = []
        metrics: Metrics = {}
        for stream, batch in streams.items():
            pairs = [
                self.contrast(batch.query, other.key, queue, name)
                for name, other in streams.items()
                if name != stream
            ]
            losses += pairs
            if context.log_metrics:
                metrics[f"{stream}/loss_cross"] = torch.stack(pairs).detach().sum()
        return torch.stack(losses).sum(), metrics


@dataclass(frozen=True)
class CmdSettings(CheckedSettings):
    """Cross-modal mutual distillation with CMD's defaults, which compare 8192 of 16384 keys."""

    weight: float = limited(1.0, least=0)
    # of the queue that is compared, the nearest to the teacher's key: 8192 of 16384 in CMD
    share: float = limited(0.5, above=0, most=1)
    teacher_temperature: float = limited(0.05, above=0)
    student_temperature: float = limited(0.1, above=0)

    def count(self, queue: int) -> int:
        """How many keys of a queue are compared: at least two, since one alone is always certain."""
        return max(min(2, queue), round(self.share * queue))


def _check_cmd(settings: CmdSettings, streams: Sequence[str], queue: int) -> None:
    require_streams("cmd", streams, "distils between streams")
    require_queue("cmd", 2, "a distribution over past clips", queue)


@register_term("cmd", CmdSettings, check=_check_cmd)
class CmdTerm(nn.Module):
    """The ordered distillation terms, six for three streams: teacher a's keys, student b's queries."""

    def __init__(self, settings: CmdSettings, streams: Sequence[str], temperature: float = 0.07) -> None:
        super().__init__()
        self.settings, self.streams = settings, tuple(streams)

    def forward(self, streams: StreamBatches, queue: KeyQueue, context: StepContext) -> TermOutput:
        settings = self.settings
        count = settings.count(queue.size)
        targets = {
            stream: teacher_targets(batch.key, queue.keys(stream), count, settings.teacher_temperature)
            for stream, batch in streams.items()
        }
        losses: list[Tensor] = []
        metrics: Metrics = {}
        for stream, batch in streams.items():
            # one product with the queue serves all teachers of a student
            student = logits(batch.query, queue.keys(stream), settings.student_temperature)
            divergences = [
                kl_to_teacher(student, target) for teacher, target in targets.items() if teacher != stream
            ]
            losses += divergences
            if context.log_metrics:
                metrics[f"{stream}/loss_distillation"] = torch.stack(divergences).detach().sum()
        return settings.weight * torch.stack(losses).sum(), metrics


@dataclass(frozen=True)
class CrossClrSettings(CheckedSettings):
    """Cross-stream positive mining. The defaults are those of CrosSCLR."""

    start_epoch: int = limited(150, least=0)  # plain InfoNCE before
    top: int = limited(1, least=1)  # positives that a partner proposes


def _check_crossclr(settings: CrossClrSettings, streams: Sequence[str], queue: int) -> None:
    require_streams("crossclr", streams, "takes positives from another stream")
    require_queue("crossclr", settings.top, f"crossclr.top = {settings.top}", queue)


@register_term("crossclr", CrossClrSettings, check=_check_crossclr, contrast=True)
class CrossClrTerm(LateTerm):
    """Mined positives from the start epoch on and once the queue is full; replaces InfoNCE.

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
        return torch.stack(list(mined.losses.values())).sum(), (
            _mining_metrics(mined) if context.log_metrics else {}
        )


@torch.no_grad()
def _mining_metrics(mined: Mined) -> Metrics:
    """Losses of every stream, and the share of clips for which all streams propose the same row."""
    metrics: Metrics = {}
    for stream, loss in mined.losses.items():
        metrics[f"{stream}/loss_mining"] = loss.detach()
        metrics[f"{stream}/loss_contrast"] = mined.contrast[stream]
    first = torch.stack([rows[:, 0] for rows in mined.rows.values()])
    metrics["mining_agreement"] = (first == first[0]).all(0).float().mean()
    return metrics
