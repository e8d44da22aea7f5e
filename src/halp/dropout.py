"""Dropout whose draws are a function of (seed, module, epoch, step), so that a resumed run and any number of processes agree.

`replace_dropout` puts such modules in the place of torch's; `begin_step` tells them where training stands. A mask is drawn
for the whole batch, and a process applies its rows: the leading axis of what is dropped has to be the batch, or the batch
times something (persons, frames).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from halp.errors import InputError
from halp.sampling import generator

_WHOLE_FEATURES = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class StepDropout(nn.Module):
    """Dropout of single entries, or of whole features `(N, C, …)`, with draws of its own for every step and call."""

    def __init__(self, probability: float, whole_features: bool, name: str) -> None:
        super().__init__()
        self.p, self.whole_features, self.name = probability, whole_features, name
        self.moment: tuple[int, int, int] = (0, 0, 0)  # seed, epoch, step
        self.rows, self.total, self.calls = slice(0, 0), 0, 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        local = self.rows.stop - self.rows.start
        factor, rest = divmod(x.shape[0], max(local, 1))
        if rest or not local:
            raise InputError(
                f"dropout '{self.name}' gets a tensor of shape {tuple(x.shape)}; its first axis has to be the batch of {local} "
                "clips or a multiple of it, so that every process drops the same"
            )
        seed, epoch, step = self.moment
        draws = generator(seed, f"dropout/{self.name}", epoch, step, self.calls)
        self.calls += 1
        shape = [self.total * factor, *x.shape[1:]]
        if self.whole_features:
            shape[2:] = [1] * (len(shape) - 2)
        kept = torch.rand(shape, generator=draws)[self.rows.start * factor : self.rows.stop * factor] >= self.p
        return x * kept.to(x.device) / (1 - self.p)


def replace_dropout(model: nn.Module) -> None:
    """Put modules that draw by step in the place of torch's dropout modules, everywhere in a model."""
    for prefix, module in list(model.named_modules()):
        for name, child in module.named_children():
            if isinstance(child, (nn.AlphaDropout, nn.FeatureAlphaDropout)):
                raise InputError(
                    f"'{prefix}.{name}' is a {type(child).__name__}, whose draws cannot be repeated by step; use nn.Dropout"
                )
            if isinstance(child, (nn.Dropout, *_WHOLE_FEATURES)):
                whole = isinstance(child, _WHOLE_FEATURES)
                setattr(module, name, StepDropout(child.p, whole, f"{prefix}.{name}").train(child.training))


def dropouts(model: nn.Module) -> Iterator[StepDropout]:
    """The modules of a model that drop anything."""
    return (module for module in model.modules() if isinstance(module, StepDropout) and module.p > 0)


def begin_step(modules: list[StepDropout], seed: int, epoch: int, step: int, rows: slice, total: int) -> None:
    """Tell dropout modules which step begins and which rows of the batch of `total` clips this process holds."""
    for module in modules:
        module.moment, module.rows, module.total, module.calls = (seed, epoch, step), rows, total, 0
