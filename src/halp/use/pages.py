"""Pages of answers: a search with players side by side, groups with a map, a timeline, two recordings compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halp.clips.clip import Clip
from halp.encoders.packaged import PackagedEncoder
from halp.reports.page import Report
from halp.reports.player import PlayerClip, player
from halp.use.search import Found, frames_of

TALLEST = 20_000  # frames in a player; longer recordings are thinned


def span(start: float, end: float, seconds: bool = True) -> str:
    """A span of time for a reader."""
    return f"{start:.2f} – {end:.2f} s" if seconds else f"frames {start:.0f} – {end:.0f}"


def up_axis(encoder: PackagedEncoder) -> int:
    """The coordinate that points up after the encoder's normalisation."""
    turned = any(step.startswith("rotate") for step in encoder.normalisation)
    return 2 if turned and encoder.topology.dimensions == 3 else 1


def thinned(clip: Clip) -> np.ndarray:
    """Frames for a player, every n-th of a long recording."""
    frames = frames_of(clip)
    return frames[:: -(-len(frames) // TALLEST)]


def search_page(encoder: PackagedEncoder, found: Found, clips: Sequence[Clip], title: str) -> Report:
    """The query beside its hits, and a table of them."""
    report = Report("Most similar movements", title)
    query = found.query[0]
    first = PlayerClip(frames_of(query), f"{query.recording or query.name}")
    row = [
        PlayerClip(
            frames_of(clip),
            f"{hit.name}, {span(hit.start, hit.end, clip.fps > 0)}, similarity {hit.similarity:.3f}",
        )
        for hit, clip in zip(found.hits, clips)
    ]
    report.section("Side by side", "The query first, then what is most like it, nearest first.")
    shown = f" The first of {len(found.query)} windows of the query is shown." if len(found.query) > 1 else ""
    report.figure(
        player([[first, *row]], encoder.topology, up_axis=up_axis(encoder)),
        f"The query and its {len(row)} nearest neighbours by cosine similarity.{shown}",
    )
    report.section("Table")
    rows = [[place, hit.name, hit.similarity, hit.start, hit.end] for place, hit in enumerate(found.hits, start=1)]
    report.table(["", "recording", "similarity", "start", "end"], rows, caption=_how(found))
    return report


def _how(found: Found) -> str:
    times = "Times in seconds (in frames where the frame rate is not known)."
    if found.facts is None:
        return f"Exact search over {len(found.table)} vectors. {times}"
    return (
        f"Approximate search over {len(found.table)} vectors; recall@10 {found.facts.recall:.3f}, measured with "
        f"{found.facts.queries} queries. {times}"
    )
