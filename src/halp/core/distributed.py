"""Several processes as one: a step on any number of ranks computes what a single process would.

Every rank encodes its rows of the global batch; queries and keys are gathered, and each rank evaluates the
same loss on the whole batch. So queue, prototypes and random draws are the same everywhere, and the sum of
the ranks' gradients is the gradient of one process. Without a process group every function here hands its
input on.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from halp.core.errors import InputError, LostProcess


def world_size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """The number of this process."""
    return distributed.get_rank() if world_size() > 1 else 0


def destroy_group_at_exit() -> None:
    """Close the process group at exit: threads that are still running then may abort the program."""
    if world_size() > 1:
        atexit.unregister(_close)
        atexit.register(_close)


def _close() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def rank_rows(total: int, number: int | None = None, of: int | None = None) -> slice:
    """The rows of a global batch that belong to a rank (default: this one); shares differ by one row at most.

    >>> [rank_rows(7, number, of=3) for number in range(3)]
    [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    number, of = rank() if number is None else number, of or world_size()
    small, extra = divmod(total, of)
    start = number * small + min(number, extra)
    return slice(start, start + small + (number < extra))


def gather(x: Tensor, total: int) -> Tensor:
    """All rows of the global batch `(total, D)` from every rank's rows, in order.

    Each rank computes the same loss from the result, so the gradient of a share is taken from it once; it is
    multiplied by the number of ranks because data-parallel training averages over them.
    """
    return x if world_size() == 1 else _Gather.apply(x, total)


def broadcast(x: Tensor) -> Tensor:
    """Copy rank 0's tensor to every rank, in place."""
    if world_size() > 1:
        distributed.broadcast(x, 0)
    return x


def compute_on_rank_zero(
    make: Callable[[], Tensor], room: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Broadcast what `make` returns on rank 0 into `room`, a tensor of the same shape.

    Its draws from `generator` (default: torch's own for the device of `room`) count on every rank. If it
    fails, every rank does, and none is left waiting.
    """
    if world_size() == 1:
        return make()
    failure: Exception | None = None
    if rank() == 0:
        try:
            room = make().contiguous()
        except Exception as error:
            failure = error
    if any_rank(failure is not None, room.device):
        raise failure or LostProcess(
            f"process {rank()} of {world_size()} stops because process 0 failed; see its message"
        )
    broadcast(room)
    draws = _own_generator(room.device) if generator is None else generator
    draws.set_state(broadcast(draws.get_state().to(room.device)).cpu())
    return room


def sum_over_processes(x: Tensor) -> Tensor:
    """The sum of every process's tensor, without gradient to the others."""
    if world_size() == 1:
        return x
    total = x.detach().clone()
    distributed.all_reduce(total)
    return total


def any_rank(flag: bool, device: torch.device | str = "cpu") -> bool:
    """Whether the flag is set on any rank; every rank gets the answer."""
    if world_size() == 1:
        return flag
    up = torch.tensor(float(flag), device=device)
    distributed.all_reduce(up, distributed.ReduceOp.MAX)
    return bool(up)


@contextmanager
def explain_lost_process() -> Iterator[None]:
    """Turn the failure of a collective operation into one clear sentence: another process is gone."""
    try:
        yield
    except RuntimeError as error:
        words = (
            "connection",
            "gloo",
            "nccl",
            "process group",
            "timed out",
            "timeout",
            "broken pipe",
            "socket",
        )
        if world_size() > 1 and any(word in str(error).lower() for word in words):
            reason = re.sub(r"\[[^]]*\]", "", str(error)).strip().splitlines()[0][:160]
            raise LostProcess(
                f"process {rank()} of {world_size()} lost another one ({reason}); the last checkpoint is"
                " whole: resume the job with --resume"
            ) from error
        raise


def synchronise_batch_norm(model: nn.Module, device: torch.device) -> nn.Module:
    """Let every BatchNorm of a model use the statistics of the global batch; parameters keep their names.

    One that cannot be converted is refused: its statistics would be those of a part of the batch.
    """
    if world_size() == 1:
        return model
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._LazyNormBase):
            raise InputError(
                f"'{name}' is a {type(module).__name__}, whose size is unknown before the first step; several"
                " processes need a BatchNorm with a given number of features"
            )
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.modules.batchnorm._BatchNorm) and not isinstance(child, GlobalBatchNorm):
                setattr(module, name, GlobalBatchNorm.of(child))
    return model


class GlobalBatchNorm(nn.modules.batchnorm._BatchNorm):
    """BatchNorm over `(N, C, …)` of all ranks, for any number of axes; torch's own is for GPUs only."""

    @classmethod
    def of(cls, norm: nn.modules.batchnorm._BatchNorm) -> GlobalBatchNorm:
        """The same normalisation, sharing parameters and statistics."""
        shared = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        shared.weight, shared.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers():
            shared.register_buffer(name, buffer)
        return shared.train(norm.training)

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or world_size() == 1:
            return super().forward(input)
        channels_last = input.movedim(1, -1)
        rows = channels_last.reshape(-1, self.num_features).float()
        sums = _Sum.apply(torch.cat([rows.sum(0), rows.new_tensor([len(rows)])]))
        number = sums[-1].detach()
        mean = sums[:-1] / number
        variance = _Sum.apply((rows - mean).square().sum(0)) / number
        if (
            self.running_mean is not None
            and self.running_var is not None
            and self.num_batches_tracked is not None
        ):
            with torch.no_grad():
                self.num_batches_tracked += 1
                # without a momentum the statistics are those of all batches so far
                weight = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
                self.running_mean.lerp_(mean, weight)
                self.running_var.lerp_(variance * number / (number - 1).clamp_min(1), weight)
        normal = (rows - mean) * torch.rsqrt(variance + self.eps)
        normal = torch.addcmul(self.bias, normal, self.weight) if self.affine else normal
        return normal.view(channels_last.shape).movedim(-1, 1)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"BatchNorm takes (N, C, …), not {tuple(input.shape)}")


def _own_generator(device: torch.device) -> torch.Generator:
    """The generator that draws on a device if none is given."""
    return torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, total: int) -> Tensor:
        ctx.total = total
        sizes = [rank_rows(total, number) for number in range(world_size())]
        longest = max(size.stop - size.start for size in sizes)
        padded = F.pad(x.contiguous(), (0, 0, 0, longest - len(x)))
        parts = [torch.empty_like(padded) for _ in sizes]
        distributed.all_gather(parts, padded)
        return torch.cat([part[: size.stop - size.start] for part, size in zip(parts, sizes)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0][rank_rows(ctx.total)] * world_size(), None


class _Sum(torch.autograd.Function):
    """Sum over ranks; every rank's output depends on every rank's input, so gradients are summed too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].contiguous().clone()
        distributed.all_reduce(total)
        return total
