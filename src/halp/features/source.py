"""Sources: a store, recordings or arrays, opened and read once; rows are clips or windows of them.

Frames stay as they were recorded or stored. What an encoder needs is made of them by `halp.features.ready`.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.progress import Bar
from halp.data.clip import Clip, Dropped
from halp.data.ingest.pipeline import nothing_usable, plan_reading
from halp.data.readers import ChoosesDimensions
from halp.data.reading import LeftOutTable
from halp.data.source_files import excluding_files
from halp.data.store import Store
from halp.data.tagger import Tagger, make_tagger
from halp.data.windows import WindowSettings
from halp.engine import Engine
from halp.features.content import (
    ROW,
    ArrayClips,
    RecordingFiles,
    Recordings,
    SourceIndex,
    StoredClips,
    absences,
    make_rows,
)
from halp.features.table import RowColumns

Array = npt.NDArray[Any]
AnySource = Any  # a Source, a Store, a path, one array or a sequence of arrays

MANIFEST = "collection.json"  # of a collection, see `halp.features.collection`
Tags = tuple[Path | None, str | None]  # a table of labels, a pattern of paths
_NUMBERS = ("label", "subject", "camera")


def edges(rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Indices at which the rows of the next clip begin."""
    return np.flatnonzero((np.diff(rows["item"]) != 0) | (np.diff(rows["place"]) != 0)) + 1


