"""The people of a video: one track per person, and selection of persons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.tracks import Detections, track_people
from halp.video.finder import SAME_BOX, is_within
from halp.video.landmarks import FilmLandmarks

BRIEFEST = 0.5  # seconds; who is seen for less is a passer-by at the edge or a false detection
_FEWEST = 5  # frames
_VISIBLE = 0.5  # mean visibility of a track that is a person
# share of a body in the box of another, and of a track, that make it a second detection
_ON_ANOTHER, _MOSTLY = (0.6, 0.6)
WORDS = ("all", "longest", "largest", "left", "right")


@dataclass(frozen=True)
class Person:
    """One person of a video, numbered from 1 by time seen; times in seconds, places in shares of the frame.

    `rows` are those of the landmarks, in order of time; `share` is the share of the video's frames in which
    the person is seen, `height` the usual height of the body and `x` the usual place from the left edge (0)
    to the right (1). `best` is the moment that shows the person largest and surest;
    `pixels` is the usual height of the body in pixels.
    """

    number: int
    rows: npt.NDArray[np.int64]
    first: float
    last: float
    share: float
    height: float
    x: float
    score: float
    best: float
    pixels: float

    def to_json(self) -> dict[str, Any]:
        names = ("first", "last", "share", "height", "x", "score", "best")
        return {"person": self.number} | {name: round(getattr(self, name), 4) for name in names}


def find_people(film: FilmLandmarks) -> list[Person]:
    """People seen for at least half a second, longest first; if there are none, the one seen longest."""
    once = np.flatnonzero(_without_duplicates(film))
    score = film.image[once, :, 3].mean(axis=1)
    look = film.look[once] if len(film.look) else film.look
    found = Detections(film.times, film.frame[once], film.image[once, :, :2], look, film.scene, score)
    tracks = [once[rows] for rows in track_people(found)]
    usual = np.median(np.diff(film.times)) if len(film.times) > 1 else 0.0
    kept = [
        rows
        for rows in tracks
        if len(rows) >= _FEWEST
        and len(rows) * usual >= BRIEFEST
        and film.image[rows, :, 3].mean() >= _VISIBLE
    ]
    single = [
        rows
        for place, rows in enumerate(kept)
        if not any(_is_duplicate(rows, other, film) for other in kept[:place])
    ]
    return [_person(number, rows, film) for number, rows in enumerate(single or tracks[:1], start=1)]


def _without_duplicates(film: FilmLandmarks) -> npt.NDArray[np.bool_]:
    """Poses of distinct people: of two boxes, one inside the other, only the more confident counts."""
    places, frame = film.image[..., :2], film.frame
    low, high, score = places.min(axis=1), places.max(axis=1), film.image[..., 3].mean(axis=1)
    kept = np.ones(len(frame), dtype=bool)
    for apart in range(1, int(film.people.max(initial=0))):
        one = np.flatnonzero(frame[apart:] == frame[:-apart])
        other = one + apart
        common = np.maximum(np.minimum(high[one], high[other]) - np.maximum(low[one], low[other]), 0).prod(
            axis=1
        )
        larger = np.maximum((high[one] - low[one]).prod(axis=1), (high[other] - low[other]).prod(axis=1))
        twice = common > SAME_BOX * np.maximum(larger, 1e-6)
        kept[np.where(score[one] < score[other], one, other)[twice]] = False
    return kept


def _is_duplicate(rows: npt.NDArray[np.int64], other: npt.NDArray[np.int64], film: FilmLandmarks) -> bool:
    """Whether a track coincides with another most of the time: the same person detected twice."""
    frames = film.frame
    _, here, there = np.intersect1d(frames[rows], frames[other], assume_unique=True, return_indices=True)
    inside = [is_within(film.image[rows[a]], film.image[other[b]]) > _ON_ANOTHER for a, b in zip(here, there)]
    return sum(inside) > _MOSTLY * len(rows)


def _person(number: int, rows: npt.NDArray[np.int64], film: FilmLandmarks) -> Person:
    marks, times = film.image[rows], film.times[film.frame[rows]]
    heights = np.ptp(marks[..., 1], axis=1) / film.size[1]
    sure = marks[..., 3].mean(axis=1)
    inside = ((marks[..., :2] >= 0) & (marks[..., :2] <= np.array(film.size))).all(axis=2).mean(axis=1)
    return Person(
        number,
        rows,
        float(times[0]),
        float(times[-1]),
        len(rows) / len(film.times),
        float(np.median(heights)),
        float(np.median(marks[..., 0])) / film.size[0],
        float(sure.mean()),
        float(times[np.argmax(heights * sure * inside)]),
        float(np.median(heights)) * film.size[1],
    )


def choose_people(people: Sequence[Person], person: str) -> list[Person]:
    """The people selected by a word or a number: all, longest, largest, left, right, or a number from 1."""
    if not people or person == "all":
        return list(people)
    if person.isascii() and person.isdecimal():
        chosen = [one for one in people if one.number == int(person)]
        if not chosen:
            count = f"{len(people)} people are" if len(people) > 1 else "1 person is"
            raise InputError(f"there is no person {person}; {count} seen in the video (see `halp people`)")
        return chosen
    keys = {
        "longest": lambda one: -one.share,
        "largest": lambda one: -one.height,
        "left": lambda one: one.x,
        "right": lambda one: -one.x,
    }
    if person not in keys:
        raise InputError(f"--person is {', '.join(WORDS)} or a number from 1, not '{person}'")
    return [min(people, key=keys[person])]


def describe_people(people: Sequence[Person], reported: Sequence[Person]) -> str:
    """A sentence on the people in a video and those who are reported."""
    seen = ", ".join(
        f"person {one.number} from {one.first:.1f} to {one.last:.1f} s ({one.share:.0%} of the frames)"
        for one in people
    )
    which = "all of them are reported, each separately"
    if len(reported) < len(people):
        which = f"reported: person {', '.join(str(one.number) for one in reported)}"
    return f"{len(people)} people are seen: {seen}; {which}"
