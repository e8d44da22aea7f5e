"""The whole-sequence GRU against torch's own: states, gradients, second passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from halp.encoders.recurrence import GRUStack, Recurrences, run_grus


def gradients(gru: nn.GRU, x: Tensor, states: Tensor, weight: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((states * weight).sum(), [x, *gru.parameters()]))


@settings(max_examples=25, deadline=None)
@given(frames=st.integers(1, 9), batch=st.integers(1, 5), inputs=st.integers(1, 7), hidden=st.integers(1, 6))
@pytest.mark.heavy
def test_states_and_gradients_are_those_of_torch(frames: int, batch: int, inputs: int, hidden: int) -> None:
    torch.manual_seed(frames * 1000 + batch * 100 + inputs * 10 + hidden)
    gru = nn.GRU(inputs, hidden)
    x, weight = torch.randn(frames, batch, inputs, requires_grad=True), torch.randn(frames, batch, hidden)
    ours, theirs = run_grus([gru], [x])[0], gru(x)[0]
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    for a, b in zip(gradients(gru, x, ours, weight), gradients(gru, x, theirs, weight), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


class Afresh(torch.autograd.Function):
    """Runs the recurrence again for every backward pass: gradcheck makes many over one graph."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        return Recurrences.apply(False, False, *inputs)[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            inputs = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
            return torch.autograd.grad(Recurrences.apply(True, False, *inputs)[0], inputs, grads[0])


@pytest.mark.heavy
def test_gradients_pass_gradcheck() -> None:
    torch.manual_seed(0)
    gru = nn.GRU(3, 4).double()
    x = torch.randn(5, 2, 3, dtype=torch.double, requires_grad=True)
    weights = [parameter.detach().requires_grad_() for parameter in gru.parameters()]
    assert torch.autograd.gradcheck(Afresh.apply, (x, *weights))


def test_paper_sized_gru_agrees_to_a_millionth() -> None:
    torch.manual_seed(0)
    gru = nn.GRU(150, 256)
    x = torch.randn(64, 4, 150)
    with torch.no_grad():
        torch.testing.assert_close(run_grus([gru], [x])[0], gru(x)[0], atol=1e-6, rtol=0)


def test_nothing_is_kept_where_no_gradient_is_wanted() -> None:
    gru, x = nn.GRU(3, 4), torch.randn(5, 2, 3)
    with torch.no_grad():
        assert run_grus([gru], [x])[0].grad_fn is None
    assert run_grus([gru.requires_grad_(False)], [x])[0].grad_fn is None


def test_second_backward_pass_is_refused_instead_of_wrong() -> None:
    gru = nn.GRU(3, 4)
    loss = run_grus([gru], [torch.randn(5, 2, 3)])[0].sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once only"):
        loss.backward()


def test_half_precision_goes_to_torchs_own_kernel() -> None:
    gru, x = nn.GRU(3, 4), torch.randn(5, 2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = run_grus([gru], [x])[0]
    torch.testing.assert_close(states.float(), gru(x)[0], atol=0.05, rtol=0.05)


def test_grus_together_give_what_they_give_alone() -> None:
    torch.manual_seed(0)
    grus = [nn.GRU(3, 4), nn.GRU(5, 4), nn.GRU(2, 4)]  # of one width, whatever they read
    sequences = [torch.randn(6, 2, gru.input_size, requires_grad=True) for gru in grus]
    together = run_grus(grus, sequences)
    gradients_together = torch.autograd.grad(sum(states.square().sum() for states in together), sequences)
    for gru, x, states, gradient in zip(grus, sequences, together, gradients_together, strict=True):
        alone = gru(x)[0]
        torch.testing.assert_close(states, alone, atol=1e-6, rtol=0)
        torch.testing.assert_close(
            gradient, torch.autograd.grad(alone.square().sum(), x)[0], atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("chunk", [1, 40, 1 << 16])
def test_few_or_many_frames_at_once_come_to_the_same(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # one, two or all seven frames, on the way back and on the way forth
    monkeypatch.setattr("halp.encoders.recurrence.CHUNK", chunk)
    monkeypatch.setattr("halp.encoders.recurrence.ROWS", chunk // 10)
    torch.manual_seed(0)
    grus = [nn.GRU(3, 4), nn.GRU(3, 4)]
    x, weight = torch.randn(7, 2, 3, requires_grad=True), torch.randn(7, 2, 4)
    wanted = [x, *grus[0].parameters(), *grus[1].parameters()]

    def summed(states: list[Tensor]) -> Tensor:
        return (states[0] * weight - states[1].square()).sum()

    with torch.no_grad():
        for states, gru in zip(run_grus(grus, [x, x]), grus, strict=True):
            torch.testing.assert_close(states, gru(x)[0], atol=1e-6, rtol=0)
    ours = torch.autograd.grad(summed(run_grus(grus, [x, x])), wanted)
    theirs = torch.autograd.grad(summed([gru(x)[0] for gru in grus]), wanted)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_a_compiled_stack_leaves_the_frames_to_the_recurrence() -> None:
    stack, x = GRUStack(6, 8, layers=2), torch.randn(3, 12, 6)
    graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    assert torch.equal(torch.compile(stack, backend=backend)(x), stack(x))
    assert sum(graphs) < x.shape[1]


def test_under_autocast_operands_are_rounded_and_states_and_gradients_are_not() -> None:
    """Close to full precision, no further from it than torch's own GRU in bfloat16, and all in float32."""
    torch.manual_seed(0)
    gru, x = nn.GRU(20, 32), torch.randn(12, 8, 20)
    weight = torch.randn(12, 8, 32)

    def states_and_gradient(run: Any) -> tuple[Tensor, Tensor]:
        gru.zero_grad()
        states = run()
        (states.float() * weight).sum().backward()
        assert gru.weight_hh_l0.grad is not None
        return states.detach().float(), gru.weight_hh_l0.grad.clone()

    exact = states_and_gradient(lambda: run_grus([gru], [x])[0])
    with torch.autocast("cpu", torch.bfloat16):
        (states,) = run_grus([gru], [x])
        ours = states_and_gradient(lambda: run_grus([gru], [x])[0])
        torchs = states_and_gradient(lambda: gru(x)[0])
    assert states.dtype == gru.weight_hh_l0.grad.dtype == torch.float32  # type: ignore[union-attr]
    for right, mine, theirs in zip(exact, ours, torchs, strict=True):
        error = float((mine - right).norm() / right.norm())
        assert 0 < error < 0.02
        assert error <= 1.5 * float((theirs - right).norm() / right.norm())
