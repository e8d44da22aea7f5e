"""The content of a source: recordings of a store, files or arrays, and the rows that cut them into clips."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import file_state
from halp.data.arrays import checked_array
from halp.data.clip import Clip, Dropped, runs
from halp.data.ingest.pipeline import Pipeline
from halp.data.ingest.shards import FileHashes, item_files, item_keys
from halp.data.readers import Item, reader_options
from halp.data.readers.archives import expansion_limit
from halp.data.source_files import excluding_files, walk
from halp.data.store import Store
from halp.data.text_files import LARGEST_COORDINATE
from halp.data.topology_file import find_topology
from halp.data.windows import Spans, WindowSettings, cut_windows, spans
from halp.skeleton import Topology

#: One row per clip or window: its recording; if it is read from; its frames; its times in seconds of the
#: recording's own clock (in frames where the rate is not known); class, person and camera (−1: not known);
#: share of frames in which somebody is seen.
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
        ("camera", "<i8"),
        ("seen", "<f4"),
        ("filled", "<i4"),
        ("points", "<i4"),
    ]
)
_BLOCK = 16_384  # frames looked at together
_KEPT = 32 << 20  # bytes of recordings that stay in memory; what is beyond is read again when it is asked for


@dataclass(frozen=True)
class SourceIndex:
    """Facts found by reading a source.

    Rows; names of recordings, and the item that each was first met in; name and file of every clip that has
    rows; when nobody is seen; what was left out, with its item; and what else a user should know.
    """

    rows: npt.NDArray[Any]
    recordings: list[str]
    clips: Sequence[Sequence[str]]
    absent: list[tuple[int, float, float]]  # recording, start, stop
    met: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    left_out: list[tuple[int, Dropped]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Recordings(Protocol):
    """Whole recordings of one kind of source, in a fixed order and by place."""

    topology: Topology
    applied: tuple[str, ...]  # normalisation that the frames have been through
    class_names: tuple[str, ...]
    items: int  # units of reading; each may hold several recordings
    left_out: list[tuple[int, Dropped]]  # by the last `read`
    portable: bool  # whether other processes can read it

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
    return [
        (recording, clip.start + at / rate, clip.start + (at + count) / rate)
        for at, count in runs(~whole.present)
    ]


def make_rows(
    cutting: WindowSettings,
    names: Sequence[str],
    lengths: npt.NDArray[np.int64],
    fps: npt.NDArray[np.float64],
    starts: npt.NDArray[np.float64] | float,
    seen: npt.NDArray[np.bool_],
) -> npt.NDArray[Any]:
    """Rows of recordings with contiguous frames; `seen` says for every frame whether anybody is visible.

    `item` counts the recordings; the caller fills in what else is known of them.
    """
    places = np.arange(len(lengths))
    if cutting.window is None:
        pieces = np.stack([places, np.zeros_like(places), lengths], axis=1)
    else:
        for name, rate in zip(names, fps):
            if rate <= 0:
                raise InputError(
                    f"recording '{name}' does not state its frame rate, so a window in seconds cannot be cut;"
                    " give it with --fps"
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
    """Clips of a store, or those from `first` up to `last`."""

    store: Store
    rate: float | None
    first: int = 0
    last: int | None = None
    portable: bool = True

    def __post_init__(self) -> None:
        self.topology, self.applied = self.store.topology, tuple(self.store.normalisation)
        self.chosen = range(self.first, len(self.store) if self.last is None else self.last)
        self.class_names, self.items = tuple(self.store.class_names), len(self.chosen)
        self.left_out: list[tuple[int, Dropped]] = []

    @cached_property
    def _spans(self) -> Spans:
        return spans(self.store, self.rate, slice(self.chosen.start, self.chosen.stop))

    @property
    def held(self) -> tuple[Store, int] | None:
        """The one store that holds all these clips, and the number of the first; None if several do."""
        for _, store, first in self.store.parts:
            if first <= self.chosen.start and self.chosen.stop <= first + len(store):
                return store, self.chosen.start - first
        return None

    def recorded(self, cutting: WindowSettings) -> SourceIndex:
        """Rows of all clips at once."""
        store, known = self.store, self._spans
        here = slice(self.chosen.start, self.chosen.stop)
        bounds = range(int(store.offsets[here.start]), int(store.offsets[here.stop]), _BLOCK)
        blocks = (store.frames[at : min(at + _BLOCK, bounds.stop)] for at in bounds)
        seen = np.concatenate([(block != 0).any(axis=(1, 2, 3)) for block in blocks])
        lengths, names = store.lengths[here], store.names[here].tolist()
        rows = make_rows(cutting, names, lengths, known.fps, known.start, seen)
        clips: npt.NDArray[np.int64] = rows["item"]
        rows["seen"] *= (lengths / store.spans[here])[clips]
        if cutting.window is None:
            rows["stop"] = known.end
        for column, values in (
            ("label", store.labels),
            ("subject", store.subjects),
            ("camera", store.cameras),
        ):
            rows[column] = values[here][clips]
        recordings, first, places = np.unique(known.recording, return_index=True, return_inverse=True)
        order = np.argsort(first)
        recording = np.argsort(order)[places]
        rows["recording"] = recording[clips]
        empty = (
            np.searchsorted(store.offsets, bounds.start + np.flatnonzero(~seen), side="right")
            - 1
            - here.start
        )
        gaps = [place for place, clip in enumerate(self.chosen) if clip in store.absent]
        some = np.union1d(np.unique(empty), np.array(gaps, dtype=np.int64)).tolist()
        absent = [run for clip in some for run in absences(self.get(clip, 0), int(recording[clip]))]
        shown = [(names[clip], "") for clip in np.unique(clips).tolist()]
        return SourceIndex(rows, recordings[order].tolist(), shown, absent, first[order])

    def read(self) -> Iterator[tuple[int, int, Clip]]:
        for item in range(self.items):
            yield item, 0, self.get(item, 0)

    def get(self, item: int, place: int) -> Clip:
        known, place, item = self._spans, item, self.chosen[item]
        return Clip(
            self.store.clip(item),
            str(self.store.names[item]),
            int(self.store.labels[item]),
            int(self.store.subjects[item]),
            int(self.store.cameras[item]),
            {"end": float(known.end[place])},
            fps=float(known.fps[place]),
            recording=str(known.recording[place]),
            start=float(known.start[place]),
            absent=self.store.absent.get(item, ()),
        )

    def digest(self) -> str:
        return self.store.hash


@dataclass
class RecordingFiles:
    """Recordings of any format, raw; each file is read once as long as all of them fit into memory."""

    path: Path
    pipeline: Pipeline
    files: Sequence[Item]
    options: dict[str, Any]
    table: Path | None = None  # of labels, which is not a recording
    verify: bool = False  # read every file instead of trusting its size and times
    kept: dict[int, tuple[list[Clip], list[Dropped]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        info, reader = self.pipeline.info, type(self.pipeline.reader).__module__
        self.topology, self.applied, self.class_names = (
            info.topology,
            tuple(info.applied),
            tuple(info.class_names),
        )
        self.items, self._bytes = len(self.files), 0
        # which other processes have not loaded
        self.portable = info.shared and not reader.startswith("halp_plugin_")
        self.left_out: list[tuple[int, Dropped]] = []
        self.known_keys: tuple[list[str], list[int]] | None = None
        self.states: dict[Path, list[int]] = {}  # of files when their keys were made
        self.look: Any = None  # that remembers what was found, see `halp.features.look`
        self._last: tuple[int, tuple[list[Clip], list[Dropped]]] = (-1, ([], []))

    def part(self, places: Sequence[int], *, keep: bool = False) -> RecordingFiles:
        """Some of the items, with their cached data if it stays in this process."""
        kept = {item: self.kept[place] for item, place in enumerate(places) if keep and place in self.kept}
        part = replace(self, files=[self.files[place] for place in places], kept=kept)
        with suppress(OSError):  # reading it says why
            for file in (file for place in places for file in self._found[0][place]):
                part.states[file] = self.states.get(file) or file_state(file)
        return part

    def check_unchanged(self) -> None:
        """Raise if a file is no longer the one that the keys were made of."""
        for file, state in self.states.items():
            if not file.exists() or file_state(file) != state:
                raise InputError(f"'{file}' changed while the recordings were read; run the command again")

    def adopt(self, places: Sequence[int], part: Any) -> None:
        """Keep data that a part has read in this process; the part drops it."""
        for item, found in part.kept.items():
            if places[item] not in self.kept:
                self._keep(places[item], found)
        part.kept, part._last = {}, (-1, ([], []))

    @cached_property
    def _found(self) -> tuple[list[list[Path]], list[Path]]:
        with excluding_files(self.table):
            return item_files(self.files, list(walk(self.path)))

    @cached_property
    def unread(self) -> list[Path]:
        """Files of the folder that belong to no recording."""
        return self._found[1]

    @property
    def keys(self) -> tuple[list[str], list[int]]:
        """A key and the bytes of every item; a key is made of the content of the item's own files."""
        if self.known_keys is None:
            hashes = FileHashes(self.path, verify=self.verify)
            self.known_keys = item_keys(self.path, self.files, *self._found, hashes)
            self.states = hashes.states
            if self.look is not None:
                self.look.keep(self)
        return self.known_keys

    @property
    def how(self) -> str:
        """How items are read, independent of which items; class names are looked up later."""
        info = replace(self.pipeline.info, class_names=())
        reader = self.pipeline.reader
        facts = [reader.name, repr(reader_options(reader)), self.options, repr(info), expansion_limit(0)]
        return json.dumps(facts, default=str).replace(str(self.path), "")

    def read(self) -> Iterator[tuple[int, int, Clip]]:
        self.left_out = []
        for item in range(len(self.files)):
            clips, dropped = self._item(item)
            yield from ((item, place, clip) for place, clip in enumerate(clips))
            self.left_out += [(item, drop) for drop in dropped]

    def get(self, item: int, place: int) -> Clip:
        clips, dropped = self._item(item)
        if place >= len(clips):
            why = f" ({dropped[0].reason})" if dropped else ""
            raise InputError(f"'{self.files[item].path}' changed after it was read{why}; open it again")
        return clips[place]

    def _item(self, item: int) -> tuple[list[Clip], list[Dropped]]:
        if item in self.kept:
            return self.kept[item]
        if item == self._last[0]:
            return self._last[1]
        outcomes = self.pipeline.work([self.files[item]])
        clips = [outcome for outcome in outcomes if isinstance(outcome, Clip)]
        found = clips, [outcome for outcome in outcomes if isinstance(outcome, Dropped)]
        self._keep(item, found)
        self._last = (item, found)
        return found

    def _keep(self, item: int, found: tuple[list[Clip], list[Dropped]]) -> None:
        self._bytes += sum(clip.frames.nbytes for clip in found[0])
        if self._bytes <= _KEPT:
            self.kept[item] = found

    def digest(self) -> str:
        return hashlib.sha256("\n".join([self.how, *self.class_names, *self.keys[0]]).encode()).hexdigest()


