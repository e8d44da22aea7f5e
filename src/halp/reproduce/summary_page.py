"""The HTML page of a reproduced table: the table, the analysis figure where there is one, and how it was made."""

from __future__ import annotations

from collections.abc import Mapping

from halp.analysis.similarities import evenly_chosen
from halp.reports.page import Report
from halp.reports.run_report import add_curves, add_prototypes
from halp.reproduce.scheduler import Schedule
from halp.reproduce.summary import TableSummary
from halp.training import Run


def summary_page(summary: TableSummary, schedule: Schedule, runs: Mapping[int, Run]) -> Report:
    """The page of a table whose `runs` are given by seed."""
    report = Report(f"{summary.title} ({summary.source})", summary.caption)
    kind = schedule.table.kind
    report.section("Table" if kind == "table" else "Numbers", summary.note())
    heads, rows = summary.table()
    report.table(heads, evenly_chosen(rows) if summary.columns else rows, caption=summary.caption)
    if kind == "similarities":
        add_curves(report, {f"HaLP, seed {seed}": run for seed, run in runs.items()})
    elif kind == "prototypes":
        report.section("Figure")
        add_prototypes(report, runs[schedule.seeds[0]], schedule.store())
    report.section("How this was made", summary.command)
    jobs: list[list[object]] = [[job.name, job.parent or "–", job.steps] for job in schedule.jobs.values()]
    report.table(["run", "forks from", "steps"], jobs, caption="Runs")
    return report
