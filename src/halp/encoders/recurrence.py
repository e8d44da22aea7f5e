"""GRUs over whole sequences for the CPU: what torch's own kernel computes, with less traffic, fewer products, no idle core.

torch's backward pass adds up the weight gradients one frame after the other. Here a frame does only what depends on the
frame after it; weight gradients are one product over all frames at the end, gates overwrite their pre-activations, and
their gradients overwrite the gates. The products of a frame are too small to be worth splitting among cores, so GRUs that
do not depend on each other (the two of a layer) run side by side instead. On a GPU cuDNN does the like, and it is left
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from halp.encoders.threads import side_by_side


@torch.compiler.disable  # the compiler would unroll the frames: minutes of work for nothing
def run_grus(grus: Sequence[nn.GRU], sequences: Sequence[Tensor]) -> list[Tensor]:
    """States `(T, B, H)` of one-layer GRUs, each for its own sequence `(T, B, I)`; equal to the GRUs to rounding."""
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
    """Independent GRUs: whether to keep what a backward pass needs, then x, W_ih, W_hh, b_ih, b_hh of each."""

    @staticmethod
    def forward(ctx: Any, keep: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
        groups = [tensors[i : i + 5] for i in range(0, len(tensors), 5)]
        outcomes = side_by_side([partial(_forth, keep, *group) for group in groups])
        if keep:
            saved = [
                (x, gates, inners, states, w_ih, w_hh)
                for (x, w_ih, w_hh, *_), (gates, inners, states) in zip(groups, outcomes)
            ]
            ctx.save_for_backward(*(tensor for group in saved for tensor in group))
            ctx.spent = False
        return tuple(states[1:] for _, _, states in outcomes)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.spent:
            raise RuntimeError("the gates of this GRU made room for their gradients: its backward pass runs once only")
        ctx.spent = True
        saved = ctx.saved_tensors
        calls = [
            partial(_back, grad, *saved[6 * i : 6 * i + 6], inputs=ctx.needs_input_grad[1 + 5 * i])
            for i, grad in enumerate(grads)
        ]
        return None, *(gradient for group in side_by_side(calls) for gradient in group)


def _forth(
    keep: bool, x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """r, z = σ(·), n = tanh(x_n + r·(W_hn h + b_hn)), h ← n + z·(h − n), gates in torch's order r, z, n.

    Returns the gates, the inner products W_hn h + b_hn (of the last frame only, unless `keep`), and states `(T + 1, B, H)`.
    """
    frames, batch, hidden = x.shape[0], x.shape[1], w_hh.shape[1]
    # the reset and update gates add both biases; that of the new state stands inside, beside its product
    bias = torch.cat([b_ih[: 2 * hidden] + b_hh[: 2 * hidden], b_ih[2 * hidden :]])
    gates = torch.addmm(bias, x.reshape(frames * batch, -1), w_ih.t()).view(frames, batch, 3 * hidden)
    # read once a frame, and in this order faster
    w_gates, w_inner = w_hh[: 2 * hidden].t().contiguous(), w_hh[2 * hidden :].t().contiguous()
    states = x.new_empty(frames + 1, batch, hidden)
    states[0] = 0
    inners = x.new_empty(frames if keep else 1, batch, hidden)
    kept, state = inners.unbind() if keep else (inners[0],) * frames, states.unbind()
    reset, update, new = (part.unbind() for part in gates.split(hidden, 2))
    reset_update = gates[:, :, : 2 * hidden].unbind()
    for t in range(frames):
        reset_update[t].addmm_(state[t], w_gates).sigmoid_()
        torch.addmm(b_hh[2 * hidden :], state[t], w_inner, out=kept[t])
        new[t].addcmul_(reset[t], kept[t]).tanh_()
        torch.lerp(new[t], state[t], update[t], out=state[t + 1])
    return gates, inners, states


def _back(
    grad: Tensor, x: Tensor, gates: Tensor, inners: Tensor, states: Tensor, w_ih: Tensor, w_hh: Tensor, *, inputs: bool
) -> tuple[Tensor | None, ...]:
    """Gradients of x (if `inputs`), W_ih, W_hh, b_ih, b_hh; gates and inner products are overwritten."""
    frames, batch, hidden = inners.shape
    carried = x.new_zeros(batch, hidden)  # gradient of the state after frame t
    through, fresh, spare = (x.new_empty(batch, hidden) for _ in range(3))
    whole, kept, state, given = gates.unbind(), inners.unbind(), states.unbind(), grad.unbind()
    reset, update, new = (part.unbind() for part in gates.split(hidden, 2))
    for t in reversed(range(frames)):
        r, z, n, inner = reset[t], update[t], new[t], kept[t]
        carried.add_(given[t])
        torch.mul(carried, z, out=through)  # the part that goes straight to the state before
        torch.sub(carried, through, out=fresh)
        torch.mul(fresh, n, out=spare)
        fresh.addcmul_(spare, n, value=-1)  # ∂ of n before tanh: (1 − z)(1 − n²)
        torch.sub(state[t], n, out=spare).mul_(through)
        torch.addcmul(spare, spare, z, value=-1, out=z)  # ∂ of z before σ: z(1 − z)(h − n)
        torch.mul(fresh, r, out=n)  # ∂ of W_hn h + b_hn
        torch.addcmul(n, n, r, value=-1, out=r).mul_(inner)  # ∂ of r before σ: r(1 − r)·inner
        inner.copy_(fresh)
        carried, through = through.addmm_(whole[t], w_hh), carried
    rows = gates.view(frames * batch, 3 * hidden)
    d_w_hh = (states[:-1].view(frames * batch, hidden).t() @ rows).t()
    d_b_hh = rows.sum(0)
    rows[:, 2 * hidden :] = inners.view(frames * batch, hidden)
    d_w_ih = (x.reshape(frames * batch, -1).t() @ rows).t()
    d_b_ih = torch.cat([d_b_hh[: 2 * hidden], rows[:, 2 * hidden :].sum(0)])
    d_x = (rows @ w_ih).view_as(x) if inputs else None
    return d_x, d_w_ih, d_w_hh, d_b_ih, d_b_hh
