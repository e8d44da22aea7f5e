"""The store: many clips in one folder, opened in an instant, written atomically.

`store.json` says what it is (topology, classes, splits, how it was made, content hash), `index.parquet` holds
columns with one value per clip and `frames.npy` is one memory map `(sum T, P, V, C)` in float32. Nothing is
padded, nothing is pickled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, check_choice
from halp.core.files import release, restore_moved_aside
from halp.core.remote import fetched
from halp.data.choose_splits import split_command
from halp.data.clip import Frames, Runs, frame_numbers
from halp.data.splits import Indices, SplitRule
from halp.data.store_check import (
    check_absent,
    check_header,
    check_manifest,
    check_seal,
    check_splits,
    map_frames,
    topology_from_json,
    verify,
)
from halp.data.store_index import read_index, read_json

FORMAT, JSON_FORMAT = 3, 1  # with `index.parquet`, with `index.json`
LISTING = 2  # a store that lists others, see `halp.data.merge`


class Store:
    """Clips on disk, read through a memory map; made by `open_store`.

    Attributes
    ----------
    frames : array (sum T, P, V, C) float32
        Of all clips; `clip(i)` gives those of one, `times(i)` when they were recorded.
    names, labels, subjects, cameras, lengths : array (N,)
        What is known of every clip, -1 where it is not; `columns` holds these and further ones.
    topology : Topology
        Joint layout.
    class_names : list of str
        Names of the classes that `labels` counts.
    splits : dict of str to SplitRule
        Rules by name; `split(name)` gives indices of training and test clips.
    normalisation : list of str
        Steps that made the frames.
    hash : str
        Fingerprint of frames and index; results carry it.
    """

    def __init__(
        self, path: Path, header: Mapping[str, Any], columns: dict[str, npt.NDArray[Any]], frames: Frames
    ) -> None:
        self.path = path
        self.header = header
        self.columns = columns
        self.frames = frames
        self.names: npt.NDArray[np.str_] = columns["name"]
        self.labels: Indices = columns["label"]
        self.subjects: Indices = columns["subject"]
        self.cameras: Indices = columns["camera"]
        self.lengths: Indices = columns["length"]
        self.persons = int(frames.shape[1])
        self.class_names: list[str] = list(header["class_names"])
        self.normalisation: list[str] = list(header["normalisation"])
        self.hash = str(header["hash"])
        self.offsets: Indices = np.concatenate([[0], np.cumsum(self.lengths)])
        self.topology = topology_from_json(header["topology"])
        self.splits: dict[str, SplitRule] = check_splits(path, header["splits"])
        self.listed: list[tuple[str, Store]] = []  # names and stores, where this one lists others
        #: For clips of which frames without a person were left out: their runs over the whole span of the
        #: clip.
        self.absent: dict[int, Runs] = check_absent(path, header.get("absent", {}), self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (str(self.path), self.hash)

    @cached_property
    def parts(self) -> list[tuple[str, Store, int]]:
        """Stores that hold the clips, each with a key and the number of its first clip."""
        if not self.listed:
            return [(self.hash, self, 0)]
        firsts = np.cumsum([0, *(len(store) for _, store in self.listed)]).tolist()
        return [(f"{name} {store.hash}", store, first) for (name, store), first in zip(self.listed, firsts)]

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}: {len(self)} clips, {self.topology.name}, {self.persons} persons)"

    def clip(self, index: int) -> Frames:
        """Frames of one clip, a view of the memory map."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"clip {index} of a store with {len(self)} clips")
        index %= len(self)
        return self.frames[self.offsets[index] : self.offsets[index + 1]]

    def release(self) -> None:
        """Return the memory of frames that were read; they are mapped again where they are used."""
        for _, store, _ in self.parts:
            release(store.frames)

    def times(self, index: int) -> npt.NDArray[np.float64]:
        """When each frame of a clip was recorded, `(T,)`, in seconds of the recording's own clock.

        Frames that `drop-empty` left out keep their time: the times jump over them. Where the frame rate is
        not known, times are frames.
        """
        index = range(len(self))[index]
        numbers = frame_numbers(int(self.lengths[index]), self.absent.get(index, ()))
        return self.starts[index] + numbers / (self.fps[index] if self.fps[index] > 0 else 1.0)

    @cached_property
    def timed(self) -> bool:
        """Whether the store knows the recording and span of each clip.

        Stores of earlier versions used the words `recording` and `start` for whole numbers of their own.
        """
        return "end" in self.columns and np.asarray(self.columns.get("recording", "")).dtype.kind == "U"

    @cached_property
    def fps(self) -> npt.NDArray[np.float64]:
        """Frames per second of every clip; -1 if unknown."""
        return np.asarray(self.columns.get("fps", np.full(len(self), -1.0)), dtype=np.float64)

    @cached_property
    def starts(self) -> npt.NDArray[np.float64]:
        """Where each clip starts in its recording, in seconds (in frames if the frame rate is unknown)."""
        known = self.columns.get("start") if self.timed else None
        return np.zeros(len(self)) if known is None else np.maximum(known.astype(np.float64), 0)

    @cached_property
    def spans(self) -> Indices:
        """Frames of every clip from first to last, those that were left out included."""
        spans = np.array(self.lengths)
        for index, left_out in self.absent.items():
            spans[index] += sum(count for _, count in left_out)
        return spans

    @property
    def origin_joint(self) -> str:
        """The joint that all clips are centred on, at zero but not missing; empty if none."""
        return self.topology.centre if "centre" in self.normalisation else ""

    def split(self, name: str) -> tuple[Indices, Indices]:
        """Indices of the training and the test clips of a named split."""
        if not self.splits:
            raise InputError(
                f"store '{self.path}' has no splits, so no '{name}'; make some with `{split_command(self)}`"
            )
        return self.splits[check_choice(f"split of store '{self.path}'", name, self.splits)].indices(
            self.columns
        )

    def manifest(self) -> dict[str, Any]:
        """What was dropped and repaired when the store was made, with reasons; empty if nothing is known."""
        path = self.path / "manifest.json"
        manifest = read_json(path) if path.exists() else {}
        check_manifest(self.path, manifest)
        return manifest


