"""Windows of recordings: labelled by events; used for motifs and deviation too."""

from __future__ import annotations

import numpy as np

from halp.core.errors import InputError
from halp.data.reading import Reading
from halp.data.spans import UNSEEN, Events
from halp.data.windows import WindowSettings
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.embed import embed_table
from halp.features.loading import AnyEncoder, open_for
from halp.features.source import AnySource, Source
from halp.features.table import FeatureTable

LONGEST = 2.0  # seconds of a window, if the user does not say


def usual_cutting(events: Events, asked: WindowSettings) -> WindowSettings:
    """The given windows, else the median duration of events (up to two seconds) with half overlap."""
    durations = [event.duration for event in events if event.label not in ("", *UNSEEN)]
    if not durations:
        raise InputError(f"{events.origin} has no labelled event; nothing can be learned from it")
    width = asked.window or min(LONGEST, float(np.median(durations)))
    return WindowSettings(width, asked.stride or width / 2, asked.fps)


def label_windows(source: Source, events: Events) -> tuple[Source, list[str]]:
    """Windows of a source that lie mostly in one event, with its label; notes on what does not match.

    Where every labelled event names a subject, subjects keep people apart in cross-validation.
    """
    matched, missed, without = events.check(concurrent=True).matched(source.recordings)
    notes = [f"no recording is called '{name}', its events are left out" for name in missed]
    notes += [f"recording '{name}' has no events" for name in without]
    classes = matched.labels
    if not classes:
        first = f" (events name '{missed[0]}', recordings '{source.recordings[0]}')" if missed else ""
        raise InputError(f"no labelled event of {events.origin} names a recording of '{source.name}'{first}")
    rows = source.rows
    labels, best = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows))
    people = sorted({event.subject for event in matched if event.label in classes})
    subjects = rows["subject"].copy()
    place = {name: number for number, name in enumerate(source.recordings)}
    order = np.argsort(rows["recording"], kind="stable")
    edges = np.searchsorted(rows["recording"][order], np.arange(len(source.recordings) + 1))
    for event in matched:
        if event.label not in classes:
            continue
        first, last = edges[place[event.recording]], edges[place[event.recording] + 1]
        windows = order[first:last]
        inside = np.minimum(rows["stop"][windows], event.stop) - np.maximum(
            rows["start"][windows], event.start
        )
        share = inside / np.maximum(rows["stop"][windows] - rows["start"][windows], 1e-9)
        chosen = windows[(share > 0.5) & (share > best[windows])]
        best[chosen] = share[np.searchsorted(windows, chosen)]
        labels[chosen] = classes.index(event.label)
        if "" not in people:
            subjects[chosen] = people.index(event.subject)
    if not (labels >= 0).any():
        raise InputError(
            f"no window of '{source.name}' lies mostly in an event of {events.origin}; give a shorter"
            " --window"
        )
    return source.with_labels(labels, classes, subjects), notes


def embedded(
    encoder: AnyEncoder, source: AnySource, reading: Reading, *, cache: bool = True
) -> tuple[PretrainedEncoder, Source, FeatureTable]:
    """The encoder, the opened source and its feature table; windows are needed, and seconds."""
    loaded, opened = open_for(encoder, source, reading)
    table = embed_table(loaded, opened, cache=cache)
    if (opened.fps <= 0).any():
        raise InputError(f"recordings of '{opened.name}' do not state their frames per second; give --fps")
    return loaded, opened, table
