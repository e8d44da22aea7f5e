"""`Tagger`: gives clips the columns that tables, events and paths name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from halp.core.errors import InputError
from halp.data.clip import Clip, unknown
from halp.data.tags import EventTags, Tags, path_tags, table_tags
from halp.data.text_files import are_whole


class Tagger:
    """Gives clips the values that tables and patterns have for them; later sources go before earlier ones."""

    def __init__(self, sources: Sequence[Tags]) -> None:
        self.sources = sources
        values: dict[str, set[str]] = {}
        for source in sources:
            for column, cells in source.values.items():
                values.setdefault(column, set()).update(cells)
        self.columns = {column: _ordered(cells - {""}) for column, cells in values.items()}
        self._kinds = {column: _kind(known) for column, known in self.columns.items()}
        self.missed: list[str] = []
        self.found = 0
        #: Whether what is said of a clip depends on when it starts and stops.
        self.timed = any(isinstance(source, EventTags) for source in sources)

    @property
    def class_names(self) -> list[str] | None:
        """Names of the classes, or None if no table and no pattern has labels."""
        return self.columns.get("label")

    @property
    def named(self) -> dict[str, list[str]]:
        """Persons and cameras that have names instead of numbers."""
        texts = (column for column in ("subject", "camera") if self._kinds.get(column, int) is not int)
        return {column: self.columns[column] for column in texts}

    def tag(self, clip: Clip) -> Clip:
        """The clip with these facts; labels given here replace those of the reader."""
        rows = [row for source in self.sources if (row := source.find(clip)) is not None]
        cells = {column: cell for row in rows for column, cell in row.items() if cell}
        self.found += bool(rows)
        if not rows:
            self.missed.append(clip.name)
        extra = dict(clip.extra)
        for column, kind in self._kinds.items():
            if column not in ("label", "subject", "camera"):
                extra[column] = kind(cells[column]) if column in cells else unknown(kind())
            elif column != "label" and kind is not int:
                extra[f"{column}_name"] = cells.get(column, "")
        numbers: dict[str, Any] = {
            column: (
                int(cells[column])
                if self._kinds[column] is int
                else self.columns[column].index(cells[column])
            )
            for column in ("subject", "camera")
            if column in cells
        }
        if "label" in self.columns:
            numbers["label"] = self.columns["label"].index(cells["label"]) if "label" in cells else -1
        return replace(clip, extra=extra, **numbers)

    def check(self) -> list[str]:
        """Sentences about clips without a row and rows without a clip; an error if no row fits any clip."""
        where = " and ".join(f"'{source.origin}'" for source in self.sources)
        rows = [note for source in self.sources for note in source.notes()]
        if self.missed and not self.found:
            raise InputError(
                f"{where} matches no clip (the first clip is called '{self.missed[0]}'), nothing was written;"
                " use names or paths below the source" + (f": {rows[0]}" if rows else "")
            )
        if not self.missed:
            return rows
        total = self.found + len(self.missed)
        return [
            f"{len(self.missed)} of {total} clips are not in {where}, the first is '{self.missed[0]}'",
            *rows,
        ]


def make_tagger(source: Path, table: Path | None, pattern: str | None) -> Tagger | None:
    """Facts from a table and a pattern about the clips of a source; the table takes precedence."""
    sources: list[Tags] = []
    if pattern is not None:
        sources.append(path_tags(pattern, source))
    if table is not None:
        sources.append(table_tags(table, source))
    return Tagger(sources) if sources else None


def _ordered(values: set[str]) -> list[str]:
    """Numbers by size, words by letter."""
    return sorted(values, key=int if are_whole(values) else str)


def _kind(known: Sequence[str]) -> type[int] | type[float] | type[str]:
    """What all cells of a column are: whole numbers, numbers or texts."""
    if are_whole(known):
        return int
    return float if all(re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) for value in known) else str
