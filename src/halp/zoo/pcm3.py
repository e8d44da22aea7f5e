"""PCM3 (Zhang et al., ACM MM 2023), the part that is built: a view mixed of two clips of the batch has to
find a key mixed of the same two in the same shares, and queries should find past clips as near as the keys of
the same clips do. Masked prediction and prompts are not built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.extend import (
    CheckedSettings,
    ContrastTerm,
    InputError,
    KeyQueue,
    Mixes,
    StepContext,
    StreamBatches,
    TermOutput,
    Topology,
    limited,
    register_term,
    require_queue,
)
from halp.losses import log_sum_exp

BLOCKS = 16  # a clip in time; runs of these are replaced
PARTS = 5
INTERPOLATIONS = ("linear", "nearest")


class DrawnMix(NamedTuple):
    """How the clips of a batch are mixed: one draw for all of them."""

    partner: Tensor  # (B,) which clip of the batch each is mixed with
    share: float  # of the clip that comes from its partner
    mask: Tensor  # (T, V) cells that are replaced; none where whole clips are blended
    squeezed: bool = False  # the region shows the partner's beginning at twice its pace


class ClipMix:
    """Mixes each clip with the one a random number of rows further in the batch.

    With probability `paste` some body parts of the partner take the place of the clip's own for a run of
    blocks; with probability `squeeze` the partner's first 2r frames are squeezed into the r frames of that
    region; otherwise both clips are blended by U(0, 1). Squeezed frames are interpolated (`linear`) or are
    the `nearest` one, as in PCM3's public code. `parts` and `run` are the smallest and largest numbers of
    body parts and of the 16 blocks of time.
    """

    def __init__(
        self,
        body_parts: Sequence[Sequence[int]],
        *,
        paste: float = 0.5,
        squeeze: float = 0.25,
        parts: tuple[int, int] = (2, 3),
        run: tuple[int, int] = (7, 11),
        interpolation: str = "linear",
    ) -> None:
        self.body_parts, self.paste, self.squeeze = body_parts, paste, squeeze
        self.parts, self.run, self.interpolation = parts, run, interpolation

    def draw(self, batch: int, frames: int, generator: torch.Generator) -> DrawnMix:
        """One mix for a whole batch of views; the same numbers are drawn whichever kind it is."""
        partner = (torch.arange(batch) + _between(1, max(batch - 1, 1), generator)) % batch
        kind, share = torch.rand(2, generator=generator).tolist()
        chosen = torch.randperm(len(self.body_parts), generator=generator)[: _between(*self.parts, generator)]
        run = _between(*self.run, generator)
        first = _between(0, BLOCKS - run, generator)
        mask = torch.zeros(frames, sum(map(len, self.body_parts)), dtype=torch.bool)
        if kind >= self.paste + self.squeeze:
            return DrawnMix(partner, share, mask)
        start, stop = (round(block * frames / BLOCKS) for block in (first, first + run))
        for part in chosen.tolist():
            mask[start:stop, list(self.body_parts[part])] = True
        return DrawnMix(partner, float(mask.float().mean()), mask, squeezed=kind >= self.paste)

    def apply(self, clips: Tensor, others: Tensor, drawn: DrawnMix) -> Tensor:
        """Clips `(B, T, P, V, C)` mixed with their partners, which are given row by row."""
        if not bool(drawn.mask.any()):
            return torch.lerp(clips, others, drawn.share)
        if drawn.squeezed:
            others = _squeeze_into(others, drawn.mask.any(1).nonzero()[:, 0].tolist(), self.interpolation)
        return torch.where(drawn.mask[:, None, :, None].to(clips.device), others, clips)


def mixable_parts(topology: Topology) -> list[list[int]]:
    """Five body parts that are replaced as a whole: trunk, arms and legs by the names of their joints.

    Where names do not give all five, the joints are cut into five runs of equal length along the tree, each
    joint followed by all that hang on it, so that a run is made of neighbours.
    """
    named = list(topology.body_parts.values())
    if all(named):
        return named
    children: dict[int, list[int]] = {}
    for child, parent in topology.bones:
        children.setdefault(parent, []).append(child)
    order: list[int] = []
    waiting = [joint for joint, parent in enumerate(topology.parents) if joint == parent][::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += children.get(order[-1], [])[::-1]
    edges = [round(part * len(order) / PARTS) for part in range(PARTS + 1)]
    return [run for run in (order[start:stop] for start, stop in pairwise(edges)) if run]


def _squeeze_into(others: Tensor, region: list[int], interpolation: str) -> Tensor:
    """Clips whose region shows their first 2r frames, if there are as many, at half the length."""
    beginning = others[:, : 2 * len(region)]
    signals = beginning.flatten(2).transpose(1, 2)
    squeezed = F.interpolate(signals, size=len(region), mode=interpolation).transpose(1, 2)
    others = others.clone()
    others[:, region] = squeezed.unflatten(2, others.shape[2:])
    return others


def _between(low: int, high: int, generator: torch.Generator) -> int:
    """A whole number from `low` to `high`, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


