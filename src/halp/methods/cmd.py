"""CMD: every stream learns from every other which past clips are near, by distillation over their aligned queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halp.config import CheckedSettings, limited
from halp.losses.distillation import kl_to_teacher, teacher_targets
from halp.losses.infonce import logits
from halp.methods.base import Metrics, StepContext
from halp.methods.queue import KeyQueue
from halp.methods.term import StreamBatches, TermOutput, register_term, require_queue, require_streams


@dataclass(frozen=True)
class CmdSettings(CheckedSettings):
    """Cross-modal mutual distillation. The defaults are those of CMD, where 8192 of 16384 keys are compared."""

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
    """The ordered distillation terms, six for three streams: teacher a's keys, student b's queries, each in its own queue."""

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
            divergences = [kl_to_teacher(student, target) for teacher, target in targets.items() if teacher != stream]
            losses += divergences
            if context.log_metrics:
                metrics[f"{stream}/loss_distillation"] = torch.stack(divergences).detach().sum()
        return settings.weight * torch.stack(losses).sum(), metrics
