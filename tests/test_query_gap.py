"""The gap between keys and positives as seen from the query: against positives that are really made, and its turning angle."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from benchmarks.query_gap import query_gap, share_of_epochs_with_keys_nearer
from halp.hallucinate import hallucinate
from halp.sphere import unit


def scene(common: float, agreement: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and prototypes around a common direction of that weight; queries agree with keys to that degree."""
    g = torch.Generator().manual_seed(seed)

    def directions(number: int) -> Tensor:
        return unit(torch.randn(number, 32, generator=g, dtype=torch.float64))

    centre = common * directions(1)
    key = unit(centre + directions(64))
    query = unit(agreement * key + (1 - agreement) * unit(centre + directions(64)))
    return query, key, unit(centre + directions(10))


@pytest.mark.parametrize("step", ["paper", "authors", "hardest"])
def test_means_are_those_of_positives_that_are_really_made(step: str) -> None:
    query, key, prototypes = scene(0.5, 0.6)
    settings = {"step": step, "count": 7}
    found = query_gap(query, key, prototypes, generator=torch.Generator().manual_seed(3), **settings)
    positives, kept = hallucinate(key, prototypes, generator=torch.Generator().manual_seed(3), **settings)  # type: ignore[arg-type]
    similarities, nearer, walks, turning = [], [], [], []
    for b in range(64):
        for i in range(7):
            if kept[b, i]:
                own, made = float(query[b] @ key[b]), float(query[b] @ positives[b, i])
                similarities.append(made)
                nearer.append(made > own)
                theta = math.acos(max(-1.0, min(1.0, float(key[b] @ positives[b, i]))))
                walks.append(theta)
                along = (made - own * math.cos(theta)) / math.sin(theta)
                turning.append(math.atan2(along, own))
    assert found.key_query == pytest.approx(float((query * key).sum(1).mean()), abs=1e-6)
    assert found.positive_query == pytest.approx(sum(similarities) / len(similarities), abs=1e-5)
    assert found.nearer == pytest.approx(sum(nearer) / len(nearer), abs=1e-6)
    assert found.walk == pytest.approx(sum(walks) / len(walks), abs=1e-6)
    assert found.turning == pytest.approx(sum(turning) / len(turning), abs=1e-3)
    assert found.kept == pytest.approx(float(kept.float().mean()))
    assert found.gap == found.key_query - found.positive_query


def test_keys_are_nearer_where_directions_are_spread_and_positives_where_they_share_one() -> None:
    def gap(common: float, agreement: float) -> float:
        return query_gap(*scene(common, agreement), count=50, generator=torch.Generator().manual_seed(0)).gap

    assert gap(0.0, 0.6) > 0, "nothing in the query points to other prototypes"
    assert gap(2.0, 0.3) < 0, "all share a direction, and queries are far from their keys"
    assert gap(2.0, 1.0) > 0, "a query that is its key cannot be nearer to anything else"


def test_share_of_epochs_without_any_is_not_a_number() -> None:
    assert math.isnan(share_of_epochs_with_keys_nearer([]))
