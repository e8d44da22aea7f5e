"""AimCLR (Guo et al., AAAI 2022): an extremely augmented view whose queries follow the normal one's.

L = contrast + weight · D3M. The contrast is InfoNCE, from a start epoch on with the nearest neighbours as
positives (NNM). D3M looks at two queries of the extreme view: of its feature map as it is, and without what
stands out most (EADM). Without the extreme view, D3M and NNM it is SkeletonCLR: MoCo with an ST-GCN, a recipe
without code of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from halp.extend import (
    CheckedSettings,
    InputError,
    KeyQueue,
    LateTerm,
    MapVariants,
    Metrics,
    Policy,
    StepContext,
    StreamBatch,
    StreamBatches,
    TermOutput,
    Views,
    build_policy,
    check_choice,
    limited,
    register_term,
    require_queue,
    sum_over_processes,
)
from halp.losses import log_partition


@torch.no_grad()
def expected_key(query: Tensor, key: Tensor, negatives: Tensor, temperature: float = 0.07) -> Tensor:
    """Mean of [key, negatives] weighted by softmax(query·[key, negatives] / T), `(B, D)`; no gradient."""
    to_key = (query * key).sum(1, keepdim=True) / temperature
    similarity = (query / temperature) @ negatives.T
    largest = torch.maximum(to_key, similarity.amax(1, keepdim=True))
    weights, share = similarity.sub_(largest).exp_(), (to_key - largest).exp()
    return (share * key + weights @ negatives) / (share + weights.sum(1, keepdim=True))


def distribution_match(
    query: Tensor, extreme: Sequence[Tensor], key: Tensor, negatives: Tensor, temperature: float = 0.07
) -> Tensor:
    """Mean over extreme queries and the batch of the cross-entropy to the normal query's distribution.

    Queries and keys are `(B, D)`, negatives `(L, D)`. The normal query is the target and has no gradient.

    >>> axes = torch.eye(3)
    >>> loss = distribution_match(axes[:1], [axes[:1]], axes[:1], axes[1:], temperature=1.0)
    >>> round(float(loss), 4)  # of a query with itself: the entropy of softmax(1, 0, 0)
    0.9753
    """
    target = expected_key(query.detach(), key.detach(), negatives.detach(), temperature) / temperature
    losses = [
        (log_partition(strong, key, negatives, temperature) - (strong * target).sum(1)).mean()
        for strong in extreme
    ]
    return torch.stack(losses).mean()


READINGS = ("mean", "sum")


class Neighbours(NamedTuple):
    """Queue rows `(B, n)` proposed by queries of the same clip, and a mask without repeats."""

    rows: Tensor
    distinct: Tensor


@torch.no_grad()
def union_of_nearest(queries: Sequence[Tensor], queue: Tensor, top: int = 1) -> Neighbours:
    """The `top` rows of the queue `(L, D)` nearest to any of a clip's queries `(B, D)`, each once."""
    near = [torch.topk(query @ queue.T, top, dim=1).indices for query in queries]
    rows = torch.cat(near, dim=1).sort(dim=1).values
    distinct = torch.ones_like(rows, dtype=torch.bool)
    distinct[:, 1:] = rows[:, 1:] != rows[:, :-1]
    return Neighbours(rows, distinct)


def nearest_positives_loss(
    query: Tensor,
    key: Tensor,
    queue: Tensor,
    neighbours: Neighbours,
    temperature: float = 0.07,
    reading: str = "mean",
) -> Tensor:
    """Contrast of queries `(B, D)` with their keys and the distinct neighbours in the queue `(L, D)`.

    `mean`: − mean over the positives of log softmax, as the public code has it. `sum`: − log of the sum of
    their probabilities, as the paper has it. Gradient through the query only.

    >>> axes, none = torch.eye(3), Neighbours(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.bool))
    >>> round(float(nearest_positives_loss(axes[:1], axes[:1], axes[1:], none, temperature=1.0)), 4)  # InfoNCE
    0.5514
    """
    positives = torch.cat([key.detach()[:, None], queue.detach()[neighbours.rows]], dim=1)
    similarity = torch.einsum("bd,bnd->bn", query, positives) / temperature
    counted = torch.nn.functional.pad(neighbours.distinct, (1, 0), value=True)
    if check_choice("reading of nearest positives", reading, READINGS) == "sum":
        aim = similarity.masked_fill(~counted, -torch.inf).logsumexp(1)
    else:
        aim = (similarity * counted).sum(1) / counted.sum(1)
    return (log_partition(query, key, queue, temperature) - aim).mean()


EPSILON = 1e-4  # λ


def attention(x: Tensor) -> Tensor:
    """Attention of every cell of maps `(N, T, V, C)`, within each channel of each map."""
    squared = (x - x.mean((1, 2), keepdim=True)).square()
    variance = squared.sum((1, 2), keepdim=True) / max(x.shape[1] * x.shape[2] - 1, 1)
    return torch.sigmoid(squared / (4 * (variance + EPSILON)) + 0.5)


def energy_drop(maps: Tensor, threshold: float = 0.7) -> Tensor:
    """Maps without their most salient joints and cells: `(B, P, T, V, C)`, or `(B, T, C)` without joints."""
    x = maps.flatten(0, 1) if maps.ndim == 5 else maps[:, :, None]
    with torch.no_grad():
        salience = attention(x.float())
        cells = salience < threshold
        factor = cells / _kept_share(cells)
        if x.shape[2] > 1:  # one joint alone cannot stand out
            joints = (salience.mean((1, 3)) < threshold)[:, None, :, None]
            factor = factor * (joints / _kept_share(joints))
    return (x * factor.to(x.dtype)).view(maps.shape)


