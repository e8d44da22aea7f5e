"""Distances of predicted frames, against loops."""

from __future__ import annotations

import pytest
import slow_predictions as slow
import torch

from halp.losses import squared_error
from halp.zoo.predict_cluster import frame_distance


def test_frame_distance_and_squared_error_are_those_of_the_loops() -> None:
    found, target = torch.randn(2, 3, 5, 4, dtype=torch.double)
    counts = torch.tensor([[True] * 5, [True, False, True, False, False], [False] * 5])
    everything = torch.ones(5, dtype=torch.bool)
    for clip in range(3):
        one, two = found[clip].numpy(), target[clip].numpy()
        assert float(frame_distance(found, target)[clip]) == pytest.approx(slow.frame_distance(one, two))
        expected = slow.squared_error(one, two, counts[clip].numpy())
        assert float(squared_error(found, target, counts)[clip]) == pytest.approx(expected)
        expected = slow.squared_error(one, two, everything.numpy())
        assert float(squared_error(found, target)[clip]) == pytest.approx(expected)


def test_a_clip_without_frames_that_count_has_no_error_and_no_gradient() -> None:
    found = torch.randn(1, 3, 2, requires_grad=True)
    loss = squared_error(found, torch.zeros(1, 3, 2), torch.zeros(1, 3, dtype=torch.bool)).sum()
    loss.backward()
    assert loss == 0
    assert found.grad is not None
    assert not found.grad.any()


def test_gradients_of_reconstruction_losses_are_right() -> None:
    found = torch.randn(2, 3, 4, dtype=torch.double, requires_grad=True)
    target, counts = torch.randn(2, 3, 4, dtype=torch.double), torch.tensor([[True, False, True]] * 2)
    assert torch.autograd.gradcheck(lambda x: frame_distance(x, target), [found])
    assert torch.autograd.gradcheck(lambda x: squared_error(x, target, counts), [found])
