"""Pages of findings: events counted, agreement, motifs and deviation; every figure as a table as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halp.features.encode import ready_clips
from halp.reports.figures import bars, heatmap, line_chart
from halp.reports.page import Report
from halp.reports.pages.answers import card
from halp.reports.pages.event_figures import dendrogram, ethogram, transition_graph
from halp.reports.player import player
from halp.tasks.agreement import Agreement
from halp.tasks.bouts import HEADINGS, MOST_LABELS, Bouts
from halp.tasks.deviation import Deviations, warnings_about
from halp.tasks.find_motifs import Motifs, typical_rows
from halp.tasks.intervals import headed, intervals_beside
from halp.tasks.stats import Statistics

ETHOGRAM = 40  # rows of an ethogram


def stats_page(result: Statistics, path: Path | None = None) -> Report:
    """Ethogram, time budget, groups, bins and transitions, each with its table; long tables come last."""
    report, tiers, labels = Report("Events counted", result.origin), result.tiers, result.labels
    report.section(
        "Ethogram",
        "Time without anybody is grey and not part of the observed time on which shares are based.",
    )
    rows = {_tier_name(tier): [*tier.absent, *tier.bouts] for tier in tiers[:ETHOGRAM]}
    end = max((tier.end for tier in tiers[:ETHOGRAM]), default=1.0)
    more = f" {len(tiers) - ETHOGRAM} more stand in the tables only." if len(tiers) > ETHOGRAM else ""
    report.figure(
        ethogram(rows, labels, end=end, start=min(t.begin for t in tiers)), f"Bouts over time.{more}"
    )
    report.section("How often and how long")
    by_label: dict[str, list[dict[str, Any]]] = {label: [] for label in labels}
    for row in result.recordings:
        by_label[row["label"]].append(row)
    shares = {label: {"share": _mean_std([r["share"] for r in rows])} for label, rows in by_label.items()}
    most = {*sorted(shares, key=lambda label: -np.nan_to_num(shares[label]["share"][0]))[:MOST_LABELS]}
    rest = f" The {MOST_LABELS} labels with the largest shares." if len(labels) > MOST_LABELS else ""
    report.figure(
        bars({label: shares[label] for label in labels if label in most}, y_label="share of time"),
        f"Mean share of the observed time, ± standard deviation over rows.{rest}",
    )
    names = ("count", "total", "mean", "median", "latency", "share", "rate")
    report.table(
        ["label", *(HEADINGS.get(name, name) for name in names)],
        [
            [label, *(_mean_std([row[name] for row in rows]) for name in names)]
            for label, rows in by_label.items()
        ],
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
        report.figure(
            line_chart(series, x_label="seconds", y_label="share of time"), "Mean share of every bin."
        )
        report.table(
            ["from", *labels], list(zip(starts, *means.values())), caption="Mean share of every bin."
        )
    if result.transitions:
        report.section(
            "What follows what",
            "Chance is the mean over random orders of the bouts within each recording. Strong arrows happen"
            " more often than by chance (corrected p < 0.05); faint ones do not.",
        )
        report.figure(
            transition_graph(result.transitions, labels), "Transitions; thicker arrows are more probable."
        )
        report.rows(
            result.transitions, "p is two-sided; corrected after Benjamini and Hochberg over all pairs."
        )
    report.section("Recordings")
    report.rows(
        [headed(row, HEADINGS) for row in result.observed],
        "What was observed, in seconds; diversity is the entropy of labelled time in bits.",
    )
    report.rows(
        [headed(row, HEADINGS) for row in result.recordings],
        "Bouts: times in seconds, rate in bouts per minute; latency counts from the start.",
    )
    if result.bins:
        report.rows(
            [headed(row, HEADINGS) for row in result.bins],
            "Per bin: bouts that begin in it, seconds, and share of what was observed of it.",
        )
    return report


def _group_section(report: Report, groups: dict[str, Any]) -> None:
    persons = ", ".join(f"{name}: {count}" for name, count in groups["persons"].items())
    out = f" {groups['left_out']} people without a group were left out." if groups["left_out"] else ""
    report.section(
        "Groups",
        f"The unit is the person ({persons}), compared {groups.get('design', 'between people')}.{out}"
        f" Measure: {groups['measure']}. Test: {groups['test']}, corrected over labels after Benjamini and"
        " Hochberg. Intervals hold 95 % over people; that of Cliff's delta is a bootstrap interval, too"
        " narrow where people are few.",
    )
    values = {
        row["label"]: {
            part["group"]: (part["mean"], part["std"] or 0.0)
            for part in row["groups"]
            if part["mean"] is not None
        }
        for row in groups["labels"]
    }
    report.figure(
        bars(values, y_label=groups["measure"]), "Means of groups, ± standard deviation over people."
    )
    effect = next(
        (p["effect_name"] for r in groups["labels"] for p in r["pairs"] if "effect_name" in p), "none"
    )
    report.rows(
        shown_groups(groups),
        f"Differences are the first minus the second; effect: {effect}; delta (Cliff's) goes from −1 to 1.",
    )


def group_rows(groups: dict[str, Any]) -> list[dict[str, Any]]:
    """Comparisons of groups or conditions as rows of a table, with the keys of the JSON."""
    return [
        {"label": row["label"], **pair, "p": row["p"], "p_corrected": row["p_corrected"]}
        for row in groups["labels"]
        for pair in row["pairs"]
    ]


def shown_groups(groups: dict[str, Any]) -> list[dict[str, Any]]:
    """`group_rows` for reading: intervals beside their numbers."""
    return [
        intervals_beside({name: value for name, value in row.items() if name != "effect_name"}, 3)
        | {name: f"{row[name]:.3f}" if row[name] >= 0.001 else "< 0.001" for name in ("p", "p_corrected")}
        for row in group_rows(groups)
    ]


def agreement_page(result: Agreement, path: Path | None = None) -> Report:
    """Kappa and F1 by label, confusion in seconds, and all recordings."""
    report = Report("Agreement", f"{result.first.origin} and {result.second.origin}")
    report.section(
        "By label",
        "Kappa compares short bins of time and corrects for agreement by chance. F1 compares bouts, precision"
        " and recall with the first account as the truth. Errors of boundaries are those of matched bouts, in"
        " seconds; a bias above 0 is late. ICC(2,1) compares total durations per recording.",
    )
    values = {
        row["label"]: {name: (row[name], 0.0) for name in ("kappa", "f1") if row[name] is not None}
        for row in result["labels"]
    }
    report.figure(bars(values), "Cohen's kappa and F1 of bouts.")
    rows = [intervals_beside(row) for row in result["labels"]]
    report.rows(rows, "Agreement by label, with 95 % intervals over recordings.")
    report.section("Confusion")
    names, seconds = result["confusion"]["labels"], result["confusion"]["seconds"]
    report.figure(
        heatmap(np.array(seconds), names, names, x_label="second", y_label="first"), "Seconds by both labels."
    )
    report.table(
        ["first", *names],
        [[name, *row] for name, row in zip(names, seconds)],
        caption="Seconds by both labels.",
    )
    report.section("Recordings")
    report.rows(result["recordings"], "Kappa is missing if both accounts have one label only.")
    return report


def _tier_name(tier: Bouts) -> str:
    return f"{tier.recording}: {tier.subject}" if tier.subject else tier.recording


def _mean_std(values: Sequence[float | None]) -> tuple[float, float]:
    known = [value for value in values if value is not None]
    return (float(np.mean(known)), float(np.std(known))) if known else (float("nan"), 0.0)


def motifs_page(answer: Motifs, path: Path | None = None) -> Report:
    """Examples of each motif side by side, times and durations, their merging and their stability."""
    encoder, model, events, rows, steady = (
        answer.encoder,
        answer.model,
        answer.bouts,
        answer.rows,
        answer.stability,
    )
    title = answer.source.name
    examples = {
        row["motif"]: ready_clips(
            encoder, answer.source, typical_rows(answer.table, answer.probability, number)
        )
        for number, row in enumerate(rows)
    }
    report = Report("Motifs", title)
    report.section("Examples", "For every motif the most certain windows. Choose a motif above the players.")
    grid = [[card(clip, name) for clip in clips] for name, clips in examples.items() if clips]
    report.figure(player(grid, encoder.topology), f"{len(grid)} motifs.")
    report.section("When and how long")
    labels = events.labels
    end = max(event.stop for event in events)
    names = events.recordings[:ETHOGRAM]
    report.figure(
        ethogram({name: events.where(recording=name) for name in names}, labels, end=end), "Motifs over time."
    )
    report.figure(
        bars({r["motif"]: {"share": (r["share"], 0.0)} for r in rows}, y_label="share of time"),
        "Shares of time.",
    )
    beside = [intervals_beside(row) for row in rows]
    report.rows(beside, "Bouts of motifs, in seconds, over all recordings.")
    if len(model) > 1:
        report.section(
            "How motifs merge",
            "The lower two motifs are joined, the more alike they are; --merge N cuts the tree.",
        )
        report.figure(dendrogram(model.tree(), model.names), "Distance of means, in standard deviations.")
        tree = [
            {
                "first": int(a) + 1,
                "second": int(b) + 1,
                "distance": float(d),
                "becomes": len(model) + 1 + at,
                "motifs": int(n),
            }
            for at, (a, b, d, n) in enumerate(model.tree())
        ]
        report.rows(tree, "Merges in order; numbers above the number of motifs are merged ones.")
    if steady is not None:
        report.section(
            "Stability",
            "Adjusted Rand index of the motifs of all windows: 1 is the same motifs, 0 is chance. Seeds start"
            " the search elsewhere; halves are found in one half of the recordings each and applied to all.",
        )
        report.table(["compared", "adjusted Rand index"], [[name, value] for name, value in steady.items()])
    return report


def deviation_page(answer: Deviations, path: Path | None = None) -> Report:
    """Percentiles over visits, with the joints and the moments that make them."""
    report, rows = Report("Deviation from the reference", answer.origin), answer.rows
    people = rows[0]["people"] if rows else 0
    report.section(
        "Visits",
        f"How unusual a recording is compared with {people} people of the reference: a percentile of 95 is further"
        f" away than 95 of 100 of them, each held out in turn. With {people} people it moves in steps of"
        f" {100 / max(people, 1):.1f}. This is a distance, not a diagnosis.",
    )
    for sentence in warnings_about(rows):
        report.text(f"Warning: {sentence}.")
    by_person: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_person.setdefault(row["person"], []).append(row)
    curves: dict[str, Any] = {
        name: (list(range(1, len(visits) + 1)), [row["percentile"] for row in visits])
        for name, visits in list(by_person.items())[:12]
    }
    report.figure(
        line_chart(curves, x_label="visit", y_label="percentile", y_range=(0, 100)),
        "Percentile of every visit in its order.",
    )
    spread = [
        {"reference": name, "score": value} for name, value in (rows[0]["reference"] if rows else {}).items()
    ]
    report.rows(spread, "Scores of the reference itself, each person against the others.")
    visits = [
        {k: v for k, v in row.items() if k not in ("joints", "moments", "reference", "other_windows")}
        | {
            f"percentile with {other['window']:g} s windows": other["percentile"]
            for other in row.get("other_windows", ())
        }
        for row in rows
    ]
    report.rows(visits, "All recordings; unlike: further from the reference than anybody in it.")
    report.section(
        "Joints",
        "How far joints are from the nearest movement of the reference, and how many times what is usual.",
    )
    joints = [{"recording": row["recording"], **joint} for row in rows for joint in row["joints"]]
    report.rows(joints, "The five joints of every recording that deviate most.")
    report.section(
        "Moments", "The windows that deviate most, with their percentile among windows of the reference."
    )
    moments = [{"recording": row["recording"], **moment} for row in rows for moment in row["moments"]]
    report.rows(moments, "Times in seconds.")
    return report


PAGES: dict[type, Callable[[Any, Path | None], Report]] = {
    Statistics: stats_page,
    Agreement: agreement_page,
    Motifs: motifs_page,
    Deviations: deviation_page,
}
