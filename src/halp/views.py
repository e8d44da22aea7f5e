"""Views and streams: random crops and augmentations of whole batches at once, on the device that holds the clips.

Every random quantity is drawn first (`draw_*`, from a generator) and then applied by a pure function of tensors, so the
same draws can be fed to a slow reference. Clips are `(B, T, P, V, C)` throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from halp.clips.store import Store
from halp.errors import InputError, choose
from halp.skeleton import Topology

STREAMS = ("joint", "motion", "bone")


@dataclass(frozen=True)
class ViewSettings:
    """How views are made. The defaults are those of the paper (which follow ISC)."""

    frames: int = 64  # length every view is resized to
    crop_min: float = 0.1  # a crop takes U(crop_min, crop_max) of the clip …
    crop_max: float = 1.0
    crop_frames: int = 64  # … but at least this many frames where the clip has them
    corrupt_probability: float = 0.5  # joint corruption with this probability, shear otherwise
    corrupt_joints: float = 0.6  # share of the joints that are corrupted
    corrupt_zero: float = 0.5  # corrupted joints are zeroed with this probability, mixed by a random matrix otherwise
    shear: float = 1.0  # off-diagonal entries of the shear are U(-shear, shear)
    rotation: float = 0.0  # further turn about each axis by U(-rotation, rotation) radians

    def __post_init__(self) -> None:
        if self.frames < 1 or self.crop_frames < 1:
            raise InputError(f"views: frames = {self.frames}, crop_frames = {self.crop_frames} have to be at least 1")
        if not 0 < self.crop_min <= self.crop_max <= 1:
            raise InputError(f"views: crops need 0 < crop_min ≤ crop_max ≤ 1, not {self.crop_min} and {self.crop_max}")
        for name in ("corrupt_probability", "corrupt_joints", "corrupt_zero"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"views: {name} = {getattr(self, name)} is a share and has to lie in [0, 1]")


@dataclass(frozen=True)
class ClipPool:
    """The frames of many clips in one tensor `(sum T, P, V, C)`, cut by index arithmetic for a whole batch at once."""

    frames: Tensor
    offsets: Tensor
    lengths: Tensor
    device: torch.device

    @classmethod
    def from_store(cls, store: Store, device: torch.device | str = "cpu", *, keep: bool = True) -> ClipPool:
        """All clips of a store, kept on the device; with `keep=False` they stay memory-mapped and only batches move."""
        device = torch.device(device)
        # copy-on-write satisfies torch, which has no read-only tensors; nothing ever writes
        mapped = np.load(store.path / "frames.npy", mmap_mode="c", allow_pickle=False)
        frames = torch.from_numpy(np.array(store.frames) if keep else mapped)
        home = device if keep else torch.device("cpu")
        offsets, lengths = torch.from_numpy(store.offsets[:-1]), torch.from_numpy(store.lengths)
        return cls(frames.to(home), offsets.to(home), lengths.to(home), device)

    def cut(self, clips: Tensor, start: Tensor, length: Tensor, frames: int) -> Tensor:
        """Frames start … start + length − 1 of each clip `(B,)`, linearly resized to `frames`: `(B, frames, P, V, C)`."""
        home = self.frames.device
        clips, start, length = clips.to(home), start.to(home), length.to(home)
        scale = (length.double() / frames)[:, None]
        position = (torch.arange(frames, device=home, dtype=torch.double) + 0.5) * scale - 0.5
        last = (length - 1)[:, None]
        position = torch.minimum(position.clamp_min_(0), last.double())
        below = position.long()
        above = torch.minimum(below + 1, last)
        weight = (position - below).to(self.frames.dtype)
        first = (self.offsets[clips] + start)[:, None]
        pair = torch.stack([first + below, first + above], dim=-1).view(-1, 2)
        share = torch.stack([1 - weight, weight], dim=-1).view(-1, 2)
        # a weighted bag of two rows is linear interpolation: gathered and mixed in one pass over memory
        flat = self.frames.view(len(self.frames), -1)
        cut = nn.functional.embedding_bag(pair, flat, per_sample_weights=share, mode="sum")
        return cut.view(len(clips), frames, *self.frames.shape[1:]).to(self.device)


def draw_crops(lengths: Tensor, settings: ViewSettings, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Start and length `(B,)` of a random crop of each clip by the authors' rule."""
    lengths = lengths.cpu()
    ratio, place = torch.rand(2, len(lengths), generator=generator, dtype=torch.double)
    ratio = settings.crop_min + (settings.crop_max - settings.crop_min) * ratio
    shortest = lengths.clamp_max(settings.crop_frames)
    length = torch.maximum((lengths * ratio).long(), shortest)
    start = (place * (lengths - length + 1)).long()
    return start, length


