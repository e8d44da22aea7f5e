"""What `halp reproduce` shows in the terminal, as rich tables: what there is, a schedule with its cost, a reproduced table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from halp.analysis.similarities import evenly_chosen
from halp.reproduce.row_list import list_rows
from halp.reproduce.summary import TableSummary
from halp.reproduce.table_registry import list_tables


def list_as_table() -> Table:
    """What can be reproduced."""
    shown = Table("table", "what it is", "in the paper", "rows")
    for name, table in list_tables().items():
        shown.add_row(name, table.title, table.source, str(len(table.rows)))
    shown.add_row("graphs", "GraphCL and HaLP on TU graphs", "supplement", "3")  # halp.graphs, not a table over stores
    return shown


def rows_as_table() -> Table:
    """Every row of the paper's tables: what runs it, or why it is quoted."""
    shown = Table("in the paper", "row", "published", "runs", "by, or why not", "note")
    before = ""
    for status in list_rows():
        paper = " / ".join("–" if value is None else f"{value:g}" for value in status.paper)
        source = status.source if status.source != before else ""
        shown.add_row(source, status.row, paper, "yes" if status.runs else "quoted", status.how, status.note)
        before = status.source
    return shown


def schedule_as_table(cost: Mapping[str, Any]) -> Table:
    """Runs in order with their state, and what is left to do."""
    shown = Table("run", "state", "steps", "forks from", title=f"{cost['table']}, scale {cost['scale']}")
    for job in cost["jobs"]:
        shown.add_row(job["run"], job["state"], f"{job['steps']:,}", job["forks from"] or "–")
    shown.caption = (
        f"{cost['runs left']} of {cost['runs']} runs left, {cost['steps left']:,} steps, {cost['evaluations']} evaluations, "
        f"about {duration(cost['seconds left'])} of training ({cost['time from']})"
    )
    return shown


def summary_as_table(summary: TableSummary) -> Table:
    """The table as it is saved."""
    heads, rows = summary.table()
    shown = Table(*heads, title=f"{summary.title} ({summary.source})", caption=summary.note())
    for row in evenly_chosen(rows) if summary.columns else rows:
        shown.add_row(*("–" if cell is None else str(cell) for cell in row))
    return shown


def duration(seconds: float) -> str:
    """A length of time in words.

    >>> duration(59), duration(5400), duration(200_000)
    ('59 s', '90 min', '2.31 days')
    """
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}" if unit > 1 else f"{seconds:.0f} s"
    return f"{seconds / 86_400:.3g} days"
