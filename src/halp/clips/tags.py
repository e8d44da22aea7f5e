"""Labels, subjects, cameras and further columns of clips from outside the pose files: a table, or a pattern of their paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from halp.clips.clip import Clip, Value
from halp.clips.source_files import walk
from halp.clips.text_files import problem, read_table
from halp.errors import InputError

Cells = Mapping[str, str]
_KEYS = ("name", "clip", "path", "file", "filename", "recording")
_WORDS = {
    **dict.fromkeys(("class", "action", "activity"), "label"),
    **dict.fromkeys(("participant", "person", "performer"), "subject"),
    "view": "camera",
}
_OWN = ("name", "length", "recording", "start", "end", "fps")
_FIELD = re.compile(r"\{([^{}]*)\}|(\*\*/)|(\*)|(\?)")


class Tags(Protocol):
    """Cells of text for clips, by column name."""

    @property
    def rows(self) -> Sequence[Cells]:
        """All rows there are, so that the values of a column are known beforehand."""
        ...

    def find(self, clip: Clip) -> Cells | None:
        """The row of a clip, or None."""
        ...


@dataclass(frozen=True)
class TableTags:
    """Rows of a table by the name or path of a clip, with or without ending; a bare file name fits where it is unique."""

    path: Path
    by_key: Mapping[str, Cells]

    @property
    def rows(self) -> Sequence[Cells]:
        return list(self.by_key.values())

    def find(self, clip: Clip) -> Cells | None:
        name = clip.recording or clip.name
        for key in (clip.source, _stem(clip.source), clip.name, name, PurePosixPath(clip.source).name):
            if key in self.by_key:
                return self.by_key[key]
        return self.by_key.get(PurePosixPath(_stem(clip.source)).name, self.by_key.get(PurePosixPath(name).name))


@dataclass(frozen=True)
class PathTags:
    """Parts of the path below the source, named by a pattern such as `{subject}/{label}/*.bvh`."""

    pattern: str
    expression: re.Pattern[str]
    rows: Sequence[Cells]

    def find(self, clip: Clip) -> Cells | None:
        for text in (clip.source, clip.recording or clip.name):
            if match := self.expression.fullmatch(text):
                return match.groupdict()
        return None


def table_tags(path: Path) -> TableTags:
    """Read a table with a column `name` or `path` and further ones such as `label`, `subject` or `camera`."""
    if not path.is_file():
        raise InputError(
            f"there is no table '{path}'; give a CSV file with the columns name (or path), label, subject, …"
        )
    table = read_table(path)
    key = next((column for column in _KEYS if column in table.columns), None)
    if key is None:
        what = f"none of the columns {', '.join(table.columns)} names a clip"
        raise problem(path, "line 1", what, f"call one of them {' or '.join(_KEYS[:4])}")
    columns = _renamed([column for column in table.columns if column != key], path)
    by_key: dict[str, Cells] = {}
    for row, cell in enumerate(table.columns[key]):
        name = PurePosixPath(cell.replace("\\", "/")).as_posix().removeprefix("./")
        if name in by_key:
            raise problem(path, table.where(row, key), f"'{cell}' comes twice", "keep one row per clip")
        by_key[name] = {column: table.columns[given][row] for given, column in columns.items()}
    # The same rows without endings, so that either spelling fits; what is written out goes first.
    for name, cells in list(by_key.items()):
        by_key.setdefault(_stem(name), cells)
    return TableTags(path, by_key)


def path_tags(pattern: str, source: Path) -> PathTags:
    """The pattern and what it finds below the source; it has to fit at least one file."""
    fields = [field for field, *_ in _FIELD.findall(pattern) if field]
    if not fields or not all(field.isidentifier() for field in fields) or len(set(fields)) != len(fields):
        raise InputError(
            f"the path pattern '{pattern}' names no column, or one twice; write it like '{{subject}}/{{label}}/*.bvh'"
        )
    columns = _renamed(fields, Path(pattern))
    position, parts = 0, []
    for found in _FIELD.finditer(pattern):
        parts.append(re.escape(pattern[position : found.start()]))
        field, folders, star, _ = found.groups()
        named = f"(?P<{columns[field]}>[^/]+?)" if field else ""
        parts.append(named or ("(?:[^/]+/)*" if folders else "[^/]*" if star else "[^/]"))
        position = found.end()
    expression = re.compile("".join([*parts, re.escape(pattern[position:])]))
    root = source if source.is_dir() else source.parent
    files = [file.relative_to(root).as_posix() for file in walk(source)]
    rows = [match.groupdict() for file in files if (match := expression.fullmatch(file))]
    if not rows:
        example = f"; the first file is '{files[0]}'" if files else ""
        raise InputError(f"the path pattern '{pattern}' fits no file below '{source}'{example}; correct the pattern")
    return PathTags(pattern, expression, rows)


class Tagger:
    """Gives clips the values that tables and patterns have for them; later sources go before earlier ones."""

    def __init__(self, sources: Sequence[Tags]) -> None:
        self.sources = sources
        cells: dict[str, set[str]] = {}
        for row in (row for source in sources for row in source.rows):
            for column, cell in row.items():
                cells.setdefault(column, set()).add(cell)
        self.columns = {column: _ordered(values - {""}) for column, values in cells.items()}
        self.missed: list[str] = []
        self.found = 0

    @property
    def class_names(self) -> list[str] | None:
        """Names of the classes, or None where no table and no pattern has labels."""
        return self.columns.get("label")

    def tag(self, clip: Clip) -> Clip:
        """The clip with what is known about it; where labels are given here, a reader's own do not count."""
        rows = [row for source in self.sources if (row := source.find(clip)) is not None]
        cells = {column: cell for row in rows for column, cell in row.items() if cell}
        self.found += bool(rows)
        if not rows:
            self.missed.append(clip.name)
        extra = dict(clip.extra)
        for column, known in self.columns.items():
            if column not in ("label", "subject", "camera"):
                extra[column] = _value(cells.get(column, ""), known)
            elif column != "label" and not _whole(known):
                extra[f"{column}_name"] = cells.get(column, "")
        label = self.columns.get("label")
        return replace(
            clip,
            label=clip.label if label is None else label.index(cells["label"]) if "label" in cells else -1,
            subject=self._number("subject", cells, clip.subject),
            camera=self._number("camera", cells, clip.camera),
            extra=extra,
        )

    def _number(self, column: str, cells: Cells, default: int) -> int:
        if column not in cells:
            return default
        known = self.columns[column]
        return int(cells[column]) if _whole(known) else known.index(cells[column])

    def check(self) -> str:
        """A sentence about clips without a row, empty where there is none; an error where no row fits any clip."""
        if not self.missed:
            return ""
        where = " and ".join(
            f"'{getattr(source, 'path', None) or getattr(source, 'pattern', '')}'" for source in self.sources
        )
        if not self.found:
            raise InputError(
                f"{where} fits no clip (the first clip is called '{self.missed[0]}'), nothing was written; use names or "
                "paths below the source"
            )
        total = self.found + len(self.missed)
        return f"{len(self.missed)} of {total} clips are not in {where}, the first is '{self.missed[0]}'"