def centre_crops(lengths: Tensor, share: float = 0.95) -> tuple[Tensor, Tensor]:
    """Start and length of the central `share` of each clip, as the authors evaluate."""
    start = (lengths.double() * (1 - share) / 2).long()
    return start, lengths - 2 * start


def draw_matrices(
    count: int, joints: int, settings: ViewSettings, generator: torch.Generator, dimensions: int = 3
) -> Tensor:
    """For every clip and joint the `(C, C)` matrix its coordinates are multiplied by: `(B, V, C, C)`.

    Each clip gets either joint corruption (some joints, fixed over time, zeroed or mixed by one random matrix) or shear.
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
        chosen = chosen @ _rotations(uniform(count, dimensions) * settings.rotation)[:, None]
    return chosen


def _rotations(angles: Tensor) -> Tensor:
    """Rotation matrices from turns about each axis: `(B, 3)` → `(B, 3, 3)`; in the plane the first angle alone counts."""
    generators = torch.zeros(len(angles), angles.shape[1], angles.shape[1])
    planes = [(0, 1)] if angles.shape[1] == 2 else [(1, 2), (2, 0), (0, 1)]
    for axis, (i, j) in enumerate(planes):
        generators[:, i, j], generators[:, j, i] = -angles[:, axis], angles[:, axis]
    return torch.linalg.matrix_exp(generators)


def transform(clips: Tensor, matrices: Tensor) -> Tensor:
    """Multiply every joint `(B, T, P, V, C)` by its clip's matrix `(B, V, C, C)`."""
    batch, joints, dimensions, _ = matrices.shape
    width = joints * dimensions
    # one block-diagonal product a clip is several times as fast as many tiny ones
    blocks = clips.new_zeros(batch, joints, dimensions, joints, dimensions)
    blocks.diagonal(dim1=1, dim2=3).copy_(matrices.to(clips).permute(0, 3, 2, 1))
    flat = clips.reshape(batch, -1, width)
    return torch.bmm(flat, blocks.view(batch, width, width)).view_as(clips)


def random_views(
    pool: ClipPool,
    clips: Tensor,
    settings: ViewSettings,
    generator: torch.Generator,
    only: Tensor | slice = slice(None),
) -> Tensor:
    """One random view of each clip: `(B,)` indices → `(B, frames, P, V, C)`.

    With `only`, all views are drawn but just those rows are made: what a process does with its share of a batch.
    """
    start, length = draw_crops(pool.lengths[clips.to(pool.lengths.device)], settings, generator)
    joints, dimensions = pool.frames.shape[2:]
    matrices = draw_matrices(len(clips), joints, settings, generator, dimensions)
    cut = pool.cut(clips[only], start[only], length[only], settings.frames)
    return transform(cut, matrices[only])


def centre_views(pool: ClipPool, clips: Tensor, frames: int, share: float = 0.95) -> Tensor:
    """The evaluation view of each clip: its central 95 %, resized, not augmented."""
    start, length = centre_crops(pool.lengths[clips.to(pool.lengths.device)], share)
    return pool.cut(clips, start, length, frames)


def split_stream(name: str) -> tuple[str, str]:
    """Stream and encoder label of a representation; a plain stream has no label.

    >>> split_stream("joint@stgcn"), split_stream("bone")
    (('joint', 'stgcn'), ('bone', ''))
    """
    stream, at, label = name.partition("@")
    choose("stream", stream, STREAMS)
    if at and not label.isidentifier():
        raise InputError(f"stream '{name}' has to be written stream@encoder, for example joint@stgcn")
    return stream, label


def derive(clips: Tensor, stream: str, topology: Topology) -> Tensor:
    """A stream of joint clips: `joint` itself, `motion` x(t+1) − x(t) with a last frame of zeros, `bone` x − x(parent)."""
    stream, _ = split_stream(stream)
    if stream == "joint":
        return clips
    if stream == "motion":
        motion = torch.zeros_like(clips)
        torch.sub(clips[:, 1:], clips[:, :-1], out=motion[:, :-1])
        return motion
    return clips - clips[:, :, :, list(topology.parents)]