MIXED = "mixed"


@dataclass(frozen=True)
class MixSettings(CheckedSettings):
    """Mixes of two clips. The defaults are those of PCM3, whose public code squeezes by the nearest frame."""

    weight: float = limited(1.0, least=0)
    paste: float = limited(0.5, least=0)  # probability of body parts of the other clip for a while
    # probability of the same at twice the pace; else whole clips are blended
    squeeze: float = limited(0.25, least=0)
    parts: tuple[int, ...] = (2, 3)  # fewest and most of five body parts
    run: tuple[int, ...] = (7, 11)  # fewest and most of 16 blocks of time
    # of the frames of a squeezed clip; nearest: as in the public code
    interpolation: str = limited("linear", among=INTERPOLATIONS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.paste + self.squeeze > 1:
            raise InputError(f"mix: paste = {self.paste} and squeeze = {self.squeeze} add up to more than 1")
        for name, ends, most in (("parts", self.parts, PARTS), ("run", self.run, BLOCKS)):
            if len(ends) != 2 or not 1 <= ends[0] <= ends[1] <= most:
                raise InputError(
                    f"mix: {name} = {list(ends)} must be a smallest and a largest number, from 1 to {most}"
                )


def _mixes(settings: MixSettings, topology: Topology) -> Mixes:
    (fewest, most), (shortest, longest) = settings.parts, settings.run
    mix = ClipMix(
        mixable_parts(topology),
        paste=settings.paste,
        squeeze=settings.squeeze,
        parts=(fewest, most),
        run=(shortest, longest),
        interpolation=settings.interpolation,
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

    def forward(self, streams: StreamBatches, queue: KeyQueue, context: StepContext) -> TermOutput:
        losses, metrics = [], {}
        for stream, batch in streams.items():
            query, key = batch.extra[MIXED], batch.mixed_keys[MIXED]
            losses.append(self.contrast(query, key, queue, stream))
            if context.log_metrics:
                metrics[f"{stream}/loss_mix"] = losses[-1].detach()
                metrics[f"{stream}/similarity_mixed_key"] = (query.detach() * key).sum(1).mean()
        return self.weight * torch.stack(losses).sum(), metrics


def self_distillation(
    query: Tensor,
    key: Tensor,
    queue: Tensor,
    teacher_temperature: float = 0.05,
    student_temperature: float = 0.1,
) -> Tensor:
    """KL(softmax(key·Q / T) ‖ softmax(query·Q / S)) over the whole queue `(L, D)`, mean over the batch.

    It equals log Σ exp(query·Q / S) − query·m / S − entropy, with m the mean row under the key's
    distribution: what the backward pass needs is `(B, D)`. Gradient through `query` only.

    >>> axes = torch.eye(3)
    >>> round(abs(float(self_distillation(axes, axes, axes, student_temperature=0.05))), 6)
    0.0
    """
    with torch.no_grad():
        log_probability = F.log_softmax((key / teacher_temperature) @ queue.T, dim=1)
        probability = log_probability.exp()
        entropy, mean_row = -(probability * log_probability).sum(1), probability @ queue
    aim = (query * mean_row).sum(1) / student_temperature
    return (log_sum_exp(query, queue, student_temperature) - aim - entropy).mean()


@dataclass(frozen=True)
class SelfDistillationSettings(CheckedSettings):
    """Distillation from keys to queries over the whole queue. The defaults are those of PCM3."""

    weight: float = limited(1.0, least=0)
    teacher_temperature: float = limited(0.05, above=0)
    student_temperature: float = limited(0.1, above=0)


def _check_distillation(settings: SelfDistillationSettings, streams: Sequence[str], queue: int) -> None:
    require_queue("self-distillation", 2, "a distribution over past clips", queue)


@register_term("self-distillation", SelfDistillationSettings, check=_check_distillation)
class SelfDistillationTerm(nn.Module):
    """KL between the query's and the key's distributions over the queue, for all queries and streams."""

    def __init__(
        self, settings: SelfDistillationSettings, streams: Sequence[str], temperature: float = 0.07
    ) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, streams: StreamBatches, queue: KeyQueue, context: StepContext) -> TermOutput:
        losses, metrics = [], {}
        for stream, batch in streams.items():
            pairs = [
                (batch.query, batch.key),
                *((batch.extra[view], key) for view, key in batch.mixed_keys.items()),
            ]
            divergences = [self._distil(query, key, queue.keys(stream)) for query, key in pairs]
            losses.append(torch.stack(divergences).sum())
            if context.log_metrics:
                metrics[f"{stream}/loss_self_distillation"] = losses[-1].detach()
        return self.settings.weight * torch.stack(losses).sum(), metrics

    def _distil(self, query: Tensor, key: Tensor, queue: Tensor) -> Tensor:
        chosen = self.settings
        return self_distillation(query, key, queue, chosen.teacher_temperature, chosen.student_temperature)
