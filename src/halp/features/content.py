"""What a source is made of: whole recordings of a store, of files or of arrays, and the rows that cut them into clips."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import sha256
from halp.data.arrays import checked_array
from halp.data.clip import Clip, Dropped, runs
from halp.data.ingest.pipeline import Pipeline, nothing_usable
from halp.data.readers import Item
from halp.data.source_files import leaving_out, walk
from halp.data.store import Store
from halp.data.topology_file import find_topology
from halp.data.windows import WindowSettings, cut_windows, spans
from halp.skeleton import Topology

#: One row per clip or window: its recording; where it is read from; its frames; its times in seconds of the recording's own
#: clock (in frames where the rate is not known); class and person (−1: not known); share of frames in which somebody is seen.
ROW = np.dtype(
    [
        ("recording", "<i8"),
        ("item", "<i8"),
        ("place", "<i8"),
        ("first", "<i8"),
        ("length", "<i8"),
        ("start", "<f8"),
        ("stop", "<f8"),
        ("fps", "<f8"),
        ("label", "<i8"),
        ("subject", "<i8"),
        ("seen", "<f4"),
    ]
)
_BLOCK = 16_384  # frames looked at together
_KEPT = 256 << 20  # bytes of recordings that stay in memory; what is beyond is read again when it is asked for


@dataclass(frozen=True)
class Recorded:
    """What reading a source found: rows, names of recordings, name and file of every clip, and when nobody is seen."""

    rows: npt.NDArray[Any]
    recordings: list[str]
    clips: list[tuple[str, str]]
    absent: list[tuple[int, float, float]]  # recording, start, stop


class Recordings(Protocol):
    """Whole recordings of one kind of source, in a fixed order and by place."""

    topology: Topology
    applied: tuple[str, ...]  # normalisation that the frames have been through
    class_names: tuple[str, ...]
    items: int  # units of reading; each may hold several recordings

    def read(self) -> Iterator[tuple[int, int, Clip]]:
        """All recordings with their item and place in it."""
        ...

    def get(self, item: int, place: int) -> Clip:
        """One recording."""
        ...

    def digest(self) -> str:
        """Hash of the content."""
        ...


def absences(clip: Clip, recording: int) -> list[tuple[int, float, float]]:
    """Spans of a clip in which nobody is seen, in seconds of its recording."""
    whole = clip.restored()
    rate = clip.fps if clip.fps > 0 else 1.0
    return [(recording, clip.start + at / rate, clip.start + (at + count) / rate) for at, count in runs(~whole.present)]


def make_rows(
    cutting: WindowSettings,
    names: Sequence[str],
    lengths: npt.NDArray[np.int64],
    fps: npt.NDArray[np.float64],
    starts: npt.NDArray[np.float64] | float,
    seen: npt.NDArray[np.bool_],
) -> npt.NDArray[Any]:
    """Rows of recordings whose frames follow each other; `seen` says for every frame whether somebody is there.

    `item` counts the recordings; the caller fills in what else is known of them.
    """
    places = np.arange(len(lengths))
    if cutting.window is None:
        pieces = np.stack([places, np.zeros_like(places), lengths], axis=1)
    else:
        for name, rate in zip(names, fps):
            if rate <= 0:
                raise InputError(
                    f"recording '{name}' does not tell its frame rate, so a window in seconds cannot be cut; "
                    "give it with --fps"
                )
        pieces = np.array(
            [
                (place, first, last - first)
                for place, (length, rate) in enumerate(zip(lengths.tolist(), fps.tolist()))
                for first, last in cut_windows(length, rate, cutting.window, cutting.stride)
            ]
        )
    rows = np.zeros(len(pieces), dtype=ROW)
    rows["item"], rows["first"], rows["length"] = pieces.T
    rows["fps"] = fps[rows["item"]]
    rate = np.where(rows["fps"] > 0, rows["fps"], 1.0)
    rows["start"] = np.broadcast_to(starts, lengths.shape)[rows["item"]] + rows["first"] / rate
    rows["stop"] = rows["start"] + rows["length"] / rate
    counted = np.concatenate([[0], np.cumsum(seen)])
    begin = np.concatenate([[0], np.cumsum(lengths)])[rows["item"]] + rows["first"]
    rows["seen"] = (counted[begin + rows["length"]] - counted[begin]) / rows["length"]
    return rows if cutting.window is None else rows[rows["seen"] > 0]


@dataclass
class StoredClips:
    """Clips of a store."""

    store: Store
    rate: float | None

    def __post_init__(self) -> None:
        self.topology, self.applied = self.store.topology, tuple(self.store.normalisation)
        self.class_names, self.items = tuple(self.store.class_names), len(self.store)
        self._spans = spans(self.store, self.rate)

    def recorded(self, cutting: WindowSettings) -> Recorded:
        """Rows of all clips at once."""
        store, known = self.store, self._spans
        blocks = range(0, len(store.frames), _BLOCK)
        seen = np.concatenate([(store.frames[at : at + _BLOCK] != 0).any(axis=(1, 2, 3)) for at in blocks])
        rows = make_rows(cutting, store.names.tolist(), store.lengths, known.fps, known.start, seen)
        clips: npt.NDArray[np.int64] = rows["item"]
        rows["seen"] *= (store.lengths / store.spans)[clips]
        if cutting.window is None:
            rows["stop"] = known.end
        rows["label"], rows["subject"] = store.labels[clips], store.subjects[clips]
        names, first, places = np.unique(known.recording, return_index=True, return_inverse=True)
        order = np.argsort(first)
        recording = np.argsort(order)[places]
        rows["recording"] = recording[clips]
        empty = np.unique(np.searchsorted(store.offsets, np.flatnonzero(~seen), side="right") - 1)
        some = np.union1d(empty, np.array(list(store.absent), dtype=np.int64)).tolist()
        absent = [run for clip in some for run in absences(self.get(clip, 0), int(recording[clip]))]
        return Recorded(
            rows, names[order].tolist(), [(store.names[clip], "") for clip in np.unique(clips).tolist()], absent
        )

    def read(self) -> Iterator[tuple[int, int, Clip]]:
        for index in range(len(self.store)):
            yield index, 0, self.get(index, 0)

    def get(self, item: int, place: int) -> Clip:
        known = self._spans
        return Clip(
            self.store.clip(item),
            str(self.store.names[item]),
            int(self.store.labels[item]),
            int(self.store.subjects[item]),
            int(self.store.cameras[item]),
            {"end": float(known.end[item])},
            fps=float(known.fps[item]),
            recording=str(known.recording[item]),
            start=float(known.start[item]),
            absent=self.store.absent.get(item, ()),
        )

    def digest(self) -> str:
        return self.store.hash


@dataclass
class RecordingFiles:
    """Recordings of any format, raw; each file is read once as long as all of them fit into memory."""

    path: Path
    pipeline: Pipeline
    files: list[Item]
    options: dict[str, Any]
    table: Path | None = None  # of labels, which is not a recording
    kept: dict[int, list[Clip]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        info = self.pipeline.info
        self.topology, self.applied, self.class_names = info.topology, tuple(info.applied), tuple(info.class_names)
        self.items, self._bytes = len(self.files), 0
        self._last: tuple[int, list[Clip]] = (-1, [])
        self._digest = ""

    def read(self) -> Iterator[tuple[int, int, Clip]]:
        count = 0
        dropped: list[Dropped] = []
        for item in range(len(self.files)):
            for place, clip in enumerate(self._item(item, dropped)):
                count += 1
                yield item, place, clip
        if not count:
            raise nothing_usable(self.path, dropped)
        unexpected = [drop for drop in dropped if not drop.expected]
        if unexpected:
            drop = unexpected[0]
            warnings.warn(
                f"{len(unexpected)} clips were left out; the first, '{drop.name}': {drop.reason}", stacklevel=2
            )

    def get(self, item: int, place: int) -> Clip:
        return self._item(item, [])[place]

    def _item(self, item: int, dropped: list[Dropped]) -> list[Clip]:
        if item in self.kept:
            return self.kept[item]
        if item == self._last[0]:
            return self._last[1]
        clips: list[Clip] = []
        for outcome in self.pipeline.work([self.files[item]]):
            if isinstance(outcome, Dropped):
                dropped.append(outcome)
            else:
                clips.append(outcome)
        self._bytes += sum(clip.frames.nbytes for clip in clips)
        if self._bytes <= _KEPT:
            self.kept[item] = clips
        self._last = (item, clips)
        return clips

    def digest(self) -> str:
        if self._digest:  # of all the ways to cut the same files
            return self._digest
        how = [self.pipeline.reader.name, self.options, self.topology.name, self.topology.dimensions]
        digest = hashlib.sha256(json.dumps(how, default=str).encode())
        with leaving_out(self.table):
            files = list(walk(self.path))
        for file in files:
            place = file.relative_to(self.path).as_posix() if file != self.path else file.name
            # names need not be UTF-8: old archives have other letters
            digest.update(f"{place}\0{sha256(file)}".encode(errors="surrogateescape"))
        self._digest = digest.hexdigest()
        return self._digest


@dataclass
class ArrayClips:
    """Arrays in memory, named by their place."""

    clips: list[Clip]
    topology: Topology
    applied: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.items = len(self.clips)

    def read(self) -> Iterator[tuple[int, int, Clip]]:
        for index, clip in enumerate(self.clips):
            yield index, 0, clip

    def get(self, item: int, place: int) -> Clip:
        return self.clips[item]

    def digest(self) -> str:
        digest = hashlib.sha256(json.dumps(list(self.topology.joints)).encode())
        for clip in self.clips:
            digest.update(str(clip.frames.shape).encode() + clip.frames.tobytes())
        return digest.hexdigest()


def array_clips(arrays: Any, topology: str | Topology | None, cutting: WindowSettings) -> ArrayClips:
    if topology is None:
        raise InputError("arrays do not tell their joint layout; name it with topology=, such as 'kinect-v2'")
    layout = find_topology(topology)
    several: Sequence[Any] = [arrays] if getattr(arrays, "ndim", 5) < 5 else list(arrays)
    if not several:
        raise InputError("there is no recording; give at least one array (frames, joints, coordinates)")
    clips = []
    for number, array in enumerate(several):
        frames = checked_array(array, layout, f"array {number}")
        unseen = np.isnan(frames).any(axis=-1, keepdims=True)
        frames = np.where(unseen, np.float32(0), frames) if unseen.any() else frames
        clips.append(Clip(frames, f"clip-{number:06}", fps=cutting.fps or -1.0))
    return ArrayClips(clips, layout)
