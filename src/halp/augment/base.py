"""The interface of augmentations: own settings, random numbers drawn for a whole batch, then applied.

`draw(shape, generator)` returns tensors whose first axis is the batch, `apply(clips, drawn)` uses the rows of
the clips it is
given: a process that holds a part of the batch applies its rows of the same draws. Clips are `(B, T, P, V,
    C)`. An augmentation
that needs no topology is one dataclass, whose fields are its settings.
A *sampler* stands first in a policy and cuts the view out of the pool of clips: `draw(lengths, joints,
dimensions, generator)` for clips of these lengths `(B,)`, then `make(pool, clips, drawn, frames)` gives the
views `(B, frames, P, V, C)`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError
from halp.core.registry import Component, Registry
from halp.skeleton import Topology

Drawn = dict[str, Tensor]
Settings = TypeVar("Settings")


class ViewShape(NamedTuple):
    """Sizes of the views of a whole batch."""

    batch: int
    frames: int
    persons: int
    joints: int
    coordinates: int


class AugmentationBase(Generic[Settings]):
    """An augmentation that keeps its settings and draws nothing; most subclasses draw something."""

    def __init__(self, settings: Settings, topology: Topology) -> None:
        self.settings = settings

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        return {}


@dataclass(frozen=True)
class FactorSettings(CheckedSettings):
    """A factor per clip, U(min, max)."""

    min: float = limited(0.8, above=0)
    max: float = 1.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min > self.max:
            raise InputError(f"a factor needs 0 < min ≤ max, not {self.min} and {self.max}")

    def factors(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Factors of that shape."""
        return uniform(self.min, self.max, *shape, generator=generator)


@dataclass(frozen=True)
class AugmentationComponent(Component):
    """A registered augmentation: `build(settings, topology)`."""

    sampler: bool = False  # it cuts the view out of the clip, and stands first in a policy


AUGMENTATIONS: Registry[AugmentationComponent] = Registry("augmentation", AugmentationComponent)


def register_augmentation(
    name: str, settings: type[Any] | None = None, *, sampler: bool = False
) -> Callable[[Any], Any]:
    """Make an augmentation known by name; one that is a `sampler` cuts views out of clips.

    What is decorated is built as `build(settings, topology)`; a dataclass without `settings` is its own.
    """

    def add(augmentation: Any) -> Any:
        build, kind = augmentation, settings
        if settings is None and isinstance(augmentation, type) and dataclasses.is_dataclass(augmentation):
            build, kind = functools.partial(_unchanged), augmentation
            build.__module__ = augmentation.__module__  # which says whose it is
        AUGMENTATIONS.register(name, kind, sampler=sampler)(build)
        return augmentation

    return add


def _unchanged(settings: Any, topology: Topology) -> Any:
    return settings


def uniform(low: float, high: float, *shape: int, generator: torch.Generator) -> Tensor:
    """Uniform numbers in [low, high)."""
    return low + (high - low) * torch.rand(*shape, generator=generator)


def hide(clips: Tensor, hidden: Tensor) -> Tensor:
    """Clips with zeros where `hidden`, which has the axes of a clip or 1 for them, is true."""
    return clips.masked_fill(hidden.to(clips.device), 0)


def at_frames(clips: Tensor, place: Tensor) -> Tensor:
    """The frames `place` `(B, T)` of each clip."""
    return clips[torch.arange(len(clips), device=clips.device)[:, None], place.to(clips.device)]
