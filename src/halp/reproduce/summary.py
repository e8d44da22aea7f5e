"""A reproduced table: the paper's value beside ours with seeds and settings; as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from halp.analysis.paired_difference import Difference, paired_difference
from halp.evaluation.results import mean_and_std
from halp.files import write_json, write_text
from halp.reproduce.scheduler import Schedule
from halp.reproduce.table_registry import TableRow

Values = Mapping[tuple[str, int, str], Sequence[float]]  # row, column, data set and split → one value per seed


@dataclass(frozen=True)
class CellSummary:
    """One cell: the paper's value, ours per seed, and the paired difference to the baseline."""

    column: str  # of the paper
    data: str  # what ours was measured on
    paper: float | None
    values: list[float]
    difference: Difference | None = None

    @property
    def ours(self) -> str:
        """Mean ± standard deviation over the seeds."""
        if not self.values:
            return "–"
        mean, std = mean_and_std(self.values)
        return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


@dataclass(frozen=True)
class RowSummary:
    """One row with the settings that make it, as carried over to the scale."""

    name: str
    settings: str
    cells: list[CellSummary]


@dataclass(frozen=True)
class TableSummary:
    """A reproduced table, or the numbers of an analysis figure."""

    id: str
    title: str
    source: str
    caption: str
    scale: str
    seeds: list[int]
    data: dict[str, str]  # data set → content hash
    command: str
    rows: list[RowSummary] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)  # of an analysis figure
    points: list[list[Any]] = field(default_factory=list)
    protocols: dict[str, dict[str, Any]] = field(default_factory=dict)  # settings of protocols that were asked for

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows as they are shown."""
        if self.columns:
            return self.columns, self.points
        first = self.rows[0].cells if self.rows else []
        heads = ["row", "settings"]
        shown: list[list[Any]] = [[row.name, row.settings or "–"] for row in self.rows]
        for place, cell in enumerate(first):
            column = [row.cells[place] for row in self.rows]
            compared = any(one.difference is not None for one in column)
            heads += [f"paper: {cell.column}", f"ours: {cell.data}", *(["difference to baseline"] if compared else [])]
            for line, one in zip(shown, column):
                line += ["–" if one.paper is None else f"{one.paper:g}", one.ours]
                line += [str(one.difference or "–")] if compared else []
        return heads, shown

    def note(self) -> str:
        """What a reader has to know: scale, data, seeds, settings of protocols."""
        data = ", ".join(f"{key} ({digest[:12]})" for key, digest in self.data.items())
        words = f"Scale {self.scale}; data {data}; seeds {', '.join(map(str, self.seeds))}. "
        chosen = [f"{name}.{key} = {value}" for name, keys in self.protocols.items() for key, value in keys.items()]
        if chosen:
            words += f"Evaluated with {', '.join(chosen)}. "
        if not self.columns:
            words += (
                "Ours: mean ± standard deviation over the seeds; differences are paired by seed and warm-up, "
                "± half the width of the 95 % interval. "
            )
        if self.scale == "tiny":
            words += "A tiny scale shows that everything runs; its values say nothing about the method. "
        return words + "Where ours were measured on other data than the paper's, the two columns do not compare."

    def markdown(self) -> str:
        """The table as Markdown, with the command that makes it."""
        heads, rows = self.table()
        lines = [f"# {self.title} ({self.source})", "", self.caption, "", self.note(), ""]
        lines += [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
        lines += [f"| {' | '.join('–' if cell is None else str(cell) for cell in row)} |" for row in rows]
        return "\n".join([*lines, "", f"`{self.command}`", ""])

    def csv(self) -> str:
        """One line per value and seed, for other programs; the numbers of analysis figures as they are."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self.columns:
            writer.writerows([self.columns, *self.points])
            return text.getvalue()
        writer.writerow(["table", "row", "settings", "column", "data", "scale", "paper", "seed", "ours"])
        for row in self.rows:
            for cell in row.cells:
                for seed, value in zip(self.seeds, cell.values):
                    paper = "" if cell.paper is None else cell.paper
                    where = [cell.column, cell.data, self.scale]
                    writer.writerow([self.id, row.name, row.settings, *where, paper, seed, value])
        return text.getvalue()

    def save(self, folder: Path) -> list[Path]:
        """Write `ID.md`, `ID.csv` and `ID.json`."""
        return [
            write_text(folder / f"{self.id}.md", self.markdown()),
            write_text(folder / f"{self.id}.csv", self.csv()),
            write_json(folder / f"{self.id}.json", asdict(self)),
        ]


def summarise_rows(schedule: Schedule, found: Values) -> list[RowSummary]:
    """Rows of a table from the values of every row, column and data set."""
    baseline = next((row for row in schedule.rows if row.baseline), None)
    rows = []
    for row in schedule.rows:
        cells = []
        for index, column, source, split in schedule.columns:
            place = (index, f"{source.key}-{split}")
            ours = list(found.get((row.name, *place), []))
            against = list(found.get((baseline.name, *place), [])) if baseline else []
            difference = None
            if ours and len(ours) == len(against) and row.method == "halp" and column.metric == "accuracy":
                difference = paired_difference(ours, against)
            data = f"{source.key} {split}" if column.metric == "accuracy" else column.title
            if "share" in column.settings:
                data += f" {100 * column.settings['share']:g} %"
            cells.append(CellSummary(column.title, data, schedule.table.paper_value(row, index), ours, difference))
        rows.append(RowSummary(row.name, _settings_text(schedule, row), cells))
    return rows


def _settings_text(schedule: Schedule, row: TableRow) -> str:
    """The settings of a row at this scale, and those of single data sets where they are in the table."""
    scale, shown = schedule.scale, {source.key for _, _, source, _ in schedule.columns}
    parts = [f"recipe …-{row.recipe}"] if row.method == "recipe" else []
    parts += [f"{key} = {scale.carried(key, value)}" for key, value in row.settings.items()]
    for data in sorted(shown & set(row.data_settings)):
        parts += [f"{key} = {scale.carried(key, value)} on {data}" for key, value in row.data_settings[data].items()]
    return ", ".join(parts)
