"""D3M and NNM of AimCLR against loops, their gradients, and the numbers of positives."""

from __future__ import annotations

import pytest
import slow_extreme_views as slow
import torch
from torch import Tensor

from halp.losses.infonce import info_nce
from halp.sphere import unit
from halp.zoo.aimclr import distribution_match, expected_key, nearest_positives_loss, union_of_nearest


def vectors(seed: int = 0, batch: int = 5, size: int = 17) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """A normal, an extreme and a dropped query, keys and a queue."""
    g = torch.Generator().manual_seed(seed)
    made = [
        unit(torch.randn(rows, 6, generator=g, dtype=torch.double))
        for rows in (batch, batch, batch, batch, size)
    ]
    return made[0], made[1], made[2], made[3], made[4]


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_distribution_match_is_the_cross_entropy_over_all_columns(temperature: float) -> None:
    q, extreme, dropped, key, queue = vectors()
    found = distribution_match(q, [extreme, dropped], key, queue, temperature)
    halves = [
        slow.distribution_match(*(x.numpy() for x in (q, e, key, queue)), temperature)
        for e in (extreme, dropped)
    ]
    assert float(found) == pytest.approx(sum(halves) / 2, rel=1e-10)


def test_expected_key_is_the_mean_under_the_softmax_and_carries_no_gradient() -> None:
    q, _, _, key, queue = vectors()
    q.requires_grad_()
    found = expected_key(q, key, queue, 0.1)
    assert not found.requires_grad
    for b in range(len(q)):
        share = slow.softmax(slow.columns(q[b].detach().numpy(), key[b].numpy(), queue.numpy(), 0.1))
        expected = share[0] * key[b] + sum(p * row for p, row in zip(share[1:], queue))
        torch.testing.assert_close(found[b], expected)


def test_gradient_of_distribution_match_is_exact_and_zero_for_the_normal_query() -> None:
    q, extreme, dropped, key, queue = (x.requires_grad_() for x in vectors(batch=3, size=5))
    distribution_match(q, [extreme, dropped], key, queue, 0.3).backward()
    assert q.grad is None
    assert key.grad is None
    assert queue.grad is None
    assert torch.autograd.gradcheck(
        lambda e, d: distribution_match(q, [e, d], key, queue, 0.3), (extreme, dropped)
    )


@pytest.mark.parametrize("reading", ["mean", "sum"])
@pytest.mark.parametrize("top", [1, 3])
def test_nearest_positives_are_the_union_of_what_the_queries_propose(reading: str, top: int) -> None:
    queries, key, queue = [*vectors()[:3]], vectors()[3], vectors()[4]
    found = union_of_nearest(queries, queue, top)
    plain = [query.numpy() for query in queries]
    for b in range(len(key)):
        assert set(found.rows[b][found.distinct[b]].tolist()) == slow.positives(plain, queue.numpy(), b, top)
    loss = nearest_positives_loss(queries[0], key, queue, found, 0.2, reading)
    expected = slow.nearest_positives(plain, key.numpy(), queue.numpy(), 0.2, top, reading)
    assert float(loss) == pytest.approx(expected, rel=1e-10)


def test_a_row_has_two_to_four_positives_with_its_key_and_repeated_ones_count_once() -> None:
    numbers = set()
    for seed in range(20):
        q, extreme, dropped, _, queue = vectors(seed)
        numbers |= set(
            (
                1 + union_of_nearest([q, 0.5 * (q + extreme), 0.5 * (q + dropped)], queue).distinct.sum(1)
            ).tolist()
        )
    assert numbers == {2, 3, 4}
    same = union_of_nearest([q, q, q], queue)
    assert same.distinct.sum(1).tolist() == [1] * len(q)
    assert torch.equal(same.rows[:, 0], (q @ queue.T).argmax(1))


@pytest.mark.parametrize("reading", ["mean", "sum"])
def test_gradient_of_nearest_positives_reaches_the_query_alone_and_without_neighbours_it_is_info_nce(
    reading: str,
) -> None:
    q, extreme, dropped, key, queue = (x.requires_grad_() for x in vectors(batch=3, size=5))
    found = union_of_nearest([q, extreme, dropped], queue)
    assert torch.autograd.gradcheck(
        lambda x: nearest_positives_loss(x, key, queue, found, 0.3, reading), (q,)
    )
    nearest_positives_loss(q, key, queue, found, 0.3, reading).backward()
    assert all(x.grad is None for x in (extreme, dropped, key, queue))
    none = found._replace(distinct=torch.zeros_like(found.distinct))
    torch.testing.assert_close(
        nearest_positives_loss(q, key, queue, none, 0.3, reading), info_nce(q, key, queue, 0.3)
    )
