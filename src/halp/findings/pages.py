"""Pages of findings: what was counted as figures, and every figure as a table as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halp.findings.bouts import Bouts
from halp.findings.figures import ethogram, transition_graph
from halp.findings.stats import Statistics
from halp.reports.figures import bars, heatmap, line_chart
from halp.reports.page import Report

SHOWN = 40  # rows of an ethogram
MOST = 500  # rows of a table


def stats_page(result: Statistics, tiers: Sequence[Bouts], labels: Sequence[str], title: str) -> Report:
    """Ethogram, time budget, groups, bins and transitions, each with its table; long tables stand at the end."""
    report = Report("Events counted", title)
    report.section(
        "Ethogram",
        "Time in which nobody was there is grey and no part of the observed time that shares refer to.",
    )
    rows = {_tier_name(tier): [*tier.absent, *tier.bouts] for tier in tiers[:SHOWN]}
    end = max((tier.end for tier in tiers[:SHOWN]), default=1.0)
    more = f" {len(tiers) - SHOWN} more stand in the tables only." if len(tiers) > SHOWN else ""
    report.figure(ethogram(rows, labels, end=end, start=min(t.begin for t in tiers)), f"Bouts over time.{more}")
    report.section("How often and how long")
    by_label = {label: [row for row in result.recordings if row["label"] == label] for label in labels}
    shares = {label: {"share": _mean_std([r["share"] for r in rows])} for label, rows in by_label.items()}
    report.figure(
        bars(shares, y_label="share of time"), "Mean share of the observed time, ± standard deviation over rows."
    )
    names = ("count", "total", "mean", "median", "latency", "share", "rate")
    report.table(
        ["label", *names],
        [[label, *(_mean_std([row[name] for row in rows]) for name in names)] for label, rows in by_label.items()],
        caption="Mean ± standard deviation over recordings and subjects; seconds, rate per minute.",
    )
    if result.groups:
        _group_section(report, result.groups)
    if result.bins:
        report.section("Over time")
        starts = sorted({row["start"] for row in result.bins})
        means = {
            label: [
                _mean_std([r["share"] for r in result.bins if (r["label"], r["start"]) == (label, s)])[0]
                for s in starts
            ]
            for label in labels
        }
        series: dict[str, Any] = {label: (starts, values) for label, values in means.items()}
        report.figure(line_chart(series, x_label="seconds", y_label="share of time"), "Mean share of every bin.")
        report.table(["from", *labels], list(zip(starts, *means.values())), caption="Mean share of every bin.")
    if result.transitions:
        report.section(
            "What follows what",
            "Chance is the mean over random orders of the bouts within each recording. Strong arrows happen more often than "
            "by chance (corrected p < 0.05); faint ones do not.",
        )
        report.figure(transition_graph(result.transitions, labels), "Transitions; thicker arrows are more probable.")
        add_table(report, result.transitions, "p is two-sided; corrected after Benjamini and Hochberg over all pairs.")
    report.section("Recordings")
    add_table(
        report, result.observed, "What was observed, in seconds; diversity is the entropy of labelled time in bits."
    )
    add_table(
        report, result.recordings, "Bouts: times in seconds, rate in bouts per minute; latency counts from the start."
    )
    if result.bins:
        add_table(
            report, result.bins, "Per bin: bouts that begin in it, seconds, and share of what was observed of it."
        )
    return report


def _group_section(report: Report, groups: dict[str, Any]) -> None:
    persons = ", ".join(f"{name}: {count}" for name, count in groups["persons"].items())
    out = f" {groups['left_out']} people without a group were left out." if groups["left_out"] else ""
    report.section(
        "Groups",
        f"The unit is the person ({persons}).{out} Measure: {groups['measure']}. Test: {groups['test']}, corrected over labels "
        "after Benjamini and Hochberg. Intervals are 95 % bootstrap intervals over people; with few people they are too narrow.",
    )
    values = {
        row["label"]: {
            part["group"]: (part["mean"], part["std"] or 0.0) for part in row["groups"] if part["mean"] is not None
        }
        for row in groups["labels"]
    }
    report.figure(bars(values, y_label=groups["measure"]), "Means of groups, ± standard deviation over people.")
    flat = [
        {
            "label": row["label"],
            "first": row["first"],
            "second": row["second"],
            "difference": f"{row['difference']:.3g} [{row['difference low']:.3g}, {row['difference high']:.3g}]",
            "Cliff's delta": f"{row['delta']:.2f} [{row['delta low']:.2f}, {row['delta high']:.2f}]",
            "p": row["p"],
            "corrected p": row["p corrected"],
        }
        for row in group_rows(groups)
    ]
    add_table(report, flat, "Differences are the first group minus the second; Cliff's delta goes from −1 to 1.")


def group_rows(groups: dict[str, Any]) -> list[dict[str, Any]]:
    """Comparisons of groups as rows of a table."""
    rows = []
    for row in groups["labels"]:
        for pair in row["pairs"]:
            low, high = pair["difference_interval"]
            delta_low, delta_high = pair["delta_interval"]
            rows.append(
                {
                    "label": row["label"],
                    "first": pair["first"],
                    "second": pair["second"],
                    "difference": pair["difference"],
                }
                | {"difference low": low, "difference high": high}
                | {"delta": pair["delta"], "delta low": delta_low, "delta high": delta_high}
                | {"p": row["p"], "p corrected": row["p_corrected"]}
            )
    return rows


def agreement_page(result: dict[str, Any], title: str) -> Report:
    """Kappa and F1 by label, confusion in seconds, and all recordings."""
    report = Report("Agreement", title)
    report.section(
        "By label",
        "Kappa compares short bins of time and takes out agreement by chance. F1 compares bouts, precision and recall with the "
        "first account as the truth. Errors of boundaries are those of matched bouts, in seconds; a bias above 0 is late. "
        "ICC(2,1) compares total durations per recording.",
    )
    values = {
        row["label"]: {name: (row[name], 0.0) for name in ("kappa", "f1") if row[name] is not None}
        for row in result["labels"]
    }
    report.figure(bars(values), "Cohen's kappa and F1 of bouts.")
    add_table(report, result["labels"], "Agreement by label.")
    report.section("Confusion")
    names, seconds = result["confusion"]["labels"], result["confusion"]["seconds"]
    report.figure(
        heatmap(np.array(seconds), names, names, x_label="second", y_label="first"), "Seconds by both labels."
    )
    report.table(
        ["first", *names], [[name, *row] for name, row in zip(names, seconds)], caption="Seconds by both labels."
    )
    report.section("Recordings")
    add_table(report, result["recordings"], "Kappa is missing where both accounts know one label only.")
    return report


def add_table(report: Report, rows: Sequence[dict[str, Any]], caption: str) -> None:
    """Rows as a table of a page, without columns that are empty throughout."""
    columns = [name for name in (rows[0] if rows else {}) if any(row[name] not in ("", None) for row in rows)]
    more = f" The first {MOST} of {len(rows)} rows; --out writes all." if len(rows) > MOST else ""
    report.table(columns, [[row[name] for name in columns] for row in rows[:MOST]], caption=caption + more)


def _tier_name(tier: Bouts) -> str:
    return f"{tier.recording}: {tier.subject}" if tier.subject else tier.recording


def _mean_std(values: Sequence[float | None]) -> tuple[float, float]:
    known = [value for value in values if value is not None]
    return (float(np.mean(known)), float(np.std(known))) if known else (float("nan"), 0.0)
