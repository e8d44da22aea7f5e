"""Shards of a source: each computed and cached separately, in any process, then joined as one table.

Kept shards serve whatever of their items is still there; new and changed files make new shards. A vector is a
function of its clip alone (see `halp.features.encode.encode_crops`), so how items fall into shards changes
nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import trim_heap, write_text
from halp.core.job_parts import PartDone, check_all_there
from halp.core.progress import Bar
from halp.data.clip import Dropped
from halp.data.ingest.shards import FILES, cut_shards
from halp.engine import Engine, Failure, run_shards
from halp.features.cache import CachedVectors, FeatureCache, open_entry
from halp.features.content import ROW, RecordingFiles, SourceIndex, StoredClips
from halp.features.source import Source, edges
from halp.features.table import ShardRows, join_vectors

CLIPS = 2048  # of a store in a shard
FEW = 4  # shards; fewer are computed in this process
_KEY = re.compile("[0-9a-f]{32}")
Blocks = Callable[[Source, bool], Iterable[npt.NDArray[np.float32]]]


@dataclass(frozen=True)
class Part:
    """A shard of a source: its key, the source's numbers of its items (−1: removed), its cached part."""

    key: str
    numbers: npt.NDArray[np.int64]
    items: list[str]
    entry: CachedVectors | None = None


