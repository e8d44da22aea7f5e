"""The page of the people in a video: a frame with names, a picture of each, and when they are seen."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np

from halp.reports.drawing import tag
from halp.reports.page import Report
from halp.reports.player import timeline
from halp.tasks.people import People, people_rows
from halp.video.film import Picture, film_picture
from halp.video.overlay import draw_person, palette

_WIDEST, _THUMB = 1200, 160  # pixels


def people_page(answer: People, path: Path | None = None) -> Report:
    """Everybody in one frame, then each person with a picture, the number for --person and a timeline."""
    report = Report("People", answer.film.name)
    report.section(
        "Who is seen",
        f"{'1 person was' if len(answer) == 1 else f'{len(answer)} people were'} followed through"
        f" {answer.landmarks.times[-1]:.1f} s of video.",
    )
    moment, picture = _everybody(answer)
    report.figure(
        _image(picture, _WIDEST, f"frame at {moment:.2f} s with numbers"), f"The video at {moment:.2f} s."
    )
    events, end = answer.events(), float(answer.landmarks.times[-1])
    for person in answer:
        name = answer.recording(person)
        report.section(
            f"Person {person.number}",
            f"Seen from {person.first:.1f} to {person.last:.1f} s, in {person.share:.0%} of the frames. Other"
            f" commands report this person as '{name}'; --person {person.number} chooses this person alone.",
        )
        seen = [event for event in events if event.recording == name]
        report.figure(
            _image(answer.thumbnail(person), _THUMB, f"person {person.number} at {person.best:.2f} s")
            + timeline(seen, end=max(end, 1e-3)),
            f"Person {person.number} at {person.best:.2f} s, and when this person is seen.",
        )
    report.section("Table")
    report.rows(people_rows(answer.to_json()), "x is 0 on the left and 1 on the right.")
    return report


def _everybody(answer: People) -> tuple[float, Picture]:
    """A frame that shows as many people as any, with their skeletons and numbers."""
    film = answer.landmarks
    counts = np.zeros(len(film.times))
    for person in answer:
        counts[film.frame[person.rows]] += 1 + film.image[person.rows, :, 3].mean(axis=1) / 10
    best = int(counts.argmax())
    picture = film_picture(answer.film, float(film.times[best]))
    for person, colour in zip(answer, palette(len(answer))):
        for row in person.rows[film.frame[person.rows] == best]:
            draw_person(picture, film.image[row], f"person {person.number}", colour)
    return float(film.times[best]), picture


def _image(picture: Picture, widest: int, text: str) -> str:
    """A picture as an element that needs no other file."""
    import cv2

    scale = min(1.0, widest / picture.shape[1])
    small = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    _, data = cv2.imencode(".jpg", np.ascontiguousarray(small[..., ::-1]))
    source = f"data:image/jpeg;base64,{base64.b64encode(data.tobytes()).decode('ascii')}"
    return tag("img", src=source, alt=text, style="max-width:100%")
