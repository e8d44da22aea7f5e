"""Motifs of recordings: windows of a source, the model of `halp.tasks.motifs`, and bouts as events."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from halp.core.errors import InputError, check_seconds
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.spans import UNSEEN, Event, Events
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.loading import AnyEncoder
from halp.features.source import AnySource, Source
from halp.features.table import ChosenRows, FeatureTable
from halp.tasks.bouts import measures
from halp.tasks.intervals import rounded, sums_interval
from halp.tasks.motifs import MotifModel, fit_motifs, load_motifs, motif_names
from halp.tasks.motifs import stability as measure_stability
from halp.tasks.segment import check_stride
from halp.tasks.segments import merge_windows
from halp.tasks.windows import embedded

NO_INTERVAL = {
    **dict.fromkeys(("motifs.windows", "motifs.count", "motifs.total"), "counted completely"),
    **dict.fromkeys(("motifs.mean", "motifs.median"), "bouts of one recording are not independent"),
    "motifs.share": "below five recordings, or where all of them are alike, it has none",
    "tree": "it describes this model",
    "stability": "an agreement of few fits, itself a measure of error",
    "events": "single bouts",
}


@dataclass(frozen=True)
class Motifs:
    """Recurring movements: their bouts, a row about each, and the model that finds them elsewhere."""

    model: MotifModel
    bouts: Events
    rows: list[dict[str, Any]]
    stability: Mapping[str, float | None] | None
    probability: npt.NDArray[np.float64]
    table: FeatureTable
    encoder: PretrainedEncoder
    source: Source

    def events(self) -> Events:
        """The bouts of all motifs."""
        return self.bouts

    def to_json(self) -> dict[str, Any]:
        """Motifs, the tree that joins them, stability and events."""
        answer = {"motifs": self.rows, "tree": self.model.tree().tolist(), "stability": self.stability}
        events = [event.to_json() for event in self.bouts]
        return rounded(answer | {"events": events, "no_interval": NO_INTERVAL})


def motifs(
    encoder: AnyEncoder,
    source: AnySource,
    *,
    motifs: int | None = None,
    sticky: float = 20.0,
    merge: int | None = None,
    model: MotifModel | str | os.PathLike[str] | None = None,
    save: str | os.PathLike[str] | None = None,
    shortest: float = 0.0,
    stability: bool = True,
    seed: int = 0,
    cache: bool = True,
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Motifs:
    """Find recurring movements, with durations and without labels, and apply them to new recordings.

    A hidden Markov model on vectors of windows (1 second every quarter of a second unless told otherwise).

    Parameters
    ----------
    encoder
        An encoder, or the path or name of one.
    source : source
        A store, recordings of any format, or arrays.
    motifs : int, optional
        How many (default: the number up to 12 with the lowest BIC).
    sticky : float
        Prior counts of staying in a motif; larger means longer bouts.
    merge : int, optional
        Join the most similar motifs until this many are left.
    model : MotifModel or path, optional
        Motifs found earlier, or the file that `save` wrote, to apply instead of finding new ones.
    save : path, optional
        Write the motifs to a file.
    shortest : float
        Seconds; shorter bouts go to a neighbour.
    stability : bool
        Measure how far motifs depend on the seed and on the half of the data.
    seed : int
        Of the search.
    cache : bool
        Keep vectors for the next time.
    progress : bool
        Whether progress is shown.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields.

    Returns
    -------
    Motifs
        Bouts as events, a row per motif, and the model.

    Examples
    --------
    $ halp motifs halp-base recordings --save motifs.npz --html motifs.html --out motifs.csv
    $ halp motifs halp-base new-recordings --model motifs.npz --out motifs.csv
    """
    check_seconds(shortest=shortest)
    reading = combine(reading, keywords)
    fitted = model if model is None or isinstance(model, MotifModel) else load_motifs(model)
    width = reading.window or (1.0 if fitted is None else float(fitted.facts.get("window", 1.0)))
    step = reading.stride or (width / 4 if fitted is None else float(fitted.facts.get("stride", 0.25)))
    check_stride(width, step)
    loaded, opened, table = embedded(
        encoder, source, replace(reading, window=width, stride=step), cache=cache
    )
    parts = [ChosenRows(table.vectors, rows) for rows in sequences(table)]
    steady = None
    if fitted is None:
        fitted = fit_motifs(parts, motifs, sticky=sticky, seed=seed, progress=progress)
        name = str(encoder) if isinstance(encoder, (str, os.PathLike)) else ""
        fitted.facts.update(window=width, stride=step, encoder=name)
        if stability:
            steady = measure_stability(parts, len(fitted), sticky=sticky, seed=seed, progress=progress)
    if merge is not None and not 1 <= merge <= len(fitted):
        raise InputError(f"{len(fitted)} motifs cannot be merged to {merge}; give 1 to {len(fitted)}")
    groups = None if merge is None else fitted.merged(merge)
    answers, probability = motif_answers(fitted, table, groups=groups, shortest=shortest)
    if save is not None:
        fitted.save(save)
    bouts = Events(answers)
    return Motifs(fitted, bouts, motif_rows(bouts, probability), steady, probability, table, loaded, opened)


def sequences(table: FeatureTable) -> list[npt.NDArray[np.int64]]:
    """Rows of every recording in order of time, split at spans without a person."""
    parts = []
    for rows in table.rows_by_recording():
        rows = rows[np.argsort(table.starts[rows], kind="stable")]
        seen = rows[table.seen[rows] > 0.5]
        if len(seen):
            step = np.diff(table.starts[seen])
            usual = float(np.median(step)) if len(step) else 0.0
            parts += np.split(seen, np.flatnonzero(step > 1.5 * usual + 1e-6) + 1)
    return parts


def motif_answers(
    model: MotifModel,
    table: FeatureTable,
    *,
    groups: npt.NDArray[np.int64] | None = None,
    shortest: float = 0.0,
) -> tuple[list[Event], npt.NDArray[np.float64]]:
    """Motifs of every recording as segments, and all rows' probabilities; `groups` merges motifs."""
    parts = sequences(table)
    names = motif_names(len(model) if groups is None else int(groups.max()) + 1)
    probability = np.zeros((len(table), len(model)))
    probability[np.concatenate(parts)] = np.concatenate(
        model.probabilities([ChosenRows(table.vectors, rows) for rows in parts])
    )
    if groups is not None:
        probability = np.stack([probability[:, groups == g].sum(1) for g in range(len(names))], axis=1)
    answers: list[Event] = []
    known = probability.sum(1) > 0
    for number, (name, rows) in enumerate(zip(table.recordings, table.rows_by_recording())):
        rows = rows[known[rows]]
        spans = table.starts[rows], table.stops[rows]
        answers += merge_windows(
            name, *spans, probability[rows], names, absent=table.absent(number), shortest=shortest
        )
    return answers, probability


