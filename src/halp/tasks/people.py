"""Who is seen in a video: one row per person, with a picture of each."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from halp.core.errors import InputError
from halp.core.listed import Listed
from halp.data.clip import runs
from halp.data.readers.video import video_reader
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.spans import Event, Events, person_recording
from halp.tasks.intervals import headed
from halp.video.film import SUFFIXES, film_picture
from halp.video.finder import cut
from halp.video.landmarks import FilmLandmarks
from halp.video.people import Person, choose_people

#: Columns of tables for reading, with units.
HEADINGS = {"first": "first (s)", "last": "last (s)", "best": "best (s)", "share": "share (of frames)",
            "height": "height (of the frame)", "x": "x (of the frame)"}  # fmt: skip

#: Why numbers have no interval.
NO_INTERVAL = {
    **dict.fromkeys(("first", "last", "share"), "every frame is looked at, not a sample; a new person is found"
                    " up to a second late"),
    **dict.fromkeys(("height", "x", "score"), "they describe what is seen in this video"),
}  # fmt: skip


def people_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of people for reading: units in the names of columns."""
    return [headed({k: v for k, v in row.items() if k != "no_interval"}, HEADINGS) for row in rows]


@dataclass(frozen=True)
class People(Listed[Person]):
    """The chosen people of a video (default: everybody), longest seen first, the landmarks of all its frames,
    and how many people are seen.
    """

    film: Path
    people: Sequence[Person]
    landmarks: FilmLandmarks
    seen: int

    def recording(self, person: Person) -> str:
        """The name under which other verbs report a person."""
        return self.film.stem if self.seen == 1 else person_recording(self.film.stem, person.number)

    def events(self) -> Events:
        """When each person is seen."""
        times = self.landmarks.times
        step = 1 / self.landmarks.fps if self.landmarks.fps > 0 else 1.0
        found = []
        for person in self.people:
            seen = np.zeros(len(times), dtype=bool)
            seen[self.landmarks.frame[person.rows]] = True
            for first, count in runs(seen):
                stop = float(times[first + count - 1]) + step
                found.append(
                    Event(
                        self.recording(person), float(times[first]), stop, "seen", "", "model", person.score
                    )
                )
        return Events(found)

    def to_json(self) -> list[dict[str, Any]]:
        """A row per person: number, recording, first and last moment, share of frames, height, score."""
        return [
            {**person.to_json(), "recording": self.recording(person), "no_interval": NO_INTERVAL}
            for person in self.people
        ]

    def thumbnail(self, person: Person) -> npt.NDArray[np.uint8]:
        """The person `(H, W, 3)` at the moment that shows him or her best."""
        picture = film_picture(self.film, person.best)
        times = self.landmarks.times[self.landmarks.frame[person.rows]]
        marks = self.landmarks.image[person.rows[int(np.abs(times - person.best).argmin())], :, :2]
        low, high = marks.min(axis=0), marks.max(axis=0)
        return cut(picture, (low + high).astype(np.float64) / 2, 1.3 * float((high - low).max()))[2]


def people(
    film: str | Path, *, reading: Reading | None = None, **keywords: Unpack[ReadingKeywords]
) -> People:
    """Find the people in a video and follow each of them through all of it.

    Other commands report each person as a recording of his or her own, `NAME#1`, `NAME#2`, …, if there are
    several;
    `--person` chooses one of them by the number given here.

    Parameters
    ----------
    film
        A video file.
    reading, **keywords
        How it is read: a `halp.Reading`, or its fields (person, persons, options).

    Returns
    -------
    People
        A sequence of persons, longest seen first, with `to_json()` and `thumbnail(person)`.

    Examples
    --------
    $ halp people film.mp4 --html people.html
    $ halp people film.mp4 --persons 10 --json

    >>> import halp
    >>> halp.people("notes.txt")
    Traceback (most recent call last):
    ...
    halp.core.errors.InputError: 'notes.txt' is not a video file (.mp4, .mov, .avi, .mkv, .webm, .m4v)
    """
    path, reading = Path(film), combine(reading, keywords)
    if path.suffix.lower() not in SUFFIXES:
        hint = "; for a folder of videos use `halp same-people`" if path.is_dir() else ""
        raise InputError(f"'{path}' is not a video file ({', '.join(SUFFIXES)}){hint}")
    if not path.exists():
        raise InputError(f"there is no video '{path}'; check the path")
    if not path.is_file():  # reading a pipe would block for ever
        raise InputError(f"video '{path}' is not a regular file; copy it to disk first")
    if reading.fps is not None or reading.format not in ("auto", "video") or reading.window is not None:
        raise InputError(
            "people of a video are found in all its frames at its own rate; leave out format, fps and window"
        )
    reader = video_reader(reading)
    found, landmarks = reader.people(path)
    if limit := reader.at_limit(landmarks):
        warnings.warn(f"'{path.name}': {limit}", stacklevel=2)
    return People(path, choose_people(found, reader.person), landmarks, len(found))