@dataclass
class ArrayClips:
    """Arrays in memory, named by their place."""

    clips: list[Clip]
    topology: Topology
    applied: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    portable: bool = False

    def __post_init__(self) -> None:
        self.items = len(self.clips)
        self.left_out: list[tuple[int, Dropped]] = []

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
        raise InputError("arrays do not state their joint layout; name it, such as topology='kinect-v2'")
    layout = find_topology(topology)
    several: Sequence[Any] = [arrays] if getattr(arrays, "ndim", 5) < 5 else list(arrays)
    if not several:
        raise InputError("there is no recording; give at least one array (frames, joints, coordinates)")
    clips = []
    for number, array in enumerate(several):
        frames = checked_array(array, layout, f"array {number}")
        unseen = np.isnan(frames).any(axis=-1, keepdims=True)
        frames = np.where(unseen, np.float32(0), frames) if unseen.any() else frames
        if np.abs(frames).max(initial=0) > LARGEST_COORDINATE and np.isfinite(frames).all():
            raise InputError(
                f"array {number} has a coordinate beyond ±{LARGEST_COORDINATE:,.0f}; give NaN where joints are missing"
            )
        clips.append(Clip(frames, f"clip-{number:06}", fps=cutting.fps or -1.0))
    return ArrayClips(clips, layout)
