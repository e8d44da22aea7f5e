"""Deviation of recordings from a reference group, by windows and `halp.tasks.deviation`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import Unpack

from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.spans import Event, Events
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.encode import ready_clips
from halp.features.loading import AnyEncoder
from halp.features.source import AnySource, Source
from halp.features.table import FeatureTable
from halp.tasks.deviation import PersonWindows, make_reference, resampled_poses, warnings_about
from halp.tasks.deviation import deviation as measure
from halp.tasks.intervals import rounded
from halp.tasks.pose_tracks import source_name
from halp.tasks.read_events import read_people
from halp.tasks.windows import LONGEST, embedded


@dataclass(frozen=True)
class Deviations:
    """A row per recording: score, percentile, whether unlike the whole reference, joints and moments."""

    rows: Sequence[dict[str, Any]]
    origin: str

    def events(self) -> Events:
        """The most unusual moments, with the joint that differs most."""
        return Events(
            [
                Event(
                    row["recording"],
                    m["start"],
                    m["stop"],
                    "unusual",
                    row["person"],
                    "model",
                    None,
                    _moment(m),
                )
                for row in self.rows
                for m in row["moments"]
            ]
        )

    def to_json(self) -> list[dict[str, Any]]:
        """The rows."""
        return list(self.rows)


def _moment(moment: Mapping[str, Any]) -> dict[str, Any]:
    return {name: moment[name] for name in ("percentile", "joint")}


def deviation(
    encoder: AnyEncoder,
    reference: AnySource,
    source: AnySource,
    reading: Reading | None = None,
    *,
    people: str | os.PathLike[str] | Mapping[str, str] | None = None,
    other_windows: bool = True,
    cache: bool = True,
    **keywords: Unpack[ReadingKeywords],
) -> Deviations:
    """How far movements deviate from a reference group, as a percentile among held-out people.

    It says how unusual a movement is for this group; it is not a diagnosis. Every recording of the source is
    a visit.

    Parameters
    ----------
    encoder
        An encoder, or the path or name of one.
    reference : source
        A store or recordings of five or more people, doing what is tested.
    source : source
        A store or recordings of the tested people.
    people : path or mapping, optional
        A CSV table with the columns recording and subject, if recordings do not name the person.
    other_windows : bool
        Also measure with half the window and warn if the answer changes.
    cache : bool
        Keep vectors for the next time.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields. Windows of 2 seconds, half a window apart,
        unless given.

    Returns
    -------
    Deviations
        A row per recording with score, percentile, joints and moments.

    Examples
    --------
    $ halp deviation halp-base healthy visits --html deviation.html
    $ halp deviation halp-base healthy visits --people people.csv --window 2 --json
    """
    if people is not None and not isinstance(people, Mapping):
        people = read_people(people, "subject", ("recording", "name", "path"))
    names = None if people is None else dict(people)
    asked = combine(reading, keywords)
    window = asked.window or LONGEST
    stride = asked.stride or window / 2

    def rows_with(part: float) -> list[dict[str, Any]]:
        cut = replace(asked, window=part * window, stride=part * stride)
        windows = []
        for place in (reference, source):
            loaded, opened, table = embedded(encoder, place, cut, cache=cache)
            windows.append(deviation_windows(loaded, opened, table, names))
        return measure(make_reference(windows[0]), windows[1])

    rows = rows_with(1.0)
    others = {row["recording"]: row for row in rows_with(0.5)} if other_windows else {}
    for row in rows if other_windows else ():
        other = others.get(row["recording"])
        kept = {name: other[name] for name in ("score", "percentile", "unlike")} if other else {}
        row["other_windows"] = [{"window": window / 2, **kept}] if kept else []
    for sentence in warnings_about(rounded(rows)):
        warnings.warn(sentence, stacklevel=2)
    return Deviations(rounded(rows), f"{source_name(source)} beside {source_name(reference)}")


def deviation_windows(
    encoder: PretrainedEncoder, source: Source, table: FeatureTable, people: dict[str, str] | None = None
) -> PersonWindows:
    """Windows with their person: from a table, else the subject of the source, else the recording."""
    rows = np.flatnonzero(table.seen > 0.5)
    names = [table.name(int(row)) for row in rows]
    persons = []
    for row, name in zip(rows, names):
        subject = int(table.subjects[row])
        persons.append((people or {}).get(name) or (f"subject {subject}" if subject >= 0 else name))
    clips = ready_clips(encoder, source, rows)
    return PersonWindows(
        names,
        persons,
        table.starts[rows],
        table.stops[rows],
        np.asarray(table.vectors[rows]),
        resampled_poses([clip.frames for clip in clips]),
        encoder.topology.joints,
    )
