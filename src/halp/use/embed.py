"""Vectors of a whole source with constant memory: block by block through the encoder, with names and times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from halp.augment import ClipPool, centre_views
from halp.clips.clip import Clip
from halp.clips.store import Store
from halp.clips.windows import Cutting, squeeze_warning
from halp.encoders.packaged import PackagedEncoder
from halp.evaluation.features import evaluating
from halp.progress import Bar, console
from halp.use.sources import Source, describe_source, in_blocks, read_source
from halp.use.store_embed import fitting_store, list_spans, store_vectors

Vectors = npt.NDArray[np.float32]
_FRAMES = 65_536  # frames held at once, unless one clip has more


@dataclass(frozen=True)
class EmbeddedClips:
    """Vectors `(N, F)` of clips with their spans, labels and subjects (−1: not known)."""

    starts: npt.NDArray[np.float64]
    ends: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    subjects: npt.NDArray[np.int64]
    vectors: Vectors


@dataclass(frozen=True)
class Block(EmbeddedClips):
    """Some clips with the names of their recordings."""

    names: list[str]


def embed_blocks(
    encoder: PackagedEncoder,
    source: Source,
    cutting: Cutting | None = None,
    *,
    format: str = "auto",
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> Iterator[Block]:
    """Blocks of vectors of a source in its order."""
    store = fitting_store(encoder, source)
    if store is not None:
        yield from embed_store(encoder, store, cutting, batch_size=batch_size, device=device, progress=progress)
        return
    total = describe_source(source, format=format).recordings or 0
    before = ""
    lengths: list[int] = []
    with Bar("embedding", total, shown=progress) as bar:
        for clips in in_blocks(read_source(encoder, source, cutting, format=format), batch_size, _FRAMES):
            yield Block(
                np.array([clip.start for clip in clips], dtype=np.float64),
                np.array([float(clip.extra["end"]) for clip in clips], dtype=np.float64),
                np.array([clip.label for clip in clips], dtype=np.int64),
                np.array([clip.subject for clip in clips], dtype=np.int64),
                embed_clips(encoder, clips, device),
                [clip.recording or clip.name for clip in clips],
            )
            names = [before, *(clip.recording or clip.name for clip in clips)]
            bar.advance(sum(one != other for one, other in pairwise(names)))
            before = names[-1]
            lengths += [len(clip.frames) for clip in clips]
    if cutting is None or cutting.window is None:
        _warn_of_squeezing(lengths, encoder)


def embed_store(
    encoder: PackagedEncoder,
    store: Store,
    cutting: Cutting | None = None,
    *,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> Iterator[Block]:
    """Blocks of vectors of a store that the encoder reads as it is."""
    cutting = cutting or Cutting()
    found = list_spans(store, cutting)
    with Bar("embedding", len(found.clip), shown=progress) as bar:
        for rows, vectors in store_vectors(encoder, store, found, batch_size, device):
            clips = found.clip[rows]
            yield Block(
                found.start[rows],
                found.end[rows],
                store.labels[clips],
                store.subjects[clips],
                vectors,
                [str(store.names[clip]) for clip in clips],
            )
            bar.advance(len(clips))
    if cutting.window is None:
        _warn_of_squeezing(store.lengths.tolist(), encoder)


def _warn_of_squeezing(lengths: Sequence[int], encoder: PackagedEncoder) -> None:
    warning = squeeze_warning(lengths, encoder.frames)
    if warning:
        console.print(f"warning: {warning}", highlight=False, markup=False)


def embed_clips(encoder: PackagedEncoder, clips: list[Clip], device: torch.device | str = "cpu") -> Vectors:
    """Vectors `(N, F)` of the central 95 % of clips that `read_source` gave, in one batch."""
    device = torch.device(device)
    lengths = torch.tensor([len(clip.frames) for clip in clips])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    pool = ClipPool(torch.from_numpy(join_frames(clips, encoder.persons)), offsets, lengths, device)
    with evaluating(encoder.to(device)), torch.inference_mode():
        views = centre_views(pool, torch.arange(len(clips)), encoder.frames)
        return encoder(views).float().cpu().numpy()


def join_frames(clips: list[Clip], persons: int) -> npt.NDArray[np.float32]:
    """Frames of all clips, one after the other, filled up with zeros to so many persons."""
    if all(clip.frames.shape[1] == persons for clip in clips):
        return np.concatenate([clip.frames for clip in clips])
    frames = np.zeros((sum(len(clip.frames) for clip in clips), persons, *clips[0].frames.shape[2:]), dtype=np.float32)
    first = 0
    for clip in clips:
        frames[first : first + len(clip.frames), : clip.frames.shape[1]] = clip.frames
        first += len(clip.frames)
    return frames
