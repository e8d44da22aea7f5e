"""GRUs over whole sequences for the CPU: what torch's own kernel computes, with fewer and larger operations.

GRUs that do not depend on each other (the two of a layer) go through time side by side, each on a thread and
share of the cores of its own, so that no small operation waits for another core. A frame does only what
depends on its neighbour: the inputs' share of the gates is a product over many frames beforehand, weight
gradients are one at the end (torch adds them up frame by frame), and the derivatives of the gates are taken
for several frames at once, in the memory of the gates. Under autocast to bfloat16 the operands of the
products are rounded; sums, gates and states stay in float32. On a GPU cuDNN does the like, and it is left
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from halp.core.cores import run_in_threads

# numbers of one gate whose derivatives are taken at once: enough to make calls cheap, few enough to stay in
# the cache
CHUNK = 1 << 16
ROWS = 1024  # of the inputs that are multiplied at once, at least
# between rows of gates, whose length is often a power of two: such rows would compete for places in the cache
SPACE = 16


def run_grus(grus: Sequence[nn.GRU], sequences: Sequence[Tensor]) -> list[Tensor]:
    """States `(T, B, H)` of one-layer GRUs, each for its own sequence `(T, B, I)`; equal up to rounding."""
    if torch.compiler.is_compiling():
        # the compiler would unroll the frames: minutes of work for nothing; as a decorator this would load it
        # at every start
        return torch.compiler.disable(_run_grus)(grus, sequences)
    return _run_grus(grus, sequences)


def _run_grus(grus: Sequence[nn.GRU], sequences: Sequence[Tensor]) -> list[Tensor]:
    x = sequences[0]
    # then the GRU is one operation of the graph
    exported = torch.compiler.is_exporting() or torch.jit.is_tracing()
    half = torch.is_autocast_enabled("cpu")
    unlike = x.dtype not in (torch.float32, torch.float64) or (
        half and torch.get_autocast_dtype("cpu") != torch.bfloat16
    )
    if exported or x.device.type != "cpu" or unlike:
        return [_as_torch_does(gru, sequence) for gru, sequence in zip(grus, sequences)]
    tensors = [
        tensor
        for gru, sequence in zip(grus, sequences)
        for tensor in (sequence, gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0)
    ]
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return list(Recurrences.apply(keep, half, *tensors))


class GRUStack(nn.Module):
    """One-layer GRUs on top of each other: sequences `(B, T, I)` → states `(B, T, H)` of the last."""

    def __init__(self, inputs: int, hidden: int, layers: int = 1) -> None:
        super().__init__()
        widths = [inputs] + [hidden] * (layers - 1)
        self.layers = nn.ModuleList(nn.GRU(width, hidden, batch_first=True) for width in widths)

    def forward(self, sequences: Tensor) -> Tensor:
        x = sequences.transpose(0, 1)
        for gru in self.layers:
            (x,) = run_grus([cast(nn.GRU, gru)], [x])
        return x.transpose(0, 1)


def _as_torch_does(gru: nn.GRU, x: Tensor) -> Tensor:
    return gru(x.transpose(0, 1))[0].transpose(0, 1) if gru.batch_first else gru(x)[0]


class Recurrences(torch.autograd.Function):
    """r, z = σ(·), n = tanh(x_n + r·m) with m = W_hn h + b_hn, h ← n + z·(h − n), for several GRUs.

    Takes whether to keep what a backward pass needs and whether to round the operands of products, then x,
    W_ih, W_hh, b_ih, b_hh of each. A row of the gates
    `(T, B, 4H)` is m, r, z, n: its first three parts face the state, its last three the input. torch's order
    in the weights is r, z, n.
    """

    @staticmethod
    def forward(ctx: Any, keep: bool, half: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast("cpu", enabled=False):
            passes = run_in_threads(
                [partial(_forward_pass, *group, keep=keep, half=half) for group in _fives(tensors)]
            )
        if keep:
            ctx.save_for_backward(*(tensor for kept in passes for tensor in kept))
            ctx.spent, ctx.half = False, half
        return tuple(states[1:] for states, *_ in passes)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.spent:
            raise RuntimeError("the backward pass of this GRU runs once only: its gates hold their gradients")
        ctx.spent = True
        tasks = zip(grads, ctx.needs_input_grad[2::5], _fives(ctx.saved_tensors))
        with torch.autocast("cpu", enabled=False):
            passes = run_in_threads(
                [
                    partial(_backward_pass, given, to_input, *kept, half=ctx.half)
                    for given, to_input, kept in tasks
                ]
            )
        return None, None, *(grad for group in passes for grad in group)


def _fives(tensors: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    return [tensors[i : i + 5] for i in range(0, len(tensors), 5)]


def _add_product(out: Tensor, one: Tensor, two: Tensor) -> None:
    """`out += one @ two`; where `two` is in half precision, `one` is rounded, too, and the sum is not."""
    if two.dtype == torch.bfloat16:
        out.add_(one.bfloat16() @ two)
    else:
        out.addmm_(one, two)


def _forward_pass(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, *, keep: bool, half: bool = False
) -> Sequence[Tensor]:
    """All states, beginning with zero, and what the backward pass needs; without `keep`, the last gates."""
    (frames, batch, _), hidden = x.shape, w_hh.shape[1]
    back = torch.cat([w_hh[2 * hidden :], w_hh[: 2 * hidden]])
    forth = back.t().contiguous()  # read once per frame, and in this order faster
    given = w_ih.t()
    if half:
        forth, given, back = forth.bfloat16(), given.bfloat16(), back.bfloat16()
    # the reset and update gates add both biases; that of the new state stands inside, beside its product
    bias = torch.cat([b_hh[2 * hidden :], b_ih[: 2 * hidden] + b_hh[: 2 * hidden], b_ih[2 * hidden :]])
    states = x.new_empty(frames + 1, batch, hidden)
    states[0] = 0
    state, minus_one = states.unbind(), x.new_full((), -1)
    # some frames at a time, whose gates are still in the cache when their turn comes
    length = min(frames, max(1, max(ROWS, 2 * hidden) // batch))
    gates = x.new_empty(frames if keep else length, batch, 4 * hidden + SPACE)[..., : 4 * hidden]
    for first in range(0, frames, length):
        last = min(frames, first + length)
        chunk = gates[first:last] if keep else gates[: last - first]
        rows = chunk.view(-1, 4 * hidden)
        rows.copy_(bias)
        _add_product(rows[:, hidden:], x[first:last].reshape(len(rows), -1), given)
        facing_state, switches = chunk[..., : 3 * hidden].unbind(), chunk[..., hidden : 3 * hidden].unbind()
        inner, reset, update, new = (part.unbind() for part in chunk.split(hidden, 2))
        for t in range(last - first):
            before = state[first + t]
            _add_product(facing_state[t], before, forth)
            switches[t].sigmoid_()
            # tanh as 2σ(2x) − 1, in half its time; a Python number would be converted in every call
            doubled = new[t].addcmul_(reset[t], inner[t]).add_(new[t]).sigmoid_()
            torch.add(minus_one, doubled, alpha=2, out=new[t])
            torch.lerp(new[t], before, update[t], out=state[first + t + 1])
    return states, gates, back, x, w_ih


def _backward_pass(
    given: Tensor,
    to_input: bool,
    states: Tensor,
    gates: Tensor,
    back: Tensor,
    x: Tensor,
    w_ih: Tensor,
    *,
    half: bool = False,
) -> Sequence[Tensor | None]:
    """Gradients of x (where asked for), W_ih, W_hh, b_ih and b_hh; `given` is that of the states."""
    hidden = back.shape[1]
    _through_time(gates, states, back, given)
    rows = gates.view(-1, 4 * hidden)
    sums, inputs, before = rows.sum(0), x.reshape(len(rows), -1), states[:-1].view(-1, hidden)
    if half:
        rows, inputs, before, w_ih = (part.bfloat16() for part in (rows, inputs, before, w_ih))
    facing_state, facing_input = rows[:, : 3 * hidden], rows[:, hidden:]
    d_w_hh = (facing_state.t() @ before).to(x.dtype)
    d_x = (facing_input @ w_ih).to(x.dtype).view_as(x) if to_input else None
    d_w_ih = (facing_input.t() @ inputs).to(x.dtype)
    return d_x, d_w_ih, d_w_hh.roll(-hidden, 0), sums[hidden:].clone(), sums[: 3 * hidden].roll(-hidden, 0)


def _through_time(gates: Tensor, states: Tensor, back: Tensor, given: Tensor) -> None:
    """Turn gates into gradients of their pre-activations; `given` `(T, B, H)` are those of the states."""
    frames, batch, hidden = given.shape
    length = max(1, CHUNK // (batch * hidden))
    keeps = gates.new_empty(length, batch, hidden)
    parts, facing_state = gates.unflatten(2, (4, hidden)).unbind(), gates[..., : 3 * hidden].unbind()
    given_at, kept_at = given.unbind(), keeps.unbind()
    carried, spare = given_at[-1].clone(), gates.new_empty(batch, hidden)
    for end in range(frames, 0, -length):
        first = max(0, end - length)
        _derivatives(gates[first:end], states[first:end], keeps[: end - first])
        for t in reversed(range(first, end)):
            parts[t].mul_(carried.unsqueeze(1))
            if t:  # what goes straight to the state before, and what goes there through the gates
                torch.addcmul(given_at[t - 1], carried, kept_at[t - first], out=spare)
                _add_product(spare, facing_state[t], back)
                carried, spare = spare, carried


def _derivatives(gates: Tensor, states: Tensor, kept: Tensor) -> None:
    """Replace gates by the derivatives of the state that follows, by the gates before σ and tanh; keep z.

    n: (1 − z)(1 − n²), m: that times r, r: that times (1 − r)·m, z: z(1 − z)(h − n).
    """
    m, r, z, n = gates.chunk(4, 2)
    kept.copy_(z)
    fresh = 1 - z
    spare = torch.sub(states, n).mul_(z)
    torch.mul(spare, fresh, out=z)
    torch.mul(n, n, out=spare)
    torch.addcmul(fresh, fresh, spare, value=-1, out=n)
    torch.mul(n, m, out=spare)
    torch.mul(n, r, out=m)
    spare.mul_(r)
    torch.addcmul(spare, spare, r, value=-1, out=r)
