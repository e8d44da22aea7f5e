"""A reproduced table: the paper's value beside ours with seeds and settings; as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from halp.core.files import write_json, write_text
from halp.evaluation.analysis.paired_difference import Difference, paired_difference
from halp.evaluation.analysis.similarities import evenly_chosen
from halp.evaluation.results import mean_and_std, versions
from halp.reports.page import Report
from halp.reports.run_report import add_curves, add_prototypes
from halp.reproduce.scheduler import Schedule
from halp.reproduce.tables import TableRow
from halp.training import Run

# row, column, data set and split → one value per seed
Values = Mapping[tuple[str, int, str], Sequence[float]]


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation as text."""
    if not values:
        return "–"
    mean, std = mean_and_std(values)
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """The lines of a table in Markdown."""
    cells = (["–" if cell is None else str(cell) for cell in row] for row in rows)
    return [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *cells)]


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
        return spread(self.values)


@dataclass(frozen=True)
class RowSummary:
    """One row with the settings that make it, as carried over to the scale."""

    name: str
    settings: str
    cells: list[CellSummary]
    note: str = ""  # what a reader has to know before comparing


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
    # settings of protocols that were asked for
    protocols: dict[str, dict[str, Any]] = field(default_factory=dict)
    corrected: bool = False  # intervals hold for all differences at once

    @property
    def claim(self) -> str:
        """The caption, as the paper's statement about its own figures."""
        return f"The paper: {self.caption}" if self.source != "beyond the paper" else self.caption

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows as they are shown."""
        if self.columns:
            return self.columns, self.points
        first = self.rows[0].cells if self.rows else []
        heads = ["row", "settings"]
        shown: list[list[Any]] = [[row.name, row.settings or "–"] for row in self.rows]
        for place, cell in enumerate(first):
            column = [row.cells[place] for row in self.rows]
            compared = any(figure.difference is not None for figure in column)
            heads += [
                f"paper: {cell.column}",
                f"ours: {cell.data}",
                *(["difference to baseline"] if compared else []),
            ]
            for line, figure in zip(shown, column):
                line += ["–" if figure.paper is None else f"{figure.paper:g}", figure.ours]
                line += [str(figure.difference or "–")] if compared else []
        if any(row.note for row in self.rows):
            heads.append("note")
            for line, row in zip(shown, self.rows):
                line.append(row.note or "–")
        return heads, shown

    def note(self) -> str:
        """Notes for the reader: scale, data, seeds, settings of protocols."""
        data = ", ".join(f"{key} ({digest[:12]})" for key, digest in self.data.items())
        words = f"Scale {self.scale}; data {data}; seeds {', '.join(map(str, self.seeds))}. "
        chosen = [
            f"{name}.{key} = {value}" for name, keys in self.protocols.items() for key, value in keys.items()
        ]
        if chosen:
            words += f"Evaluated with {', '.join(chosen)}. "
        if not self.columns:
            words += (
                "Ours: mean ± standard deviation over the seeds; differences are paired by seed and warm-up, "
                "± half the width of the 95 % interval"
                f"{', corrected for all differences of the table' if self.corrected else ''}. "
            )
        if self.scale == "tiny":
            words += "A tiny scale shows that everything runs; its values say nothing about the method. "
        return (
            words
            + "Where ours were measured on other data than the paper's, the two columns cannot be compared."
        )

    def markdown(self) -> str:
        """The table as Markdown, with the command that makes it."""
        heads, rows = self.table()
        lines = [
            f"# {self.title} ({self.source})",
            "",
            self.claim,
            "",
            self.note(),
            "",
            *markdown_table(heads, rows),
        ]
        return "\n".join([*lines, "", f"`{self.command}`", ""])

    def csv(self) -> str:
        """One line per value and seed, for other programs; the numbers of analysis figures as they are."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self.columns:
            writer.writerows([self.columns, *self.points])
            return text.getvalue()
        writer.writerow(
            ["table", "row", "settings", "column", "data", "scale", "paper", "seed", "ours", "note"]
        )
        for row in self.rows:
            for cell in row.cells:
                for seed, value in zip(self.seeds, cell.values):
                    paper = "" if cell.paper is None else cell.paper
                    where = [cell.column, cell.data, self.scale]
                    writer.writerow([self.id, row.name, row.settings, *where, paper, seed, value, row.note])
        return text.getvalue()

    def save(self, folder: Path) -> list[Path]:
        """Write `ID.md`, `ID.csv` and `ID.json`; the last one names the versions and the commit."""
        return [
            write_text(folder / f"{self.id}.md", self.markdown()),
            write_text(folder / f"{self.id}.csv", self.csv()),
            write_json(folder / f"{self.id}.json", asdict(self) | {"versions": versions()}),
        ]


