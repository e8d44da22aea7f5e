"""VICReg against loops: loss, gradient through both views, and what each of its three parts asks for."""

from __future__ import annotations

import pytest
import slow_formulas
import torch
from torch import Tensor

from halp.zoo.vicreg import covariance_matrix, variance_and_covariance, vicreg


def views(rows: int = 7, columns: int = 4) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, rows, columns, generator=g, dtype=torch.float64)
    # some columns vary by more than 1, others by less
    return first * torch.tensor([0.1, 0.5, 2.0, 5.0]), (0.4 * (first + second)).add(1)


@pytest.mark.parametrize("weights", [(5.0, 5.0, 1.0), (1.0, 0.0, 0.0), (0.0, 2.0, 0.0), (0.0, 0.0, 3.0)])
def test_loss_is_that_of_the_loops(weights: tuple[float, float, float]) -> None:
    first, second = views()
    expected = slow_formulas.vicreg(first.numpy(), second.numpy(), *weights)
    assert float(vicreg(first, second, *weights)) == pytest.approx(expected, rel=1e-9)


def test_gradient_reaches_both_views_and_is_that_of_finite_differences() -> None:
    first, second = (x.requires_grad_() for x in views())
    assert torch.autograd.gradcheck(lambda a, b: vicreg(a, b, 2.0, 3.0, 0.5), (first, second))
    vicreg(first, second).backward()
    for x in (first, second):
        assert x.grad is not None
        assert x.grad.abs().min() > 0


def test_covariance_is_that_of_torch() -> None:
    first, _ = views()
    torch.testing.assert_close(covariance_matrix(first), first.T.cov())


def test_collapsed_embeddings_pay_for_variance_alone_and_have_finite_gradients() -> None:
    still = torch.ones(6, 3, requires_grad=True)
    spread, repetition = variance_and_covariance(still)
    assert float(spread.detach()) == pytest.approx(0.99)
    assert float(repetition.detach()) == 0
    vicreg(still, still).backward()
    assert still.grad is not None
    assert still.grad.isfinite().all()
    assert vicreg(torch.ones(1, 3), torch.ones(1, 3)).isfinite(), "a batch of one clip"


def test_shift_of_both_views_does_not_matter_and_of_one_does() -> None:
    first, second = views()
    torch.testing.assert_close(vicreg(first + 3, second + 3), vicreg(first, second))
    assert vicreg(first + 3, second) > vicreg(first, second)
