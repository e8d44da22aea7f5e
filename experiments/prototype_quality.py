"""How pure prototypes are and how often hallucinated positives are false, by labels that training never
sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halp.hallucinate import plan_positives
from halp.sphere import kmeans


@dataclass(frozen=True)
class PrototypeQuality:
    """Shares in [0, 1], over keys with labels."""

    purity: float  # keys whose class is the commonest one of their prototype
    false_positives: (
        float  # kept positives whose nearest other key has another class than the key they started from
    )
    false_keys: float  # the same for the keys themselves: what a positive at no distance would have
    kept: float  # positives that the filter keeps


@torch.no_grad()
def prototype_purity(keys: Tensor, labels: Tensor, prototypes: Tensor) -> float:
    """Share of unit keys `(n, D)` whose label `(n,)` is the commonest among the keys of their nearest
    prototype `(N, D)`.

    >>> keys = torch.eye(3)[[0, 0, 0, 1, 1]]
    >>> prototype_purity(keys, torch.tensor([5, 5, 7, 7, 7]), torch.eye(3)[:2])
    0.8
    """
    nearest = (keys @ prototypes.T).argmax(1)
    classes = int(labels.max()) + 1
    counts = torch.bincount(nearest * classes + labels, minlength=len(prototypes) * classes)
    return float(counts.view(-1, classes).amax(1).sum()) / len(keys)


@torch.no_grad()
def false_share(vectors: Tensor, anchors: Tensor, keys: Tensor, labels: Tensor) -> float:
    """Share of unit vectors `(m, D)` whose nearest key, their anchor `(m,)` left out, has another label than
    the anchor.

    >>> keys = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> false_share(keys, torch.arange(3), keys, torch.tensor([0, 0, 1]))
    0.3333...
    """
    similarity = vectors @ keys.T
    similarity[torch.arange(len(vectors)), anchors] = -torch.inf
    return float((labels[similarity.argmax(1)] != labels[anchors]).double().mean())


@torch.no_grad()
def prototype_quality(
    keys: Tensor,
    labels: Tensor,
    *,
    prototypes: int = 20,
    recent: int = 256,
    count: int = 20,
    hardness: float = 0.8,
    generator: torch.Generator | None = None,
) -> PrototypeQuality:
    """Quality of what HaLP makes of unit keys `(n, D)` with labels `(n,)`, averaged over batches of `recent`
    keys.

    Each batch is clustered as the newest keys of a queue are, and every key of it is an anchor of `count`
    positives.
    """
    shares = []
    for rows in torch.randperm(len(keys), generator=generator).split(recent):
        if len(rows) < min(recent, len(keys)):
            continue
        centres = kmeans(keys[rows], prototypes, generator=generator)
        plan = plan_positives(keys[rows], centres, count=count, hardness=hardness, generator=generator)
        positives, anchors = plan.positives()[plan.kept], rows[:, None].expand_as(plan.kept)[plan.kept]
        shares.append(
            [
                prototype_purity(keys[rows], labels[rows], centres),
                false_share(positives, anchors, keys, labels),
                false_share(keys[rows], rows, keys, labels),
                float(plan.kept.double().mean()),
            ]
        )
    return PrototypeQuality(*torch.tensor(shares, dtype=torch.float64).mean(0).tolist())
