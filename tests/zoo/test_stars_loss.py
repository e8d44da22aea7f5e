"""Positives that have to find the prediction of their clip, against loops; gradient; no positive at all."""

from __future__ import annotations

import pytest
import slow_formulas
import torch
from torch import Tensor

from halp.losses.infonce import info_nce_in_batch
from halp.sphere import unit
from halp.zoo.stars import positives_in_batch


def vectors() -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    prediction = unit(torch.randn(4, 5, generator=g, dtype=torch.float64))
    positives = unit(torch.randn(4, 3, 5, generator=g, dtype=torch.float64))
    return prediction, positives, torch.rand(4, 3, generator=g) < 0.6


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_loss_is_that_of_the_loops(temperature: float) -> None:
    prediction, positives, kept = vectors()
    expected = slow_formulas.positives_in_batch(
        prediction.numpy(), list(positives.numpy()), kept.tolist(), temperature
    )
    assert float(positives_in_batch(prediction, positives, kept, temperature)) == pytest.approx(
        expected, rel=1e-9
    )


def test_one_positive_per_clip_is_info_nce_with_positives_as_queries() -> None:
    prediction, positives, _ = vectors()
    found = positives_in_batch(prediction, positives[:, :1], torch.ones(4, 1, dtype=torch.bool), 0.2)
    torch.testing.assert_close(found, info_nce_in_batch(positives[:, 0], prediction, 0.2))


def test_gradient_is_that_of_finite_differences_and_reaches_predictions_alone() -> None:
    prediction, positives, kept = vectors()
    prediction.requires_grad_()
    positives.requires_grad_()
    assert torch.autograd.gradcheck(lambda p: positives_in_batch(p, positives, kept, 0.3), (prediction,))
    positives_in_batch(prediction, positives, kept).backward()
    assert positives.grad is None


def test_without_any_kept_positive_the_loss_is_zero() -> None:
    prediction, positives, kept = vectors()
    loss = positives_in_batch(prediction.requires_grad_(), positives, torch.zeros_like(kept))
    loss.backward()
    assert float(loss.detach()) == 0
    assert prediction.grad is not None
    assert prediction.grad.abs().sum() == 0
