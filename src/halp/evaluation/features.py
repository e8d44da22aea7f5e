"""Features: what an encoder says about clips, before the projection head; and raw coordinates as a baseline."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from halp.augment import ClipPool, PaperSettings, centre_crops, draw_crops
from halp.clips.normalise import normalise
from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.progress import Bar
from halp.skeleton import Topology, map_joints
from halp.streams import derive

Features = npt.NDArray[np.float32]


class RawCoordinates(PackagedEncoder):
    """No encoder at all: the resized coordinates of a stream, flattened. What a learned feature has to beat."""

    def __init__(self, topology: Topology, *, stream: str = "joint", persons: int = 2, frames: int = 32) -> None:
        super().__init__(nn.Identity(), topology, stream=stream, persons=persons, frames=frames)
        self.origin = {"raw": True}

    @property
    def output_size(self) -> int:
        return self.frames * self.persons * len(self.topology) * self.topology.dimensions

    def forward(self, clips: Tensor) -> Tensor:
        return derive(clips, self.stream, self.topology).flatten(1)


def embed(
    encoder: PackagedEncoder,
    clips: Store | Sequence[npt.NDArray[Any]],
    *,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> Features:
    """Features `(N, F)` of the central 95 % of every clip of a store, or of arrays `(T, P, V, C)`.

    Clips of a store keep the store's normalisation; arrays are taken as recorded and go through the steps that the
    encoder was trained with. Other topologies are mapped by joint name.
    """
    return embed_centre(encoder, clip_pool(encoder, clips, device), batch_size=batch_size, progress=progress)


def embed_centre(
    encoder: PackagedEncoder,
    pool: ClipPool,
    clips: Tensor | None = None,
    *,
    batch_size: int = 256,
    progress: bool = True,
) -> Features:
    """Features of the central 95 % of the given clips, or of all of them."""
    clips = torch.arange(len(pool.lengths)) if clips is None else clips
    start, length = centre_crops(pool.lengths[clips.to(pool.lengths.device)])
    return embed_crops(encoder, pool, clips, start, length, batch_size, progress)


def training_crops(pool: ClipPool, clips: Tensor, frames: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Start and length `(B,)` of one crop per clip as the authors draw them for linear evaluation: U(0.5, 1) of the length."""
    rule = PaperSettings(crop_min=0.5, crop_frames=64)
    return draw_crops(pool.lengths[clips.to(pool.lengths.device)], rule, generator)


def embed_random_crops(
    encoder: PackagedEncoder, pool: ClipPool, clips: Tensor, generator: torch.Generator, *, progress: bool = True
) -> Features:
    """Features `(B, F)` of one random training crop of each of the given clips."""
    start, length = training_crops(pool, clips, encoder.frames, generator)
    return embed_crops(encoder, pool, clips, start, length, progress=progress)


def embed_crops(
    encoder: PackagedEncoder,
    pool: ClipPool,
    clips: Tensor,
    start: Tensor,
    length: Tensor,
    batch_size: int = 256,
    progress: bool = True,
) -> Features:
    """Features of chosen crops of chosen clips, in evaluation mode."""
    encoder = encoder.to(pool.device)
    features = np.empty((len(clips), encoder.output_size), dtype=np.float32)
    with evaluating(encoder), torch.inference_mode(), Bar("embedding", len(clips), shown=progress) as bar:
        for first in range(0, len(clips), batch_size):
            rows = slice(first, first + batch_size)
            cut = pool.cut(clips[rows], start[rows], length[rows], encoder.frames)
            features[rows] = encoder(cut).float().cpu().numpy()
            bar.advance(len(cut))
    return features


def fingerprint(module: nn.Module) -> str:
    """Hash of every weight and buffer: equal before and after, the backbone was not touched."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, the mode from before afterwards."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def clip_pool(
    encoder: PackagedEncoder, clips: Store | Sequence[npt.NDArray[Any]], device: torch.device | str = "cpu"
) -> ClipPool:
    """Clips in the layout and normalisation that the encoder was trained on; other layouts are mapped by joint name."""
    if isinstance(clips, Store):
        steps, source = clips.normalisation, clips.topology
        pool = ClipPool.from_store(clips, device)
        if source.joints != encoder.topology.joints:
            whole = pool.frames.cpu().numpy()
            mapped = np.ascontiguousarray(map_joints(whole, source, encoder.topology, origin=clips.origin_joint))
            pool = ClipPool(torch.from_numpy(mapped).to(device), pool.offsets, pool.lengths, pool.device)
        if encoder.normalisation and list(steps) != encoder.normalisation:
            raise InputError(
                f"store '{clips.path}' was normalised by {steps or 'no step'}, the encoder was trained on clips normalised by "
                f"{encoder.normalisation}; prepare the store with those steps"
            )
        return pool
    if not len(clips):
        raise InputError("there is no clip to embed")
    frames = [_ready(encoder, np.asarray(clip, dtype=np.float32), index) for index, clip in enumerate(clips)]
    lengths = torch.tensor([len(clip) for clip in frames])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    device = torch.device(device)
    return ClipPool(torch.from_numpy(np.concatenate(frames)).to(device), offsets.to(device), lengths.to(device), device)


def _ready(encoder: PackagedEncoder, clip: npt.NDArray[np.float32], index: int) -> npt.NDArray[np.float32]:
    expected = (len(encoder.topology), encoder.topology.dimensions)
    if clip.ndim != 4 or clip.shape[2:] != expected or not 1 <= clip.shape[1] <= encoder.persons or not len(clip):
        raise InputError(
            f"clip {index} has shape {clip.shape}; this encoder takes (frames, persons ≤ {encoder.persons}, "
            f"{expected[0]} joints, {expected[1]} coordinates) of topology '{encoder.topology.name}'"
        )
    if not np.isfinite(clip).all():
        raise InputError(f"clip {index} has a coordinate that is not finite; fill gaps before embedding it")
    full = np.zeros((len(clip), encoder.persons, *expected), dtype=np.float32)
    full[:, : clip.shape[1]] = normalise(clip, encoder.topology, encoder.normalisation)
    return full
