"""Writing stores, clip by clip with constant memory, and saving splits in them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from halp.core.errors import InputError
from halp.core.files import building, write_text
from halp.core.locks import locked_folder
from halp.core.urls import check_local
from halp.data.clip import Clip, Runs, unknown
from halp.data.splits import SplitRule, split_sizes
from halp.data.store import FORMAT, open_store
from halp.data.store_check import header_hash
from halp.data.store_index import write_index
from halp.data.text_files import check_unique_names
from halp.skeleton import Topology

_COLUMNS = ("label", "subject", "camera")


def check_free(path: Path, overwrite: bool) -> None:
    """Raise if the path of a new store is taken by something that must not be replaced."""
    check_local(path)
    is_store = (path / "store.json").exists()
    if path.exists() and not (overwrite and is_store):
        remedy = "replace the store with --overwrite" if is_store else "it is not a store, remove it yourself"
        raise InputError(f"'{path}' exists already; {remedy}, or choose another path for the store")


class StoreWriter:
    """Write a store clip by clip in constant memory; the folder appears once it is complete.

    Used as a context manager: leaving it normally finishes the store, leaving it by an exception removes what
    was written.

    Parameters
    ----------
    path : path
        The store to make.
    topology : Topology
        Joint layout of all clips.
    persons : int
        The most that a clip may have; fewer are filled up with zeros.
    class_names : sequence of str
        Names of the classes that labels count.
    splits : iterable of SplitRule
        Saved with the store.
    normalisation : sequence of str
        Steps that the clips have been through.
    origin : mapping
        How it was made, for the record.
    overwrite : bool
        Replace a store that is there already.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        topology: Topology,
        *,
        persons: int,
        class_names: Sequence[str] = (),
        splits: Iterable[SplitRule] = (),
        normalisation: Sequence[str] = (),
        origin: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> None:
        self.path, self._overwrite = Path(path), overwrite
        check_free(self.path, overwrite)
        self._topology, self._persons, self._splits = topology, persons, list(splits)
        self._header = {
            "format": FORMAT,
            "topology": asdict(topology),
            "class_names": list(class_names),
            "splits": {split.name: {**split.to_json(), "hash": split.hash} for split in self._splits},
            "normalisation": list(normalisation),
            "origin": dict(origin or {}),
        }
        self._columns: dict[str, list[Any]] = {"name": [], "length": [], **{name: [] for name in _COLUMNS}}
        self._absent: dict[str, Runs] = {}
        self._total = 0
        self._hash = hashlib.sha256()
        #: Written into the store as `manifest.json` if it is not empty.
        self.manifest: dict[str, Any] = {}
        self.class_names = list(class_names)

    def __enter__(self) -> StoreWriter:
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked_folder(self.path, f"store '{self.path}'"))
            check_free(self.path, self._overwrite)  # somebody else may have written it meanwhile
            try:
                self._partial = stack.enter_context(building(self.path, replace=self._overwrite))
                self._file = open(self._partial / "frames.npy", "wb")
                stack.callback(self._close)
                self._write_array_header()
            except OSError as error:
                raise InputError(
                    f"the store '{self.path}' cannot be written ({error}); choose another path"
                ) from error
            self._held = stack.pop_all()
        return self

    def _close(self) -> None:
        # Closing flushes once more and fails again on a full disk; the first error has said all there is to
        # say.
        with contextlib.suppress(OSError):
            self._file.close()

    def _write_array_header(self) -> None:
        # NumPy leaves room for the first axis to grow, so the header keeps its length when it is rewritten at
        # the end.
        shape = (self._total, self._persons, len(self._topology), self._topology.dimensions)
        np.lib.format.write_array_header_1_0(
            self._file, {"descr": "<f4", "fortran_order": False, "shape": shape}
        )

    def add(self, clip: Clip) -> None:
        """Append one clip; missing persons are filled with zeros."""
        length, persons, joints, dimensions = clip.shape
        expected = (len(self._topology), self._topology.dimensions)
        if (joints, dimensions) != expected or persons > self._persons:
            raise InputError(
                f"clip '{clip.name}' has {persons} persons, {joints} joints and {dimensions} coordinates; the"
                f" store takes at most {self._persons} persons with the {expected[0]} joints and"
                f" {expected[1]} coordinates of '{self._topology.name}'"
            )
        frames = np.zeros((length, self._persons, joints, dimensions), dtype="<f4")
        frames[:, :persons] = clip.frames
        data = frames.tobytes()
        try:
            self._file.write(data)
        except OSError as error:
            raise InputError(
                f"the store '{self.path}' cannot be written ({error}); nothing was left behind"
            ) from error
        self._hash.update(data)
        self._total += length
        if clip.absent:
            self._absent[str(len(self._columns["name"]))] = clip.absent
        row = {name: getattr(clip, name) for name in ("name", *_COLUMNS)} | {"length": length}
        for column, value in clip.extra.items():
            self._columns.setdefault(column, [unknown(value)] * len(self._columns["name"]))
        row = {**clip.extra, **row}
        for column, values in self._columns.items():
            values.append(row[column] if column in row else unknown(values[0]))

    def leave_out_empty_classes(self) -> None:
        """Drop class names that no clip so far has, and renumber the others."""
        used = sorted({label for label in self._columns["label"] if label >= 0})
        position = {label: number for number, label in enumerate(used)}
        self._columns["label"] = [position.get(label, -1) for label in self._columns["label"]]
        self.class_names = [self.class_names[label] for label in used]
        self._header["class_names"] = self.class_names

    def split_sizes(self) -> dict[str, dict[str, int] | None]:
        """How many of the clips so far each split trains and tests on; None if a part is empty."""
        return split_sizes(self._splits, {name: np.asarray(values) for name, values in self._columns.items()})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._held.__exit__(kind, error, trace)
            return
        try:
            with self._held:
                self._finish()
        except OSError as problem:
            raise InputError(f"the store '{self.path}' could not be written ({problem})") from problem

    def _finish(self) -> None:
        names = self._columns["name"]
        if not names:
            raise InputError(f"no clip was left for the store '{self.path}'; nothing was written")
        check_unique_names(names, self.path)
        self._file.seek(0)
        self._write_array_header()
        self._file.flush()
        self._hash.update(write_index(self._partial, self._columns))
        self._header["hash"] = self._hash.hexdigest()
        if self.manifest:
            text = json.dumps(self.manifest, indent=1, ensure_ascii=False)
            (self._partial / "manifest.json").write_text(text, encoding="utf-8")
        if self._absent:
            self._header["absent"] = self._absent
        self._header["header_hash"] = header_hash(self._header)
        (self._partial / "store.json").write_text(json.dumps(self._header, indent=1), encoding="utf-8")


def add_split(path: str | os.PathLike[str], split: SplitRule, *, replace: bool = False) -> None:
    """Save a rule in a store under its name, atomically; both parts must have clips."""
    open_store(path)  # a lock is not made beside what is not a store
    with locked_folder(Path(os.path.realpath(path)), f"store '{path}'", wait=10):
        store = open_store(path)
        if split.name in store.splits and store.splits[split.name] != split and not replace:
            remedy = "give yours another name, or replace it"
            raise InputError(f"store '{path}' has another split '{split.name}'; {remedy}")
        split.indices(store.columns)
        splits = {**store.header["splits"], split.name: {**split.to_json(), "hash": split.hash}}
        header = {**store.header, "splits": splits}
        header["header_hash"] = header_hash(header)
        try:
            write_text(store.path / "store.json", json.dumps(header, indent=1))
        except OSError as error:
            raise InputError(f"split '{split.name}' cannot be saved in '{path}' ({error})") from error
