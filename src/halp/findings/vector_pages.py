"""Pages of what was found in vectors: motifs with examples and their merge tree, and deviation from a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halp.clips.clip import Clip
from halp.encoders.pretrained import PretrainedEncoder
from halp.findings.events import Events
from halp.findings.figures import dendrogram, ethogram
from halp.findings.motifs import MotifModel
from halp.findings.pages import SHOWN, add_table
from halp.reports.figures import bars, line_chart
from halp.reports.page import Report
from halp.reports.player import PlayerClip, player
from halp.use.pages import span, thinned

FACTS = ("motif", "windows", "count", "total", "mean", "median", "share")


def motifs_page(
    encoder: PretrainedEncoder,
    model: MotifModel,
    events: Events,
    rows: Sequence[dict[str, Any]],
    examples: Mapping[str, Sequence[Clip]],
    steady: Mapping[str, float | None] | None,
    title: str,
) -> Report:
    """Examples of every motif side by side, their times and durations, how they merge, and how stable they are."""
    report = Report("Motifs", title)
    report.section("Examples", "For every motif the windows that are surest of it. Choose a motif above the players.")
    grid = [
        [
            PlayerClip(
                thinned(c), f"{c.recording or c.name}, {span(c.start, float(c.extra['end']), c.fps > 0)}", role=name
            )
            for c in clips
        ]
        for name, clips in examples.items()
        if clips
    ]
    report.figure(player(grid, encoder.topology), f"{len(grid)} motifs.")
    report.section("When and how long")
    labels = events.labels
    end = max(event.stop for event in events)
    names = events.recordings[:SHOWN]
    report.figure(
        ethogram({name: events.where(recording=name) for name in names}, labels, end=end), "Motifs over time."
    )
    report.figure(
        bars({r["motif"]: {"share": (r["share"], 0.0)} for r in rows}, y_label="share of time"), "Shares of time."
    )
    add_table(report, rows, "Bouts of motifs, in seconds, over all recordings.")
    if len(model) > 1:
        report.section(
            "How motifs merge", "The lower two motifs are joined, the more alike they are; --merge N cuts the tree."
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
        add_table(report, tree, "Merges in order; numbers above the number of motifs are merged ones.")
    if steady is not None:
        report.section(
            "How far they depend on chance",
            "Adjusted Rand index of the motifs of all windows: 1 is the same motifs, 0 is chance. Seeds start the search "
            "elsewhere; halves are found in one half of the recordings each and applied to all.",
        )
        report.table(["compared", "adjusted Rand index"], [[name, value] for name, value in steady.items()])
    return report


def deviation_page(rows: Sequence[dict[str, Any]], title: str) -> Report:
    """Percentiles over visits, with the joints and the moments that make them."""
    report = Report("Deviation from the reference", title)
    people = rows[0]["people"] if rows else 0
    report.section(
        "Visits",
        f"How unusual a recording is beside {people} people of the reference: a percentile of 95 is further away than 95 of "
        f"100 of them, each held out in turn. With {people} people it moves in steps of {100 / max(people, 1):.1f}. "
        "This is a distance, not a diagnosis.",
    )
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
    add_table(
        report, [{k: v for k, v in row.items() if k not in ("joints", "moments")} for row in rows], "All recordings."
    )
    report.section(
        "Joints", "How far joints are from the nearest movement of the reference, and how many times what is usual."
    )
    joints = [{"recording": row["recording"], **joint} for row in rows for joint in row["joints"]]
    add_table(report, joints, "The five joints of every recording that deviate most.")
    report.section("Moments", "The windows that deviate most, with their percentile among windows of the reference.")
    moments = [{"recording": row["recording"], **moment} for row in rows for moment in row["moments"]]
    add_table(report, moments, "Times in seconds.")
    return report
