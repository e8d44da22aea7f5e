"""Vectors of a store without a copy of its clips: windows are cut out of the memory map by index, a batch at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from halp.augment import ClipPool, centre_crops
from halp.clips.ingest.recordings import is_store
from halp.clips.store import Store, open_store
from halp.clips.windows import Cutting, cut_windows, spans
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.evaluation.features import evaluating

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """Clips or windows of a store: which clip, first frame and number of frames, times in seconds."""

    clip: Numbers
    first: Numbers
    length: Numbers
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]


def fitting_store(encoder: PackagedEncoder, source: object) -> Store | None:
    """The source as a store whose clips the encoder reads as they are; None for anything else, which is read clip by clip."""
    if isinstance(source, (str, os.PathLike)) and is_store(source):
        source = open_store(source)
    if not isinstance(source, Store) or source.persons > encoder.persons:
        return None
    same = (source.topology.joints, source.topology.dimensions) == (
        encoder.topology.joints,
        encoder.topology.dimensions,
    )
    steps = not encoder.normalisation or source.normalisation == encoder.normalisation
    return source if same and steps else None


def list_spans(store: Store, cutting: Cutting) -> Spans:
    """All clips, or the windows of all clips, as `halp.clips.recordings.read_clips` gives them."""
    known = spans(store, cutting.fps)
    if cutting.window is None:
        count = np.arange(len(store))
        return Spans(count, np.zeros_like(count), np.asarray(store.lengths), known.start, known.end)
    rows: list[tuple[int, int, int, float, float]] = []
    for clip, length in enumerate(store.lengths.tolist()):
        fps = cutting.fps or float(known.fps[clip])
        if fps <= 0:
            raise InputError(
                f"clip '{store.names[clip]}' does not tell its frame rate, so a window in seconds cannot be cut; "
                "give it with --fps"
            )
        for first, last in cut_windows(length, fps, cutting.window, cutting.stride):
            start = float(known.start[clip]) + first / fps
            rows.append((clip, first, last - first, start, start + (last - first) / fps))
    columns = np.array(rows, dtype=np.float64).T
    whole = columns[:3].astype(np.int64)
    return Spans(whole[0], whole[1], whole[2], columns[3], columns[4])


def store_vectors(
    encoder: PackagedEncoder, store: Store, found: Spans, batch_size: int, device: torch.device | str = "cpu"
) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """Rows and their vectors, batch by batch: the central 95 % of every span."""
    pool = ClipPool.from_store(store, torch.device(device), keep=False)
    with evaluating(encoder.to(device)):
        for first in range(0, len(found.clip), batch_size):
            rows = slice(first, first + batch_size)
            inner, length = centre_crops(torch.from_numpy(found.length[rows]))
            clips, start = torch.from_numpy(found.clip[rows]), torch.from_numpy(found.first[rows]) + inner
            with torch.inference_mode():
                yield rows, encoder(pool.cut(clips, start, length, encoder.frames)).float().cpu().numpy()
