"""Positions of each person of a video, so that a person can be chosen by a click on the picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halp.data.reading import Reading
from halp.data.spans import person_of, person_recording
from halp.explorer.collection import Collection
from halp.video.landmarks import FilmLandmarks
from halp.video.people import Person

PER_SECOND = 5.0  # boxes of a person that are sent


def people_of(collection: Collection, recording: int, reading: Reading) -> list[dict[str, Any]]:
    """The people of a recording's video if there are several, each a recording of their own."""
    from halp.data.readers.video import video_reader

    path, name = collection.film(recording), collection.recordings[recording]
    if path is None or person_of(name) is None:
        return []
    whole = name.rpartition("#")[0]
    found, film = video_reader(reading).people(path)
    numbers = {one: place for place, one in enumerate(collection.recordings)}
    there = [(numbers.get(person_recording(whole, one.number)), one) for one in found]
    return [
        {
            "person": one.number,
            "rows": collection.rows_of(place).tolist(),
            "starts": collection.table.starts[collection.rows_of(place)].tolist(),
            **boxes(film, one),
        }
        for place, one in there
        if place is not None
    ]


def boxes(film: FilmLandmarks, person: Person) -> dict[str, Sequence[Any]]:
    """Moments at which a person is seen, and left, top, right and bottom as shares of the picture."""
    times = film.times[film.frame[person.rows]]
    some = np.unique(np.round(times * PER_SECOND), return_index=True)[1]
    marks = film.image[person.rows[some], :, :2] / np.array(film.size, dtype=np.float64)
    low, high = marks.min(axis=1), marks.max(axis=1)
    room = 0.08 * (high - low).max(axis=1, keepdims=True)  # heads and hands reach beyond their joints
    places = np.concatenate([low - room, high + room], axis=1).clip(0, 1)
    return {"times": times[some].round(3).tolist(), "boxes": places.round(4).tolist()}
