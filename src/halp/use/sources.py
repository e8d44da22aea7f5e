"""What commands take as SOURCE: a store, recordings of any format, or arrays; as blocks of clips that an encoder can read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from halp.clips.arrays import checked_array
from halp.clips.clip import Clip
from halp.clips.ingest.recordings import is_store, open_source, read_clips
from halp.clips.normalise import normalise
from halp.clips.readers import Dropped
from halp.clips.store import Store, open_store
from halp.clips.windows import Cutting
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.files import sha256
from halp.progress import console


class Reading(TypedDict, total=False):
    """How functions read a source: windows in seconds, frames per second where unknown, format, kept vectors, progress."""

    window: float | None
    stride: float | None
    fps: float | None
    format: str
    cache: bool
    progress: bool


def split_reading(reading: Reading) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Window, stride and frames per second on the one hand, the rest on the other."""
    spans = {"window": reading.get("window"), "stride": reading.get("stride"), "fps": reading.get("fps")}
    return spans, {name: value for name, value in reading.items() if name not in spans}


Arrays = Sequence[npt.NDArray[Any]]
Source = Store | str | os.PathLike[str] | Arrays


@dataclass(frozen=True)
class Labelled:
    """Names of the classes of a source, and how many recordings it has (None: not known before reading)."""

    class_names: tuple[str, ...]
    recordings: int | None


def read_source(
    encoder: PackagedEncoder, source: Source, cutting: Cutting | None = None, *, format: str = "auto"
) -> Iterator[Clip]:
    """Clips or windows of a source in the layout and normalisation that the encoder was trained on, one at a time.

    `extra["end"]` is where a clip ends. Arrays `(T, V, C)` or `(T, P, V, C)` are taken as recorded. What cannot be read is
    left out and named on standard error.
    """
    cutting = cutting or Cutting()
    if not isinstance(source, (Store, str, os.PathLike)):
        yield from _from_arrays(encoder, source, cutting)
        return
    stored = isinstance(source, Store) or is_store(source)
    dropped: list[Dropped] = []
    yield from read_clips(
        source,
        "auto" if stored else format,
        cutting=cutting,
        # an encoder that does not know its normalisation takes a store as it is
        normalise=None if stored and not encoder.normalisation else encoder.normalisation,
        topology=encoder.topology,
        persons=encoder.persons,
        dropped=dropped,
    )
    unexpected = [one for one in dropped if not one.expected]
    if unexpected:
        first = unexpected[0]
        console.print(
            f"warning: {len(unexpected)} clips were left out; the first, '{first.name}': {first.reason}",
            highlight=False,
            markup=False,
        )


def _from_arrays(encoder: PackagedEncoder, arrays: Arrays, cutting: Cutting) -> Iterator[Clip]:
    if not len(arrays):
        raise InputError("there is no recording; give at least one array (frames, joints, coordinates)")
    for number, array in enumerate(arrays):
        frames = checked_array(array, encoder.topology, f"array {number}")
        if frames.shape[1] > encoder.persons:
            raise InputError(f"array {number} has {frames.shape[1]} persons, the encoder takes up to {encoder.persons}")
        clip = Clip(frames, f"clip-{number:06}", fps=cutting.fps or -1.0)
        for window in cutting.cut(clip):
            length = len(window.frames) / window.fps if window.fps > 0 else float(len(window.frames))
            frames = normalise(window.frames, encoder.topology, encoder.normalisation)
            yield replace(window, frames=frames, extra={"end": window.start + length})


def describe_source(source: Source, *, format: str = "auto") -> Labelled:
    """Class names and number of recordings, without reading any of them."""
    if isinstance(source, Store) or (isinstance(source, (str, os.PathLike)) and is_store(source)):
        store = source if isinstance(source, Store) else open_store(source)
        return Labelled(tuple(store.class_names), len(store))
    if isinstance(source, (str, os.PathLike)):
        pipeline, items = open_source(Path(source), format)
        return Labelled(tuple(pipeline.info.class_names), len(items))
    return Labelled((), len(source))


def source_key(source: Source, cutting: Cutting | None = None, *, format: str = "auto") -> str:
    """A hash of the content of a source and of how it is cut; files are hashed byte by byte."""
    digest = hashlib.sha256(json.dumps([asdict(cutting or Cutting()), format]).encode())
    if isinstance(source, Store):
        digest.update(source.hash.encode())
    elif not isinstance(source, (str, os.PathLike)):
        for array in source:
            values = np.ascontiguousarray(array, dtype=np.float32)
            digest.update(str(values.shape).encode() + values.tobytes())
    elif is_store(source):
        digest.update(open_store(source).hash.encode())
    else:
        for path in _files(Path(source)):
            digest.update(f"{path.relative_to(source) if path != Path(source) else path.name}\0{sha256(path)}".encode())
    return digest.hexdigest()


def _files(source: Path) -> list[Path]:
    if not source.exists():
        raise InputError(f"there is nothing at '{source}'; check the path of the source")
    return [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())


def in_blocks(clips: Iterable[Clip], size: int, frames: int) -> Iterator[list[Clip]]:
    """Lists of up to `size` clips with up to `frames` frames altogether (one clip alone may have more)."""
    block: list[Clip] = []
    held = 0
    for clip in clips:
        if block and (len(block) == size or held + len(clip.frames) > frames):
            yield block
            block, held = [], 0
        block.append(clip)
        held += len(clip.frames)
    if block:
        yield block
