"""The kernel-fusion encoder for inference on the CPU: many bodies at once, one row per channel and frame.

A shift in time is a shift by whole rows, a sum of channels is a sum of rows, and the gates of a GRU are
blocks of rows, so that every operation runs over memory in order: about twice as fast as channels last, and
equal to it to rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from halp.encoders.fusion import Geometry

Places = tuple[tuple[int, ...], ...]
BODIES = 64  # side by side: few enough to stay in the cache, enough to make calls cheap
CHUNK = 8  # frames whose gates are computed at once


def can_use_row_kernels(x: Tensor) -> bool:
    """Whether the row kernels may replace torch operations: no gradients, no other device, no export."""
    exported = torch.compiler.is_exporting() or torch.jit.is_tracing() or torch.compiler.is_compiling()
    plain = x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return plain and not exported and not torch.is_grad_enabled()


def body_rows(bodies: Tensor) -> Tensor:
    """Bodies `(B, T, V, C)` as rows `(V, C, T, B)`."""
    return bodies.permute(2, 3, 1, 0).contiguous()


def write_streams(out: Tensor, x: Tensor, parents: Sequence[int], geometry: Geometry | None = None) -> None:
    """Fill `(channels, T, B)` with joints, bones, motion and geometry of bodies `(V, C, T, B)`."""
    joints, bones, motion, *_ = out.split(x.shape[0] * x.shape[1])
    joints.view_as(x).copy_(x)
    torch.sub(x, x[list(parents)], out=bones.view_as(x))
    torch.sub(x[:, :, 1:], x[:, :, :-1], out=motion.view_as(x)[:, :, :-1])
    motion[:, -1] = 0
    if geometry is None:
        return
    distances, cosines = out[3 * len(joints) :].tensor_split([geometry.pairs.shape[1]])
    spare, row = x.new_empty(x.shape), 0
    squares = x.new_empty(len(x) * (len(x) - 1) // 2, *x.shape[2:])
    for joint in range(1, len(x)):  # and every joint before it
        torch.sub(x[:joint], x[joint], out=spare[:joint]).square_()
        torch.sum(spare[:joint], 1, out=squares[row : row + joint])
        row += joint
    later, earlier = geometry.pairs[1], geometry.pairs[0]
    torch.index_select(squares, 0, later * (later - 1) // 2 + earlier, out=distances).clamp_min_(
        1e-12
    ).sqrt_()
    ends, row = bones.view_as(x)[geometry.bones], 0
    ends /= torch.sum(torch.square(ends), 1, keepdim=True).sqrt_().clamp_min_(1e-12)
    for bone in range(len(ends) - 1):  # and every bone after it
        others = len(ends) - 1 - bone
        torch.sum(
            torch.mul(ends[bone], ends[bone + 1 :], out=spare[:others]), 1, out=cosines[row : row + others]
        )
        row += others


TILE = (
    32  # bodies or clips: products of matrices round by their size, but not beyond whole tiles of this size
)


def in_tiles(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Apply a function to rows `(B, …)` so that each result is bit-identical in any batch."""
    spare = -len(rows) % TILE
    return function(torch.cat([rows, rows.new_zeros(spare, *rows.shape[1:])]) if spare else rows)[: len(rows)]


