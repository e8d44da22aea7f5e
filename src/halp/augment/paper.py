"""The paper's augmentation (after ISC): a random crop, joint corruption or shear, an optional rotation.

All of it is drawn in one sequence from one generator; in recipes it has the name `paper-2023`. The same
pieces exist as augmentations of their own with a generator each (`halp.augment.spatial`,
`halp.augment.temporal`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halp.augment.base import Drawn, register_augmentation
from halp.augment.pool import ClipPool
from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError

PAPER = "paper-2023"


@register_augmentation(PAPER, sampler=True)
@dataclass(frozen=True)
class PaperSettings(CheckedSettings):
    """Crop, corruption or shear, rotation. The defaults are those of the paper."""

    crop_min: float = limited(0.1, above=0)  # a crop takes U(crop_min, crop_max) of the clip …
    crop_max: float = limited(1.0, most=1)
    crop_frames: int = limited(64, least=1)  # … but at least this many frames if the clip has them
    # joint corruption with this probability, shear otherwise
    corrupt_probability: float = limited(0.5, least=0, most=1)
    corrupt_joints: float = limited(0.6, least=0, most=1)  # share of the joints that are corrupted
    # corrupted joints are zeroed with this probability, mixed by a random matrix otherwise
    corrupt_zero: float = limited(0.5, least=0, most=1)
    shear: float = 1.0  # off-diagonal entries of the shear are U(-shear, shear)
    rotation: float = 0.0  # further rotation about each axis by U(-rotation, rotation) radians

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crop_min > self.crop_max:
            raise InputError(
                f"crops need 0 < crop_min ≤ crop_max ≤ 1, not {self.crop_min} and {self.crop_max}"
            )

    def draw(self, lengths: Tensor, joints: int, dimensions: int, generator: torch.Generator) -> Drawn:
        """Random numbers for clips of these lengths `(B,)`."""
        start, length = draw_crops(lengths, self, generator)
        matrices = draw_matrices(len(lengths), joints, self, generator, dimensions)
        return {"start": start, "length": length, "matrices": matrices}

    def make(self, pool: ClipPool, clips: Tensor, drawn: Drawn, frames: int) -> Tensor:
        """The views `(B, frames, P, V, C)` of the drawn numbers."""
        cut = pool.cut(clips, drawn["start"], drawn["length"], frames)
        return transform(cut, drawn["matrices"])


def draw_crops(lengths: Tensor, settings: PaperSettings, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Start and length `(B,)` of a random crop of each clip by the authors' rule."""
    lengths = lengths.cpu()
    ratio, place = torch.rand(2, len(lengths), generator=generator, dtype=torch.double)
    ratio = settings.crop_min + (settings.crop_max - settings.crop_min) * ratio
    shortest = lengths.clamp_max(settings.crop_frames)
    length = torch.maximum((lengths * ratio).long(), shortest)
    start = (place * (lengths - length + 1)).long()
    return start, length


def draw_matrices(
    count: int, joints: int, settings: PaperSettings, generator: torch.Generator, dimensions: int = 3
) -> Tensor:
    """For every clip and joint the `(C, C)` matrix its coordinates are multiplied by: `(B, V, C, C)`.

    Each clip gets either joint corruption (some joints, fixed over time, zeroed or mixed by one random
    matrix) or shear.
    """
    eye = torch.eye(dimensions)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator) * 2 - 1

    shear = eye + settings.shear * uniform(count, dimensions, dimensions) * (1 - eye)
    mix = uniform(count, dimensions, dimensions)
    corrupt, zero = torch.rand(2, count, 1, 1, generator=generator)
    hit = torch.rand(count, joints, generator=generator).argsort(1) < round(settings.corrupt_joints * joints)
    mix = torch.where(zero < settings.corrupt_zero, torch.zeros_like(mix), mix)
    corrupted = torch.where(hit[:, :, None, None], mix[:, None], eye)
    chosen = torch.where((corrupt < settings.corrupt_probability)[:, None], corrupted, shear[:, None])
    if settings.rotation:
        chosen = chosen @ rotation_matrices(uniform(count, dimensions) * settings.rotation)[:, None]
    return chosen


def rotation_matrices(angles: Tensor) -> Tensor:
    """Rotation matrices from angles about each axis: `(B, 3)` → `(B, 3, 3)`; in 2D only the first counts."""
    generators = torch.zeros(len(angles), angles.shape[1], angles.shape[1])
    planes = [(0, 1)] if angles.shape[1] == 2 else [(1, 2), (2, 0), (0, 1)]
    for axis, (i, j) in enumerate(planes):
        generators[:, i, j], generators[:, j, i] = -angles[:, axis], angles[:, axis]
    return torch.linalg.matrix_exp(generators)


def transform(clips: Tensor, matrices: Tensor) -> Tensor:
    """Multiply every joint `(B, T, P, V, C)` by its clip's matrix `(B, V, C, C)`."""
    batch, joints, dimensions, _ = matrices.shape
    width = joints * dimensions
    # one block-diagonal product per clip is several times as fast as many tiny ones
    blocks = clips.new_zeros(batch, joints, dimensions, joints, dimensions)
    blocks.diagonal(dim1=1, dim2=3).copy_(matrices.to(clips).permute(0, 3, 2, 1))
    flat = clips.reshape(batch, -1, width)
    return torch.bmm(flat, blocks.view(batch, width, width)).view_as(clips)
