"""Tables of the paper, read from `paper_tables.toml`.

A table of the file names its columns, or says what differs from a named one; `protocol`, `protocol_settings`
and `shares` (of labels) are of all its columns. `baseline` are the figures of MoCo, `vary` makes a row per
value of one setting. A row names a
`system` and says what differs from it. `extends` takes over what another table has, `columns_of` the columns
of another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from halp.core.errors import InputError, check_choice
from halp.core.files import read_toml

KINDS = ("table", "similarities", "prototypes", "graphs")
METHODS = ("raw", "shipped", "moco", "halp", "recipe")
METRICS = ("accuracy", "kept", "time", "memory")


@dataclass(frozen=True)
class TableColumn:
    """One column: a protocol on a split of a data set; `target`: data set of a transfer.

    `metric` is what is read: the accuracy, the share of positives `kept`, or time and memory relative to the
    baseline.
    """

    title: str
    data: str = "ntu60"
    split: str = "xsub"
    protocol: str = "linear"
    settings: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)


@dataclass(frozen=True)
class TableRow:
    """One row: a method, settings that differ from its recipe (paper's scale), the paper's figures.

    `method` `halp` and `moco` are trained with and without the term; any other recipe is reached by
    `settings`, such as streams and terms, or by `recipe`, the ending of its name instead of `halp`. `method`
    `recipe` is another system, run by the recipes whose names end in `recipe` (`ntu60-ascal`, `small-ascal`);
    a scale that has none leaves it out.
    `method` `shipped` is the frozen encoder that comes with halp under the name `recipe`. A difference is
    taken to the
    `baseline` row above. `data_settings` are further settings on some data sets, `protocols` the system's own
    settings of protocols.
    """

    name: str
    method: str = "halp"
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: tuple[float | None, ...] = ()  # one per column
    baseline: bool = False  # what differences are taken against
    data_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # data set → settings
    recipe: str = (
        "halp"  # ends with "halp": the recipe with the term, of which other methods are the same without it
    )
    note: str = ""  # what a reader has to know of ours
    protocols: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # protocol → settings
    trained: bool = True  # False: the encoder as its recipe builds it
    protocol: str = ""  # takes the place of the columns', with those of their settings that it has

    def __post_init__(self) -> None:
        if check_choice("method", self.method, METHODS) in ("recipe", "shipped") and self.recipe == "halp":
            raise InputError(f"row '{self.name}': method '{self.method}' must name another recipe or encoder")

    @property
    def has_recipe(self) -> bool:
        """Whether its encoder is made by a recipe."""
        return self.method not in ("raw", "shipped")

    def settings_on(self, data: str) -> dict[str, Any]:
        """All settings of this row on a data set."""
        return {**self.settings, **self.data_settings.get(data, {})}

    def protocol_of(self, column: TableColumn) -> str:
        """What reads this row in a column."""
        return self.protocol or column.protocol

    def untrained(self, name: str) -> TableRow:
        """The same encoder before training."""
        return replace(self, name=name, paper=(), baseline=False, note="", trained=False)


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
    baselines: bool = True  # rows of raw coordinates and of untrained encoders
    scale: str = "tiny"  # what it is reproduced at if no scale is named
    corrected: bool = False  # intervals hold for all differences of the table at once (Bonferroni)

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        for row in self.rows:
            if row.paper and len(row.paper) != len(self.columns):
                raise InputError(
                    f"table '{self.id}', row '{row.name}': {len(row.paper)} values, {len(self.columns)}"
                    " columns"
                )

    def all_rows(self) -> tuple[TableRow, ...]:
        """Baseline rows: raw coordinates, and the untrained encoder of the baseline or of every system."""
        if self.kind != "table" or not self.baselines:
            return self.rows
        baseline = next((row for row in self.rows if row.baseline), None)
        if baseline is not None:
            untrained = [baseline.untrained("untrained encoder")]
        else:
            untrained = [row.untrained(f"{row.name}, untrained") for row in self.rows if row.trained]
        return (TableRow("raw coordinates", "raw"), *untrained, *self.rows)

    def paper_value(self, row: TableRow, column: int) -> float | None:
        """The paper's figure, if any."""
        return row.paper[column] if row.paper else None


@dataclass(frozen=True)
class RowStatus:
    """One row of a table of the paper. `how` is the command that runs it."""

    source: str  # where it stands in the paper
    table: str
    row: str
    paper: tuple[float | None, ...]
    how: str
    note: str = ""


@cache
def _tables() -> dict[str, PaperTable]:
    data = read_toml(Path(__file__).with_name("paper_tables.toml"))
    entries: dict[str, dict[str, Any]] = {}
    tables: dict[str, PaperTable] = {}
    for entry in data["tables"]:
        if "extends" in entry:
            entry = {**entries[entry["extends"]], "baseline": (), **entry}
        entries[entry["id"]] = entry
        columns = _columns(entries[entry.get("columns_of", entry["id"])], data["columns"])
        rows = tuple(_rows(entry, data["systems"]))
        further = {key: entry[key] for key in ("kind", "scale", "corrected") if key in entry}
        tables[entry["id"]] = PaperTable(
            entry["id"], entry["title"], entry["source"], entry.get("caption", ""), columns, rows, **further
        )
    return tables


def _columns(entry: Mapping[str, Any], named: Mapping[str, Mapping[str, Any]]) -> tuple[TableColumn, ...]:
    """The columns of a table; with shares of labels, one per column and share."""
    shared = {"protocol": entry["protocol"]} if "protocol" in entry else {}
    shares = entry.get("shares", [None])
    columns = []
    for column in entry.get("columns", ["ntu60-xsub"]):
        changes = {"name": column} if isinstance(column, str) else dict(column)
        chosen = {**named.get(changes.pop("name", ""), {}), **shared, **changes}
        for share in shares:
            settings = {
                **({} if share is None else {"share": share}),
                **entry.get("protocol_settings", {}),
                **chosen.get("settings", {}),
            }
            title = chosen["title"] if share is None else f"{chosen['title']} {100 * share:g} %"
            columns.append(TableColumn(**{**chosen, "title": title, "settings": settings}))
    return tuple(columns)


def _rows(entry: Mapping[str, Any], systems: Mapping[str, Mapping[str, Any]]) -> Iterable[TableRow]:
    """The rows of a table: baseline, a row per value of the varied setting, and explicit rows."""
    if entry.get("baseline"):
        yield TableRow("baseline (MoCo)", "moco", paper=_figures(entry["baseline"]), baseline=True)
    vary = entry.get("vary", {"paper": ()})
    for value, published in vary["paper"]:
        yield TableRow(f"{vary['symbol']} = {value}", settings={vary["key"]: value}, paper=(published,))
    for row in entry.get("rows", ()):
        system = systems[row["system"]] if "system" in row else {}
        merged = {**system, **row, "settings": {**system.get("settings", {}), **row.get("settings", {})}}
        merged.pop("system", None)
        yield TableRow(**{**merged, "paper": _figures(row.get("paper", ()))})


def _figures(values: Iterable[float]) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else value for value in values)


def get_table(name: str) -> PaperTable:
    """A table by its id."""
    return _tables()[check_choice("table", name, _tables())]


def list_tables() -> dict[str, PaperTable]:
    """All tables by id, in the order of the paper."""
    return dict(_tables())


def list_rows(name: str = "") -> list[RowStatus]:
    """All rows in the order of the paper, with the command that runs each; optionally of one table of the
    paper.
    """
    source = get_table(name).source if name else ""
    rows = [
        RowStatus(table.source, table.id, row.name, row.paper, f"halp reproduce {table.id}", row.note)
        for table in list_tables().values()
        for row in table.rows
        if source in ("", table.source)
    ]
    return sorted(rows, key=_place)


def _place(status: RowStatus) -> tuple[int, int, str]:
    """The order of tables: by number, the paper's before the supplement's, then sections and figures."""
    kind, _, number = status.source.removeprefix("Supplement, ").partition(" ")
    digits = "".join(letter for letter in number if letter.isdigit())
    return (0 if kind == "Table" else 1, int(digits) if kind == "Table" and digits else 0, status.source)
