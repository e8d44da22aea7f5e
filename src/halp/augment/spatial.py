"""Augmentations in space: shear, rotation, mirror, noise, scale, corrupted or hidden joints and axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from halp.augment.base import (
    AugmentationBase,
    Drawn,
    FactorSettings,
    ViewShape,
    hide,
    register_augmentation,
    uniform,
)
from halp.augment.paper import rotation_matrices, transform
from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError
from halp.skeleton import Topology


@register_augmentation("shear")
@dataclass(frozen=True)
class Shear:
    """One shear per clip: off-diagonal entries of the 3 × 3 matrix are U(-amplitude, amplitude)."""

    amplitude: float = 0.5

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        eye, size, amplitude = torch.eye(shape.coordinates), shape.coordinates, self.amplitude
        entries = uniform(-amplitude, amplitude, shape.batch, size, size, generator=generator)
        return {"matrix": eye + entries * (1 - eye)}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        return _multiply(clips, drawn["matrix"])


@register_augmentation("joint-corruption")
@dataclass(frozen=True)
class JointCorruption(CheckedSettings):
    """ISC's joint corruption: some joints, fixed over time, are set to zero or mixed by one random matrix."""

    joints: float = limited(0.6, least=0, most=1)  # share of the joints
    zero: float = limited(0.5, least=0, most=1)  # probability of zero instead of a random matrix

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        size = shape.coordinates
        mix = uniform(-1, 1, shape.batch, 1, size, size, generator=generator)
        zero = torch.rand(shape.batch, 1, 1, 1, generator=generator) < self.zero
        hit = _some_joints(shape, self.joints, generator)[:, :, None, None]
        return {"matrices": torch.where(hit, mix * ~zero, torch.eye(size))}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        return transform(clips, drawn["matrices"])


@register_augmentation("rotation")
@dataclass(frozen=True)
class Rotation(CheckedSettings):
    """Rotate whole clips by random angles in radians; `aimclr` with amplitude 0.5236 (30°) is AimCLR's."""

    amplitude: float = 0.3
    # each-axis: U(-amplitude, amplitude) about each; one-axis: one U(0, amplitude), the others a 30th of
    # that; aimclr: the same angles the other way round, as its public code turns people
    reading: str = limited("each-axis", among=("each-axis", "one-axis", "aimclr"))

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        size, amplitude = shape.coordinates, self.amplitude
        if self.reading == "each-axis" or size == 2:
            return {
                "matrix": rotation_matrices(
                    uniform(-amplitude, amplitude, shape.batch, size, generator=generator)
                )
            }
        main = torch.randint(size, (shape.batch, 1), generator=generator)
        angles = torch.rand(shape.batch, size, generator=generator) * amplitude / 30
        angles.scatter_(1, main, angles.gather(1, main) * 30)
        single = [rotation_matrices(angles * torch.eye(size)[axis]) for axis in range(size)]
        matrix = single[0] @ single[1] @ single[2]
        return {"matrix": matrix.transpose(1, 2) if self.reading == "aimclr" else matrix}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        return _multiply(clips, drawn["matrix"])


@dataclass(frozen=True)
class MirrorSettings(CheckedSettings):
    """Left and right are exchanged."""

    axis: int = limited(0, least=0, most=2)  # the axis across the body, x after normalisation
    # true: coordinates too; swap: joint indices alone, as AimCLR does
    reading: str = limited("true", among=("true", "swap"))


@register_augmentation("mirror", MirrorSettings)
class Mirror(AugmentationBase[MirrorSettings]):
    """A mirror image of the person, or AimCLR's exchange of left and right joint indices."""

    def __init__(self, settings: MirrorSettings, topology: Topology) -> None:
        super().__init__(settings, topology)
        self.counterparts = torch.tensor(topology.mirror)
        if settings.axis >= topology.dimensions:
            raise InputError(f"mirror: axis = {settings.axis}; clips have {topology.dimensions} coordinates")

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        mirrored = clips[:, :, :, self.counterparts.to(clips.device)]
        if self.settings.reading == "true":
            sign = torch.ones(clips.shape[-1], device=clips.device)
            sign[self.settings.axis] = -1
            mirrored = mirrored * sign
        return mirrored


@dataclass(frozen=True)
class SubtractJointSettings:
    """A joint is moved to the origin in every frame."""

    joint: str = "any"  # a name, `centre` for the topology's, or `any`: another one for every clip

    def place(self, topology: Topology) -> int | None:
        """Which joint; None if it is drawn."""
        if self.joint == "any":
            return None
        return topology.index(topology.centre if self.joint == "centre" else self.joint)


@register_augmentation("subtract-joint", SubtractJointSettings)
class SubtractJoint(AugmentationBase[SubtractJointSettings]):
    """AS-CAL's subtraction: every joint relative to one of the same person; an absent person stays absent."""

    def __init__(self, settings: SubtractJointSettings, topology: Topology) -> None:
        super().__init__(settings, topology)
        self.place = settings.place(topology)

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        if self.place is not None:
            return {"joint": torch.full((shape.batch,), self.place)}
        return {"joint": torch.randint(shape.joints, (shape.batch,), generator=generator)}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        clip = torch.arange(len(clips), device=clips.device)
        return clips - clips[clip, :, :, drawn["joint"].to(clips.device)][:, :, :, None]


@register_augmentation("noise")
@dataclass(frozen=True)
class Noise(CheckedSettings):
    """Independent Gaussian noise on every coordinate; an absent person (all zeros) stays absent."""

    sigma: float = limited(0.01, least=0)

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        return {"noise": torch.randn(shape, generator=generator)}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        present = (clips != 0).any(dim=(1, 3, 4), keepdim=True)
        return clips + self.sigma * drawn["noise"].to(clips) * present


@register_augmentation("axis-mask")
class AxisMask(AugmentationBase[Any]):
    """Sets one coordinate axis, drawn uniformly, to zero."""

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        return {"axis": torch.randint(shape.coordinates, (shape.batch,), generator=generator)}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        kept = 1 - F.one_hot(drawn["axis"], clips.shape[-1]).to(clips)
        return clips * kept[:, None, None, None]


@register_augmentation("joint-mask")
@dataclass(frozen=True)
class JointMask(CheckedSettings):
    """Hides a share of the joints (zeros), the same for the whole clip or others in every frame."""

    joints: float = limited(0.2, least=0, most=1)
    every_frame: bool = False

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        frames = shape.frames if self.every_frame else 1
        rows = shape._replace(batch=shape.batch * frames)
        return {"hidden": _some_joints(rows, self.joints, generator).unflatten(0, (-1, frames))}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        return hide(clips, drawn["hidden"][:, :, None, :, None])


@register_augmentation("scale")
@dataclass(frozen=True)
class Scale(FactorSettings):
    """People of other sizes: all coordinates of a clip are multiplied by U(min, max)."""

    max: float = 1.2

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        return {"factor": self.factors(shape.batch, generator=generator)}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        return clips * drawn["factor"].to(clips)[:, None, None, None, None]


def _some_joints(shape: ViewShape, share: float, generator: torch.Generator) -> Tensor:
    """`(B, V)` bool: a random choice of round(share · V) joints of every clip."""
    return torch.rand(shape.batch, shape.joints, generator=generator).argsort(1) < round(share * shape.joints)


def _multiply(clips: Tensor, matrix: Tensor) -> Tensor:
    """Every point of a clip times the clip's `(C, C)` matrix."""
    points = clips.reshape(len(clips), -1, clips.shape[-1])
    return torch.bmm(points, matrix.to(clips).transpose(1, 2)).view_as(clips)