class Source(RowColumns):
    """Clips, or windows of recordings, read in order or by index; made by `open_source`.

    Attributes
    ----------
    topology : Topology
        Joint layout of the frames.
    applied : tuple of str
        Normalisation steps that the frames have been through (of a store); empty for recordings and arrays.
    class_names : tuple of str
        Names of the classes that `labels` counts.
    cutting : WindowSettings
        Window and stride in seconds, and the frame rate where recordings do not tell.
    rows : structured array (N,)
        What is known of every clip or window, see `halp.features.content.ROW`.

    Examples
    --------
    >>> import numpy as np, halp
    >>> source = halp.open_source([np.ones((30, 25, 3))] * 2, topology="kinect-v2", fps=30)
    >>> source.recordings, [clip.frames.shape for clip in source.clips()]
    (['clip-000000', 'clip-000001'], [(30, 1, 25, 3), (30, 1, 25, 3)])
    """

    def __init__(
        self,
        content: Recordings,
        cutting: WindowSettings,
        name: str,
        tags: Tags = (None, None),
        engine: Engine | None = None,
        left_out_table: LeftOutTable | None = None,
    ) -> None:
        self.content, self.cutting, self.name, self.tags = content, cutting, name, tags
        self.topology, self.applied = content.topology, content.applied
        self.engine, self._left_out_table = engine or Engine(), left_out_table
        self.origin: str | None = None  # the address that it was fetched from
        self.recorded: SourceIndex | None = None
        self.collection: Any = None  # that keeps its vectors, if it was opened by one
        self.shards: list[Any] = []  # that its vectors were found in
        self.notes: list[str] = []  # warnings while a shard was read
        self._is_shard = False
        self._part = ""  # which rows of the content these are, if they are not all
        self._classes: tuple[str, ...] | None = None  # of labels that were given to rows one by one

    def _like(self, content: Recordings, cutting: WindowSettings, tags: Tags = (None, None)) -> Source:
        other = Source(content, cutting, self.name, tags, self.engine, self._left_out_table)
        other.origin = self.origin
        return other

    def part(self, content: Recordings) -> Source:
        """A shard of this source, to be read and embedded separately, possibly in another process."""
        part = Source(content, self.cutting, self.name)
        part._is_shard = True
        return part

    @property
    def whole(self) -> bool:
        """Whether the rows are all of the content, without selection or own labels."""
        return not self._part

    def __repr__(self) -> str:
        return f"Source({self.name!r}: {self.topology.name}, {self.content.items} items)"

    @property
    def store(self) -> Store | None:
        """The store that this source is, or None."""
        return self.content.store if isinstance(self.content, StoredClips) else None

    @cached_property
    def _tagger(self) -> Tagger | None:
        if self.tags == (None, None):
            return None
        if isinstance(self.content, ArrayClips):
            raise InputError("arrays have no names to find in a table; use FewLabelClassifier with labels y")
        return make_tagger(Path(self.name), *self.tags)

    @property
    def class_names(self) -> tuple[str, ...]:
        if self._classes is not None:
            return self._classes
        named = None if self._tagger is None else self._tagger.class_names
        return self.content.class_names if named is None else tuple(named)

    @property
    def named(self) -> dict[str, list[str]]:
        """Names of persons and cameras from a table or pattern, by number."""
        return {} if self._tagger is None else self._tagger.named

    @property
    def rows(self) -> npt.NDArray[Any]:
        return self.known.rows if self._tagger is None else self._tagged

    @property
    def recordings(self) -> list[str]:
        """Names of the recordings, each once."""
        return self.known.recordings

    @property
    def known(self) -> SourceIndex:
        """Facts found by reading the source; read now if necessary."""
        if self.recorded is None and self._at_once and isinstance(self.content, StoredClips):
            self.learn(self.content.recorded(self.cutting))
        if self.recorded is None:
            with Bar("reading", self.content.items, shown=False) as bar:
                for _, rows in self.read():
                    bar.advance(int(rows["item"].max(initial=bar.done - 1)) + 1 - bar.done)
        if self.recorded is None:
            raise RuntimeError("rows are complete once all recordings were read")
        return self.recorded

    def learn(self, recorded: SourceIndex) -> None:
        """Adopt facts found by reading this source, now or earlier, and repeat the warnings."""
        self.recorded = recorded
        if self._is_shard:
            return
        if not recorded.recordings:
            raise nothing_usable(Path(self.name), [drop for _, drop in recorded.left_out])
        if self._left_out_table is not None:
            rows = [{"name": drop.name, "reason": drop.reason} for drop in self.left_out]
            self._left_out_table.write(self.name, rows)
        for sentence in self.warnings:
            warnings.warn(sentence, stacklevel=3)

    @property
    def left_out(self) -> list[Dropped]:
        """Recordings that could not be read, with reasons."""
        return [drop for _, drop in self.known.left_out if not drop.expected]

    @property
    def warnings(self) -> list[str]:
        """Notes on recordings that were left out, not read, or repaired."""
        told, files = list(dict.fromkeys(self.known.notes)), self.content
        if self.left_out:
            names = [drop.name for drop in self.left_out]
            was = "recording was" if len(names) == 1 else "recordings were"
            told.insert(0, f"{len(names)} {was} left out: {_named(names)}; {_reasons(self.left_out)}")
        if isinstance(files, RecordingFiles) and files.unread:
            names = [file.name for file in files.unread]
            kind = f"{'is not' if len(names) == 1 else 'are not'} of format '{files.pipeline.reader.name}'"
            told.append(
                f"{len(names)} {'file' if len(names) == 1 else 'files'} of '{files.path}' {kind}:"
                f" {_named(names)}"
            )
        return told

    @property
    def _at_once(self) -> bool:
        """Whether rows are those of a store whose frames follow each other in time, or are not cut by it."""
        store = self.store
        return store is not None and not (store.absent and self.cutting.window is not None)

    @cached_property
    def _tagged(self) -> npt.NDArray[Any]:
        """Rows with the classes and persons that a table or a pattern gives them."""
        tagger, rows = self._tagger, self.known.rows.copy()
        if tagger is None:
            return rows
        for (name, file), part in zip(self.known.clips, np.split(rows, edges(rows))):
            for piece in np.split(part, len(part)) if tagger.timed else [part]:
                bare = Clip(np.zeros((1, 1, 1, 1), dtype=np.float32), name, source=file)
                label, subject, camera = (int(piece[name][0]) for name in _NUMBERS)
                bare = replace(bare, label=label, subject=subject, camera=camera)
                clip = tagger.tag(self._in_time(bare, piece[0]) if tagger.timed else bare)
                for name in _NUMBERS:
                    piece[name] = getattr(clip, name)
        for note in tagger.check():
            warnings.warn(note, stacklevel=2)
        return rows

    def _in_time(self, clip: Clip, row: Any) -> Clip:
        """A placeholder clip with the row's time span."""
        frames = np.zeros((int(row["length"]), 1, 1, 1), dtype=np.float32)
        name = self.recordings[row["recording"]]
        return replace(clip, frames=frames, recording=name, start=float(row["start"]), fps=float(row["fps"]))

    @property
    def how(self) -> str:
        """How recordings are read and cut, independent of which recordings they are."""
        read = self.content.how if isinstance(self.content, RecordingFiles) else ""
        return json.dumps([read, self.cutting.window, self.cutting.stride, self.cutting.fps])

    @cached_property
    def hash(self) -> str:
        """Hash of the content and its cutting, every byte of files included; not of labels from a table."""
        return hashlib.sha256(json.dumps([self.content.digest(), self.how, self._part]).encode()).hexdigest()

    def cut(
        self, window: float | None = None, stride: float | None = None, fps: float | None = None
    ) -> Source:
        """The same recordings in other windows; what was read stays in memory."""
        cutting = WindowSettings(window, stride, fps or self.cutting.fps)
        return self if cutting == self.cutting else self._like(self.content, cutting, self.tags)

    def for_dimensions(self, dimensions: int) -> Source:
        """The same recordings in 2D (image) or 3D, if the format provides both."""
        files = self.content
        if dimensions == self.topology.dimensions or not isinstance(files, RecordingFiles):
            return self
        reader = files.pipeline.reader
        if not isinstance(reader, ChoosesDimensions):
            return self
        with excluding_files(files.table):
            windows = WindowSettings(fps=self.cutting.fps)
            plan = plan_reading(
                files.path, reader.name, windows, (), options=files.options, dimensions=dimensions
            )
        other = RecordingFiles(files.path, *plan, files.options, files.table, files.verify)
        return self._like(other, self.cutting, self.tags)

    def select(self, rows: npt.NDArray[Any]) -> Source:
        """Some of the rows, by place or as a mask, in their order."""
        chosen = np.arange(len(self))[rows]
        if len(chosen) == len(self):
            return self
        part = self._like(self.content, self.cutting)
        units = np.unique(np.searchsorted(edges(self.rows), chosen, side="right"))
        known, clips = self.known, [self.known.clips[unit] for unit in units]
        part.recorded = replace(known, rows=self.rows[chosen], clips=clips)
        part._part = f"{self._part} {hashlib.sha256(chosen.astype('<i8').tobytes()).hexdigest()}"
        part.__dict__["_tagger"] = self._tagger
        part.__dict__["_tagged"] = part.recorded.rows
        part._classes = self._classes
        return part

    def with_labels(
        self,
        labels: npt.NDArray[np.int64],
        class_names: Sequence[str],
        subjects: npt.NDArray[np.int64] | None = None,
    ) -> Source:
        """The rows with given labels (−1: left out) and persons instead of those of the source."""
        rows = self.rows.copy()
        rows["label"] = labels
        if subjects is not None:
            rows["subject"] = subjects
        part = self._like(self.content, self.cutting)
        part.recorded = replace(self.known, rows=rows)
        part._classes = tuple(class_names)
        # what is kept under the hash of the bare source are its own labels
        part._part = f"{self._part} labelled {hashlib.sha256(rows.tobytes()).hexdigest()}"
        return part.select(labels >= 0)

    def read(self) -> Iterator[tuple[Clip, npt.NDArray[Any]]]:
        """Whole recordings with their rows, in order; a window in which nobody is seen has no row."""
        if self.recorded is not None or self._at_once:
            rows = self.known.rows
            for part in np.split(rows, edges(rows)):
                yield self._whole(part[0]), part
            return
        places: dict[str, int] = {}
        met: list[int] = []
        parts = [np.zeros(0, dtype=ROW)]
        clips: list[tuple[str, str]] = []
        absent: list[tuple[int, float, float]] = []
        for item, place, clip in self.content.read():
            clip = clip if self.cutting.window is None else clip.restored()
            seen = clip.present
            rows = make_rows(
                self.cutting, [clip.name], np.array([len(seen)]), np.array([clip.fps]), clip.start, seen
            )
            if self.cutting.window is None and "end" in clip.extra:
                rows["stop"] = float(clip.extra["end"])
            rows["item"], rows["place"] = item, place
            for name in _NUMBERS:
                rows[name] = getattr(clip, name)
            rows["recording"] = number = places.setdefault(clip.recording or clip.name, len(places))
            met += [item] if number == len(met) else []
            absent += absences(clip, number)
            parts.append(rows)
            clips += [(clip.name, clip.source)] if len(rows) else []
            yield clip, rows
        left_out = list(self.content.left_out)
        self.learn(
            SourceIndex(
                np.concatenate(parts), list(places), clips, absent, np.array(met, dtype=np.int64), left_out
            )
        )

    def _whole(self, row: Any) -> Clip:
        """The recording of a row; frames that a store left out are put back in time where windows are cut."""
        clip = self.content.get(int(row["item"]), int(row["place"]))
        return clip if self.cutting.window is None else clip.restored()

    def clips(self) -> Iterator[Clip]:
        """Clips or windows in order, as they were recorded or stored."""
        for clip, rows in self.read():
            yield from (_piece(clip, row, self.cutting.window is not None) for row in rows)

    def clip(self, index: int) -> Clip:
        """One clip or window; only its own recording is read, if it is not in memory."""
        row = self.rows[index]
        return _piece(self.recording(index), row, self.cutting.window is not None)

    def recording(self, index: int) -> Clip:
        """The whole recording of a row."""
        return self._whole(self.rows[index])

    def find(self, name: str) -> npt.NDArray[np.int64]:
        """Rows of the recording or clip of that name; none if there is no such name."""
        if name in self.recordings:
            return np.flatnonzero(self.rows["recording"] == self.recordings.index(name))
        store = self.store
        clips = np.zeros(0) if store is None else np.flatnonzero(store.names == name)
        return np.flatnonzero(np.isin(self.rows["item"], clips))


def _named(names: Sequence[str], most: int = 10) -> str:
    """Quoted names; only the first ones if there are many."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return (
        shown if len(names) <= most else f"{shown} and {len(names) - most} more (--left-out FILE lists all)"
    )


def _reasons(drops: Sequence[Dropped], most: int = 3) -> str:
    """The first recording for each reason; names and numbers in reasons are ignored."""
    kinds: dict[str, Dropped] = {}
    for drop in drops:
        kinds.setdefault(re.sub(r"'[^']*'|\d+", "", drop.reason), drop)
    return "; ".join(f"'{one.name}': {one.reason}" for one in list(kinds.values())[:most])


def _piece(clip: Clip, row: Any, window: bool) -> Clip:
    first, last = int(row["first"]), int(row["first"] + row["length"])
    name = f"{clip.name}@{float(row['start']):.2f}" if window else clip.name
    return replace(
        clip,
        frames=clip.frames[first:last],
        name=name,
        recording=clip.recording or clip.name,
        start=float(row["start"]),
        extra={**clip.extra, "end": float(row["stop"])},
    )
