"""Labels, subjects, cameras and other columns from outside the pose files: a table, or a path pattern."""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from halp.core.errors import InputError, names_of
from halp.data.clip import Clip
from halp.data.source_files import excluding_files, walk
from halp.data.store import open_store
from halp.data.text_files import LONGEST_NAME, problem, shown
from halp.data.text_tables import Table, read_plain_table

COLUMNS = ("recording", "start", "stop", "label")
LEAST = 0.5  # share of a clip that an event has to cover
_SLACK = 1e-3


class Tags(ABC):
    """Cells of text for clips, by column name, from a table or a pattern (`origin`).

    `values` are all values of every column, so that they are known beforehand.
    """

    origin: Path | str
    values: Mapping[str, set[str]]

    @abstractmethod
    def find(self, clip: Clip) -> Mapping[str, str] | None:
        """The row of a clip, or None."""

    def notes(self) -> list[str]:
        """Remarks on rows after all clips were looked up."""
        return []


@dataclass
class EventTags(Tags):
    """Events of people by recording; those that a model found are no labels."""

    origin: Path
    events: Mapping[str, list[tuple[float, float, dict[str, str]]]]
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        cells = [cells for events in self.events.values() for *_, cells in events]
        self.values = {column: {row[column] for row in cells} for column in ("label", "subject")}

    def find(self, clip: Clip) -> Mapping[str, str] | None:
        name = next(
            (key for key in (clip.recording, clip.name, clip.source) if key and key in self.events), None
        )
        if name is None:
            return None
        self.used.add(name)
        stop = clip.start + len(clip.frames) / (clip.fps if clip.fps > 0 else 1.0)
        shared = [min(stop, until) - max(clip.start, start) for start, until, _ in self.events[name]]
        best = len(shared) - 1 - int(np.argmax(shared[::-1]))  # of equals the later row
        covered = shared[best] >= LEAST * (stop - clip.start) - _SLACK
        return self.events[name][best][2] if covered else None

    def notes(self) -> list[str]:
        lost = [name for name in self.events if name not in self.used]
        note = (
            f"{len(lost)} of {len(self.events)} recordings of '{self.origin}' were not found, the first is "
        )
        return [f"{note}'{lost[0]}'"] if lost else []


def event_tags(table: Table) -> EventTags:
    """Events of a table, with the columns subject and source if it has them."""
    events: dict[str, list[tuple[float, float, dict[str, str]]]] = {}
    starts, stops = table.numbers("start"), table.numbers("stop")
    sources = table.columns.get("source", ("human",) * len(table))
    subjects = table.columns.get("subject", ("",) * len(table))
    for row, (name, label) in enumerate(zip(table.columns["recording"], table.columns["label"])):
        if sources[row] == "model" or not label:
            continue
        start, stop = float(starts[row]), float(stops[row])
        if not (math.isfinite(start) and stop > start):
            fault = "an event has to stop after it starts"
            raise problem(table.path, table.where(row, "stop"), fault, "correct the times")
        events.setdefault(name, []).append((start, stop, {"label": label, "subject": subjects[row]}))
    return EventTags(table.path, events)


Cells = Mapping[str, str]
_KEYS = ("name", "clip", "path", "file", "filename", "recording")
_WORDS = {
    **dict.fromkeys(("class", "action", "activity"), "label"),
    **dict.fromkeys(("participant", "person", "performer"), "subject"),
    "view": "camera",
}
_OWN = ("name", "length", "recording", "start", "end", "fps")
_FIELD = re.compile(r"\{([^{}]*)\}|(\*\*/)|(\*)|(\?)")
# How tables are written where a value is missing; `Nan` may be a person.
_NOTHING = ("", "nan", "NaN", "NAN")
# What is taken off a name in a table where the files themselves are not at hand.
_ENDINGS = tuple(
    ".bvh .c3d .csv .h5 .hdf5 .json .jsonl .mat .mvnx .nc .ndjson .npy .npz .pickle .pkl .skeleton .trc .tsv"
    " .txt".split()
)
_NAMED = 3


