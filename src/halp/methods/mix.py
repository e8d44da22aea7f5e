"""PCM3's mix as a term: a view mixed of two clips of the batch has to find a key mixed of the same two in the same shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halp.augment import ClipMix, mixable_parts
from halp.augment.mixing import BLOCKS, PARTS
from halp.errors import InputError
from halp.methods.base import Metrics, StepContext
from halp.methods.infonce import ContrastTerm
from halp.methods.queue import KeyQueue
from halp.methods.term import Mixes, StreamBatch, register_term, require_queue
from halp.skeleton import Topology

MIXED = "mixed"


@dataclass(frozen=True)
class MixSettings:
    """Mixes of two clips. The defaults are those of PCM3."""

    weight: float = 1.0
    paste: float = 0.5  # probability of body parts of the other clip for a while
    squeeze: float = 0.25  # probability of the same at twice the pace; else whole clips are blended
    parts: tuple[int, ...] = (2, 3)  # fewest and most of five body parts
    run: tuple[int, ...] = (7, 11)  # fewest and most of 16 blocks of time

    def __post_init__(self) -> None:
        if self.weight < 0 or min(self.paste, self.squeeze) < 0 or self.paste + self.squeeze > 1:
            raise InputError(
                f"mix: weight = {self.weight}, paste = {self.paste} and squeeze = {self.squeeze} cannot be negative, and the two "
                "probabilities together not be above 1"
            )
        for name, ends, most in (("parts", self.parts, PARTS), ("run", self.run, BLOCKS)):
            if len(ends) != 2 or not 1 <= ends[0] <= ends[1] <= most:
                raise InputError(
                    f"mix: {name} = {list(ends)} has to be a smallest and a largest number, from 1 to {most}"
                )


def _mixes(settings: MixSettings, topology: Topology) -> Mixes:
    (fewest, most), (shortest, longest) = settings.parts, settings.run
    mix = ClipMix(
        mixable_parts(topology),
        paste=settings.paste,
        squeeze=settings.squeeze,
        parts=(fewest, most),
        run=(shortest, longest),
    )
    return {MIXED: mix}


def _check_mix(settings: MixSettings, streams: Sequence[str], queue: int) -> None:
    require_queue("mix", 1, "the negatives of a mixed view", queue)


@register_term("mix", MixSettings, mixes=_mixes, check=_check_mix)
class MixTerm(ContrastTerm):
    """InfoNCE of the mixed query and the mixed key against the queue, in every stream."""

    def __init__(self, settings: MixSettings, streams: Sequence[str], temperature: float = 0.07) -> None:
        super().__init__(settings, streams, temperature)
        self.weight = settings.weight

    def forward(
        self, streams: Mapping[str, StreamBatch], queue: KeyQueue, context: StepContext
    ) -> tuple[Tensor, Metrics]:
        losses, metrics = [], {}
        for stream, batch in streams.items():
            query, key = batch.extra[MIXED], batch.mixed_keys[MIXED]
            losses.append(self.contrast(query, key, queue, stream))
            if context.log_metrics:
                metrics[f"{stream}/loss_mix"] = losses[-1].detach()
                metrics[f"{stream}/similarity_mixed_key"] = (query.detach() * key).sum(1).mean()
        return self.weight * torch.stack(losses).sum(), metrics
