"""Cross-modal guidance of HaLP: the clusters of one stream, as Karcher means of another, are that stream's prototypes.

The paper leaves positives across modalities to future work. Queues are aligned, so a grouping of recent clips found in one
stream is a grouping in every other: clips that move alike (motion) may then define what a pose prototype (joint) is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from halp.distributed import compute_on_rank_zero
from halp.sphere import exp_map, kmeans, log_map, precise, unit

GUIDES = ("own", "cross")


def partner(stream: str, streams: Sequence[str], turn: int) -> str:
    """Which other stream guides: they take turns, one per refresh.

    >>> [partner("motion", ["joint", "motion", "bone"], turn) for turn in range(3)]
    ['bone', 'joint', 'bone']
    """
    names = list(streams)
    position = names.index(stream)
    return names[(position + 1 + turn % (len(names) - 1)) % len(names)]


@torch.no_grad()
def guided_prototypes(keys: Tensor, guide: Tensor, prototypes: int, generator: torch.Generator | None = None) -> Tensor:
    """Prototypes `(N, D)` of a stream's recent keys `(n, D)` by the clusters of another stream's keys `(n, E)`.

    Row i of both is the same clip. A cluster that nothing is nearest to is the key whose guide is nearest to its centre.
    Where several processes train together, the first finds them for all.
    """
    keys, guide = precise(keys.detach()), precise(guide.detach())
    room = keys.new_empty(prototypes, keys.shape[1])
    return compute_on_rank_zero(partial(_by_clusters, keys, guide, prototypes, generator), room, generator)


def _by_clusters(keys: Tensor, guide: Tensor, prototypes: int, generator: torch.Generator | None) -> Tensor:
    centres = kmeans(guide, prototypes, generator=generator)
    with torch.autocast(keys.device.type, enabled=False):
        similarity = guide @ centres.T
        member = F.one_hot(similarity.argmax(1), prototypes).to(keys)
        empty = member.sum(0) == 0
        member[similarity.argmax(0)[empty], empty.nonzero()[:, 0]] = 1
        return group_means(keys, member.T / member.sum(0)[:, None])


def group_means(points: Tensor, share: Tensor, iterations: int = 20, tolerance: float = 1e-4) -> Tensor:
    """Karcher means `(N, D)` of weighted groups of unit rows `(n, D)`; `share` `(N, n)` sums to one over each group."""
    means = unit(share @ points)
    for _ in range(iterations):
        step = torch.einsum("gn,gnd->gd", share, log_map(means[:, None], points[None]))
        means = exp_map(means, step)
        if float(step.norm(dim=1).max()) < tolerance:
            break
    return means
