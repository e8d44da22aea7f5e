"""NT-Xent against loops, and rows of zeros."""

from __future__ import annotations

import pytest
import torch
from graph_samples import nt_xent_by_loops

from halp.graphs.losses import nt_xent, unit_or_zero


@pytest.mark.parametrize("include_positive", [False, True])
@pytest.mark.parametrize("rows", [2, 7])
def test_loss_equals_loops(rows: int, include_positive: bool) -> None:
    query, key = torch.randn(2, rows, 5, dtype=torch.float64)
    loss = nt_xent(unit_or_zero(query), unit_or_zero(key), 0.2, include_positive=include_positive)
    assert float(loss) == pytest.approx(nt_xent_by_loops(query, key, 0.2, include_positive), rel=1e-9)


@pytest.mark.parametrize("include_positive", [False, True])
def test_gradient_is_exact(include_positive: bool) -> None:
    query, key = torch.randn(2, 4, 3, dtype=torch.float64).requires_grad_()

    def loss(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return nt_xent(unit_or_zero(one), unit_or_zero(other), include_positive=include_positive)

    assert torch.autograd.gradcheck(loss, (query, key))


def test_a_row_of_zeros_gives_a_finite_loss_and_gradient() -> None:
    query = torch.randn(4, 3)
    query[2] = 0
    query.requires_grad_()
    loss = nt_xent(unit_or_zero(query), unit_or_zero(torch.randn(4, 3)))
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert query.grad is not None
    assert bool(torch.isfinite(query.grad).all())
    assert query.grad.abs().max() < 100