def make_tagger(source: Path, table: Path | None, pattern: str | None) -> Tagger | None:
    """What a table and a pattern say about the clips of a source; the table goes before the pattern."""
    sources: list[Tags] = []
    if pattern is not None:
        sources.append(path_tags(pattern, source))
    if table is not None:
        sources.append(table_tags(table))
    return Tagger(sources) if sources else None


def _renamed(columns: Iterable[str], path: Path) -> dict[str, str]:
    """Columns under halp's own words: `class` is a label, `participant` a subject, `view` a camera."""
    renamed = {column: _WORDS.get(column.lower(), column.lower()) for column in columns}
    for column, name in renamed.items():
        if name in _OWN or not name:
            raise problem(path, "", f"column '{column}' is one that halp fills itself", "rename it or leave it out")
    if len(set(renamed.values())) != len(renamed):
        raise problem(path, "", "two columns mean the same", f"keep one of {', '.join(renamed)}")
    return renamed


def _stem(path: str) -> str:
    return PurePosixPath(path).with_suffix("").as_posix() if path else ""


def _whole(values: Sequence[str]) -> bool:
    return all(re.fullmatch(r"[0-9]{1,9}", value) for value in values)


def _ordered(values: Iterable[str]) -> list[str]:
    """Numbers by size, words by letter."""
    found = list(values)
    return sorted(found, key=int) if _whole(found) else sorted(found)


def _value(cell: str, known: Sequence[str]) -> Value:
    """A cell of a further column: a whole number, a number or a text, as all of the column are."""
    if _whole(known):
        return int(cell) if cell else -1
    if all(re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) for value in known):
        return float(cell) if cell else -1.0
    return cell
