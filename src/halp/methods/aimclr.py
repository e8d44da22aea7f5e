"""AimCLR as a term: a third, extremely augmented view, whose queries follow the normal one's distribution over the keys.

L = contrast + weight · D3M. The contrast is InfoNCE, from a start epoch on with the nearest neighbours as positives (NNM).
D3M looks at two queries of the extreme view: of its feature map as it is, and without what stands out most (EADM). Without the
extreme view, D3M and NNM it is SkeletonCLR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from halp.augment import Policy, build_policy
from halp.errors import InputError, choose
from halp.losses.distribution_match import distribution_match
from halp.losses.nearest_positives import READINGS, Neighbours, nearest_positives_loss, union_of_nearest
from halp.methods.base import Metrics, StepContext
from halp.methods.energy_drop import energy_drop
from halp.methods.infonce import LateTerm
from halp.methods.queue import KeyQueue
from halp.methods.term import StreamBatch, Twins, Views, register_term, require_queue

EXTREME, DROPPED = "extreme", "extreme-dropped"
NORMAL = ("reflect-crop", {"name": "shear", "amplitude": 0.5})


def _extreme(*more: object, blur: bool) -> Policy:
    """A normal view, then the augmentations of the default list; `blur` says whether its kernel is normalised."""
    steps = (
        *NORMAL,
        *more,
        {"name": "mirror", "probability": 0.5, "reading": "swap"},
        {"name": "rotation", "reading": "one-axis", "amplitude": 0.5235987755982988},  # 30 degrees
        {"name": "noise", "probability": 0.5, "sigma": 0.01},
        {"name": "blur", "probability": 0.5, "normalise": blur},
        {"name": "axis-mask", "probability": 0.5},
    )
    return build_policy(steps, "views.extreme.augmentations")


#: the extreme view as the public code makes it by default, and with all eight augmentations that the paper counts
AUGMENTATIONS: dict[str, Policy] = {
    "public": _extreme(blur=False),
    "paper": _extreme({"name": "time-flip", "probability": 0.5}, blur=True),
}


@dataclass(frozen=True)
class NeighbourSettings:
    """What AimCLR and HiCLR share: matching of distributions, and nearest neighbours as positives."""

    section: ClassVar[str] = "aimclr"
    weight: float = 1.0  # of D3M; 0 leaves it out
    augmentations: str = "public"  # of the strong view, unless the recipe describes it itself
    mining_epoch: int = 150  # nearest neighbours are positives from then on: 150 is the 151st epoch
    mining: bool = True
    top: int = 1  # neighbours of each query
    reading: str = (
        "mean"  # of several positives: mean of their log-probabilities (public code), or log of their sum (paper)
    )

    def __post_init__(self) -> None:
        choose(f"augmentations of {self.section}", self.augmentations, AUGMENTATIONS)
        choose(f"reading of {self.section}", self.reading, READINGS)
        if self.weight < 0 or self.mining_epoch < 0 or self.top < 1:
            raise InputError(
                f"{self.section}: weight = {self.weight} and mining_epoch = {self.mining_epoch} cannot be negative and "
                f"top = {self.top} has to be at least 1"
            )


@dataclass(frozen=True)
class AimClrSettings(NeighbourSettings):
    """AimCLR. The defaults are those of the public code, which the published figures come from."""

    extreme: bool = True  # false: there is no extreme view, and no D3M
    threshold: float = 0.7  # of EADM: joints and cells whose attention reaches it are dropped

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 < self.threshold <= 1:
            raise InputError(
                f"aimclr: threshold = {self.threshold} has to lie in (0.5, 1]: the attention of a cell is above 0.5"
            )
        if self.weight > 0 and not self.extreme:
            raise InputError(
                "aimclr: extreme = false leaves nothing to match distributions with; set aimclr.weight = 0"
            )


def _views(settings: AimClrSettings) -> Views:
    return {EXTREME: AUGMENTATIONS[settings.augmentations]} if settings.extreme else {}


def _twins(settings: AimClrSettings) -> Twins:
    return {DROPPED: (EXTREME, partial(energy_drop, threshold=settings.threshold))} if settings.extreme else {}


def check_neighbours(settings: NeighbourSettings, streams: Sequence[str], queue: int) -> None:
    """Refuse a queue that holds fewer keys than neighbours are asked for."""
    require_queue(settings.section, settings.top, f"{settings.section}.top = {settings.top}", queue)


@register_term("aimclr", AimClrSettings, views=_views, twins=_twins, contrast=True, check=check_neighbours)
class AimClrTerm(LateTerm):
    """InfoNCE, later with mined neighbours, plus D3M, in every stream; mining waits until the queue holds real keys only."""

    #: the further queries of a clip, from the mildest to the strongest
    queries: tuple[str, ...] = (EXTREME, DROPPED)

    def mines(self, queue: KeyQueue, context: StepContext) -> bool:
        """Whether nearest neighbours count as positives at this step."""
        return self.settings.mining and self.started(self.settings.mining_epoch, queue, context)

    def forward(
        self, streams: Mapping[str, StreamBatch], queue: KeyQueue, context: StepContext
    ) -> tuple[Tensor, Metrics]:
        contrast = self._contrast_with_neighbours if self.mines(queue, context) else self.before
        loss, metrics = contrast(streams, queue, context)
        if self.settings.weight == 0:
            return loss, metrics
        matched = {stream: self._match(batch, queue.keys(stream)) for stream, batch in streams.items()}
        if context.log_metrics:
            metrics |= {f"{stream}/loss_d3m": value.detach() for stream, value in matched.items()}
            metrics |= self._similarities(streams)
        return loss + self.settings.weight * torch.stack(list(matched.values())).sum(), metrics

    def _match(self, batch: StreamBatch, keys: Tensor) -> Tensor:
        extreme = [batch.extra[name] for name in self.queries]
        return distribution_match(batch.query, extreme, batch.key, keys, self.temperature)

    def _contrast_with_neighbours(
        self, streams: Mapping[str, StreamBatch], queue: KeyQueue, context: StepContext
    ) -> tuple[Tensor, Metrics]:
        losses: list[Tensor] = []
        metrics: Metrics = self.before(streams, queue, context)[1] if context.log_metrics else {}
        for stream, batch in streams.items():
            keys = queue.keys(stream)
            found = self.neighbours(batch, keys)
            losses.append(
                nearest_positives_loss(batch.query, batch.key, keys, found, self.temperature, self.settings.reading)
            )
            if context.log_metrics:
                metrics[f"{stream}/loss_nearest"] = losses[-1].detach()
                metrics[f"{stream}/positives"] = 1 + found.distinct.sum(1).float().mean()
        return torch.stack(losses).sum(), metrics

    def neighbours(self, batch: StreamBatch, keys: Tensor) -> Neighbours:
        """The queue rows nearest to any query of each clip."""
        extreme = [batch.extra[name] for name in self.queries if name in batch.extra]
        return union_of_nearest([batch.query, *extreme], keys, self.settings.top)

    @torch.no_grad()
    def _similarities(self, streams: Mapping[str, StreamBatch]) -> Metrics:
        """How far further queries are from the normal one of their clip."""
        return {
            f"{stream}/similarity_{name}_query": (batch.query * batch.extra[name]).sum(1).mean()
            for stream, batch in streams.items()
            for name in self.queries
        }
