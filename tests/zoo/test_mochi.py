"""Mixed negatives against loops in plain NumPy: selection, both mixes, loss and gradient; where they must not
matter.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from halp.losses.infonce import info_nce
from halp.sphere import unit
from halp.zoo.mochi import Mixes, draw_mixes, info_nce_with_mixes, mix_hard_negatives

HARDEST, PAIRS, WITH_QUERY, TEMPERATURE = 5, 7, 4, 0.2


def vectors(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return tuple(unit(torch.randn(n, 6, generator=g, dtype=torch.float64)) for n in (3, 3, 20))  # type: ignore[return-value]


def mixes(seed: int = 1, largest: float = 0.5) -> Mixes:
    return draw_mixes(3, HARDEST, PAIRS, WITH_QUERY, largest, torch.Generator().manual_seed(seed))


def slowly_mixed(query: Tensor, negatives: Tensor, drawn: Mixes) -> list[list[NDArray[np.float64]]]:
    """For every query its synthetic negatives, one by one."""
    found = []
    for b in range(len(query)):
        q, queue = query[b].numpy(), negatives.numpy()
        nearest = sorted(range(len(queue)), key=lambda row: -float(np.dot(q, queue[row])))[:HARDEST]
        hard = [queue[row] for row in sorted(nearest)]
        made = []
        for k in range(PAIRS):
            a = float(drawn.share[b, k])
            made.append(a * hard[int(drawn.first[b, k])] + (1 - a) * hard[int(drawn.second[b, k])])
        for k in range(WITH_QUERY):
            share = float(drawn.query_share[b, k])
            made.append(share * q + (1 - share) * hard[int(drawn.beside_query[b, k])])
        found.append([mixed / math.sqrt(float(np.dot(mixed, mixed))) for mixed in made])
    return found


def test_synthetic_negatives_are_those_of_the_loops() -> None:
    query, _, negatives = vectors()
    found = mix_hard_negatives(query, negatives, HARDEST, mixes())
    expected = torch.tensor(np.array(slowly_mixed(query, negatives, mixes())))
    assert found.shape == (3, PAIRS + WITH_QUERY, 6)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-6)


def test_loss_and_gradient_are_those_of_the_loops() -> None:
    query, key, negatives = vectors()
    synthetic = slowly_mixed(query, negatives, mixes())
    loss, gradient = 0.0, np.zeros(query.shape)
    for b in range(3):
        q = query[b].numpy()
        against = [key[b].numpy(), *negatives.numpy(), *synthetic[b]]
        weights = [math.exp(float(np.dot(q, vector)) / TEMPERATURE) for vector in against]
        loss -= math.log(weights[0] / sum(weights)) / 3
        for vector, weight in zip(against, weights):
            gradient[b] += weight / sum(weights) * vector / TEMPERATURE / 3
        gradient[b] -= key[b].numpy() / TEMPERATURE / 3
    query.requires_grad_()
    made = mix_hard_negatives(query, negatives, HARDEST, mixes())
    found = info_nce_with_mixes(query, key, negatives, made, TEMPERATURE)
    found.backward()
    assert float(found.detach()) == pytest.approx(loss, rel=1e-6)
    assert query.grad is not None
    torch.testing.assert_close(query.grad, torch.from_numpy(gradient), atol=1e-6, rtol=1e-5)


def test_no_gradient_passes_through_the_mixes_keys_or_queue() -> None:
    query, key, negatives = (x.requires_grad_() for x in vectors())
    made = mix_hard_negatives(query, negatives, HARDEST, mixes())
    assert not made.requires_grad
    info_nce_with_mixes(query, key, negatives, made, TEMPERATURE).backward()
    assert query.grad is not None
    assert key.grad is None
    assert negatives.grad is None


def test_a_mix_with_the_query_is_nearer_to_it_than_its_negative_and_less_than_half_query() -> None:
    query, _, negatives = vectors(3)
    drawn = mixes(4)
    made = mix_hard_negatives(query, negatives, HARDEST, drawn)[:, PAIRS:]
    rows = torch.topk(query @ negatives.T, HARDEST).indices.sort(1).values
    beside = negatives[rows.gather(1, drawn.beside_query)]
    similarity = [(vector * query[:, None]).sum(2) for vector in (made, beside)]
    assert (similarity[0] >= similarity[1] - 1e-12).all()
    assert ((made * beside).sum(2) >= (made * query[:, None]).sum(2)).all(), (
        "the negative weighs at least as much"
    )


def test_shares_and_places_lie_in_their_ranges_and_depend_on_the_generator_alone() -> None:
    drawn = draw_mixes(200, 9, 11, 13, 0.5, torch.Generator().manual_seed(0))
    assert {int(place) for place in drawn.first.unique()} == set(range(9))
    assert drawn.first.shape == drawn.share.shape == (200, 11)
    assert 0.45 < float(drawn.query_share.max()) < 0.5
    assert 0.95 < float(drawn.share.max()) < 1
    again = draw_mixes(200, 9, 11, 13, 0.5, torch.Generator().manual_seed(0))
    assert all(torch.equal(one, two) for one, two in zip(drawn, again, strict=True))


def test_without_mixes_the_loss_is_info_nce_to_the_bit() -> None:
    query, key, negatives = (x.float() for x in vectors())
    none = draw_mixes(3, HARDEST, 0, 0, 0.5, torch.Generator())
    made = mix_hard_negatives(query, negatives, HARDEST, none)
    assert torch.equal(info_nce_with_mixes(query, key, negatives, made), info_nce(query, key, negatives))
