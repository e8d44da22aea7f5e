"""InfoNCE and the momentum pair against slow formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.encoders.gru import GRUEncoder, GRUSettings
from halp.losses.infonce import (
    contrast_accuracy,
    info_nce,
    info_nce_in_batch,
    log_partition,
    logits,
    mixed_key,
    nt_xent_of_pairs,
)
from halp.methods.momentum import MomentumPair, ProjectedEncoder


def unit(*shape: int, seed: int = 0) -> Tensor:
    return F.normalize(
        torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=-1
    )


def slow_info_nce(query: Tensor, key: Tensor, negatives: Tensor, temperature: float) -> float:
    """Eq. 1, one exponential at a time."""
    total = 0.0
    for q, k in zip(query, key):
        positive = math.exp(float(q @ k) / temperature)
        others = sum(math.exp(float(q @ n) / temperature) for n in negatives)
        total -= math.log(positive / (positive + others))
    return total / len(query)


@pytest.mark.parametrize("temperature", [0.07, 0.2, 1.0])
def test_info_nce_equals_the_slow_formula(temperature: float) -> None:
    query, key, negatives = unit(5, 8), unit(5, 8, seed=1), unit(30, 8, seed=2)
    assert float(info_nce(query, key, negatives, temperature)) == pytest.approx(
        slow_info_nce(query, key, negatives, temperature)
    )


def test_info_nce_gradient_is_checked_and_reaches_the_query_only() -> None:
    query, key, negatives = (
        unit(3, 6).requires_grad_(),
        unit(3, 6, seed=1).requires_grad_(),
        unit(9, 6, seed=2).requires_grad_(),
    )
    assert torch.autograd.gradcheck(lambda q: info_nce(q, key, negatives, 0.2), (query,))
    info_nce(query, key, negatives).backward()
    assert query.grad is not None
    assert key.grad is None
    assert negatives.grad is None


def test_info_nce_stays_finite_for_identical_and_opposite_vectors() -> None:
    axis = torch.eye(4)[:1]
    for key, negatives in ((axis, axis.repeat(5, 1)), (-axis, axis.repeat(5, 1)), (axis, -axis.repeat(5, 1))):
        assert torch.isfinite(info_nce(axis, key, negatives, 0.01))


def test_in_batch_info_nce_equals_the_slow_formula() -> None:
    query, key = unit(6, 8), unit(6, 8, seed=1)
    others = [
        slow_info_nce(query[i : i + 1], key[i : i + 1], torch.cat([key[:i], key[i + 1 :]]), 0.07)
        for i in range(6)
    ]
    assert float(info_nce_in_batch(query, key, 0.07)) == pytest.approx(sum(others) / 6)


def test_parts_of_info_nce_are_those_of_its_fraction() -> None:
    query, key, negatives = unit(3, 5), unit(3, 5, seed=1), unit(7, 5, seed=2)
    for temperature in (0.07, 0.3):
        similarity = logits(query, negatives, temperature)
        torch.testing.assert_close(similarity, query @ negatives.T / temperature)
        positive = (query * key).sum(1) / temperature
        below = torch.logsumexp(torch.cat([positive[:, None], similarity], dim=1), dim=1)
        torch.testing.assert_close(log_partition(query, key, negatives, temperature), below)
        torch.testing.assert_close(info_nce(query, key, negatives, temperature), (below - positive).mean())
    usual = 0.07
    torch.testing.assert_close(info_nce(query, key, negatives), info_nce(query, key, negatives, usual))
    torch.testing.assert_close(
        log_partition(query, key, negatives), log_partition(query, key, negatives, usual)
    )
    torch.testing.assert_close(info_nce_in_batch(query, key), info_nce_in_batch(query, key, usual))


@pytest.mark.parametrize("own", [-math.inf, 0.0])
def test_nt_xent_of_pairs_equals_a_loop(own: float) -> None:
    first, second, temperature = 3 * unit(4, 5), unit(4, 5, seed=1), 0.4
    rows = [row / row.norm() for row in (*first, *second)]
    losses = []
    for i, row in enumerate(rows):
        similarity = [own if i == j else float(row @ other) for j, other in enumerate(rows)]
        total = sum(math.exp(value / temperature) for value in similarity)
        losses.append(math.log(total) - similarity[(i + 4) % 8] / temperature)
    assert float(nt_xent_of_pairs(first, second, temperature, own=own)) == pytest.approx(
        sum(losses) / 8, rel=1e-5
    )
    if own == -math.inf:
        assert float(nt_xent_of_pairs(first, second, temperature)) == pytest.approx(sum(losses) / 8, rel=1e-5)


def test_mixed_key_lies_between_a_key_and_its_partner() -> None:
    key, partner = unit(4, 5), torch.tensor([1, 0, 3, 2])
    between = 0.7 * key + 0.3 * key[partner]
    torch.testing.assert_close(mixed_key(key, partner, 0.3), between / between.norm(dim=1, keepdim=True))


def test_contrast_accuracy_counts_queries_closest_to_their_own_key() -> None:
    axes = torch.eye(3)
    assert float(contrast_accuracy(axes[:2], axes[:2], axes[2:])) == 1
    assert float(contrast_accuracy(axes[:2], axes[[0, 2]], axes[1:2])) == 0.5
    assert float(contrast_accuracy(axes[:1], axes[:1], axes[:1])) == 0  # no closer than


def test_momentum_twin_follows_parameters_and_not_buffers() -> None:
    torch.manual_seed(0)
    pair = MomentumPair(ProjectedEncoder(GRUEncoder(6, GRUSettings(4, 1)), 5), momentum=0.9)
    assert not any(parameter.requires_grad for parameter in pair.key.parameters())
    before = {name: value.clone() for name, value in pair.key.state_dict().items()}
    with torch.no_grad():
        for parameter in pair.query.parameters():
            parameter.add_(torch.randn_like(parameter))
    pair.query(torch.randn(4, 3, 1, 2, 3))
    pair.update_key_encoder()
    queries, parameters = pair.query.state_dict(), dict(pair.key.named_parameters())
    assert 0 < len(parameters) < len(before)
    for name, value in pair.key.state_dict().items():
        expected = 0.9 * before[name] + 0.1 * queries[name] if name in parameters else before[name]
        assert torch.allclose(value, expected, atol=1e-7), name


def test_branch_gives_unit_vectors_in_float32_under_autocast() -> None:
    branch = ProjectedEncoder(GRUEncoder(6, GRUSettings(4, 1)), 5)
    with torch.autocast("cpu", torch.bfloat16):
        out = branch(torch.randn(4, 3, 1, 2, 3))
    assert out.dtype == torch.float32
    assert torch.allclose(out.norm(dim=1), torch.ones(4), atol=1e-6)
    assert isinstance(branch.projector[0], nn.Linear)
