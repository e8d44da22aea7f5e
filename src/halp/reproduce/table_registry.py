"""What a table of the paper is: columns, rows with their settings, and the published values; a registry open to more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from halp.errors import InputError, choose

KINDS = ("table", "similarities", "prototypes")
METHODS = ("raw", "untrained", "moco", "halp", "recipe")
METRICS = ("accuracy", "kept", "time", "memory")


@dataclass(frozen=True)
class TableColumn:
    """One column: a protocol on a split of a data set; `target` is another data set that the encoder is transferred to.

    `metric` is what is read: the accuracy, the share of positives `kept`, or time and memory relative to the baseline.
    """

    title: str
    data: str = "ntu60"
    split: str = "xsub"
    protocol: str = "linear"
    settings: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        choose("metric", self.metric, METRICS)


@dataclass(frozen=True)
class TableRow:
    """One row: a method with settings that differ from its recipe, at the paper's scale, and what the paper reports.

    `method` `halp` and `moco` are trained with and without the term; any other recipe is reached by `settings`, such as
    streams and terms, or by `recipe`, the ending of its name in place of `halp`. `method` `recipe` is another system, run by
    the recipes whose names end in `recipe` (`ntu60-ascal`, `small-ascal`); a scale that has none leaves it out.
    `data_settings` are further settings on some data sets.
    """

    name: str
    method: str = "halp"
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: tuple[float | None, ...] = ()  # one per column
    baseline: bool = False  # what differences are taken against
    data_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # data set → settings
    recipe: str = "halp"  # ends with "halp": the recipe with the term, of which other methods are the same without it
    note: str = ""  # what a reader has to know of ours

    def __post_init__(self) -> None:
        if choose("method", self.method, METHODS) == "recipe" and self.recipe == "halp":
            raise InputError(f"row '{self.name}': method 'recipe' has to name the recipe of another system")

    def settings_on(self, data: str) -> dict[str, Any]:
        """All settings of this row on a data set."""
        return {**self.settings, **self.data_settings.get(data, {})}


@dataclass(frozen=True)
class PaperTable:
    """A table or analysis figure of the paper."""

    id: str
    title: str
    source: str  # where it stands in the paper
    caption: str
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    kind: str = "table"
    baselines: bool = True  # rows of raw coordinates and of the untrained encoder

    def __post_init__(self) -> None:
        choose("kind", self.kind, KINDS)
        for row in self.rows:
            if row.paper and len(row.paper) != len(self.columns):
                raise InputError(
                    f"table '{self.id}', row '{row.name}': {len(row.paper)} values, {len(self.columns)} columns"
                )

    def all_rows(self) -> tuple[TableRow, ...]:
        """Its rows, the baselines first."""
        if self.kind != "table" or not self.baselines:
            return self.rows
        # the encoder before training is that of the baseline, so no other run is needed for it
        baseline = next((row for row in self.rows if row.baseline), TableRow(""))
        untrained = replace(baseline, name="untrained encoder", method="untrained", paper=(), baseline=False)
        return (TableRow("raw coordinates", "raw"), untrained, *self.rows)

    def paper_value(self, row: TableRow, column: int) -> float | None:
        """What the paper reports, where it does."""
        return row.paper[column] if row.paper else None


_TABLES: dict[str, PaperTable] = {}


def register_table(table: PaperTable) -> PaperTable:
    """Make a table known by its id; a second one of that id is refused."""
    if table.id in _TABLES:
        raise InputError(f"there is a table '{table.id}' already; add rows to it with add_rows")
    _TABLES[table.id] = table
    return table


def add_rows(table: str, *rows: TableRow) -> PaperTable:
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
