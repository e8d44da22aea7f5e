"""A reproduced table: the paper's figure beside ours with seeds and settings; Markdown, CSV, JSON and HTML."""

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
from halp.reproduce.plan import Plan
from halp.reproduce.tables import Row


@dataclass(frozen=True)
class Figure:
    """One cell: the paper's figure, ours one a seed, and the paired difference to the baseline."""

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
class Line:
    """One row with the settings that make it, as carried over to the scale."""

    name: str
    settings: str
    figures: list[Figure]


@dataclass(frozen=True)
class Outcome:
    """A reproduced table or analysis figure."""

    id: str
    title: str
    source: str
    caption: str
    scale: str
    seeds: list[int]
    data: dict[str, str]  # data set → content hash
    command: str
    lines: list[Line] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)  # of an analysis figure
    points: list[list[Any]] = field(default_factory=list)

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows as they are shown."""
        if self.columns:
            return self.columns, self.points
        first = self.lines[0].figures if self.lines else []
        heads = ["row", "settings"]
        rows: list[list[Any]] = [[line.name, line.settings or "–"] for line in self.lines]
        for place, figure in enumerate(first):
            column = [line.figures[place] for line in self.lines]
            compared = any(one.difference is not None for one in column)
            heads += [
                f"paper: {figure.column}",
                f"ours: {figure.data}",
                *(["difference to baseline"] if compared else []),
            ]
            for cells, one in zip(rows, column):
                cells += ["–" if one.paper is None else f"{one.paper:g}", one.ours]
                cells += [str(one.difference or "–")] if compared else []
        return heads, rows

    def note(self) -> str:
        """What a reader has to know: scale, data, seeds."""
        data = ", ".join(f"{key} ({digest[:12]})" for key, digest in self.data.items())
        words = f"Scale {self.scale}; data {data}; seeds {', '.join(map(str, self.seeds))}. "
        if not self.columns:
            words += (
                "Ours: mean ± standard deviation over the seeds; differences are paired by seed and warm-up, "
                "± half the width of the 95 % interval. "
            )
        if self.scale == "tiny":
            words += "A tiny scale shows that everything runs; its figures say nothing about the method. "
        return words + "Where ours were measured on other data than the paper's, the two columns are no comparison."

    def markdown(self) -> str:
        """The table as Markdown, with the command that makes it."""
        heads, rows = self.table()
        lines = [f"# {self.title} ({self.source})", "", self.caption, "", self.note(), ""]
        lines += [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
        lines += [f"| {' | '.join('–' if cell is None else str(cell) for cell in row)} |" for row in rows]
        return "\n".join([*lines, "", f"`{self.command}`", ""])

    def csv(self) -> str:
        """One line a figure and seed, for other programs; analysis figures as they are."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self.columns:
            writer.writerows([self.columns, *self.points])
            return text.getvalue()
        writer.writerow(["table", "row", "settings", "column", "data", "scale", "paper", "seed", "ours"])
        for line in self.lines:
            for figure in line.figures:
                for seed, value in zip(self.seeds, figure.values):
                    paper = "" if figure.paper is None else figure.paper
                    where = [figure.column, figure.data, self.scale]
                    writer.writerow([self.id, line.name, line.settings, *where, paper, seed, value])
        return text.getvalue()

    def save(self, folder: Path) -> list[Path]:
        """Write `ID.md`, `ID.csv` and `ID.json`."""
        return [
            write_text(folder / f"{self.id}.md", self.markdown()),
            write_text(folder / f"{self.id}.csv", self.csv()),
            write_json(folder / f"{self.id}.json", asdict(self)),
        ]


def assemble(plan: Plan, found: Mapping[tuple[str, int, str], Sequence[float]]) -> list[Line]:
    """Lines of a table from the figures of every row, column and data set."""
    baseline = next((row for row in plan.rows if row.baseline), None)
    lines = []
    for row in plan.rows:
        figures = []
        for index, column, source, split in plan.columns:
            place = (index, f"{source.key}-{split}")
            ours = list(found.get((row.name, *place), []))
            against = list(found.get((baseline.name, *place), [])) if baseline else []
            difference = None
            if ours and len(ours) == len(against) and row.method == "halp" and column.figure == "accuracy":
                difference = paired_difference(ours, against)
            data = f"{source.key} {split}" if column.figure == "accuracy" else column.title
            if "share" in column.settings:
                data += f" {100 * column.settings['share']:g} %"
            figures.append(Figure(column.title, data, plan.table.paper_figure(row, index), ours, difference))
        lines.append(Line(row.name, _settings(plan, row), figures))
    return lines


def _settings(plan: Plan, row: Row) -> str:
    return ", ".join(f"{key} = {plan.scale.carried(key, value)}" for key, value in row.settings.items())
