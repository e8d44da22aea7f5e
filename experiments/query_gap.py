"""Why a hallucinated positive is nearer to the query than its key, or further away (the supplement's figure
4).

A positive at the angle θ from its key k, in the direction u of the walk, has the similarity

    q·g = (q·k) cos θ + (q·u) sin θ = R cos(θ − φ),      φ = atan2(q·u, q·k)

to the query q: it rises up to θ = φ and is back at q·k at θ = 2φ. So a positive is nearer to the query
exactly if its walk is shorter than 2φ, and φ > 0 exactly if the part of the query that is orthogonal to the
key points towards the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halp.hallucinate import plan_positives


@dataclass(frozen=True)
class QueryGap:
    """Means over the kept positives of a batch; angles in radians."""

    key_query: float  # similarity of the keys to the queries
    positive_query: float  # of the positives
    nearer: float  # share of the positives that are nearer to the query than their key
    walk: float  # θ
    turning: float  # φ
    kept: float  # share of the positives that the filter keeps

    @property
    def gap(self) -> float:
        """How much nearer the keys are to the queries than the positives; above 0 in the paper's figure 4."""
        return self.key_query - self.positive_query


@torch.no_grad()
def query_gap(query: Tensor, key: Tensor, prototypes: Tensor, **settings: Any) -> QueryGap:
    """Compare keys and their positives `settings` of `plan_positives` with the queries; unit rows `(B,
    D)`.
    """
    plan = plan_positives(key, prototypes, query=query, **settings)
    cosine = (query * plan.anchor).sum(1, keepdim=True)  # q·k
    along = ((query @ prototypes.T - cosine * plan.cosine) / plan.sine).gather(1, plan.target)  # q·u
    similarity = cosine * plan.theta.cos() + along * plan.theta.sin()
    kept = plan.kept
    turning = torch.atan2(along, cosine.expand_as(along))
    return QueryGap(
        key_query=float(cosine.mean()),
        positive_query=float(similarity[kept].mean()),
        nearer=float((similarity > cosine)[kept].float().mean()),
        walk=float(plan.theta[kept].mean()),
        turning=float(turning[kept].mean()),
        kept=float(kept.float().mean()),
    )


def share_of_epochs_with_keys_nearer(rows: Sequence[Sequence[Any]]) -> float:
    """Share of the rows of `similarities_by_epoch` in which keys are nearer to the query than positives.

    >>> share_of_epochs_with_keys_nearer([[1, 0.5, 0.4], [2, 0.5, 0.6]])
    0.5
    """
    return sum(key > positive for _, key, positive, *_ in rows) / len(rows) if rows else float("nan")
