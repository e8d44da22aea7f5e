"""Mixed keys and distillation from keys to queries against loops and against CMD's distillation;
gradients.
"""

from __future__ import annotations

import pytest
import slow_formulas
import torch
from torch import Tensor

from halp.losses.distillation import distillation_loss
from halp.losses.infonce import mixed_key
from halp.sphere import unit
from halp.zoo.pcm3 import self_distillation


def vectors(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return tuple(unit(torch.randn(n, 6, generator=g, dtype=torch.float64)) for n in (4, 4, 15))  # type: ignore[return-value]


@pytest.mark.parametrize("temperatures", [(0.05, 0.1), (0.5, 0.2)])
def test_loss_is_that_of_the_loops_and_of_cmd_with_one_stream_and_the_whole_queue(
    temperatures: tuple[float, float],
) -> None:
    query, key, queue = vectors()
    found = float(self_distillation(query, key, queue, *temperatures))
    slow = slow_formulas.self_distillation(query.numpy(), key.numpy(), queue.numpy(), *temperatures)
    teacher, student = temperatures
    cmd = distillation_loss(
        query, queue, key, queue, count=len(queue), teacher_temperature=teacher, student_temperature=student
    )
    assert found == pytest.approx(slow, rel=1e-9)
    assert found == pytest.approx(float(cmd), rel=1e-9)


def test_gradient_is_that_of_finite_differences_and_reaches_the_query_alone() -> None:
    query, key, queue = (x.requires_grad_() for x in vectors())
    assert torch.autograd.gradcheck(lambda q: self_distillation(q, key, queue, 0.3, 0.2), (query,))
    self_distillation(query, key, queue).backward()
    assert query.grad is not None
    assert key.grad is None
    assert queue.grad is None


def test_queue_may_be_written_before_the_gradient_is_taken() -> None:
    gradients = []
    for written in (False, True):
        query, key, queue = vectors()
        query.requires_grad_()
        loss = self_distillation(query, key, queue)
        if written:
            queue.zero_()
        loss.backward()
        gradients.append(query.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_mixed_keys_are_those_of_the_loops(share: float) -> None:
    _, key, _ = vectors()
    found = mixed_key(key, (torch.arange(4) + 3) % 4, share)
    torch.testing.assert_close(found, torch.from_numpy(slow_formulas.mixed_key(key.numpy(), 3, share)))