@dataclass
class TableTags(Tags):
    """Rows of a table by name or path of a clip, with or without extension; bare names if unique.

    `bare` counts how many recordings of the source have a bare name.
    """

    origin: Path
    keys: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, int]
    bare: Mapping[str, int]
    used: set[int] = field(default_factory=set)
    ambiguous: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {column: set(cells) for column, cells in self.columns.items()}

    def find(self, clip: Clip) -> Cells | None:
        name, path = same_text(clip.recording or clip.name), same_text(clip.source)
        stem = PurePosixPath(path).with_suffix("").as_posix() if path else name
        # A file with one clip is meant by its path and by its name alike; a clip among several goes before
        # its file.
        levels = [{name, path, stem}] if stem == name else [{name}, {path, stem}]
        if clip.recording:
            levels.insert(0, {same_text(clip.name)})
        for level in levels:
            if rows := sorted({self.rows[key] for key in level if key in self.rows}):
                return self._row(clip, rows)
        keys = {key.rpartition("/")[2] for key in (name, path, stem)}
        rows = sorted({self.rows[key] for key in keys if key in self.rows and self._unique(key)})
        return self._row(clip, rows) if rows else None

    def _unique(self, key: str) -> bool:
        count = self.bare.get(key, 0)
        if count > 1:
            self.ambiguous[self.rows[key]] = count
        return count == 1

    def _row(self, clip: Clip, rows: Sequence[int]) -> Cells:
        first, *others = ({column: cells[row] for column, cells in self.columns.items()} for row in rows)
        if any(other != first for other in others):
            said = " and ".join(f"'{self.keys[row]}'" for row in rows)
            raise problem(
                self.origin, "", f"rows {said} contradict each other about clip '{clip.name}'", "keep one"
            )
        self.used.update(rows)
        return first

    def notes(self) -> list[str]:
        """Rows that fit several recordings or none, the first few by their names."""
        unclear = {row: count for row, count in self.ambiguous.items() if row not in self.used}
        lost = [row for row in range(len(self.keys)) if row not in self.used and row not in unclear]
        notes = []
        if unclear:
            shown = names_of([f"'{self.keys[row]}' ({count})" for row, count in unclear.items()], _NAMED)
            note = f"{len(unclear)} rows of '{self.origin}' fit several recordings and label none: {shown}"
            notes.append(f"{note}; write paths below the source")
        if lost:
            shown = names_of([f"'{self.keys[row]}'" for row in lost], _NAMED)
            notes.append(f"{len(lost)} of {len(self.keys)} rows of '{self.origin}' fit no clip: {shown}")
        return notes


@dataclass
class PathTags(Tags):
    """Parts of the path below the source, named by a pattern such as `{subject}/{label}/*.bvh`."""

    origin: str
    expression: re.Pattern[str]
    values: Mapping[str, set[str]]

    def find(self, clip: Clip) -> Cells | None:
        matches = map(self.expression.fullmatch, (clip.source, clip.recording or clip.name))
        return next((match.groupdict() for match in matches if match), None)


def same_text(text: str) -> str:
    """Text with one spelling for characters that have several (macOS stores `é` as two)."""
    return unicodedata.normalize("NFC", text)