def convolve_rows(x: Tensor, conv: nn.Conv1d) -> Tensor:
    """A convolution over time of `(channels, T, B)`, same length: one product per tap, without copies."""
    _, frames, bodies = x.shape
    rows, taps, (dilation,) = x.flatten(1), conv.weight.unbind(2), conv.dilation
    bias = x.new_zeros(1) if conv.bias is None else conv.bias
    out = torch.addmm(bias[:, None], taps[len(taps) // 2].contiguous(), rows)
    for place, tap in enumerate(taps):
        shift = (place - len(taps) // 2) * dilation
        length = (frames - abs(shift)) * bodies
        if shift and length > 0:
            to, source = max(0, -shift) * bodies, max(0, shift) * bodies
            out[:, to : to + length].addmm_(tap.contiguous(), rows[:, source : source + length])
    return out.view(-1, frames, bodies)


def read_both_ways(grus: Sequence[nn.GRU], x: Tensor) -> Tensor:
    """States `(T, 2H, B)` of two GRUs, of which the second reads backwards, for a sequence `(T, I, B)`.

    Inputs beyond I have no weight.
    """
    (frames, inputs, bodies), hidden = x.shape, grus[0].hidden_size
    x = torch.cat([x, x.new_ones(frames, 1, bodies)], 1)  # the last input carries the biases
    parts = [
        [cast(Tensor, part) for part in (gru.weight_ih_l0, gru.bias_ih_l0, gru.bias_hh_l0)] for gru in grus
    ]
    from_inputs = []
    for weight, bias, inner_bias in parts:
        bias = torch.cat([inner_bias[: 2 * hidden], inner_bias.new_zeros(hidden)]) + bias
        from_inputs.append(torch.cat([weight[:, :inputs], bias[:, None]], 1))
    weights = torch.stack([cast(Tensor, gru.weight_hh_l0) for gru in grus])
    inside = torch.stack([inner_bias[2 * hidden :] for _, _, inner_bias in parts])[:, :, None]
    gates = x.new_empty(2, CHUNK, 3 * hidden, bodies)
    steps = list(zip(gates[:, :, : 2 * hidden].unbind(1), gates[:, :, 2 * hidden :].unbind(1)))
    facing_state = x.new_empty(2, 3 * hidden, bodies)
    switches, inner = facing_state[:, : 2 * hidden], facing_state[:, 2 * hidden :]
    reset, update = switches.split(hidden, 1)
    states = x.new_empty(2, frames, hidden, bodies)
    following, state = states.unbind(1), x.new_zeros(2, hidden, bodies)
    backwards = x.flip(0)
    # the gates of some frames at a time, which are still in the cache when their turn comes
    for first in range(0, frames, CHUNK):
        length = min(CHUNK, frames - first)
        torch.matmul(from_inputs[0], x[first : first + length], out=gates[0, :length])
        torch.matmul(from_inputs[1], backwards[first : first + length], out=gates[1, :length])
        for t, (switched, new) in enumerate(steps[:length], first):
            torch.bmm(weights, state, out=facing_state)
            switches.add_(switched).sigmoid_()
            new.addcmul_(reset, inner.add_(inside)).tanh_()
            state = torch.lerp(new, state, update, out=following[t])
    return torch.cat([states[0], states[1].flip(0)], 1)


class Mixture(NamedTuple):
    """Inputs of one dilation's kernels: rows of the channels that each sums, factors, and response shifts."""

    channels: Tensor
    first: Tensor
    factors: Tensor
    shifts: Tensor


def mixture(mix: Tensor, factor: Tensor, shift: Tensor, frames: int) -> Mixture:
    """From `mix` `(channels, kernels)`, which is 1 where a kernel reads a channel.

    Shifts are rows like any other: as many channels more as hold one row for each kernel pass through as they
    are.
    """
    spare = spare_channels(len(shift), frames)
    kernel, channel = mix.T.contiguous().nonzero(as_tuple=True)
    sizes = torch.cat([kernel.bincount(minlength=len(shift)), kernel.new_ones(spare)])
    channels = torch.cat([channel, torch.arange(len(mix), len(mix) + spare)])
    factors = torch.cat([factor[kernel], factor.new_ones(spare)])
    return Mixture(channels.int(), (sizes.cumsum(0) - sizes).int(), factors, shift[:, None])


def spare_channels(kernels: int, frames: int) -> int:
    """Channels more that `kernel_sums` needs at the end of its table."""
    return -(-kernels // frames)


def kernel_sums(
    table: Tensor, mixture: Mixture, places: Places, length: int, dilation: int, spare: Tensor
) -> tuple[Tensor, Tensor]:
    """Sums over the frames of hardsigmoid and of relu of `factor · response + shift`: twice `(kernels, B)`.

    `table` `(channels, T, B)` ends with the spare channels. There are several kernels for each of the
    `places` of weights.
    `spare` `(kernels, T, B)` is written over: memory that is fetched again costs more than what is computed
    in it.
    """
    frames, bodies = table.shape[1:]
    kernels = len(mixture.shifts)
    table[-spare_channels(kernels, frames) :].view(-1, bodies)[:kernels] = mixture.shifts
    mixed = _summed(table.view(len(table), -1), mixture.channels, mixture.first, mixture.factors)
    taps, first, weights = _taps(places, kernels // len(places), length, dilation, frames)
    responses = _summed(mixed.view(-1, bodies), taps, first, weights).view(kernels, frames, bodies)
    shares = torch.clamp(responses, -3, 3, out=spare).sum(1)
    return shares.add_(3 * frames).div_(6), responses.relu_().sum(1)


def _summed(rows: Tensor, chosen: Tensor, first: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of chosen rows, of which each begins at its first."""
    return torch.embedding_bag(rows, chosen, first, False, 0, False, weights)[0]


@functools.lru_cache(maxsize=64)
def _taps(
    places: Places, banks: int, length: int, dilation: int, frames: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, offsets and weights of the sums that form responses: taps per kernel and frame, then the shift.

    Row `kernel · frames + frame` holds the kernel's input there; the shifts of all kernels follow the last of
    these rows.
    """
    kernels = banks * len(places)
    weight = torch.full((kernels, length), -1.0).scatter_(1, torch.tensor(places * banks), 2.0)
    moment = torch.arange(frames)[:, None] + (torch.arange(length) - length // 2) * dilation  # (T, length)
    kernel = torch.arange(kernels)[:, None, None]
    rows = torch.cat([kernel * frames + moment, (kernel + kernels * frames).expand(-1, frames, 1)], 2)
    weights = torch.cat([weight, torch.ones(kernels, 1)], 1)[:, None].expand_as(rows)
    inside = nn.functional.pad((moment >= 0) & (moment < frames), (0, 1), value=True)
    sizes, inside = inside.sum(1).repeat(kernels), inside.expand_as(rows)
    return rows[inside].int(), (sizes.cumsum(0) - sizes).int(), weights[inside]