def _kept_share(mask: Tensor) -> Tensor:
    """Share of a mask that is kept in the batch of all processes; at least one entry counts as kept."""
    kept, size = sum_over_processes(torch.stack([mask.sum(), torch.tensor(mask.numel(), device=mask.device)]))
    return kept.clamp_min(1) / size


EXTREME, DROPPED = "extreme", "extreme-dropped"


def _extreme(*more: object, blur: bool, rotation: str = "one-axis", repeat_edge: bool = False) -> Policy:
    """A normal view plus the default list's augmentations; `blur`: whether its kernel is normalised."""
    steps = (
        {"name": "reflect-crop", "repeat_edge": repeat_edge},
        {"name": "shear", "amplitude": 0.5},
        *more,
        {"name": "mirror", "probability": 0.5, "reading": "swap"},
        {"name": "rotation", "reading": rotation, "amplitude": 0.5235987755982988},  # 30 degrees
        {"name": "noise", "probability": 0.5, "sigma": 0.01},
        {"name": "blur", "probability": 0.5, "normalise": blur},
        {"name": "axis-mask", "probability": 0.5},
    )
    return build_policy(steps, "views.extreme.augmentations")


#: the extreme view as the public code makes it by default, and with all eight augmentations that the paper
#: counts; `public` is the former as earlier versions made it: people turned the other way, edge frames not
#: repeated
AUGMENTATIONS: dict[str, Policy] = {
    "published": _extreme(blur=False, rotation="aimclr", repeat_edge=True),
    "public": _extreme(blur=False),
    "paper": _extreme({"name": "time-flip", "probability": 0.5}, blur=True),
}


@dataclass(frozen=True)
class NeighbourSettings(CheckedSettings):
    """What AimCLR and HiCLR share: matching of distributions, and nearest neighbours as positives."""

    section: ClassVar[str] = "aimclr"
    weight: float = limited(1.0, least=0)  # of D3M; 0 leaves it out
    # of the strong view, unless the recipe describes it itself
    augmentations: str = limited("published", among=AUGMENTATIONS)
    # nearest neighbours are positives from then on: 150 is the 151st epoch
    mining_epoch: int = limited(150, least=0)
    mining: bool = True
    top: int = limited(1, least=1)  # neighbours of each query
    # of several positives: mean of their log-probabilities (public code), or log of their sum (paper)
    reading: str = limited("mean", among=READINGS)


@dataclass(frozen=True)
class AimClrSettings(NeighbourSettings):
    """AimCLR. The defaults are those of the public code, which the published figures come from."""

    extreme: bool = True  # false: there is no extreme view, and no D3M
    # of EADM: joints and cells whose attention, above 0.5, reaches it are dropped
    threshold: float = limited(0.7, above=0.5, most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight > 0 and not self.extreme:
            raise InputError(
                "aimclr: extreme = false leaves nothing to match distributions with; set aimclr.weight = 0"
            )


def _views(settings: AimClrSettings) -> Views:
    return {EXTREME: AUGMENTATIONS[settings.augmentations]} if settings.extreme else {}


def _map_variants(settings: AimClrSettings) -> MapVariants:
    return (
        {DROPPED: (EXTREME, partial(energy_drop, threshold=settings.threshold))} if settings.extreme else {}
    )


def check_neighbours(settings: NeighbourSettings, streams: Sequence[str], queue: int) -> None:
    """Refuse a queue that holds fewer keys than neighbours are asked for."""
    require_queue(settings.section, settings.top, f"{settings.section}.top = {settings.top}", queue)


@register_term(
    "aimclr", AimClrSettings, views=_views, map_variants=_map_variants, contrast=True, check=check_neighbours
)
class AimClrTerm(LateTerm):
    """InfoNCE, later with mined neighbours, plus D3M in every stream; mining waits for a full queue."""

    #: the further queries of a clip, from the mildest to the strongest
    queries: tuple[str, ...] = (EXTREME, DROPPED)

    def mines(self, queue: KeyQueue, context: StepContext) -> bool:
        """Whether nearest neighbours count as positives at this step."""
        return self.settings.mining and self.started(self.settings.mining_epoch, queue, context)

    def forward(self, streams: StreamBatches, queue: KeyQueue, context: StepContext) -> TermOutput:
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
        self, streams: StreamBatches, queue: KeyQueue, context: StepContext
    ) -> TermOutput:
        losses: list[Tensor] = []
        metrics: Metrics = self.before(streams, queue, context)[1] if context.log_metrics else {}
        for stream, batch in streams.items():
            keys = queue.keys(stream)
            neighbours = self.neighbours(batch, keys)
            losses.append(
                nearest_positives_loss(
                    batch.query, batch.key, keys, neighbours, self.temperature, self.settings.reading
                )
            )
            if context.log_metrics:
                metrics[f"{stream}/loss_nearest"] = losses[-1].detach()
                metrics[f"{stream}/positives"] = 1 + neighbours.distinct.sum(1).float().mean()
        return torch.stack(losses).sum(), metrics

    def neighbours(self, batch: StreamBatch, keys: Tensor) -> Neighbours:
        """The queue rows nearest to any query of each clip."""
        extreme = [batch.extra[name] for name in self.queries if name in batch.extra]
        return union_of_nearest([batch.query, *extreme], keys, self.settings.top)

    @torch.no_grad()
    def _similarities(self, streams: StreamBatches) -> Metrics:
        """How far further queries are from the normal one of their clip."""
        return {
            f"{stream}/similarity_{name}_query": (batch.query * batch.extra[name]).sum(1).mean()
            for stream, batch in streams.items()
            for name in self.queries
        }
