"""Pages of answers: search with players, groups with a map, a timeline, two recordings compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from halp.data.clip import Clip
from halp.data.inspect import Inspection
from halp.data.spans import UNSEEN, Event
from halp.evaluation.analysis.embedding import embedding_map
from halp.features.encode import ready_clips
from halp.reports.figures import heatmap, line_chart
from halp.reports.page import Report
from halp.reports.pages.people import people_page
from halp.reports.player import PlayerClip, clip_map, player, timeline
from halp.reports.store_page import store_page
from halp.skeleton import Topology
from halp.tasks.cluster import Clustering
from halp.tasks.compare import Comparison, bone_length, mean_over_time
from halp.tasks.people import People
from halp.tasks.search import SearchResults, frames_of
from halp.tasks.segment import Timeline
from halp.video.film import film_addresses

TALLEST = 20_000  # frames in a player; longer recordings are thinned
REJECTED = "unlike everything labelled"
SHOWN = 12  # recordings with a player of their own
MAPPED = 1500  # points on a map
_BINS = 36


def span(start: float, end: float, seconds: bool = True) -> str:
    """A time span as text."""
    return f"{start:.2f} – {end:.2f} s" if seconds else f"frames {start:.0f} – {end:.0f}"


def thinned(clip: Clip) -> np.ndarray:
    """Frames for a player, every n-th of a long recording."""
    frames = frames_of(clip)
    return frames[:: -(-len(frames) // TALLEST)]


def card(clip: Clip, role: str) -> PlayerClip:
    """A clip for a player, with its recording and span."""
    name, end = clip.recording or clip.name, float(clip.extra["end"])
    return PlayerClip(thinned(clip), f"{name}, {span(clip.start, end, clip.fps > 0)}", role=role)


def search_page(results: SearchResults, path: Path | None = None) -> Report:
    """The query, its hits, and a table of them."""
    report = Report("Most similar movements", f"{results.asked} in {results.source.name}")
    encoder, clips = results.encoder, ready_clips(results.encoder, results.source, results.rows)
    query = results.query[0]
    first = PlayerClip(frames_of(query), f"{query.recording or query.name}")
    row = [
        PlayerClip(
            frames_of(clip),
            f"{hit.recording}, {span(hit.start, hit.stop, clip.fps > 0)}, similarity {hit.score:.3f}",
        )
        for hit, clip in zip(results.hits, clips)
    ]
    report.section("Side by side", "The query first, then what is most like it, nearest first.")
    shown = (
        f" The first of {len(results.query)} windows of the query is shown." if len(results.query) > 1 else ""
    )
    report.figure(
        player([[first, *row]], encoder.topology),
        f"The query and its {len(row)} nearest neighbours by cosine similarity.{shown}",
    )
    report.section("Table")
    facts = results.facts
    how = (
        f"Exact search over {len(results.table)} vectors."
        if facts is None
        else (
            f"Approximate search over {len(results.table)} vectors; recall@10 {facts.recall:.3f}, measured"
            f" with {facts.queries} queries."
        )
    )
    rows = [
        {"": place, "recording": hit.recording, "similarity": hit.score, "start": hit.start, "stop": hit.stop}
        for place, hit in enumerate(results.hits, start=1)
    ]
    report.rows(rows, f"{how} Times in seconds (in frames if the frame rate is unknown).")
    return report


def timeline_page(result: Timeline, path: Path | None = None) -> Report:
    """A player with its timeline for each recording, and all segments as a table; videos beside the page can
    be played.
    """
    report, encoder = Report("Timeline", result.source.name), result.encoder
    whole = result.source.cut(fps=result.cutting.fps)
    recordings = ready_clips(encoder, whole, range(len(whole)))
    names = [clip.recording or clip.name for clip in recordings]
    films = film_addresses(Path(result.source.name), names, path) if path is not None else {}
    width, stride = result.cutting.window, result.cutting.stride
    how = (
        f"Windows of {width:g} s every {stride:g} s were given a label each and merged into segments. "
        "Click on a timeline to go there."
    )
    for number, clip in enumerate(recordings[:SHOWN]):
        name = clip.recording or clip.name
        segments = [event for event in result if event.recording == name]
        report.section(name, "" if number else how)
        restored = clip.restored()
        frames = thinned(restored)
        rate = 30.0 if clip.fps <= 0 else clip.fps * len(frames) / len(restored.frames)
        shown = PlayerClip(frames, name, role="recording", film=films.get(name))
        parts = [replace(event, label=_words(event), more={"note": _confidence(event)}) for event in segments]
        start, end = clip.start, float(clip.extra["end"])
        unit = "s" if clip.fps > 0 else "frames"
        report.figure(
            player([[shown]], encoder.topology, rate=rate)
            + timeline(parts, start=start, end=end, faint=(REJECTED, *UNSEEN), unit=unit),
            f"{len(segments)} segments of {name}.",
        )
    if len(recordings) > SHOWN:
        report.text(f"{len(recordings) - SHOWN} further recordings stand in the table only.")
    report.section("Segments")
    rows = [
        {"recording": event.recording, "start": event.start, "stop": event.stop}
        | {"label": _words(event), "best class": event.more["best"], "probability": event.score}
        for event in result
    ]
    report.rows(rows, "Times in seconds.")
    return report


def _words(event: Event) -> str:
    """The label of a segment, or why it has none."""
    return event.label or REJECTED


def _confidence(event: Event) -> str:
    return "" if event.score is None else f"{event.more['best']}, probability {event.score:.2f}"


def cluster_page(answer: Clustering, path: Path | None = None) -> Report:
    """A map of all clips coloured by group, and the typical clip of each group in a player."""
    report = Report("Groups", answer.source.name)
    table, clusters, encoder = answer.table, answer.clusters, answer.encoder
    typical = ready_clips(encoder, answer.source, clusters.typical)
    sizes = clusters.sizes
    report.section("Typical clips", "For each group the clip that is nearest to its centre.")
    cards = [card(clip, f"group {number + 1}: {sizes[number]} clips") for number, clip in enumerate(typical)]
    report.figure(player([cards], encoder.topology), f"The typical clip of each of {len(cards)} groups.")
    report.section("Map")
    rows = np.arange(len(table))
    if len(rows) > MAPPED:
        rows = np.sort(np.random.default_rng(0).choice(len(table), MAPPED, replace=False))
    places = embedding_map(np.asarray(table.vectors[rows]))
    digits = len(str(len(cards)))
    report.figure(
        clip_map(
            places,
            [f"group {clusters.group[row] + 1:0{digits}}" for row in rows],
            names=[
                f"{table.name(int(row))} {table.starts[row]:.2f} – {table.stops[row]:.2f}" for row in rows
            ],
        ),
        f"{len(rows)} of {len(table)} clips laid out by t-SNE: near means similar, distances between far ones"
        " mean little.",
    )
    report.section("Table")
    tried = ", ".join(f"{count}: {value:.2f}" for count, value in clusters.silhouettes.items())
    caption = f"Silhouette {clusters.silhouette:.2f} (1: far apart, 0: touching)." + (
        f" Numbers of groups tried: {tried}." if tried else ""
    )
    report.rows(answer.summary(), caption)
    return report


def comparison_page(comparison: Comparison, path: Path | None = None) -> Report:
    """Both recordings in sync, their distance over time, and the joints that differ most."""
    names = [clip.recording or clip.name for clip in (comparison.first, comparison.second)]
    report = Report("Two recordings compared", " and ".join(names))
    if names[0] == names[1]:
        names = [f"{names[0]} (first)", f"{names[1]} (second)"]
    times, other = comparison.times()
    known = comparison.first.fps > 0
    unit = "seconds" if known else "frames"
    report.section(
        "In step",
        "The same moments of both are shown, at the speed of the first and in bone lengths of each person.",
    )
    # one row of the alignment for every frame of the first
    places = np.unique(comparison.pairs[:, 0], return_index=True)[1]
    clips = [
        PlayerClip(
            _in_bone_lengths(clip, comparison.topology)[comparison.pairs[places, side]],
            name,
            role=("first", "second")[side],
        )
        for side, (clip, name) in enumerate(zip((comparison.first, comparison.second), names))
    ]
    stretches = sorted(comparison.stretches, key=lambda stretch: stretch.start)
    parts = [replace(s, more={"note": ", ".join(s.more["joints"])}) for s in stretches]
    shown = player([clips], comparison.topology, rate=comparison.first.fps if known else 30.0, same_zoom=True)
    bar = (
        timeline(parts, start=float(times[0]), end=float(times[-1]), unit="s" if known else "frames")
        if parts
        else ""
    )
    matched = (
        f"{span(times[0], times[-1], known)} of the first are matched with {span(other[0], other[-1], known)}"
        " of the second"
    )
    report.figure(shown + bar, f"{matched}. Coloured stretches differ most. Click on one to go there.")
    report.section("Where they differ")
    if comparison.stretches:
        rows = [
            {
                "in the first": span(s.start, s.stop, known),
                "in the second": span(s.more["other_start"], s.more["other_stop"], comparison.second.fps > 0),
                "difference (bone lengths)": s.score,
                "joints that differ most": ", ".join(s.more["joints"]),
            }
            for s in comparison.stretches
        ]
        report.rows(rows, "Largest first; a difference of 1 is the mean length of a bone.")
    else:
        report.text("No stretch stands out from the rest.")
    level = mean_over_time(comparison.joints.T)
    report.figure(
        line_chart(
            {"joints": (times.tolist(), level.tolist())},
            x_label=f"{unit} of {names[0]}",
            y_label="mean joint distance",
        ),
        "Mean distance of the joints of aligned frames, in mean bone lengths.",
    )
    report.figure(
        _joint_heat(comparison, times, unit), "Distance of every joint over time; darker is further apart."
    )
    report.section("Timing")
    report.figure(
        line_chart(
            {
                "alignment": (times.tolist(), other.tolist()),
                "same speed": ([times[0], times[-1]], [other[0], other[-1]]),
            },
            x_label=f"{unit} of {names[0]}",
            y_label=f"{unit} of {names[1]}",
        ),
        "Which moment of one is which of the other; steeper than the straight line means that the second is"
        " slower there.",
    )
    return report


def _in_bone_lengths(clip: Clip, topology: Topology) -> np.ndarray:
    person = np.where(clip.frames[:, 0] != 0, clip.frames[:, 0], np.nan).astype(np.float64)
    return clip.frames / bone_length(person, topology)


def _joint_heat(comparison: Comparison, times: np.ndarray, unit: str) -> str:
    blocks = np.array_split(np.arange(len(times)), min(_BINS, len(times)))
    values = np.stack([mean_over_time(comparison.joints[block]) for block in blocks], axis=1)
    columns = [f"{times[block[0]]:.1f}" for block in blocks]
    return heatmap(
        np.nan_to_num(values), list(comparison.topology.joints), columns, x_label=unit, y_label="joint"
    )


PAGES: dict[type, Callable[[Any, Path | None], Report]] = {
    People: people_page,
    SearchResults: search_page,
    Timeline: timeline_page,
    Clustering: cluster_page,
    Comparison: comparison_page,
    Inspection: store_page,
}
