"""Encode clips in blocks with constant memory: prepare, cut, encode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from halp.augment import ClipPool, centre_crops
from halp.core.progress import Bar
from halp.data.clip import Clip, Frames
from halp.data.reading import Reading, ReadingKeywords
from halp.data.store import Store
from halp.encoders.body_rows import in_tiles
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.cache import BATCH
from halp.features.loading import AnyEncoder, open_for
from halp.features.ready import Preparation, prepare_source
from halp.features.source import AnySource, Source

Vectors = npt.NDArray[np.float32]
_FRAMES = 65_536  # frames held at once, unless one clip has more


def embed_blocks(
    encoder: PretrainedEncoder,
    source: Source,
    *,
    batch_size: int = BATCH,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> Iterator[Vectors]:
    """Vectors `(n, F)` of a source in row order, block by block; all rows are known after the last."""
    ready, held = prepare_source(encoder, source), source.content.held if source.store is not None else None  # type: ignore[attr-defined]
    if held is not None and _as_stored(ready, source, *held):
        pool = ClipPool.from_store(held[0], torch.device(device), keep=False)
        item, first, length = (
            torch.from_numpy(source.rows[name].copy()) for name in ("item", "first", "length")
        )
        item += held[1]
        inner, length = centre_crops(length)
        yield from encode_crops(
            encoder, pool, item, first + inner, length, batch_size=batch_size, progress=progress
        )
    else:
        yield from _embed_recordings(encoder, source, ready, batch_size, device, progress)


def _as_stored(ready: Preparation, source: Source, store: Store, before: int = 0) -> bool:
    """Whether rows of a store are read unchanged: ready for the encoder, the first person seen in each.

    `before` is how many clips of the store come before the first item of the source.
    """
    if not ready.is_identity(store.persons):
        return False
    if store.persons == 1:
        return True
    blocks = range(0, len(store.frames), _FRAMES)
    first = np.concatenate([(store.frames[at : at + _FRAMES, 0] != 0).any(axis=(1, 2)) for at in blocks])
    counted = np.concatenate([[0], np.cumsum(first)])
    rows = source.rows[source.rows["seen"] > 0]
    begin = store.offsets[:-1][rows["item"] + before] + rows["first"]
    return bool((counted[begin + rows["length"]] > counted[begin]).all())


def _embed_recordings(
    encoder: PretrainedEncoder,
    source: Source,
    ready: Preparation,
    batch_size: int,
    device: torch.device | str,
    progress: bool,
) -> Iterator[Vectors]:
    """Recording by recording, each prepared once and cut into its windows."""
    known = 0
    with Bar("embedding", source.content.items, shown=progress) as bar:

        def windows() -> Iterator[Frames]:
            nonlocal known
            for clip, rows in source.read():
                known += len(rows)
                if len(rows):
                    # exact once all is read; until then recordings are taken to have as many windows as those
                    # before
                    bar.expect(round(known * source.content.items / (int(rows[0]["item"]) + 1)))
                yield from ready.windows(clip, rows)

        for block in in_blocks(windows(), batch_size):
            yield embed_frames(encoder, block, device)
            bar.advance(len(block))


def in_blocks(clips: Iterable[Frames], size: int = BATCH, frames: int = _FRAMES) -> Iterator[list[Frames]]:
    """Lists of up to `size` clips with up to `frames` frames altogether (one clip alone may have more)."""
    block: list[Frames] = []
    held = 0
    for clip in clips:
        if block and (len(block) == size or held + len(clip) > frames):
            yield block
            block, held = [], 0
        block.append(clip)
        held += len(clip)
    if block:
        yield block


def embed_frames(
    encoder: PretrainedEncoder,
    clips: Iterable[Frames],
    device: torch.device | str = "cpu",
    *,
    batch_size: int = BATCH,
) -> Vectors:
    """Vectors `(N, F)` of clips `(T, P, V, C)` that are ready for the encoder."""
    parts = [
        vectors
        for block in in_blocks(clips, batch_size)
        for vectors in encode_centres(encoder, frames_pool(encoder, block, device), progress=False)
    ]
    return np.concatenate(parts)


def frames_pool(
    encoder: PretrainedEncoder, clips: Sequence[Frames], device: torch.device | str = "cpu"
) -> ClipPool:
    """Prepared clips as one tensor on the device, padded with zeros to the persons the encoder reads."""
    device = torch.device(device)
    lengths = torch.tensor([len(clip) for clip in clips])
    offsets = lengths.cumsum(0) - lengths
    if all(clip.shape[1] == encoder.persons for clip in clips):
        frames = np.ascontiguousarray(np.concatenate(clips))
    else:
        frames = np.zeros((int(lengths.sum()), encoder.persons, *clips[0].shape[2:]), dtype=np.float32)
        for first, clip in zip(offsets.tolist(), clips):
            frames[first : first + len(clip), : clip.shape[1]] = clip
    return ClipPool(torch.from_numpy(frames).to(device), offsets.to(device), lengths.to(device), device)


def source_pool(encoder: PretrainedEncoder, source: Source, device: torch.device | str = "cpu") -> ClipPool:
    """All clips of a source, ready for the encoder, as one tensor on the device."""
    ready, store = prepare_source(encoder, source), source.store
    if store is not None and source.cutting.window is None and _as_stored(ready, source, store):
        return ClipPool.from_store(store, device)
    return frames_pool(
        encoder, [frames for clip, rows in source.read() for frames in ready.windows(clip, rows)], device
    )


def encode_centres(
    encoder: PretrainedEncoder, pool: ClipPool, clips: Tensor | None = None, *, progress: bool = True
) -> Iterator[Vectors]:
    """Vectors of the central 95 % of the given clips, or of all of them, block by block."""
    clips = torch.arange(len(pool.lengths)) if clips is None else clips
    start, length = centre_crops(pool.lengths[clips.to(pool.lengths.device)])
    return encode_crops(encoder, pool, clips, start, length, progress=progress)


def encode_crops(
    encoder: PretrainedEncoder,
    pool: ClipPool,
    clips: Tensor,
    start: Tensor,
    length: Tensor,
    *,
    batch_size: int = BATCH,
    progress: bool = True,
) -> Iterator[Vectors]:
    """Vectors of chosen crops of chosen clips, block by block, in evaluation mode; 0 if nobody is seen."""
    encoder = encoder.to(pool.device)
    with evaluating(encoder), Bar("embedding", len(clips), shown=progress) as bar:
        for first in range(0, len(clips), batch_size):
            rows = slice(first, first + batch_size)
            with torch.inference_mode():
                cut = pool.cut(clips[rows], start[rows], length[rows], encoder.frames)
                somebody = torch.linalg.vector_norm(cut.flatten(1), dim=1, keepdim=True) > 0
                vectors = in_tiles(encoder, cut).float() * somebody  # a vector depends on its clip alone
            yield vectors.cpu().numpy()
            bar.advance(len(cut))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode in this context; the previous mode is restored afterwards."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def prepare_for(
    encoder: AnyEncoder, clips: AnySource, reading: Reading | None = None, **keywords: Unpack[ReadingKeywords]
) -> Vectors:
    """Make clips ready for the forward pass of an encoder, or for its ONNX file.

    Joints are mapped by name, the encoder's normalisation is applied, the central 95 % of every clip is taken
    and resized linearly to the frames that the encoder reads.

    Parameters
    ----------
    encoder : PretrainedEncoder, path or str
        An encoder, a run, a package or a shipped name.
    clips : array, sequence of arrays, or anything `open_source` takes
        Coordinates as they were recorded, `(T, V, C)` or `(T, P, V, C)`.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields; arrays have the encoder's joints unless
        `topology` is given.

    Returns
    -------
    array (N, frames, persons, joints, coordinates) float32
        One row per clip; an absent person is all zeros.

    Examples
    --------
    >>> import numpy as np, halp
    >>> halp.prepare_for("halp-base", np.ones((50, 25, 3)), topology="kinect-v2").shape
    (1, 64, 2, 16, 3)
    """
    encoder, source = open_for(encoder, clips, reading, **keywords)
    pool = source_pool(encoder, source)
    start, length = centre_crops(pool.lengths)
    return pool.cut(torch.arange(len(pool.lengths)), start, length, encoder.frames).numpy()


def ready_clips(encoder: PretrainedEncoder, source: Source, rows: Iterable[int]) -> list[Clip]:
    """Prepared clips of some rows; reads only their own recordings, if they are not in memory."""
    ready, clips = prepare_source(encoder, source), []
    for row in map(int, rows):
        (frames,) = ready.pieces(source.recording(row), source.rows[row : row + 1])
        piece = source.clip(row)
        # frames that were left out may be there again
        absent = () if len(frames) == piece.span else piece.absent
        clips.append(ready.clip(replace(piece, frames=frames, absent=absent)))
    return clips