def summarise_rows(schedule: Schedule, values: Values) -> list[RowSummary]:
    """Rows of a table from the values of every row, column and data set."""
    differences = sum(row.method == "halp" for row in schedule.rows) * len(schedule.columns)
    compared = differences if schedule.table.corrected else 1
    baseline = next((row for row in schedule.rows if row.baseline), None)
    rows = []
    for row in schedule.rows:
        baseline = row if row.baseline else baseline
        cells = []
        for index, column, dataset, split in schedule.columns:
            place = (index, f"{dataset.key}-{split}")
            ours = list(values.get((row.name, *place), []))
            against = list(values.get((baseline.name, *place), [])) if baseline else []
            difference = None
            if ours and len(ours) == len(against) and row.method == "halp" and column.metric == "accuracy":
                difference = paired_difference(ours, against, comparisons=compared)
            data = f"{dataset.key} {split}" if column.metric == "accuracy" else column.title
            if "share" in column.settings:
                data += f" {100 * column.settings['share']:g} %"
            cells.append(
                CellSummary(column.title, data, schedule.table.paper_value(row, index), ours, difference)
            )
        rows.append(RowSummary(row.name, _settings_text(schedule, row), cells, _note(schedule, row)))
    return rows


def _note(schedule: Schedule, row: TableRow) -> str:
    """Notes on a row, and whether its recipe is that of another data set."""
    notes = [row.note] if row.note else []
    if row.method == "recipe":
        names = {
            dataset.key: schedule.scale.system_recipe(dataset.key, row.recipe)
            for _, _, dataset, _ in schedule.columns
        }
        borrowed = {
            key: name
            for key, name in names.items()
            if name and key in schedule.scale.recipes and not name.startswith(key)
        }
        if schedule.scale.name == "paper":
            notes += [f"{key} has no recipe of its own: run by {name}" for key, name in borrowed.items()]
    return "; ".join(notes)


def _settings_text(schedule: Schedule, row: TableRow) -> str:
    """The settings of a row at this scale, and those of single data sets where they are in the table."""
    scale, shown = schedule.scale, {dataset.key for _, _, dataset, _ in schedule.columns}
    parts = [f"recipe …-{row.recipe}"] if row.method == "recipe" else []
    parts += [f"{key} = {scale.carried(key, value)}" for key, value in row.settings.items()]
    for data in sorted(shown & set(row.data_settings)):
        parts += [
            f"{key} = {scale.carried(key, value)} on {data}" for key, value in row.data_settings[data].items()
        ]
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A duration in words.

    >>> duration(59), duration(5400), duration(200_000), duration(113_000_000)
    ('59 s', '90 min', '2.31 days', '1,308 days')
    """
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}" if unit > 1 else f"{seconds:.0f} s"
    days = seconds / 86_400
    return f"{days:.3g} days" if days < 1000 else f"{days:,.0f} days"


def summary_page(summary: TableSummary, schedule: Schedule, runs: Mapping[int, Run]) -> Report:
    """The page of a table whose `runs` are given by seed."""
    report = Report(f"{summary.title} ({summary.source})", summary.claim)
    kind = schedule.table.kind
    report.section("Table" if kind == "table" else "Numbers", summary.note())
    heads, rows = summary.table()
    report.table(heads, evenly_chosen(rows) if summary.columns else rows, caption=summary.claim)
    if kind == "similarities":
        add_curves(report, {f"HaLP, seed {seed}": run for seed, run in runs.items()})
    elif kind == "prototypes":
        report.section("Figure")
        add_prototypes(report, runs[schedule.seeds[0]], schedule.store())
    report.section("How this was made", summary.command)
    jobs: list[list[object]] = [[job.name, job.parent or "–", job.steps] for job in schedule.jobs.values()]
    report.table(["run", "forks from", "steps"], jobs, caption="Runs")
    return report
