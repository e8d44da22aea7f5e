"""Augmentations in time: crops, blur, reversal, hidden frames, other frame rates."""

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
    at_frames,
    hide,
    register_augmentation,
    uniform,
)
from halp.augment.paper import PaperSettings, draw_crops
from halp.augment.pool import ClipPool
from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError


@register_augmentation("crop-resize", sampler=True)
@dataclass(frozen=True)
class CropResize(CheckedSettings):
    """Takes U(min, max) of every clip at a random place, resized to the length of a view."""

    min: float = limited(0.5, above=0)
    max: float = limited(1.0, most=1)
    frames: int = limited(1, least=1)  # the crop has at least this many frames if the clip has them

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min > self.max:
            raise InputError(f"crop-resize needs 0 < min ≤ max ≤ 1, not {self.min} and {self.max}")

    def draw(self, lengths: Tensor, joints: int, dimensions: int, generator: torch.Generator) -> Drawn:
        rule = PaperSettings(crop_min=self.min, crop_max=self.max, crop_frames=self.frames)
        start, length = draw_crops(lengths, rule, generator)
        return {"start": start, "length": length}

    def make(self, pool: ClipPool, clips: Tensor, drawn: Drawn, frames: int) -> Tensor:
        return pool.cut(clips, drawn["start"], drawn["length"], frames)


@register_augmentation("reflect-crop")
@dataclass(frozen=True)
class ReflectCrop(CheckedSettings):
    """AimCLR's temporal crop: reflect T // padding frames at both ends, then cut a random T frames."""

    padding: int = limited(6, least=2)  # a sixth of the frames is added at each end
    repeat_edge: bool = (
        False  # true: a reflection begins with the edge frame itself, as in AimCLR's public code
    )

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        pad = shape.frames // self.padding
        return {"start": torch.randint(0, 2 * pad + 1, (shape.batch,), generator=generator) - pad}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        last, shift = clips.shape[1] - 1, int(self.repeat_edge)
        place = drawn["start"][:, None].to(clips.device) + torch.arange(clips.shape[1], device=clips.device)
        # frame −1 is frame 1 and frame T is frame T − 2; where the edge is repeated, frames 0 and T − 1
        place = torch.where(place < 0, -place - shift, place)
        place = torch.where(place > last, 2 * last + shift - place, place)
        return at_frames(clips, place)


@register_augmentation("blur")
@dataclass(frozen=True)
class Blur(CheckedSettings):
    """Gaussian blur over time with zero padding: a kernel exp(−d² / 2σ²) of its own width for every clip."""

    taps: int = limited(15, least=1)
    sigma_min: float = limited(0.1, above=0)
    sigma_max: float = 2.0
    normalise: bool = True  # false: the kernel's sum grows with sigma, as in AimCLR's public code

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.taps % 2 == 0 or self.sigma_min > self.sigma_max:
            raise InputError("blur needs an odd number of taps and 0 < sigma_min ≤ sigma_max")

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        sigma = uniform(self.sigma_min, self.sigma_max, shape.batch, 1, generator=generator)
        half = self.taps // 2
        kernel = torch.exp(-(torch.arange(-half, half + 1) ** 2) / (2 * sigma**2))
        return {"kernel": kernel / kernel.sum(1, keepdim=True) if self.normalise else kernel}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        batch, frames = clips.shape[:2]
        signals = clips.reshape(batch, frames, -1).transpose(0, 1).reshape(1, frames, -1).permute(0, 2, 1)
        kernel = drawn["kernel"].to(clips).repeat_interleave(signals.shape[1] // batch, 0)[:, None]
        blurred = F.conv1d(signals, kernel, padding=kernel.shape[-1] // 2, groups=signals.shape[1])
        return blurred.view(batch, -1, frames).transpose(1, 2).reshape(clips.shape)


@register_augmentation("time-flip")
class TimeFlip(AugmentationBase[Any]):
    """Plays the clip backwards."""

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        return clips.flip(1)


@register_augmentation("time-mask")
@dataclass(frozen=True)
class TimeMask(CheckedSettings):
    """Hides a run of frames (zeros) at a random place."""

    frames: float = limited(0.2, least=0, most=1)  # share of the frames

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        length = round(self.frames * shape.frames)
        start = torch.randint(shape.frames - length + 1, (shape.batch, 1), generator=generator)
        frame = torch.arange(shape.frames)
        return {"hidden": (frame >= start) & (frame < start + length)}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        return hide(clips, drawn["hidden"][:, :, None, None, None])


@register_augmentation("frame-rate")
@dataclass(frozen=True)
class FrameRate(FactorSettings):
    """Play the clip U(min, max) times as fast, interpolated; a faster one repeats its last frame."""

    def draw(self, shape: ViewShape, generator: torch.Generator) -> Drawn:
        return {"rate": self.factors(shape.batch, 1, generator=generator)}

    def apply(self, clips: Tensor, drawn: Drawn) -> Tensor:
        last = clips.shape[1] - 1
        time = (drawn["rate"].to(clips) * torch.arange(last + 1, device=clips.device)).clamp_max(last)
        below = time.long()
        weight = (time - below)[:, :, None, None, None]
        return torch.lerp(at_frames(clips, below), at_frames(clips, (below + 1).clamp_max(last)), weight)
