"""PCM3's distillation as a term: a query should find past clips as near as the key of the same clip does, in its own stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halp.errors import InputError
from halp.losses.distillation import self_distillation
from halp.methods.base import Metrics, StepContext
from halp.methods.queue import KeyQueue
from halp.methods.term import StreamBatch, register_term, require_queue


@dataclass(frozen=True)
class SelfDistillationSettings:
    """Distillation from keys to queries over the whole queue. The defaults are those of PCM3."""

    weight: float = 1.0
    teacher_temperature: float = 0.05
    student_temperature: float = 0.1

    def __post_init__(self) -> None:
        if self.weight < 0 or min(self.teacher_temperature, self.student_temperature) <= 0:
            raise InputError(
                f"self-distillation: weight = {self.weight} cannot be negative, and teacher_temperature = "
                f"{self.teacher_temperature} and student_temperature = {self.student_temperature} have to be above 0"
            )


def _check(settings: SelfDistillationSettings, streams: Sequence[str], queue: int) -> None:
    require_queue("self-distillation", 2, "a distribution over past clips", queue)


@register_term("self-distillation", SelfDistillationSettings, check=_check)
class SelfDistillationTerm(nn.Module):
    """KL of the query's distribution over the queue from the key's, for the query and for every mixed one, in every stream."""

    def __init__(self, settings: SelfDistillationSettings, streams: Sequence[str], temperature: float = 0.07) -> None:
        super().__init__()
        self.settings = settings

    def forward(
        self, streams: Mapping[str, StreamBatch], queue: KeyQueue, context: StepContext
    ) -> tuple[Tensor, Metrics]:
        losses, metrics = [], {}
        for stream, batch in streams.items():
            pairs = [(batch.query, batch.key), *((batch.extra[view], key) for view, key in batch.mixed_keys.items())]
            found = [self._distil(query, key, queue.keys(stream)) for query, key in pairs]
            losses.append(torch.stack(found).sum())
            if context.log_metrics:
                metrics[f"{stream}/loss_self_distillation"] = losses[-1].detach()
        return self.settings.weight * torch.stack(losses).sum(), metrics

    def _distil(self, query: Tensor, key: Tensor, queue: Tensor) -> Tensor:
        chosen = self.settings
        return self_distillation(query, key, queue, chosen.teacher_temperature, chosen.student_temperature)
