"""A page about a store: contents, findings, charts of counts, and a player that finds every clip by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.data.inspect import UNKNOWN, Inspection
from halp.data.store import Store, open_store
from halp.data.windows import spans
from halp.reports.drawing import escape_text
from halp.reports.figures import histogram
from halp.reports.page import Report
from halp.reports.player import PlayerClip, player

_MOST_BARS = 30


def named_bars(counts: Mapping[Any, float], *, per_cent: bool = False) -> str:
    """A bar for every name, largest first if there are many; names beside the bars wrap."""
    entries = list(counts.items())
    left_out: Sequence[tuple[Any, float]] = []
    if len(entries) > _MOST_BARS:
        entries.sort(key=lambda pair: -pair[1])
        entries, left_out = entries[:_MOST_BARS], entries[_MOST_BARS:]
    largest = max((value for _, value in entries), default=0) or 1
    rows = []
    for name, value in entries:
        shown = f"{value:.1%}" if per_cent else f"{value:g}"
        rows.append(
            f'<dt>{escape_text(name)}</dt><dd style="--share:{100 * value / largest:.1f}%">{shown}</dd>'
        )
    if left_out:
        more = "" if per_cent else f", {sum(value for _, value in left_out):g} together"
        rows.append(f"<dt>and {len(left_out)} more{more}</dt>")
    return f'<dl class="bars">{"".join(rows)}</dl>'


#: Bytes that the clips of the player may take in the page.
BUDGET = 12_000_000
#: Frames that a clip keeps at least when many clips have to share the room.
FEWEST_FRAMES = 12


def store_page(inspection: Inspection, path: Path | None = None) -> Report:
    """The inspection of a store as one self-contained HTML page."""
    store = open_store(inspection.path)
    report = Report(f"Store {store.path.name}", f"{len(store)} clips of topology {store.topology.name}")
    _overview(report, inspection)
    _findings(report, inspection)
    report.section("Lengths")
    report.figure(histogram(store.lengths, x_label="frames per clip"), _lengths_caption(store, inspection))
    _counts(report, inspection)
    _splits(report, inspection)
    _clips(report, store)
    return report


def _overview(report: Report, inspection: Inspection) -> None:
    persons = ", ".join(
        f"{clips} clips with {count}" for count, clips in inspection.clips_with_persons.items()
    )
    report.section("At a glance")
    facts = {
        "clips": f"{inspection.clips} ({inspection.frames} frames)",
        "joints": f"{inspection.joints} in {inspection.dimensions}D, topology {inspection.topology}",
        "persons": persons,
        "normalisation": ", ".join(inspection.normalisation) or "none",
        "frames with nobody": str(inspection.empty_frames),
        "left out at prepare": str(inspection.dropped),
        "repaired at prepare": str(inspection.repaired),
        "fingerprint": inspection.hash[:16],
    }
    report.table(["what", "value"], list(facts.items()), caption="Contents of the store.")
    if reasons := list(inspection.dropped_reasons.items())[:30]:
        report.table(["reason", "clips"], reasons, caption="Why clips were left out.")


def _findings(report: Report, inspection: Inspection) -> None:
    report.section("Problems")
    if not inspection.findings:
        report.text(
            "No problems: no gaps, spikes, jitter, swapped persons, unusual axes or units were found."
        )
        return
    rows = [{"what was found": finding.problem, "remedy": finding.remedy} for finding in inspection.findings]
    report.rows(rows, "Problems and their remedies.")


def _lengths_caption(store: Store, inspection: Inspection) -> str:
    times = spans(store)
    known = times.fps > 0
    seconds = f", median {np.median((times.end - times.start)[known]):.1f} s" if known.all() else ""
    lengths = inspection.lengths
    return (
        f"Shortest {lengths['shortest']:g}, median {lengths['median']:g}, longest {lengths['longest']:g}"
        f" frames{seconds}."
    )


def _counts(report: Report, inspection: Inspection) -> None:
    """Bars for classes, columns with several values, and missing joints; empty if there are none."""
    report.section("Classes, subjects and other columns")
    shown: dict[str, dict[Any, int]] = {"class": {**inspection.classes}}
    shown |= {name: {**counts} for name, counts in inspection.columns.items()}
    several = {name: counts for name, counts in shown.items() if len(counts) > 1}
    for name, counts in several.items():
        unknown = f"; not known for {counts[UNKNOWN]}" if UNKNOWN in counts else ""
        known = {value: count for value, count in counts.items() if value != UNKNOWN}
        report.figure(named_bars(known), f"Clips by {name.replace('_', ' ')}: {len(known)} values{unknown}.")
    plain = [
        f"{name}: {next(iter(counts))}" for name, counts in shown.items() if name not in several and counts
    ]
    if plain:
        report.text(f"The same for all clips: {', '.join(plain)}.")
    missing = {joint: share for joint, share in inspection.missing_joints.items() if share > 0}
    report.section("Missing joints")
    if missing:
        report.figure(
            named_bars(missing, per_cent=True),
            "Share of bodies in which a joint is missing; others are always there.",
        )
    else:
        report.text("No joints are missing.")


def _splits(report: Report, inspection: Inspection) -> None:
    if not inspection.splits:
        return
    report.section("Splits")
    rows = [
        {"split": name, "train": sizes["train"], "test": sizes["test"], "fingerprint": sizes["hash"]}
        for name, sizes in inspection.splits.items()
    ]
    report.rows(rows, "Named train and test parts, in clips.")


def _clips(report: Report, store: Store) -> None:
    """The player with as many clips as fit, thinned in time if there are many."""
    chosen, frames = player_share(store)
    names = store.class_names
    rows = []
    for clip in chosen.tolist():
        label = int(store.labels[clip])
        title = f"{names[label]}: " if 0 <= label < len(names) else ""
        whole = store.clip(clip)
        kept = np.unique(np.linspace(0, len(whole) - 1, min(frames, len(whole))).round().astype(int))
        rows.append([PlayerClip(whole[kept], f"{title}{store.names[clip]}", role=f"{len(whole)} frames")])
    how = (
        "All clips"
        if len(chosen) == len(store)
        else f"{len(chosen)} of {len(store)} clips, evenly over the store"
    )
    thinned = (
        f"; clips longer than {frames} frames are shown with {frames} of them"
        if (store.lengths > frames).any()
        else ""
    )
    report.section("Clips", f"{how}{thinned}. Type a part of a name to find a clip. Drag to turn.")
    report.figure(player(rows, store.topology), "A clip of the store.")


def player_share(store: Store, budget: int = BUDGET) -> tuple[npt.NDArray[np.int64], int]:
    """Which clips go into the page and how many frames of each, so that the page stays within the budget."""
    # Three int16 per joint, in base64.
    size = store.persons * len(store.topology) * 3 * 2 * 4 / 3
    room = max(1, int(budget / size))
    count = min(len(store), max(1, room // FEWEST_FRAMES))
    chosen = np.unique(np.linspace(0, len(store) - 1, count).round().astype(int))
    lengths = np.sort(store.lengths[chosen])
    # The longest number of frames at which all clips, cut to it, fit.
    before = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    fitting = (room - before) // np.arange(len(lengths), 0, -1)
    over = np.flatnonzero(lengths > fitting)
    frames = int(lengths[-1]) if not len(over) else int(max(fitting[over[0]], 2))
    return chosen, frames
