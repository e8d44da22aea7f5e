"""Pages of answers: a timeline with its player, groups with a map, two recordings side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halp.analysis.embedding import embedding_map
from halp.clips.clip import Clip
from halp.encoders.packaged import PackagedEncoder
from halp.reports.figures import heatmap, line_chart, scatter
from halp.reports.page import Report
from halp.reports.player import PlayerClip, player
from halp.reports.timeline import TimelinePart, timeline
from halp.use.cluster import Clusters
from halp.use.compare import Comparison, mean_over_time
from halp.use.pages import span, thinned, up_axis
from halp.use.segment import Timeline
from halp.use.vectors import VectorTable

NONE = "none of these"
SHOWN = 12  # recordings with a player of their own
MAPPED = 1500  # points on a map
_BINS = 36


def timeline_page(encoder: PackagedEncoder, made: Timeline, recordings: Sequence[Clip], title: str) -> Report:
    """A player with its timeline for each recording, and all segments as a table."""
    report = Report("Timeline", title)
    width, stride = made.cutting.window, made.cutting.stride
    how = (
        f"Windows of {width:g} s every {stride:g} s were given a label each and merged into segments. "
        "Click on a timeline to go there."
    )
    for number, clip in enumerate(recordings[:SHOWN]):
        name = clip.recording or clip.name
        own = [one for one in made.segments if one.name == name]
        report.section(name, "" if number else how)
        frames = thinned(clip)
        rate = 30.0 if clip.fps <= 0 else clip.fps * len(frames) / len(clip.frames)
        shown = player(
            [[PlayerClip(frames, name, role="recording")]], encoder.topology, up_axis=up_axis(encoder), rate=rate
        )
        parts = [
            TimelinePart(one.start, one.end, one.label or NONE, f"probability {one.probability:.2f}") for one in own
        ]
        start, end = clip.start, float(clip.extra["end"])
        unit = "s" if clip.fps > 0 else "frames"
        report.figure(
            shown + timeline(parts, start=start, end=end, faint=(NONE,), unit=unit),
            f"{len(own)} segments of {name}.",
        )
    if len(recordings) > SHOWN:
        report.text(f"{len(recordings) - SHOWN} further recordings stand in the table only.")
    report.section("Segments")
    rows = [[one.name, one.start, one.end, one.label or NONE, one.probability] for one in made.segments]
    report.table(["recording", "start", "end", "label", "probability"], rows, caption="Times in seconds.")
    return report


def cluster_page(
    encoder: PackagedEncoder, table: VectorTable, found: Clusters, typical: Sequence[Clip], title: str
) -> Report:
    """A map of all clips coloured by group, and the typical clip of each group in a player."""
    report = Report("Groups", title)
    sizes = found.sizes
    report.section("Typical clips", "For each group the clip that is nearest to its centre.")
    cards = [
        PlayerClip(
            thinned(clip),
            f"{clip.recording or clip.name}, {span(clip.start, float(clip.extra['end']), clip.fps > 0)}",
            role=f"group {number + 1}: {sizes[number]} clips",
        )
        for number, clip in enumerate(typical)
    ]
    report.figure(
        player([cards], encoder.topology, up_axis=up_axis(encoder)), f"The typical clip of each of {len(cards)} groups."
    )
    report.section("Map")
    rows = np.arange(len(table))
    if len(rows) > MAPPED:
        rows = np.sort(np.random.default_rng(0).choice(len(table), MAPPED, replace=False))
    places = embedding_map(np.asarray(table.vectors[rows]))
    digits = len(str(len(cards)))
    report.figure(
        scatter(
            places,
            [f"group {found.group[row] + 1:0{digits}}" for row in rows],
            names=[f"{table.name(int(row))} {table.starts[row]:.2f} – {table.ends[row]:.2f}" for row in rows],
        ),
        f"{len(rows)} of {len(table)} clips laid out by t-SNE: near means similar, distances between far ones mean little.",
    )
    report.section("Table")
    lines = [
        [
            f"group {number + 1}",
            int(sizes[number]),
            table.name(int(row)),
            float(table.starts[row]),
            float(table.ends[row]),
        ]
        for number, row in enumerate(found.typical)
    ]
    tried = ", ".join(f"{count}: {value:.2f}" for count, value in found.silhouettes.items())
    caption = f"Silhouette {found.silhouette:.2f} (1: far apart, 0: touching)." + (
        f" Numbers of groups tried: {tried}." if tried else ""
    )
    report.table(["group", "clips", "typical clip", "start", "end"], lines, caption=caption)
    return report


def comparison_page(encoder: PackagedEncoder, made: Comparison, title: str) -> Report:
    """Both recordings in step with each other, how far they are apart over time, and which joints do it."""
    report = Report("Two recordings compared", title)
    names = [clip.recording or clip.name for clip in (made.first, made.second)]
    if names[0] == names[1]:
        names = [f"{names[0]} (first)", f"{names[1]} (second)"]
    one, other = made.times()
    unit = "seconds" if made.first.fps > 0 else "frames"
    report.section(
        "In step", "Both recordings are played along their alignment, so that the same moment is shown of each."
    )
    clips = [
        PlayerClip(clip.frames[made.pairs[:, side]], name, role=("first", "second")[side])
        for side, (clip, name) in enumerate(zip((made.first, made.second), names))
    ]
    rate = made.first.fps if made.first.fps > 0 else 30.0
    parts = [TimelinePart(float(a), float(b), "differ", f"{', '.join(joints)}") for a, b, joints in _places(made)]
    shown = player([clips], encoder.topology, up_axis=up_axis(encoder), rate=rate)
    bar = timeline(parts, start=0.0, end=float(len(made.pairs)), unit="frames") if parts else ""
    report.figure(shown + bar, "Coloured stretches differ most. Click on one to go there.")
    report.section("Where they differ")
    if made.stretches:
        rows = [
            [
                span(s.start, s.end, made.first.fps > 0),
                span(s.other_start, s.other_end, made.second.fps > 0),
                s.difference,
                ", ".join(s.joints),
            ]
            for s in made.stretches
        ]
        report.table(
            ["in the first", "in the second", "difference", "joints that differ most"],
            rows,
            caption="Largest first; a difference of 1 is the mean length of a bone.",
        )
    else:
        report.text("No stretch stands out from the rest.")
    level = mean_over_time(made.joints.T)
    report.figure(
        line_chart(
            {"joints": (one.tolist(), level.tolist())}, x_label=f"{unit} of {names[0]}", y_label="mean joint distance"
        ),
        "Mean distance of the joints of aligned frames, in mean bone lengths.",
    )
    report.figure(_joint_heat(made, one, unit), "Distance of every joint over time; darker is further apart.")
    report.section("Timing")
    report.figure(
        line_chart(
            {"alignment": (one.tolist(), other.tolist()), "same speed": ([one[0], one[-1]], [other[0], other[-1]])},
            x_label=f"{unit} of {names[0]}",
            y_label=f"{unit} of {names[1]}",
        ),
        "Which moment of one is which of the other; steeper than the straight line means that the second is slower there.",
    )
    return report


def _places(made: Comparison) -> list[tuple[int, int, tuple[str, ...]]]:
    """Stretches as rows of the alignment."""
    one, _ = made.times()
    return sorted(
        (int(np.searchsorted(one, s.start)), int(np.searchsorted(one, s.end, "right")), s.joints)
        for s in made.stretches
    )


def _joint_heat(made: Comparison, times: np.ndarray, unit: str) -> str:
    blocks = np.array_split(np.arange(len(times)), min(_BINS, len(times)))
    values = np.stack([mean_over_time(made.joints[block]) for block in blocks], axis=1)
    columns = [f"{times[block[0]]:.1f}" for block in blocks]
    return heatmap(np.nan_to_num(values), list(made.topology.joints), columns, x_label=unit, y_label="joint")
