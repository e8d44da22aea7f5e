"""Pages of movements: repetitions, gait, curves and angles; every figure as a table as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from halp.data.spans import Event
from halp.reports.figures import bars, line_chart
from halp.reports.page import Report
from halp.reports.pages.answers import TALLEST
from halp.reports.player import PlayerClip, player, timeline
from halp.tasks.angles import FLAT, Angles, angle_row, angle_rows, joint_angles
from halp.tasks.clinical import SMOOTHING, clinical_rows
from halp.tasks.curves import Curves
from halp.tasks.gait import MEASURES, Gaits, gait_row
from halp.tasks.intervals import headed, with_interval
from halp.tasks.pose_tracks import PoseTrack
from halp.tasks.repetitions import UNITS, RepetitionCounts, repetition_row

PLAYERS = 12  # recordings with a player or a chart of their own


def in_units(units: Mapping[str, str]) -> dict[str, str]:
    """Headings of columns with these units."""
    return {name: f"{name} ({unit})" for name, unit in units.items()}


def pose_player(poses: PoseTrack) -> str:
    """The player of one person."""
    step = -(-len(poses.joints) // TALLEST)
    frames = poses.joints[::step, None]
    clip = PlayerClip(frames, poses.name, role="recording")
    return player([[clip]], poses.topology, rate=poses.fps / step)


def repetitions_page(results: RepetitionCounts, path: Path | None = None) -> Report:
    """The player with repetitions on its timeline, the curve they come from, and a table of them."""
    report = Report("Repetitions", results.origin)
    report.section(
        "Counts", "Partial repetitions are cut off or much smaller than the others; they are not counted."
    )
    report.figure(
        bars({r.poses.name: {"repetitions": (r.count, 0.0)} for r in results[:40]}),
        "Whole repetitions per recording.",
    )
    counts = [repetition_row(r.to_json()) for r in results]
    report.rows(
        counts,
        "Means with 95 % intervals over repetitions. A cycle goes from one start to the next, pauses"
        " included.",
    )
    for result in results[:PLAYERS]:
        poses, numbers = result.poses, iter(range(1, len(result.repetitions) + 1))
        report.section(poses.name)
        parts = [
            Event(poses.recording, r.start, r.stop, "partial" if r.partial else "repetition", more=note)
            for r in result.repetitions
            for note in [{} if r.partial else {"note": f"{next(numbers)}"}]
        ]
        end = float(poses.times[-1]) + 1 / poses.fps
        bar = timeline(parts, start=poses.start, end=end, faint=("partial",)) if parts else ""
        report.figure(pose_player(poses) + bar, f"{result.count} repetitions. Click on one to go there.")
        report.figure(
            line_chart({"movement": (poses.times.tolist(), result.curve.tolist())}, x_label="seconds"),
            "What repetitions were found in: the chosen angle in degrees, otherwise a component of the movement"
            " in mean bone lengths.",
        )
        rows = [headed(r.to_json(), in_units(UNITS)) for r in result.repetitions]
        caption = (
            "Range of the angle named; smoothness is the spectral arc length (nearer to"
            f" 0 is smoother); distance to repetition {result.reference}, in mean bone lengths per joint"
            " coordinate."
        )
        report.rows(rows, caption)
    return report


def gait_page(answer: Gaits, path: Path | None = None) -> Report:
    """Measures of gait with intervals, by side, with the strides they come from and a player per person."""
    report, results = Report("Gait", answer.origin), answer.people
    report.section(
        "Measures",
        "Foot contacts are where a foot is furthest in front of the hips, toe-offs where it is furthest"
        " behind them. Intervals are 95 % intervals of means over strides of one recording. Asymmetry is 200"
        " · (left − right) / (left + right).",
    )
    rows = [result.to_json() for result in results]
    report.rows([gait_row(row) for row in rows], "Means with intervals.")
    for result, row in list(zip(results, rows))[:PLAYERS]:
        report.section(result.poses.name, " ".join(f"Note: {note}." for note in row["notes"]))
        sides = [
            {"measure": f"{name.replace('_', ' ')} ({measure['unit']})"}
            | {
                side: with_interval(measure[side]["mean"], measure[side]["interval"])
                for side in ("left", "right")
            }
            | {"asymmetry (%)": with_interval(measure["asymmetry"], measure["asymmetry_interval"], 1)}
            for name, measure in row["measures"].items()
        ]
        report.rows(sides, "By side, over strides.")
        end = float(result.poses.times[-1]) + 1 / result.poses.fps
        parts = [event for event in result.events() if event.label == "stride left"]
        bar = timeline(parts, start=result.poses.start, end=end) if parts else ""
        report.figure(
            pose_player(result.poses) + bar,
            f"{len(result.strides)} strides; the bar shows those of the left foot.",
        )
        units = in_units({"start": "s", "stop": "s", "toe_off": "s", **MEASURES})
        report.rows([headed(stride, units) for stride in row["details"]], "All strides.")
    return report


def curves_page(answer: Curves, path: Path | None = None) -> Report:
    """Mean curves with their bands, and the moments at which groups or sides differ."""
    report, plain = Report("Curves over a cycle", answer.origin), answer.to_json()
    moments: list[float | None] = list(range(len(plain["groups"][0]["mean"])))
    report.section(
        answer.angle.replace("_", " "),
        "Every cycle is stretched to 0 to 100 %. Cycles of a person are averaged first; thin lines are the 95"
        " % interval of the mean at each moment, over people (over cycles, if there is one person).",
    )
    series: dict[str, Any] = {}
    for group in plain["groups"]:
        name = group["group"] or "mean"
        series[name] = moments, group["mean"]
        if group["low"] is not None:
            series |= {f"{name}, low": (moments, group["low"]), f"{name}, high": (moments, group["high"])}
    report.figure(
        line_chart(series, x_label="% of the cycle", y_label="degrees"), f"{len(answer.cycles)} cycles."
    )
    facts = [{k: g[k] for k in ("group", "unit", "people", "cycles")} for g in plain["groups"]]
    report.rows(facts, "What the curves are means of.")
    if plain["test"] is not None:
        test = plain["test"]
        report.section(
            "Difference", test.get("reason") or f"{test['test']}: p = {test['p']:.3g} for the whole curve."
        )
        report.rows(
            test.get("clusters", []),
            "Runs of moments that differ, in % of the cycle; p holds for the whole curve.",
        )
    table = [
        {"%": at} | {g["group"] or "mean": g["mean"][at] for g in plain["groups"]}
        for at in range(0, len(moments), 5)
    ]
    report.rows(table, "Mean in degrees.")
    return report


def angles_page(answer: Angles, path: Path | None = None) -> Report:
    """Angles over time and their ranges, for every person of every recording."""
    report, people = Report("Joint angles", answer.origin), answer.people
    flat = any(poses.topology.dimensions == 2 for poses in people)
    report.section(
        "Convention",
        "Interior angles between two bones, 0 to 180 degrees, 180 where the limb is straight. Asymmetry is "
        "200 · (left − right) / (left + right) of the ranges, in per cent."
        + (f" Note: {FLAT}." if flat else ""),
    )
    everything: list[dict[str, Any]] = []
    for number, poses in enumerate(people):
        rows = angle_rows(poses)
        everything += map(angle_row, rows)
        if number >= PLAYERS or not rows:
            continue
        report.section(poses.name)
        widest = sorted(rows, key=lambda row: -row["range"])[:6]
        curves = joint_angles(poses.joints, poses.topology)
        report.figure(
            line_chart(
                {r["angle"]: (poses.times.tolist(), curves[r["angle"]].tolist()) for r in widest},
                x_label="seconds",
                y_label="degrees",
            ),
            "The angles with the largest ranges.",
        )
        pairs: dict[str, dict[str, tuple[float, float]]] = {}
        for row in rows:
            joint, _, side = row["angle"].rpartition("_")
            pairs.setdefault(joint or row["angle"], {})[side if joint else "middle"] = row["range"], 0.0
        report.figure(bars(pairs, y_label="range, degrees"), "Ranges of motion.")
        report.rows([angle_row(row, poses.to_json()) for row in rows], "Interior angles.")
        report.rows(
            [angle_row(row, poses.to_json()) for row in clinical_rows(poses)],
            f"Clinical angles, with the angle of the ISB that each comes near to. Smoothing of {SMOOTHING}.",
        )
    if len(people) > PLAYERS:
        report.section("All recordings")
        report.rows(everything, "Interior angles.")
    return report


PAGES: dict[type, Callable[[Any, Path | None], Report]] = {
    RepetitionCounts: repetitions_page,
    Gaits: gait_page,
    Angles: angles_page,
    Curves: curves_page,
}
