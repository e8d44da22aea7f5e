"""What a table of the paper is: columns, rows with their settings, and the published figures; a registry open to more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from halp.errors import InputError, choose

KINDS = ("table", "similarities", "prototypes")
METHODS = ("raw", "untrained", "moco", "halp")
FIGURES = ("accuracy", "kept", "time", "memory")


@dataclass(frozen=True)
class Column:
    """One column: a protocol on a split of a data set; `target` is another data set that the encoder is transferred to.

    `figure` is what is read: the accuracy, the share of positives `kept`, or time and memory relative to the baseline.
    """

    title: str
    data: str = "ntu60"
    split: str = "xsub"
    protocol: str = "linear"
    settings: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""
    figure: str = "accuracy"

    def __post_init__(self) -> None:
        choose("figure", self.figure, FIGURES)


@dataclass(frozen=True)
class Row:
    """One row: a method with settings that differ from its recipe, at the paper's scale, and what the paper reports.

    `method` `halp` and `moco` are trained with and without the term; any other recipe is reached by `settings`, such as
    streams and terms, and `recipe` names one that replaces the scale's own.
    """

    name: str
    method: str = "halp"
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: tuple[float | None, ...] = ()  # one a column
    baseline: bool = False  # what differences are taken against

    def __post_init__(self) -> None:
        choose("method", self.method, METHODS)


@dataclass(frozen=True)
class PaperTable:
    """A table or analysis figure of the paper."""

    id: str
    title: str
    source: str  # where it stands in the paper
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    kind: str = "table"
    floors: bool = True  # rows of raw coordinates and of the untrained encoder

    def __post_init__(self) -> None:
        choose("kind", self.kind, KINDS)
        for row in self.rows:
            if row.paper and len(row.paper) != len(self.columns):
                raise InputError(
                    f"table '{self.id}', row '{row.name}': {len(row.paper)} figures, {len(self.columns)} columns"
                )

    def all_rows(self) -> tuple[Row, ...]:
        """Its rows, the floors first."""
        if self.kind != "table" or not self.floors:
            return self.rows
        # the encoder before training is that of the baseline, so no other run is needed for it
        baseline = next((row.settings for row in self.rows if row.baseline), {})
        return (Row("raw coordinates", "raw"), Row("untrained encoder", "untrained", baseline), *self.rows)

    def paper_figure(self, row: Row, column: int) -> float | None:
        """What the paper reports, where it does."""
        return row.paper[column] if row.paper else None


_TABLES: dict[str, PaperTable] = {}


def register_table(table: PaperTable) -> PaperTable:
    """Make a table known by its id; a second one of that id is refused."""
    if table.id in _TABLES:
        raise InputError(f"there is a table '{table.id}' already; add rows to it with add_rows")
    _TABLES[table.id] = table
    return table


def add_rows(table: str, *rows: Row) -> PaperTable:
    """Add rows to a known table, such as those of methods over several streams."""
    known = get_table(table)
    _TABLES[table] = replace(known, rows=(*known.rows, *rows))
    return _TABLES[table]


def get_table(name: str) -> PaperTable:
    """A table by its id."""
    return _TABLES[choose("table", name, _TABLES)]


def list_tables() -> dict[str, PaperTable]:
    """All tables by id, in the order of the paper."""
    return dict(_TABLES)
