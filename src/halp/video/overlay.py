"""What was recognised, drawn into the film: skeletons, the label of the moment, and a time line at the bottom."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import atomic_path
from halp.core.progress import Bar
from halp.skeleton import get_topology
from halp.video.film import FilmWriter, Picture, film_facts, film_pictures
from halp.video.landmarks import FilmLandmarks

Span = tuple[float, float, str]  # from, to in seconds, label
Colour = tuple[int, int, int]
_SURE = 0.3  # visibility of a landmark that is drawn
_BONES = get_topology("mediapipe-33-2d").bones
_GREY: Colour = (110, 110, 110)


def label_colours(labels: Sequence[str]) -> dict[str, Colour]:
    """A colour for every label, far apart on the colour wheel."""
    names = list(dict.fromkeys(labels))
    wheel = [colorsys.hsv_to_rgb(number * 0.618 % 1, 0.65, 0.95) for number in range(len(names))]
    return {name: (int(255 * r), int(255 * g), int(255 * b)) for name, (r, g, b) in zip(names, wheel)}


def write_overlay(
    film: Path, landmarks: FilmLandmarks, spans: Sequence[Span], out: Path, *, progress: bool = True
) -> Path:
    """The film with skeletons, labels and a time line as an mp4 file, with the times of the film."""
    if out.exists() and out.samefile(film):
        raise InputError(f"'{out}' is the film itself; choose another name for --video")
    facts, rows = film_facts(film), landmarks.frames()
    length = (
        max(float(landmarks.times[-1]), *(end for _, end, _ in spans), 1e-3) if spans else float(landmarks.times[-1])
    )
    colours = label_colours([label for _, _, label in spans])
    bar_picture = _time_line(facts.width, max(12, facts.height // 40), spans, colours, length)
    with (
        atomic_path(out) as part,
        FilmWriter(part, facts.width, facts.height, facts.fps or 30) as writer,
        Bar(out.name, len(rows), shown=progress) as bar,
    ):
        for (moment, picture), people in zip(film_pictures(film), rows):
            label = next((name for start, end, name in spans if start <= moment < end), "")
            colour = colours.get(label, _GREY)
            for body in landmarks.image[people]:
                draw_skeleton(picture, body, colour)
            _write_label(picture, label, moment, colour)
            picture[-len(bar_picture) :] = bar_picture
            cursor = min(facts.width - 2, int(facts.width * moment / max(length, 1e-3)))
            picture[-len(bar_picture) :, cursor : cursor + 2] = 255
            writer.write(picture, moment)
            bar.advance(1)
    return out


def draw_skeleton(picture: Picture, body: npt.NDArray[np.float32], colour: Colour) -> None:
    """Draw bones and joints of landmarks `(33, 4)` in pixels."""
    import cv2

    width = max(2, picture.shape[0] // 300)
    points = [(int(x), int(y)) for x, y in np.clip(body[:, :2], -1e5, 1e5)]
    for child, parent in _BONES:
        if min(body[child, 3], body[parent, 3]) >= _SURE:
            cv2.line(picture, points[child], points[parent], colour, width, cv2.LINE_AA)
    for point, sure in zip(points, body[:, 3]):
        if sure >= _SURE:
            cv2.circle(picture, point, width, (255, 255, 255), -1, cv2.LINE_AA)


def _write_label(picture: Picture, label: str, moment: float, colour: Colour) -> None:
    import cv2

    size = picture.shape[0] / 900
    text = f"{moment:7.2f} s  {label}".encode("ascii", "replace").decode()
    place = (int(20 * size), int(50 * size))
    for shade, width in (((0, 0, 0), 6), (colour, 2)):
        cv2.putText(
            picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, 1.4 * size, shade, max(1, int(width * size)), cv2.LINE_AA
        )


def _time_line(width: int, height: int, spans: Sequence[Span], colours: dict[str, Colour], length: float) -> Picture:
    """A strip `(height, width, 3)` with the colour of the label at every moment."""
    strip = np.full((height, width, 3), 40, dtype=np.uint8)
    for start, end, label in spans:
        first, last = (int(width * moment / max(length, 1e-3)) for moment in (start, end))
        strip[2:, first : max(last, first + 1)] = colours[label]
    return strip
