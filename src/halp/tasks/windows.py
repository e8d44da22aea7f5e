"""Windows of recordings: those that lie in events take their labels; their vectors make motifs and deviation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.reading import Reading
from halp.data.spans import NOBODY, Event, Events
from halp.data.windows import WindowSettings
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.embed import embed_table, ready_clips
from halp.features.loading import AnyEncoder, open_for
from halp.features.source import AnySource, Source
from halp.features.table import FeatureTable
from halp.tasks.bouts import measures
from halp.tasks.deviation import Windows, resampled_poses
from halp.tasks.motifs import MotifModel, motif_names
from halp.tasks.segments import merge_windows

LONGEST = 2.0  # seconds of a window, where the user does not say


def usual_cutting(events: Events, asked: WindowSettings) -> WindowSettings:
    """Windows as asked for, else of the median duration of labelled events, up to two seconds, every half of it."""
    durations = [event.duration for event in events if event.label not in ("", NOBODY)]
    if not durations:
        raise InputError(f"{events.origin} has no labelled event; nothing can be learned from it")
    width = asked.window or min(LONGEST, float(np.median(durations)))
    return WindowSettings(width, asked.stride or width / 2, asked.fps)


def label_windows(source: Source, events: Events) -> tuple[Source, list[str]]:
    """The windows of a source of which more than half lies in one event, with its label, and what does not match.

    Where every labelled event names a subject, subjects keep people apart in cross-validation.
    """
    matched, missed, without = events.check(concurrent=True).matched(source.recordings)
    notes = [f"no recording is called '{name}', its events are left out" for name in missed]
    notes += [f"recording '{name}' has no events" for name in without]
    classes = matched.labels
    if not classes:
        first = f" (events name '{missed[0]}', recordings '{source.recordings[0]}')" if missed else ""
        raise InputError(f"no labelled event of {events.origin} belongs to a recording of '{source.name}'{first}")
    rows = source.rows
    labels, best = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows))
    people = sorted({event.subject for event in matched if event.label in classes})
    subjects = rows["subject"].copy()
    order = np.argsort(rows["recording"], kind="stable")
    begins = np.searchsorted(rows["recording"][order], np.arange(1, len(source.recordings)))
    place = dict(zip(source.recordings, np.split(order, begins)))
    for event in matched:
        if event.label not in classes:
            continue
        windows = place[event.recording]
        inside = np.minimum(rows["stop"][windows], event.stop) - np.maximum(rows["start"][windows], event.start)
        share = inside / np.maximum(rows["stop"][windows] - rows["start"][windows], 1e-9)
        chosen = windows[(share > 0.5) & (share > best[windows])]
        best[chosen] = share[np.searchsorted(windows, chosen)]
        labels[chosen] = classes.index(event.label)
        if "" not in people:
            subjects[chosen] = people.index(event.subject)
    if not (labels >= 0).any():
        raise InputError(
            f"no window of '{source.name}' lies mostly in an event of {events.origin}; give a shorter --window"
        )
    return source.labelled(labels, classes, subjects), notes


def embedded(
    encoder: AnyEncoder, source: AnySource, reading: Reading, *, cache: bool = True
) -> tuple[PretrainedEncoder, Source, FeatureTable]:
    """The encoder, the opened source and its feature table; windows are needed, and seconds."""
    loaded, opened = open_for(encoder, source, reading)
    table = embed_table(loaded, opened, cache=cache)
    if (opened.fps <= 0).any():
        raise InputError(f"recordings of '{opened.name}' do not tell their frames per second; give --fps")
    return loaded, opened, table


def sequences(table: FeatureTable) -> list[npt.NDArray[np.int64]]:
    """Rows of every recording in order of time, apart where nobody was there in between."""
    parts = []
    for rows in table.rows_by_recording:
        rows = rows[np.argsort(table.starts[rows], kind="stable")]
        seen = rows[table.seen[rows] > 0.5]
        if len(seen):
            step = np.diff(table.starts[seen])
            usual = float(np.median(step)) if len(step) else 0.0
            parts += np.split(seen, np.flatnonzero(step > 1.5 * usual + 1e-6) + 1)
    return parts


def motif_answers(
    model: MotifModel, table: FeatureTable, *, groups: npt.NDArray[np.int64] | None = None, shortest: float = 0.0
) -> tuple[list[Event], npt.NDArray[np.float64]]:
    """Motifs of every recording as segments, and the probabilities of all rows; `groups` joins motifs to fewer."""
    parts = sequences(table)
    names = motif_names(len(model) if groups is None else int(groups.max()) + 1)
    probability = np.zeros((len(table), len(model)))
    for rows, values in zip(parts, model.probabilities([table.vectors[rows] for rows in parts])):
        probability[rows] = values
    if groups is not None:
        probability = np.stack([probability[:, groups == g].sum(1) for g in range(len(names))], axis=1)
    answers: list[Event] = []
    known = probability.sum(1) > 0
    for number, (name, members) in enumerate(zip(table.recordings, table.rows_by_recording)):
        rows = members[known[members]]
        spans = table.starts[rows], table.stops[rows]
        answers += merge_windows(name, *spans, probability[rows], names, absent=table.absent(number), shortest=shortest)
    return answers, probability


def motif_rows(events: Events, probability: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
    """A row per motif: how many windows it has, and what is measured about its bouts over all recordings."""
    observed = sum(event.duration for event in events if event.label != NOBODY)
    windows = np.bincount(probability.argmax(1), minlength=probability.shape[1]).tolist()
    rows = []
    for name, count in zip(motif_names(len(windows)), windows):
        bouts = events.where(label=name)
        facts = measures([event.duration for event in bouts], [event.start for event in bouts], observed)
        kept = {key: facts[key] for key in ("count", "total", "mean", "median", "share")}
        rows.append({"motif": name, "windows": count, **kept})
    return rows


def typical_rows(table: FeatureTable, probability: npt.NDArray[np.float64], motif: int, count: int = 4) -> list[int]:
    """The windows that are surest of a motif, of different recordings as far as there are."""
    windows = np.flatnonzero(probability.argmax(1) == motif)
    windows = windows[np.argsort(-probability[windows, motif], kind="stable")]
    _, first = np.unique(table.recording[windows], return_index=True)
    chosen = [*windows[np.sort(first)], *np.delete(windows, first)]
    return [int(row) for row in chosen[:count]]


def deviation_windows(
    encoder: PretrainedEncoder, source: Source, table: FeatureTable, people: dict[str, str] | None = None
) -> Windows:
    """Windows with the person of each: from a table by recording, else the subject of the source, else the recording."""
    rows = np.flatnonzero(table.seen > 0.5)
    names = [table.name(int(row)) for row in rows]
    persons = []
    for row, name in zip(rows, names):
        subject = int(table.subjects[row])
        persons.append((people or {}).get(name) or (f"subject {subject}" if subject >= 0 else name))
    clips = ready_clips(encoder, source, rows)
    return Windows(
        names,
        persons,
        table.starts[rows],
        table.stops[rows],
        np.asarray(table.vectors[rows]),
        resampled_poses([clip.frames for clip in clips]),
        encoder.topology.joints,
    )
