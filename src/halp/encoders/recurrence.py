"""GRUs over whole sequences for the CPU: what torch's own kernel computes, with fewer and larger operations.

GRUs that do not depend on each other (the two of a layer) go through time together, as one batched product a frame. A
frame does only what depends on its neighbour: the inputs' share of the gates is a product over many frames beforehand,
weight gradients are one at the end (torch adds them up frame by frame), and the derivatives of the gates are taken for
several frames at once, in the memory of the gates. On a GPU cuDNN does the like, and it is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

# numbers of one gate whose derivatives are taken at once: enough to make calls cheap, few enough to stay in the cache
CHUNK = 1 << 16
ROWS = 1024  # of the inputs of all GRUs that are multiplied at once, at least


@torch.compiler.disable  # the compiler would unroll the frames: minutes of work for nothing
def run_grus(grus: Sequence[nn.GRU], sequences: Sequence[Tensor]) -> list[Tensor]:
    """States `(T, B, H)` of one-layer GRUs of one width, each for its own sequence `(T, B, I)`; equal to them to rounding."""
    x = sequences[0]
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled("cpu"):
        return [_as_torch_does(gru, sequence) for gru, sequence in zip(grus, sequences)]
    tensors = [
        tensor
        for gru, sequence in zip(grus, sequences)
        for tensor in (sequence, gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0)
    ]
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return list(Recurrences.apply(keep, *tensors))


def _as_torch_does(gru: nn.GRU, x: Tensor) -> Tensor:
    return gru(x.transpose(0, 1))[0].transpose(0, 1) if gru.batch_first else gru(x)[0]


class Recurrences(torch.autograd.Function):
    """r, z = σ(·), n = tanh(x_n + r·m) with m = W_hn h + b_hn, h ← n + z·(h − n), for all GRUs at once.

    Takes whether to keep what a backward pass needs, then x, W_ih, W_hh, b_ih, b_hh of each. A row of the gates
    `(GRU, T, B, 4H)` is m, r, z, n: its first three parts face the state, its last three the input. torch's order in the
    weights is r, z, n.
    """

    @staticmethod
    def forward(ctx: Any, keep: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
        groups = list(zip(*(tensors[i::5] for i in range(5))))
        x, _, w_hh, *_ = groups[0]
        frames, batch, hidden = x.shape[0], x.shape[1], w_hh.shape[1]
        back = torch.stack([torch.cat([w[2 * hidden :], w[: 2 * hidden]]) for _, _, w, _, _ in groups])
        forth = back.transpose(1, 2).contiguous()  # read once a frame, and in this order faster
        # the reset and update gates add both biases; that of the new state stands inside, beside its product
        biases = [torch.cat([b[: 2 * hidden] + c[: 2 * hidden], b[2 * hidden :]]) for _, _, _, b, c in groups]
        inner_bias = torch.stack([b_hh[2 * hidden :] for *_, b_hh in groups])[:, None]
        product = x.new_empty(len(groups), batch, 3 * hidden)
        to_inner, to_switches = product.split((hidden, 2 * hidden), 2)
        states = x.new_empty(len(groups), frames + 1, batch, hidden)
        states[:, 0] = 0
        state = states.unbind(1)
        # some frames at a time, whose gates are still in the cache when their turn comes
        length = min(frames, max(1, max(ROWS // len(groups), 2 * hidden) // batch))
        gates = x.new_empty(len(groups), frames if keep else length, batch, 4 * hidden)
        for first in range(0, frames, length):
            last = min(frames, first + length)
            chunk = gates[:, first:last] if keep else gates[:, : last - first]
            for part, (x, w_ih, *_), bias in zip(chunk, groups, biases):
                rows = x[first:last].reshape(-1, x.shape[2])
                torch.addmm(bias, rows, w_ih.t(), out=part.view(-1, 4 * hidden)[:, hidden:])
            inner, reset, update, new = (part.unbind(1) for part in chunk.split(hidden, 3))
            switches = chunk[..., hidden : 3 * hidden].unbind(1)
            for t in range(last - first):
                before, after = state[first + t], state[first + t + 1]
                torch.bmm(before, forth, out=product)
                torch.add(to_inner, inner_bias, out=inner[t])
                switches[t].add_(to_switches).sigmoid_()
                new[t].addcmul_(reset[t], inner[t]).tanh_()
                torch.lerp(new[t], before, update[t], out=after)
        if keep:
            ctx.save_for_backward(gates, states, back, *(tensor for group in groups for tensor in group[:2]))
            ctx.spent = False
        return tuple(states[:, 1:].unbind())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.spent:
            raise RuntimeError("the gates of this GRU made room for their gradients: its backward pass runs once only")
        ctx.spent = True
        gates, states, back, *inputs = ctx.saved_tensors
        grus, frames, batch, hidden = gates.shape[0], gates.shape[1], gates.shape[2], back.shape[2]
        _through_time(gates, states, back, torch.stack(grads))
        rows, before = gates.view(grus, frames * batch, 4 * hidden), states[:, :-1]
        sums = rows.sum(1)
        result: list[Tensor | None] = [None]
        for i, (x, w_ih) in enumerate(zip(inputs[::2], inputs[1::2])):
            facing_state, facing_input = rows[i, :, : 3 * hidden], rows[i, :, hidden:]
            d_w_hh = facing_state.t() @ before[i].reshape(-1, hidden)
            d_x = (facing_input @ w_ih).view_as(x) if ctx.needs_input_grad[1 + 5 * i] else None
            d_w_ih = facing_input.t() @ x.reshape(frames * batch, -1)
            d_b_hh = sums[i, : 3 * hidden]
            result += [d_x, d_w_ih, d_w_hh.roll(-hidden, 0), sums[i, hidden:].clone(), d_b_hh.roll(-hidden, 0)]
        return tuple(result)


def _through_time(gates: Tensor, states: Tensor, back: Tensor, given: Tensor) -> None:
    """Turn the gates into the gradients of their pre-activations; `given` `(GRU, T, B, H)` are those of the states."""
    grus, frames, batch, hidden = given.shape
    length = max(1, CHUNK // (grus * batch * hidden))
    keeps = gates.new_empty(grus, length, batch, hidden)
    parts, facing_state = gates.unflatten(3, (4, hidden)).unbind(1), gates[..., : 3 * hidden].unbind(1)
    given_at, kept_at = given.unbind(1), keeps.unbind(1)
    carried, spare = given_at[-1].clone(), torch.empty_like(given_at[-1], memory_format=torch.contiguous_format)
    for end in range(frames, 0, -length):
        first = max(0, end - length)
        _derivatives(gates[:, first:end], states[:, first:end], keeps[:, : end - first])
        for t in reversed(range(first, end)):
            parts[t].mul_(carried.unsqueeze(2))
            if t:
                torch.mul(carried, kept_at[t - first], out=spare)  # the part that goes straight to the state before
                spare.baddbmm_(facing_state[t], back).add_(given_at[t - 1])
                carried, spare = spare, carried


def _derivatives(gates: Tensor, states: Tensor, kept: Tensor) -> None:
    """Replace gates by the derivatives of the state that follows, by the gates before σ and tanh; keep z.

    n: (1 − z)(1 − n²), m: that times r, r: that times (1 − r)·m, z: z(1 − z)(h − n).
    """
    m, r, z, n = gates.chunk(4, 3)
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
