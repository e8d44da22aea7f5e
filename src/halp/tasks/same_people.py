"""Matching of people across the videos of a folder: a row per person and video, with a common number."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Unpack

from halp.core.errors import InputError
from halp.core.listed import Listed
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.spans import Events
from halp.skeleton import get_topology
from halp.tasks.people import NO_INTERVAL as OF_PEOPLE
from halp.tasks.people import People, people
from halp.video.film import SUFFIXES
from halp.video.identity import Appearance, Match, body_build
from halp.video.identity import same_people as match_people
from halp.video.people import Person

NO_INTERVAL = {
    **{name: OF_PEOPLE[name] for name in ("first", "last", "share")},
    **dict.fromkeys(("sure", "distance"), "they say how sure a name is"),
}


@dataclass(frozen=True)
class SamePerson:
    """One person in one video; `subject`: name in the folder, `sure`: its confidence (0 to 1) or None."""

    found: People
    recording: str
    person: Person
    subject: str
    sure: float | None
    distance: float | None

    def to_json(self) -> dict[str, Any]:
        facts = self.person.to_json()
        shown = {name: facts[name] for name in ("person", "first", "last", "share")}
        sure = {"sure": self.sure, "distance": self.distance}
        return {"subject": self.subject, "recording": self.recording} | shown | {
            name: None if value is None else round(value, 4) for name, value in sure.items()
        } | {"no_interval": NO_INTERVAL}  # fmt: skip


@dataclass(frozen=True)
class SamePeople(Listed[SamePerson]):
    """Everybody in the videos of a folder, by the name in the folder."""

    people: Sequence[SamePerson]
    origin: str

    def events(self) -> Events:
        """When everybody is seen, with the name in the folder as subject."""
        return Events(
            [
                replace(event, subject=one.subject, score=one.sure)
                for one in self.people
                for event in one.found.events()
                if event.recording == one.recording
            ]
        )

    def to_json(self) -> list[dict[str, Any]]:
        """A row per person and video."""
        return [one.to_json() for one in self.people]


def same_people(
    folder: str | Path, *, reading: Reading | None = None, **keywords: Unpack[ReadingKeywords]
) -> SamePeople:
    """Find the same people in several videos, by the colours of clothes and body proportions.

    People get one name only if they are alike and clearly more alike than either is to anybody else in the two
    videos; whoever is in doubt keeps a name of his or her own. People of one video are never the same.

    Parameters
    ----------
    folder
        A folder of videos.
    reading, **keywords
        How they are read: a `halp.Reading`, or its fields (persons, options).

    Returns
    -------
    SamePeople
        A row per person and video with `subject`, the name in the folder, and how sure it is.

    Examples
    --------
    $ halp same-people films
    $ halp same-people films --out people.csv --json

    >>> import halp
    >>> halp.same_people("nowhere")
    Traceback (most recent call last):
    ...
    halp.core.errors.InputError: there is no folder 'nowhere' with videos; check the path
    """
    place, reading = Path(folder), combine(reading, keywords)
    films = sorted(p for p in place.iterdir() if p.suffix.lower() in SUFFIXES) if place.is_dir() else []
    if not films:
        raise InputError(f"there is no folder '{place}' with videos; check the path")
    seen: list[People] = []
    faults: list[InputError] = []
    for film in films:
        try:
            seen.append(people(film, reading=reading))
        except (
            InputError
        ) as error:  # nobody, a single frame, a damaged file: the others are read all the same
            faults.append(error)
    if not seen:
        raise faults[0]
    for fault in faults:
        warnings.warn(f"left out: {fault}", stacklevel=2)
    rows = [(found, one) for found in seen for one in found]
    numbers, matches = match_people([_appearance(found, one) for found, one in rows])
    named = [
        SamePerson(found, found.recording(one), one, f"person {number + 1}", *_surest(at, matches))
        for at, ((found, one), number) in enumerate(zip(rows, numbers))
    ]
    return SamePeople(sorted(named, key=lambda one: (int(one.subject[7:]), one.recording)), str(folder))


def _surest(place: int, matches: Sequence[Match]) -> tuple[float | None, float | None]:
    own = [match for match in matches if place in (match.first, match.second)]
    best = max(own, key=lambda match: match.sure, default=None)
    return (None, None) if best is None else (best.sure, best.distance)


def _appearance(found: People, person: Person) -> Appearance:
    marks = found.landmarks
    look = marks.look[person.rows].mean(axis=0, dtype=np.float64)
    if marks.world.shape[1] != len(get_topology("mediapipe-33").joints):
        raise InputError("body proportions need MediaPipe's landmarks in space; leave out pose_model")
    return Appearance(
        str(found.film), look, body_build(marks.world[person.rows], get_topology("mediapipe-33").joints)
    )
