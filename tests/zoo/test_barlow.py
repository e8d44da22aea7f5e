"""Barlow Twins against loops: correlations, loss, gradient through both views, and a BatchNorm as oracle."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from halp.zoo.barlow import EPSILON, barlow_twins, cross_correlation, standardise_columns


def views(rows: int = 7, columns: int = 4) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, rows, columns, generator=g, dtype=torch.float64)
    return first, (first + second).mul(3).add(1)


def slowly_standardised(x: Tensor) -> list[list[float]]:
    """Columns by rows, one number at a time."""
    columns = []
    for d in range(x.shape[1]):
        values = [float(row[d]) for row in x]
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / len(values)
        columns.append([(value - mean) / math.sqrt(variance + EPSILON) for value in values])
    return columns


def slow_loss(first: Tensor, second: Tensor, off_diagonal: float) -> float:
    one, two = slowly_standardised(first), slowly_standardised(second)
    loss = 0.0
    for i in range(len(one)):
        for j in range(len(two)):
            c = sum(a * b for a, b in zip(one[i], two[j])) / len(first)
            loss += (1 - c) ** 2 if i == j else off_diagonal * c**2
    return loss


@pytest.mark.parametrize("off_diagonal", [0.0, 2e-4, 0.7])
def test_loss_is_that_of_the_loops(off_diagonal: float) -> None:
    assert float(barlow_twins(*views(), off_diagonal)) == pytest.approx(
        slow_loss(*views(), off_diagonal), rel=1e-9
    )


def test_gradient_reaches_both_views_and_is_that_of_finite_differences() -> None:
    first, second = (x.requires_grad_() for x in views())
    assert torch.autograd.gradcheck(lambda a, b: barlow_twins(a, b, 0.3), (first, second))
    barlow_twins(first, second, 0.3).backward()
    for x in (first, second):
        assert x.grad is not None
        assert x.grad.abs().min(0).values.max() > 0


def test_columns_are_standardised_as_a_batch_norm_without_parameters_does() -> None:
    first, second = views()
    norm = nn.BatchNorm1d(4, affine=False).double()
    torch.testing.assert_close(standardise_columns(first), norm(first))
    torch.testing.assert_close(cross_correlation(first, second), norm(first).T @ norm(second) / 7)


def test_scale_and_shift_of_a_column_do_not_matter_and_a_constant_column_is_finite() -> None:
    first, second = views()
    moved = first * torch.tensor([2.0, 30.0, 5.0, 7.0]) - 3
    torch.testing.assert_close(barlow_twins(moved, second), barlow_twins(first, second), rtol=1e-4, atol=1e-5)
    still = first.clone()
    still[:, 0] = 4.0
    still.requires_grad_()
    loss = barlow_twins(still, second)
    loss.backward()
    assert float(loss.detach()) > 1, "a constant column correlates with nothing"
    assert still.grad is not None
    assert torch.isfinite(still.grad).all()
