"""The listing of a folder of recordings, remembered as long as no file in it changes.

One pass over the folder compares name, size, inode, modification and change time of every file with those of the last
look. If all are equal and no file was younger than that look, the format, the layout and the keys of all items are
known, and items are listed only when one is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, overload

from halp._version import __version__
from halp.core.errors import InputError
from halp.core.files import cache_home, write_text
from halp.data.ingest.pipeline import Pipeline
from halp.data.ingest.shards import settled
from halp.data.readers import Info, Item, get_reader, with_options
from halp.data.reading import Reading
from halp.data.splits import rule_from_json
from halp.data.store_check import topology_from_json
from halp.data.windows import WindowSettings
from halp.features.content import RecordingFiles

Listing = Callable[[], tuple[Pipeline, list[Item]]]


class ListedWhenRead(Sequence[Item]):
    """Items of a source, listed on first access."""

    def __init__(
        self, count: int, listing: Listing, same: Callable[[Sequence[Item]], bool] = lambda items: True
    ) -> None:
        self._count, self._listing, self._same = count, listing, same
        self._items: list[Item] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Item]: ...
    def __getitem__(self, place: int | slice) -> Item | Sequence[Item]:
        if self._items is None:
            items = self._listing()[1]
            if len(items) != self._count or not self._same(items):
                raise InputError("the folder changed while it was read; run the command again")
            self._items = items
        return self._items[place]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self[:],)


def _places(root: Path, items: Sequence[Item]) -> str:
    """A fingerprint of which files the items are, in order."""
    names = "\n".join(f"{os.path.relpath(item.path, root)} {item.key}" for item in items)
    return hashlib.sha256(names.encode(errors="surrogateescape")).hexdigest()


def open_files(path: Path, reading: Reading, table: Path | None, listing: Listing) -> RecordingFiles:
    """The recordings of a path, from the remembered listing or listed now."""
    options = dict(reading.settings)
    look = None if reading.verify else _look(path, reading, table)
    known = None if look is None else look.known()
    if known is not None:
        with suppress(InputError, KeyError, TypeError, ValueError, AttributeError):
            return _as_known(path, reading, table, known, listing)
    pipeline, items = listing()
    files = RecordingFiles(path, pipeline, items, options, table, reading.verify)
    files.look = look
    return files


def _as_known(
    path: Path, reading: Reading, table: Path | None, known: Mapping[str, Any], listing: Listing
) -> RecordingFiles:
    options, info = dict(reading.settings), _info(known["info"])
    reader = with_options(get_reader(known["reader"]), options)
    steps, cutting = tuple(known["steps"]), WindowSettings(fps=reading.fps)
    pipeline = Pipeline(reader, info, info.topology, steps, cutting, path, known["by_folder"])
    places = known["places"]
    items = ListedWhenRead(len(known["keys"]), listing, lambda items: _places(path, items) == places)
    files = RecordingFiles(path, pipeline, items, options, table)
    files.__dict__["unread"] = [path / name for name in known["unread"]]
    files.known_keys = known["keys"], known["sizes"]
    return files


class Look:
    """The present state of a folder, and its content when it was last in that state."""

    def __init__(self, root: Path, file: Path, asked: str) -> None:
        self.root, self.file, self.asked, began = root, file, asked, time.time_ns()
        names: list[str] = []
        states: list[tuple[int, ...]] = []
        _note_states(str(root), "", names, states)
        text = repr((names, states)).encode(errors="surrogateescape")
        newest = max((max(state[2:]) for state in states), default=0)
        self.state, self.settled = hashlib.sha256(text).hexdigest(), settled(newest, began)

    def known(self) -> dict[str, Any] | None:
        """The remembered content; None if a file changed or nothing is cached."""
        with suppress(OSError, ValueError):
            told = json.loads(self.file.read_text(encoding="utf-8"))
            if isinstance(told, dict) and (told.get("asked"), told.get("state")) == (self.asked, self.state):
                return told
        return None

    def keep(self, files: RecordingFiles) -> None:
        """Remember the content, unless a file is so recent that a change could go unnoticed."""
        pipeline = files.pipeline
        plain = _plain(pipeline.info)
        theirs = not type(pipeline.reader).__module__.startswith("halp.")
        if not self.settled or theirs or pipeline.info.slow or repr(_info(plain)) != repr(pipeline.info):
            return
        keys, sizes = files.keys
        told = {
            "asked": self.asked,
            "state": self.state,
            "reader": pipeline.reader.name,
            "info": plain,
            "steps": pipeline.steps,
            "by_folder": pipeline.by_folder,
            "unread": [os.path.relpath(file, self.root) for file in files.unread],
            "keys": keys,
            "sizes": sizes,
            "places": _places(self.root, files.files),
        }
        with suppress(OSError, ValueError):
            write_text(self.file, json.dumps(told))


def _look(path: Path, reading: Reading, table: Path | None) -> Look | None:
    """The state of a folder; None if it does not determine what opening it gives."""
    home, options = cache_home(), reading.settings
    outside = any(os.path.exists(str(value)) for value in options.values())
    if home is None or not path.is_dir() or table is not None or outside:
        return None
    asked = json.dumps([__version__, reading.format, dict(options), reading.fps], default=str)
    name = hashlib.sha256(os.fsencode(os.path.realpath(path)) + asked.encode()).hexdigest()[:32]
    with suppress(OSError, _Link):
        return Look(path, home / "looks" / f"{name}.json", asked)
    return None


class _Link(Exception):
    """A link, whose state differs from that of its target."""


def _note_states(folder: str, below: str, names: list[str], states: list[tuple[int, ...]]) -> None:
    """Append places and states of all files that `walk` finds, in its order."""
    folders = []
    with os.scandir(folder) as listed:
        entries = sorted(listed, key=attrgetter("name"))
    for entry in entries:
        name = entry.name
        if entry.is_symlink():
            raise _Link(entry.path)
        if entry.is_dir(follow_symlinks=False):
            folders.append((entry.path, f"{below}{name}/"))
        elif name[0] != ".":
            found = entry.stat(follow_symlinks=False)
            names.append(below + name)
            states.append((found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns))
    for inner, place in folders:
        _note_states(inner, place, names, states)


def _plain(info: Info) -> dict[str, Any]:
    splits = {rule.name: rule.to_json() for rule in info.splits}
    plain = {**asdict(replace(info, splits=())), "splits": splits}
    return dict(json.loads(json.dumps(plain, default=str)))


def _info(plain: Mapping[str, Any]) -> Info:
    fields = {name: tuple(plain[name]) for name in ("class_names", "normalisation", "applied")}
    splits = tuple(rule_from_json(name, rule) for name, rule in plain["splits"].items())
    return Info(**{**plain, **fields, "splits": splits, "topology": topology_from_json(plain["topology"])})
