"""EADM: attention and drop against loops, shares that can be worked out, and what passes through it."""

from __future__ import annotations

import pytest
import slow_extreme_views as slow
import torch

from halp.zoo.aimclr import attention, energy_drop


def maps(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_drop_equals_the_formula_cell_by_cell() -> None:
    x = maps(3, 2, 4, 5, 6)
    x[0, 1, :, 2] *= 4  # a joint that stands out in every channel
    found = energy_drop(x.double(), 0.7).flatten(0, 1)
    expected = slow.energy_drop(x.double().flatten(0, 1).numpy(), 0.7)
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-6, atol=1e-6)
    assert not found[1, :, 2].any()


def test_gaussian_maps_lose_24_percent_of_their_cells_rectified_ones_14_and_neither_a_joint() -> None:
    x = maps(16, 13, 25, 64)
    for activations, mean, share in ((x, 0.674, 0.24), (x.relu(), 0.669, 0.14)):
        found = attention(activations)
        assert float(found.mean()) == pytest.approx(mean, abs=0.002)
        assert float((found >= 0.7).float().mean()) == pytest.approx(share, abs=0.005)
        assert not (found.mean((1, 3)) >= 0.7).any()


def test_a_cell_is_dropped_from_1_18_standard_deviations_on() -> None:
    x = maps(1, 40, 30, 1).double()
    distance = (x - x.mean()).abs() / x.std()
    dropped = attention(x) >= 0.7
    assert float(distance[dropped].min()) > 1.178
    assert float(distance[~dropped].max()) < 1.179


def test_the_sum_of_what_is_kept_is_scaled_by_the_share_of_the_whole_batch_and_gradient_is_that_factor() -> (
    None
):
    x = maps(4, 1, 6, 5, 8).requires_grad_()
    y = energy_drop(x)
    y.sum().backward()
    kept = y != 0
    torch.testing.assert_close(x.grad, kept * (kept.numel() / kept.sum()))


def test_maps_without_joints_lose_cells_only_and_still_maps_lose_nothing() -> None:
    x = maps(3, 7, 5)
    torch.testing.assert_close(energy_drop(x), energy_drop(x[:, None, :, None])[:, 0, :, 0])
    assert energy_drop(x).any(1).any(1).all()
    still = torch.full((2, 1, 3, 4, 5), 2.0)
    assert torch.equal(energy_drop(still), still)
    assert energy_drop(maps(2, 1, 1, 1, 3)).isfinite().all()