def motif_rows(events: Events, probability: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
    """A row per motif: the number of windows and statistics of its bouts over all recordings."""
    times: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))  # of a recording, per motif
    for event in events:
        if event.label not in UNSEEN:
            times[event.recording][event.label] += event.duration
    observed = sum(sum(part.values()) for part in times.values())
    windows = np.bincount(probability.argmax(1), minlength=probability.shape[1]).tolist()
    rows = []
    for name, count in zip(motif_names(len(windows)), windows):
        bouts = events.where(label=name)
        facts = measures([event.duration for event in bouts], [event.start for event in bouts], observed)
        kept = {key: facts[key] for key in ("count", "total", "mean", "median", "share")}
        sums = [(part[name], sum(part.values())) for part in times.values()]
        interval = sums_interval(sums, lambda total: total[:, 0] / total[:, 1], "share")
        rows.append({"motif": name, "windows": count, **kept, "share_interval": interval})
    return rows


def typical_rows(
    table: FeatureTable, probability: npt.NDArray[np.float64], motif: int, count: int = 4
) -> list[int]:
    """The most certain windows of a motif, from different recordings if possible."""
    windows = np.flatnonzero(probability.argmax(1) == motif)
    windows = windows[np.argsort(-probability[windows, motif], kind="stable")]
    _, first = np.unique(table.recording[windows], return_index=True)
    chosen = [*windows[np.sort(first)], *np.delete(windows, first)]
    return [int(row) for row in chosen[:count]]