def table_tags(path: Path, source: Path) -> TableTags | EventTags:
    """Read a table with a column `name` or `path` and others such as `label` or `subject`, or one of events.

    `source` is the store, file or folder whose clips the rows are about; it tells which bare names are
    unique.
    """
    if not path.is_file():
        remedy = "give a CSV file with the columns name (or path), label, subject, …"
        raise InputError(f"there is no table '{path}'; {remedy}")
    table = read_plain_table(path)
    # rows are stretches of recordings rather than clips
    if all(column in table.columns for column in COLUMNS):
        return event_tags(table)
    key = next((column for column in _KEYS if column in table.columns), None)
    if key is None:
        fault = f"none of the columns {', '.join(table.columns)} names a clip"
        raise problem(path, "line 1", fault, f"call one of them {' or '.join(_KEYS[:4])}")
    columns = _renamed([column for column in table.columns if column != key], path)
    for row, given in itertools.product(range(len(table)), columns):
        cell = table.columns[given][row]
        if len(cell) > LONGEST_NAME or not cell.isprintable():
            fault = f"{shown(cell)} has {len(cell)} characters or one that cannot be printed"
            raise problem(path, table.where(row, given), fault, f"use at most {LONGEST_NAME}")
    store = (source / "store.json").is_file()
    rows: dict[str, int] = {}
    for row, cell in enumerate(table.columns[key]):
        name = same_text(cell.replace("\\", "/").removeprefix("./"))
        # Clips of a store have lost the endings of their files.
        name = name.rpartition(".")[0] if store and name.lower().endswith(_ENDINGS) else name
        if name in rows:
            raise problem(path, table.where(row, key), f"'{cell}' occurs twice", "keep one row per clip")
        rows[name] = row
    cells = {
        name: tuple("" if c in _NOTHING else c for c in table.columns[given])
        for given, name in columns.items()
    }
    with excluding_files(path):
        return TableTags(path, table.columns[key], cells, rows, _bare_names(source, store))


def _bare_names(source: Path, store: bool) -> Counter[str]:
    """How many recordings share a name without folders: files with and without extension, and folders."""
    if store:
        opened = open_store(source)
        recordings = opened.columns["recording"] if opened.timed else opened.names
        return Counter(str(name).rpartition("/")[2] for name in set(map(same_text, recordings.tolist())))
    counts: Counter[str] = Counter()
    folders: set[str] = set()
    root = source if source.is_dir() else source.parent
    for file in walk(source):
        counts.update({same_text(file.name), same_text(file.stem)})
        folders |= {same_text(folder.as_posix()) for folder in file.relative_to(root).parents}
    # A file called after its folder is the same recording.
    return counts | Counter(folder.rpartition("/")[2] for folder in folders)


def path_tags(pattern: str, source: Path) -> PathTags:
    """The pattern and its matches below the source; it must match at least one file."""
    fields = [field for field, *_ in _FIELD.findall(pattern) if field]
    if not fields or not all(field.isidentifier() for field in fields) or len(set(fields)) != len(fields):
        raise InputError(
            f"the path pattern '{pattern}' names no column, or one twice; write it like"
            " '{subject}/{label}/*.bvh'"
        )
    columns = _renamed(fields, Path(pattern))
    position, parts = 0, []
    for placeholder in _FIELD.finditer(pattern):
        parts.append(re.escape(pattern[position : placeholder.start()]))
        field, folders, star, _ = placeholder.groups()
        named = f"(?P<{columns[field]}>[^/]+?)" if field else ""
        parts.append(named or ("(?:[^/]+/)*" if folders else "[^/]*" if star else "[^/]"))
        position = placeholder.end()
    expression = re.compile("".join([*parts, re.escape(pattern[position:])]))
    root = source if source.is_dir() else source.parent
    files = [file.relative_to(root).as_posix() for file in walk(source)]
    values: dict[str, set[str]] = {}
    for file in files:
        if match := expression.fullmatch(file):
            for column, cell in match.groupdict().items():
                values.setdefault(column, set()).add(cell)
    if not values:
        example = f"; the first file is '{files[0]}'" if files else ""
        raise InputError(f"the path pattern '{pattern}' fits no file below '{source}'{example}; correct it")
    return PathTags(pattern, expression, values)


def _renamed(columns: Iterable[str], path: Path) -> dict[str, str]:
    """Columns under halp's names: `class` is a label, `participant` a subject, `view` a camera."""
    renamed = {column: _WORDS.get(column.lower(), column.lower()) for column in columns}
    for column, name in renamed.items():
        if name in _OWN or not name:
            raise problem(
                path, "", f"column '{column}' is one that halp fills itself", "rename it or leave it out"
            )
    if len(set(renamed.values())) != len(renamed):
        raise problem(path, "", "two columns mean the same", f"keep one of {', '.join(renamed)}")
    return renamed
