"""Dropout as a function of (seed, module, epoch, step): equal after resuming and on any processes.

`replace_dropout` puts such modules in the place of torch's; `begin_step` tells them where training stands. A
process draws the mask of its own rows of the batch, on the device where they are: every entry is a hash of
its place in the whole batch. The leading axis of what is dropped must be the batch, or the batch times
something (persons, frames).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from halp.core.errors import InputError
from halp.core.sampling import generator

#: rows: a process draws its own, on its device; batch: all rows on the CPU in every process, as earlier
#: versions did
DRAWS = ("rows", "batch")

_WHOLE_FEATURES = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class StepDropout(nn.Module):
    """Dropout of single entries, or of whole features `(N, C, …)`, drawn for each step and call."""

    def __init__(self, probability: float, whole_features: bool, name: str) -> None:
        super().__init__()
        self.p, self.whole_features, self.name = probability, whole_features, name
        self.moment: tuple[int, int, int] = (0, 0, 0)  # seed, epoch, step
        self.rows, self.total, self.calls = slice(0, 0), 0, 0
        self.draws = "rows"

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        local = self.rows.stop - self.rows.start
        factor, rest = divmod(x.shape[0], max(local, 1))
        if rest or not local:
            raise InputError(
                f"dropout '{self.name}' gets a tensor of shape {tuple(x.shape)}; its first axis must be the"
                f" batch of {local} clips or a multiple of it, so that every process drops the same"
            )
        seed, epoch, step = self.moment
        draws = generator(seed, f"dropout/{self.name}", epoch, step, self.calls)
        self.calls += 1
        shape = list(x.shape[1:])
        if self.whole_features:
            shape[1:] = [1] * (len(shape) - 1)
        first, last = self.rows.start * factor, self.rows.stop * factor
        if self.draws == "rows":
            kept = kept_rows(first, last, shape, self.p, draws.initial_seed(), x.device)
        else:
            kept = torch.rand([self.total * factor, *shape], generator=draws)[first:last] >= self.p
        return x * kept.to(x.device) / (1 - self.p)


def kept_rows(
    first: int,
    last: int,
    shape: Sequence[int],
    probability: float,
    key: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Which entries `(last - first, *shape)` of rows of a mask are kept: a function of key and position.

    SplitMix64 of a counter gives four entries of 16 bits each, so that the probability is rounded to 1 /
    65536.

    >>> torch.equal(kept_rows(0, 8, [5], 0.5, 1)[3:6], kept_rows(3, 6, [5], 0.5, 1))
    True
    """
    entries = math.prod(shape)
    counters = -(-entries // 4)
    z = torch.arange(first * counters, last * counters, device=device) * _signed(0x9E3779B97F4A7C15) + key
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        # without the sign, which >> would repeat
        z = (z ^ (z >> shift & (1 << 64 - shift) - 1)) * _signed(factor)
    bits = z.view(torch.int16).view(last - first, 4 * counters)[:, :entries]
    return (bits >= round(probability * 65536) - 32768).view(last - first, *shape)


def _signed(value: int) -> int:
    """64 bits as the signed number that has them."""
    return value - (1 << 64) if value >= 1 << 63 else value


def replace_dropout(model: nn.Module) -> None:
    """Replace torch's dropout modules in a model by modules that draw by step."""
    for prefix, module in list(model.named_modules()):
        for name, child in module.named_children():
            if isinstance(child, (nn.AlphaDropout, nn.FeatureAlphaDropout)):
                raise InputError(
                    f"'{prefix}.{name}' is a {type(child).__name__}, whose draws cannot be repeated by step;"
                    " use nn.Dropout"
                )
            if isinstance(child, (nn.Dropout, *_WHOLE_FEATURES)):
                whole = isinstance(child, _WHOLE_FEATURES)
                setattr(module, name, StepDropout(child.p, whole, f"{prefix}.{name}").train(child.training))


def dropouts(model: nn.Module) -> Iterator[StepDropout]:
    """The dropout modules of a model."""
    return (module for module in model.modules() if isinstance(module, StepDropout) and module.p > 0)


def begin_step(
    modules: list[StepDropout], seed: int, epoch: int, step: int, rows: slice, total: int, draws: str = "rows"
) -> None:
    """Tell dropout modules the step, this process's rows of the batch of `total` clips, and how to draw."""
    for module in modules:
        module.moment, module.rows, module.total, module.calls = (seed, epoch, step), rows, total, 0
        module.draws = draws