@lru_cache(4)
def _reopened(path: str, fingerprint: str) -> Store:
    """The store in another process."""
    store = open_store(path)
    if store.hash != fingerprint:
        raise InputError(f"store '{path}' was changed in the meantime; run the command again")
    return store


def open_store(path: str | os.PathLike[str]) -> Store:
    """Open a store; frames stay on disk until they are used.

    The first time, and whenever its files changed, all of it is read once and compared with its fingerprint.

    Parameters
    ----------
    path : path
        The folder that `halp prepare` made.

    Returns
    -------
    Store
        Its clips, what is known of them, and its splits.

    Raises
    ------
    InputError
        If there is no store, or it is damaged.
    """
    path = fetched(path)
    if not path.exists():
        restore_moved_aside(path)
    if not path.exists():
        raise InputError(
            f"there is no store at '{path}'; make one with `halp prepare FORMAT SOURCE {quote(str(path))}`"
        )
    if (path / "collection.json").is_file() and not (path / "store.json").exists():
        return open_store(_store_of_collection(path))
    header = read_json(path / "store.json")
    if header.get("format") == LISTING:
        from halp.data.merge import open_listing

        return open_listing(path, header)
    if header.get("format") not in (FORMAT, JSON_FORMAT):
        raise InputError(
            f"store '{path}' has format {str(header.get('format'))[:40]}, this version of halp reads"
            f" {JSON_FORMAT} and {FORMAT}; prepare it again"
        )
    check_header(path, header)
    frames = map_frames(path)
    columns = read_index(path, len(frames))
    store = Store(path, header, columns, frames)
    check_seal(path, header)
    expected = (int(store.offsets[-1]), len(store.topology), store.topology.dimensions)
    if (frames.shape[0], *frames.shape[2:]) != expected:
        raise InputError(
            f"store '{path}' is damaged: its index states {expected[0]} frames with {expected[1]} joints, "
            f"frames.npy has shape {frames.shape}; prepare it again"
        )
    verify(path, store.hash, frames, store.lengths, store.names)
    return store


def _store_of_collection(path: Path) -> Path:
    """The store that a collection is of."""
    facts = read_json(path / "collection.json")
    if not facts.get("store"):
        raise InputError(
            f"collection '{path}' is of recordings, not of a store; make one with `halp prepare` from them"
        )
    return path / str(facts["source"])