@dataclass(frozen=True)
class Task:
    """Input of a worker for one shard. `blocks` yields the vectors of a source block by block."""

    source: Source
    items: list[str]
    folder: str
    key: str
    width: int
    blocks: Blocks
    progress: bool = False

    def __call__(self) -> None:
        """Compute and cache the shard, unless it is cached."""
        FeatureCache(self.folder).keep(self.key, self.width, self._blocks, self._facts)
        self.source.recorded = None  # cached now
        if isinstance(self.source.content, StoredClips):
            self.source.content.store.release()
        trim_heap()

    def _blocks(self) -> Iterator[npt.NDArray[np.float32]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield from self.blocks(self.source, self.progress)
        self.source.notes = list(dict.fromkeys(str(warning.message) for warning in caught))

    def _facts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        known = self.source.known
        self._refuse_unreadable()
        if isinstance(self.source.content, RecordingFiles):
            self.source.content.check_unchanged()
        facts = {
            "items": self.items,
            "recordings": known.recordings,
            "clips": known.clips,
            "absent": known.absent,
            "left_out": [(item, drop.name, drop.reason, drop.expected) for item, drop in known.left_out],
            "class_names": list(self.source.content.class_names),
            "notes": self.source.notes,
        }
        return {"rows": known.rows, "met": known.met}, facts

    def _refuse_unreadable(self) -> None:
        """Raise if a worker cannot read a file although its key was computed: the path, not the file, is at
        fault.
        """
        content = self.source.content
        for item, _ in content.left_out:
            if isinstance(content, RecordingFiles) and not os.access(content.files[item].path, os.R_OK):
                path = content.files[item].path
                raise InputError(f"'{path}' cannot be read by a worker, which needs the same files and paths")


def compute(task: Task) -> None:
    """The function that workers run."""
    task()


def embed_shards(
    source: Source,
    home: Path,
    series: str,
    width: int,
    blocks: Blocks,
    *,
    progress: bool = True,
    alone: bool = False,
) -> tuple[Any, Path] | None:
    """Vectors of a whole source and the folder of its table; None if nothing can be kept.

    The source learns its rows, and tells what a user should know.

    Parameters
    ----------
    home, series
        The cache folder, and the key of everything that vectors depend on but the content of recordings.
    width, blocks
        Numbers of a vector, and what gives the vectors of a source.
    alone
        Do not use other processes.
    """
    folder = (home / series).absolute()
    if not _writable(folder):
        return None
    parts = _find_parts(source, folder, width)
    check_all_there([place for place, part in enumerate(parts) if part.entry is None], len(parts))
    engine = Engine(1, part=source.engine.part) if alone or not source.content.portable else source.engine
    mine = [part for part in engine.mine(parts) if part.entry is None]
    slow = isinstance(source.content, RecordingFiles) and source.content.pipeline.info.slow
    few = 2 if slow else FEW
    here, single = engine.alone(len(mine), few), progress and len(mine) == 1
    tasks = [
        Task(
            source.part(_content(source, part, here)),
            part.items,
            str(folder),
            part.key,
            width,
            blocks,
            single,
        )
        for part in mine
    ]
    dead: dict[str, Failure] = {}
    title, items = "reading" if width == 0 else "embedding", sum(len(part.items) for part in mine)
    with nullcontext() if len(mine) == 1 else Bar(title, items, shown=progress) as bar:
        for place, result in run_shards(compute, tasks, engine, few=few):
            if isinstance(result, Failure):
                if result.error is not None:
                    raise result.error
                dead[mine[place].key] = result
            if here and isinstance(source.content, RecordingFiles):
                source.content.adopt(mine[place].numbers.tolist(), tasks[place].source.content)
            if bar is not None:
                bar.advance(len(mine[place].items))
    parts = [part if part.entry is not None else _opened(part, folder, width) for part in parts]
    missing = [part for part in parts if part.entry is None and part.key not in dead]
    if engine.part is not None and not {part.key for part in missing} & {part.key for part in mine}:
        raise PartDone(engine.part, len(parts) - len(missing), len(parts))
    if missing:
        return None
    _keep_plan(source, folder, [part.key for part in parts if part.entry is not None])
    source.shards = parts
    home = _plan_file(source, folder, "index")
    return join_parts(source, parts, dead, home), folder / _table_name(parts)


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        warnings.warn(f"features cannot be cached in '{folder.parent}' ({error})", stacklevel=4)
        return False
    return True


def _table_name(parts: Sequence[Part]) -> str:
    """The name of a folder for data derived from a table: equal for equal items."""
    keys = [key for part in parts for key in part.items]
    numbers = np.concatenate([part.numbers for part in parts]) if parts else np.zeros(0, dtype=np.int64)
    there = _in_order(keys, numbers)
    return "table-" + hashlib.sha256("\n".join(there).encode()).hexdigest()[:16]


def _in_order(things: list[Any], numbers: npt.NDArray[np.int64]) -> list[Any]:
    """Items by their numbers, without those whose number is negative."""
    if _ascending(numbers) and (numbers >= 0).all():
        return things
    order = np.argsort(numbers, kind="stable")
    return [things[place] for place in order[numbers[order] >= 0].tolist()]


def _content(source: Source, part: Part, here: bool) -> Any:
    """The recordings of a shard, with data already read if they are read in this process."""
    content = source.content
    if isinstance(content, RecordingFiles):
        return content.part(part.numbers.tolist(), keep=here)
    return StoredClips(content.store, content.rate, int(part.numbers[0]), int(part.numbers[-1]) + 1)  # type: ignore[attr-defined]


def _find_parts(source: Source, folder: Path, width: int) -> list[Part]:
    """Shards that hold the items of a source: kept ones first, then those that are to be computed."""
    content = source.content
    if isinstance(content, StoredClips):
        return [_opened(part, folder, width) for part in _store_parts(content)]
    if not isinstance(content, RecordingFiles):
        raise TypeError(f"{type(content).__name__} has no shards")
    keys, sizes = content.keys
    wanted = {key: place for place, key in enumerate(keys)}
    parts = []
    for key in _plan(source, folder):
        entry = open_entry(folder / key, width, verify=content.verify)
        if entry is not None:
            items = [str(item) for item in entry.facts["items"]]
            numbers = np.array([wanted.get(item, -1) for item in items], dtype=np.int64)
            if _serves(entry, numbers):
                parts.append(Part(key, numbers, items, entry))
                for item in items:
                    wanted.pop(item, None)
    most = 1 if content.pipeline.info.slow else FILES
    for shard in cut_shards(keys, sizes, sorted(wanted.values()), most):
        part = Part(shard.key, np.array(shard.items), [keys[place] for place in shard.items])
        parts.append(_opened(part, folder, width, verify=content.verify))
    return parts


def kept_entries(source: Source, folder: Path, width: int) -> list[CachedVectors]:
    """The cached part of a source while its shards are being computed."""
    parts = _find_parts(source, folder, width) if folder.is_dir() else []
    return [part.entry for part in parts if part.entry is not None]


def item_places(content: Any) -> dict[str, int]:
    """Places of items in a source by their keys."""
    if isinstance(content, StoredClips):
        parts = _store_parts(content)
        return {item: number for part in parts for item, number in zip(part.items, part.numbers.tolist())}
    return {key: place for place, key in enumerate(content.keys[0])}


def _store_parts(content: StoredClips) -> list[Part]:
    parts = []
    for name, store, first in content.store.parts:
        for begin in range(0, len(store), CLIPS):
            end = min(begin + CLIPS, len(store))
            key = hashlib.sha256(f"{name} {begin} {end}".encode()).hexdigest()[:32]
            numbers = np.arange(first + begin, first + end)
            parts.append(Part(key, numbers, [f"{key}-{number}" for number in range(len(numbers))]))
    return parts


def _opened(part: Part, folder: Path, width: int, *, verify: bool = False) -> Part:
    """A shard with its cached data."""
    return replace(part, entry=open_entry(folder / part.key, width, verify=verify))


def _plan_file(source: Source, folder: Path, kind: str = "plan.json") -> Path:
    name = hashlib.sha256(os.path.realpath(source.name).encode()).hexdigest()[:16]
    return folder / f"{name}-{kind}"


def _plan(source: Source, folder: Path) -> list[str]:
    """Keys of the shards that served this source the last time."""
    with suppress(OSError, ValueError, TypeError):
        return [
            key
            for key in json.loads(_plan_file(source, folder).read_text(encoding="utf-8"))
            if _KEY.fullmatch(key)
        ]
    return []


def _keep_plan(source: Source, folder: Path, keys: list[str]) -> None:
    if isinstance(source.content, RecordingFiles) and keys != _plan(source, folder):
        with suppress(OSError):
            write_text(_plan_file(source, folder), json.dumps(keys))


def _serves(entry: CachedVectors, numbers: npt.NDArray[np.int64]) -> bool:
    """Whether a cached shard can serve the remaining items: no recording continues in a removed one."""
    if (numbers >= 0).all():
        return True
    rows = entry.arrays["rows"]
    there = numbers[rows["item"]] >= 0
    return (
        bool((numbers >= 0).any())
        and not np.intersect1d(rows["recording"][there], rows["recording"][~there]).size
    )


def join_parts(source: Source, parts: Sequence[Part], dead: dict[str, Failure], home: Path) -> Any:
    """The vectors of all shards as one; the source learns the rows of all, in the order of its items.

    `home` is a folder for what is derived from the vectors and kept as shards come and go.
    """
    files = source.content
    left_out: list[tuple[int, Dropped]] = []
    pieces: list[_Piece] = []
    for part in parts:
        if part.entry is not None:
            pieces.append(_Piece(part.key, part.entry, part.numbers, files.class_names))
        else:
            for number in part.numbers.tolist():
                name = (
                    files.files[number].path.name if isinstance(files, RecordingFiles) else f"clip {number}"
                )
                left_out.append((number, Dropped(name, dead[part.key].reason)))
    places: dict[str, int] = {}
    names = list(chain.from_iterable(piece.recordings for piece in pieces))
    items = np.concatenate([np.zeros(0, dtype=np.int64), *(piece.met for piece in pieces)])
    there = np.flatnonzero(items >= 0)
    heads = there if _ascending(items[there]) else there[np.argsort(items[there], kind="stable")]
    numbered = np.full(len(names), -1)
    numbered[heads] = [places.setdefault(names[head], len(places)) for head in heads.tolist()]
    maps = np.split(numbered, np.cumsum([len(piece.met) for piece in pieces])[:-1])
    for piece, numbers in zip(pieces, maps):
        piece.rows["recording"] = numbers[piece.rows["recording"]]
    rows = np.concatenate([np.zeros(0, dtype=ROW), *(piece.rows for piece in pieces)])
    order = None if _ascending(rows["item"]) else np.argsort(rows["item"], kind="stable")
    rows = rows if order is None else rows[order]
    clips = list(chain.from_iterable(piece.clips for piece in pieces))
    owners = np.concatenate([np.zeros(0, dtype=np.int64), *(piece.owners for piece in pieces)])
    absent = [
        (int(numbers[place]), float(start), float(stop))
        for piece, numbers in zip(pieces, maps)
        for place, start, stop in piece.absent
        if numbers[place] >= 0
    ]
    left_out += [drop for piece in pieces for drop in piece.left_out]
    notes = [note for piece in pieces for note in piece.notes]
    met = np.zeros(len(places), dtype=np.int64)
    source.learn(
        SourceIndex(
            rows,
            list(places),
            _in_order(clips, owners),
            absent,
            met,
            sorted(left_out, key=itemgetter(0)),
            notes,
        )
    )
    vectors = [piece.vectors for piece in pieces] or [np.zeros((0, 1), dtype=np.float32)]
    return join_vectors(vectors, order, [piece.shard for piece in pieces], home)


def _ascending(values: Any) -> bool:
    return bool((np.diff(np.asarray(values, dtype=np.int64)) >= 0).all())


class _Piece:
    """Cached data of a shard, with the source's numbers of its items, without removed ones."""

    def __init__(
        self, key: str, entry: CachedVectors, numbers: npt.NDArray[np.int64], class_names: Sequence[str]
    ) -> None:
        facts, rows = entry.facts, entry.arrays["rows"].astype(ROW)
        begins = np.concatenate([[0], edges(rows)])[: len(rows)]
        rows["item"] = numbers[rows["item"]]
        self.clips, self.owners = facts["clips"], rows["item"][begins]
        self.recordings, self.absent = [str(name) for name in facts["recordings"]], facts["absent"]
        self.met = numbers[entry.arrays["met"]] if len(self.recordings) else entry.arrays["met"]
        self.left_out = [
            (int(numbers[item]), Dropped(str(name), str(reason), bool(expected)))
            for item, name, reason, expected in facts["left_out"]
            if numbers[item] >= 0
        ]
        self.notes = [str(note) for note in facts["notes"]]
        if tuple(facts["class_names"]) != tuple(class_names):
            place = {name: number for number, name in enumerate(class_names)}
            new = np.array([*(place.get(name, -1) for name in facts["class_names"]), -1])
            rows["label"] = new[rows["label"]]
        there = rows["item"] >= 0
        self.shard = ShardRows(key, np.flatnonzero(there), len(rows))
        self.rows, self.vectors = (
            (rows, entry.vectors) if there.all() else (rows[there], entry.vectors[there])
        )
