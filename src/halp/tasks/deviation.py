"""Deviation of a person's movement from a reference group, calibrated on held-out people.

A window is as far as its nearest windows of the reference are, on average; a person, as the windows are on
average. Every person of the reference is measured in the same way against the others, which gives the
percentile. It says how unusual a movement is for this group, this encoder and this recording; it is not a
diagnosis.

A percentile cannot exceed 100, so a movement of another kind is marked apart: `unlike` is true where a
recording is clearly further away than the most unusual person of the reference.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from halp.core.errors import InputError, names_of
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.spans import Event, Events
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.encode import ready_clips
from halp.features.loading import AnyEncoder
from halp.features.source import AnySource, Source
from halp.features.table import FeatureTable
from halp.tasks.intervals import rounded, share_interval
from halp.tasks.pose_tracks import source_name
from halp.tasks.read_events import read_people
from halp.tasks.windows import LONGEST, embedded

Floats = npt.NDArray[np.float64]
NEAREST = 5
FEWEST = 5  # people of a reference; fewer cannot give a percentile
UNLIKE = 1.15  # times the score of the most unusual person of the reference, beyond which a movement is of another kind
CHANGED = 20.0  # points by which percentiles of two windows may differ before that is worth a warning


#: Why numbers have no interval, by their place in a row.
NO_INTERVAL = {
    "score": "one visit; its percentile has an interval over the people of the reference",
    "reference": "what the people of the reference have",
    "joints": "one visit, as the score is",
    "moments": "single windows",
    "other_windows": "the same measure with half the window, as a check",
}


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
        return compare_with(make_reference(windows[0]), windows[1])

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


@dataclass(frozen=True)
class PersonWindows:
    """Windows with recording, person and span; vectors `(N, F)`, poses `(N, S, V, C)` of equal length."""

    recordings: list[str]
    persons: list[str]
    starts: Floats
    stops: Floats
    vectors: npt.NDArray[np.float32]
    poses: npt.NDArray[np.float32]
    joints: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.recordings)


@dataclass(frozen=True)
class Reference:
    """Windows of the reference group and their distances, each person held out in turn."""

    windows: PersonWindows
    scores: dict[str, float]
    window_scores: Floats
    usual: Floats

    @property
    def spread(self) -> dict[str, float]:
        """Scores of the least, the middle and the most unusual person of the reference."""
        scores = list(self.scores.values())
        return {"lowest": min(scores), "median": float(np.median(scores)), "highest": max(scores)}


def make_reference(windows: PersonWindows) -> Reference:
    """Measure every person of a reference group against the others."""
    people = sorted(set(windows.persons))
    if len(people) < FEWEST:
        one = "1 person" if len(people) == 1 else f"{len(people)} people"
        raise InputError(f"the reference has {one}; at least {FEWEST} are needed to know what is usual")
    vectors = _unit(windows.vectors)
    person = np.array(windows.persons)
    distance = 1 - vectors @ vectors.T
    distance[person[:, None] == person[None]] = np.inf
    window_scores = _nearest_mean(distance)
    usual = _joint_differences(windows.poses, windows.poses[distance.argmin(1)])
    scores = {name: float(window_scores[person == name].mean()) for name in people}
    return Reference(windows, scores, window_scores, np.median(usual, axis=0))


def compare_with(reference: Reference, tested: PersonWindows) -> list[dict[str, Any]]:
    """A row per recording: score, percentile, spread of the reference, most deviating joints and moments.

    For a fair comparison with each person of the reference, that person is left out for the tested one as
    well.
    """
    if tested.vectors.shape[1] != reference.windows.vectors.shape[1]:
        raise InputError("the reference and the recordings need vectors of one encoder; widths differ")
    person = np.array(reference.windows.persons)
    distance = 1 - _unit(tested.vectors) @ _unit(reference.windows.vectors).T
    # somebody of the reference who is tested is compared with the others only
    tested_person = np.array(tested.persons)
    distance[(tested_person[:, None] == person[None]) & (tested_person[:, None] != "")] = np.inf
    scores = _nearest_mean(distance)
    joints = _joint_differences(tested.poses, reference.windows.poses[distance.argmin(1)])
    without = {name: _nearest_mean(np.where(person == name, np.inf, distance)) for name in reference.scores}
    names = np.array(tested.recordings)
    rows = []
    for recording in dict.fromkeys(tested.recordings):
        mine = np.flatnonzero(names == recording)
        others = [name for name in reference.scores if name != tested.persons[mine[0]]]
        below = sum(reference.scores[name] <= without[name][mine].mean() for name in others)
        ratio = joints[mine].mean(0) / np.maximum(reference.usual, 1e-9)
        rows.append(
            {
                "recording": recording,
                "person": tested.persons[mine[0]],
                "score": float(scores[mine].mean()),
                "percentile": 100.0 * below / len(others),
                "percentile_interval": [100 * end for end in share_interval(int(below), len(others)) or ()],
                "no_interval": NO_INTERVAL,
                "people": len(others),
                "unlike": bool(scores[mine].mean() > UNLIKE * reference.spread["highest"]),
                "reference": reference.spread,
                "joints": [
                    {
                        "joint": tested.joints[at],
                        "difference": float(joints[mine, at].mean()),
                        "times_usual": float(ratio[at]),
                    }
                    for at in np.argsort(-ratio)[:5]
                ],
                "moments": [
                    {
                        "start": float(tested.starts[at]),
                        "stop": float(tested.stops[at]),
                        "percentile": 100.0 * float((reference.window_scores <= scores[at]).mean()),
                        "joint": tested.joints[
                            int((joints[at] / np.maximum(reference.usual, 1e-9)).argmax())
                        ],
                    }
                    for at in mine[np.argsort(-scores[mine])][:5]
                ],
            }
        )
    return rows


def _unit(vectors: npt.NDArray[np.float32]) -> Floats:
    """Unit vectors, not centred: seen from the mean of the reference, all movements are about equally far."""
    rows = np.asarray(vectors, dtype=np.float64)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _nearest_mean(distance: Floats) -> Floats:
    """The mean of up to five smallest distances of every row."""
    count = min(NEAREST, int(np.isfinite(distance).sum(1).min()))
    if not count:
        raise InputError("a window cannot be compared with anybody in the reference; add people to it")
    return np.partition(distance, count - 1, axis=1)[:, :count].mean(axis=1)


def _joint_differences(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> Floats:
    """Mean distance `(N, V)` of joints over the frames of pairs of windows `(N, S, V, C)`."""
    return np.linalg.norm(one.astype(np.float64) - other, axis=3).mean(axis=1)


def warnings_about(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Notes on rows of `compare_with`: unusual kinds of movement, and percentiles that depend on the window."""
    sentences = []
    unlike = [row["recording"] for row in rows if row["unlike"]]
    if unlike:
        sentences.append(
            f"{_named(unlike)} unlike everybody in the reference: the percentile does not say how far."
            " Probably another movement, camera or sensor; compare only recordings of the same task"
        )
    changed = [
        row["recording"]
        for row in rows
        for other in row.get("other_windows", ())
        if abs(other["percentile"] - row["percentile"]) > CHANGED or other["unlike"] != row["unlike"]
    ]
    if changed:
        sentences.append(
            f"the answer for {_named(list(dict.fromkeys(changed)), verb=False)} depends on the window; see"
            " other_windows, and report the window together with the percentile"
        )
    return sentences


def _named(names: Sequence[str], verb: bool = True) -> str:
    """Up to three names and the number of others."""
    return names_of([f"'{name}'" for name in names], 3) + (" is" if len(names) == 1 else " are") * verb


def resampled_poses(frames: Sequence[npt.NDArray[np.float32]], samples: int = 24) -> npt.NDArray[np.float32]:
    """First persons of clips `(T, P, V, C)` at even moments: `(N, samples, V, C)`."""
    return np.stack([clip[np.linspace(0, len(clip) - 1, samples).round().astype(int), 0] for clip in frames])
