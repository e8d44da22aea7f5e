"""Pages about movements: repetitions beside the player, and joint angles over time; every figure as a table as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halp.findings.angles import FLAT, angle_rows, joint_angles
from halp.findings.pages import add_table
from halp.findings.repetitions import Repetitions
from halp.findings.sources import Poses
from halp.reports.figures import bars, line_chart
from halp.reports.page import Report
from halp.reports.player import PlayerClip, TimelinePart, player, timeline

SHOWN = 12  # recordings with a player or a chart of their own
TALLEST = 20_000  # frames of a player


def pose_player(poses: Poses) -> str:
    """The player of one person."""
    step = -(-len(poses.joints) // TALLEST)
    frames = poses.joints[::step, None]
    clip = PlayerClip(frames, poses.name, role="recording")
    return player([[clip]], poses.topology, rate=poses.fps / step)


def repetitions_page(results: Sequence[Repetitions], title: str) -> Report:
    """The player with repetitions on its timeline, the curve they were found in, and all of them as a table."""
    report = Report("Repetitions", title)
    report.section("Counts", "Partial repetitions are cut off or much smaller than the others; they are not counted.")
    report.figure(
        bars({r.poses.name: {"repetitions": (r.count, 0.0)} for r in results[:40]}), "Whole repetitions per recording."
    )
    counts = [{k: v for k, v in r.to_json().items() if k != "repetitions"} for r in results]
    add_table(report, counts, "Durations in seconds; cv is the standard deviation of durations by their mean.")
    for result in results[:SHOWN]:
        poses, numbers = result.poses, iter(range(1, len(result.repetitions) + 1))
        report.section(poses.name)
        parts = [
            TimelinePart(
                r.start, r.stop, "partial" if r.partial else "repetition", "" if r.partial else f"{next(numbers)}"
            )
            for r in result.repetitions
        ]
        end = float(poses.times[-1]) + 1 / poses.fps
        bar = timeline(parts, start=poses.start, end=end, faint=("partial",)) if parts else ""
        report.figure(pose_player(poses) + bar, f"{result.count} repetitions. Click on one to go there.")
        report.figure(
            line_chart({"movement": (poses.times.tolist(), result.curve.tolist())}, x_label="seconds"),
            "The component of the movement that repetitions were found in, in mean bone lengths.",
        )
        rows = [r.to_json() for r in result.repetitions]
        caption = (
            f"Range in degrees of the angle that moves most; smoothness is the spectral arc length (nearer to 0 is smoother); "
            f"distance to repetition {result.reference}, in mean bone lengths per joint coordinate."
        )
        add_table(report, rows, caption)
    return report


def angles_page(people: Sequence[Poses], title: str) -> Report:
    """Angles over time and their ranges, for every person of every recording."""
    report = Report("Joint angles", title)
    flat = any(poses.topology.dimensions == 2 for poses in people)
    report.section(
        "Convention",
        "Interior angles between two bones, 0 to 180 degrees, 180 where the limb is straight. Asymmetry is "
        "200 · (left − right) / (left + right) of the ranges, in per cent." + (f" Note: {FLAT}." if flat else ""),
    )
    everything: list[dict[str, Any]] = []
    for number, poses in enumerate(people):
        rows = angle_rows(poses)
        everything += rows
        if number >= SHOWN or not rows:
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
        ranges = [{name: v for name, v in row.items() if name not in poses.to_json()} for row in rows]
        add_table(report, ranges, "Degrees and degrees per second.")
    if len(people) > SHOWN:
        report.section("All recordings")
        add_table(report, everything, "Degrees and degrees per second.")
    return report
