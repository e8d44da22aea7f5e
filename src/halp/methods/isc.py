"""ISC's loss: every representation of a clip queries the keys and the queue of every other one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halp.errors import InputError
from halp.methods.base import Metrics, StepContext
from halp.methods.infonce import ContrastTerm
from halp.methods.queue import KeyQueue
from halp.methods.term import StreamBatches, TermOutput, register_term


def _check(settings: Any, streams: Sequence[str], queue: int) -> None:
    if len(streams) < 2:
        raise InputError(
            f"terms: 'isc' contrasts representations, and streams = {list(streams)} is one alone; name at least two, "
            'for example streams = ["joint", "joint@stgcn"]'
        )


@register_term("isc", check=_check)
class IscTerm(ContrastTerm):
    """InfoNCE across representations: query of a, key of b, queue of b, for all ordered pairs, summed."""

    def forward(self, streams: StreamBatches, queue: KeyQueue, context: StepContext) -> TermOutput:
        losses: list[Tensor] = []
        metrics: Metrics = {}
        for stream, batch in streams.items():
            pairs = [
                self.contrast(batch.query, other.key, queue, name) for name, other in streams.items() if name != stream
            ]
            losses += pairs
            if context.log_metrics:
                metrics[f"{stream}/loss_cross"] = torch.stack(pairs).detach().sum()
        return torch.stack(losses).sum(), metrics
