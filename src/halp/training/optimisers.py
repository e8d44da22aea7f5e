"""Optimisers and learning-rate schedules by name, each with settings of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from halp.core.config import CheckedSettings, build_settings, field_types, limited, plain, unknown_setting
from halp.core.errors import InputError
from halp.core.schedules import stepped_rate


@dataclass(frozen=True)
class SGDSettings(CheckedSettings):
    """SGD with momentum. The defaults are those of the paper for NTU."""

    learning_rate: float = limited(0.01, above=0)
    momentum: float = limited(0.9, least=0, below=1)
    weight_decay: float = limited(1e-4, least=0)
    fused: bool = False  # one kernel for the whole update: two thirds of the time, rounded differently

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        optimiser = torch.optim.SGD(
            parameters,
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            fused=self.fused or None,
        )
        # a scaler of half precision is to unscale gradients itself, so that they can be clipped
        if self.fused:
            optimiser._step_supports_amp_scaling = False
        return optimiser


@dataclass(frozen=True)
class AdamSettings(CheckedSettings):
    """Adam."""

    learning_rate: float = limited(1e-3, above=0)
    betas: tuple[float, ...] = limited((0.9, 0.999), least=0, below=1)
    weight_decay: float = limited(0.0, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.betas) != 2:
            raise InputError(f"betas = {list(self.betas)} must be two numbers in [0, 1)")

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        betas = (self.betas[0], self.betas[1])
        return torch.optim.Adam(
            parameters, lr=self.learning_rate, betas=betas, weight_decay=self.weight_decay
        )


@dataclass(frozen=True)
class AdamWSettings(AdamSettings):
    """AdamW with the settings of masked prediction."""

    betas: tuple[float, ...] = limited((0.9, 0.95), least=0, below=1)
    weight_decay: float = limited(0.05, least=0)

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        betas = (self.betas[0], self.betas[1])
        return torch.optim.AdamW(
            parameters, lr=self.learning_rate, betas=betas, weight_decay=self.weight_decay
        )


@dataclass(frozen=True)
class StepsSettings:
    """The learning rate is multiplied by gamma at each of these epochs."""

    milestones: tuple[int, ...] = (350,)
    gamma: float = 0.1

    def factor(self, epoch: float, epochs: int) -> float:
        return stepped_rate(1.0, epoch, self.milestones, self.gamma)


@dataclass(frozen=True)
class CosineSettings(CheckedSettings):
    """Linear warm-up, then half a cosine down to a share of the learning rate, step by step."""

    warmup: float = limited(0.0, least=0)  # epochs
    floor: float = limited(0.0, least=0, most=1)  # share of the learning rate that is left at the end

    def factor(self, epoch: float, epochs: int) -> float:
        """Share of the learning rate at a time in epochs.

        >>> [CosineSettings(warmup=2, floor=0.5).factor(epoch, 10) for epoch in (1, 2, 6, 10)]
        [0.5, 1.0, 0.75, 0.5]
        """
        if epoch < self.warmup:
            return epoch / self.warmup
        done = (epoch - self.warmup) / max(epochs - self.warmup, 1e-9)
        return self.floor + (1 - self.floor) * self.share_left(min(done, 1.0))

    @staticmethod
    def share_left(done: float) -> float:
        """The remaining share of the decay after a share of the time since the warm-up."""
        return (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class LinearSettings(CosineSettings):
    """Linear warm-up, then a straight line down to a share of the learning rate, step by step.

    >>> [LinearSettings(warmup=2, floor=0.5).factor(epoch, 10) for epoch in (1, 2, 6, 10)]
    [0.5, 1.0, 0.75, 0.5]
    """

    @staticmethod
    def share_left(done: float) -> float:
        return 1 - done


@dataclass(frozen=True)
class ExponentialSettings(CheckedSettings):
    """The learning rate is multiplied by the same number at equal intervals."""

    decay: float = limited(0.99, above=0, most=1)
    every: float = limited(1.0, above=0)  # epochs between two multiplications

    def factor(self, epoch: float, epochs: int) -> float:
        """Share of the learning rate at a time in epochs.

        >>> ExponentialSettings(decay=0.5).factor(2.9, 10), ExponentialSettings(decay=0.5, every=2.5).factor(2.6, 10)
        (0.25, 0.5)
        """
        return self.decay ** int(epoch / self.every)


OPTIMISERS: dict[str, type[Any]] = {"sgd": SGDSettings, "adam": AdamSettings, "adamw": AdamWSettings}
SCHEDULES: dict[str, type[Any]] = {
    "steps": StepsSettings,
    "cosine": CosineSettings,
    "linear": LinearSettings,
    "exponential": ExponentialSettings,
}


@dataclass(frozen=True)
class CommonSettings(CheckedSettings):
    """Settings that every optimiser has."""

    name: str = limited("sgd", among=OPTIMISERS)
    schedule: str = limited("steps", among=SCHEDULES)
    # chunks that a batch is encoded in, to save memory; the gradient is that of the whole batch
    encode_chunks: int = limited(1, least=1)
    # gradients of all parameters together that are longer are scaled to this length
    clip: float = limited(0.0, least=0)


COMMON = tuple(field_types(CommonSettings))


@dataclass(frozen=True, init=False)
class OptimiserSettings:
    """The optimiser and the schedule that a recipe chooses, with their settings.

    >>> OptimiserSettings(name="adamw", schedule="cosine", warmup=5).warmup
    5.0
    """

    common: CommonSettings
    optimiser: Any
    schedule: Any

    def __init__(self, **settings: Any) -> None:
        common = build_settings(
            CommonSettings, {key: settings[key] for key in COMMON if key in settings}, "optimiser."
        )
        kinds = (OPTIMISERS[common.name], SCHEDULES[common.schedule])
        known = [*(entry for kind in kinds for entry in field_types(kind)), *COMMON]
        for key in settings:
            if key not in known:
                raise unknown_setting(key, known, "optimiser.")
        optimiser, schedule = (
            build_settings(
                kind, {key: settings[key] for key in field_types(kind) if key in settings}, "optimiser."
            )
            for kind in kinds
        )
        self.__dict__.update(common=common, optimiser=optimiser, schedule=schedule)

    def __getattr__(self, name: str) -> Any:
        for part in ("common", "optimiser", "schedule"):
            if hasattr(self.__dict__.get(part), name):
                return getattr(self.__dict__[part], name)
        raise AttributeError(name)

    def rate(self, epoch: float, epochs: int = 0) -> float:
        """Learning rate at a time in epochs, of this many.

        >>> OptimiserSettings().rate(349), OptimiserSettings().rate(350)
        (0.01, 0.001)
        """
        return self.optimiser.learning_rate * self.schedule.factor(epoch, epochs)

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of all parameters that are trained."""
        return self.optimiser.build(
            [parameter for parameter in module.parameters() if parameter.requires_grad]
        )

    def to_plain(self) -> dict[str, Any]:
        settings = plain(self.common) | plain(self.optimiser) | plain(self.schedule)
        return settings if self.clip else {key: value for key, value in settings.items() if key != "clip"}


def drop_foreign(data: Mapping[str, Any], name: str, schedule: str) -> dict[str, Any]:
    """Drop settings of an earlier layer of a recipe that this optimiser and schedule lack."""
    known = set(COMMON)
    known |= set(field_types(OPTIMISERS.get(name, SGDSettings))) | set(
        field_types(SCHEDULES.get(schedule, StepsSettings))
    )
    return {key: value for key, value in data.items() if key in known}
