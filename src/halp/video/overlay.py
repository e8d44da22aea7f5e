"""Draw results into the video: skeletons, names, current labels, and timelines at the bottom."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import atomic_path
from halp.core.progress import Bar
from halp.skeleton import get_topology
from halp.video.film import FilmWriter, Picture, film_facts, film_pictures
from halp.video.landmarks import FilmLandmarks
from halp.video.people import Person

Span = tuple[float, float, str]  # from, to in seconds, label
Colour = tuple[int, int, int]
_SURE = 0.3  # visibility of a landmark that is drawn
_GREY: Colour = (110, 110, 110)


def palette(count: int) -> list[Colour]:
    """The given number of colours, far apart on the colour wheel."""
    wheel = [colorsys.hsv_to_rgb(number * 0.618 % 1, 0.65, 0.95) for number in range(count)]
    return [(int(255 * r), int(255 * g), int(255 * b)) for r, g, b in wheel]


def write_overlay(
    film: Path,
    landmarks: FilmLandmarks,
    people: Sequence[Person],
    spans: Mapping[int, Sequence[Span]],
    out: Path,
    *,
    progress: bool = True,
) -> Path:
    """The video with everybody's skeleton, name and label and a timeline, as an mp4 with the same times.

    Parameters
    ----------
    people
        Everybody who is drawn.
    spans
        What each person does, by the person's number.
    """
    if out.exists() and out.samefile(film):
        raise InputError(f"'{out}' is the input video; choose another name for --video")
    facts = film_facts(film)
    labels = list(dict.fromkeys(label for parts in spans.values() for _, _, label in parts))
    colours = dict(zip(labels, palette(len(labels))))
    own = dict(zip((one.number for one in people), palette(len(people))))
    length = max(
        [float(landmarks.times[-1]), 1e-3, *(end for parts in spans.values() for _, end, _ in parts)]
    )
    height = max(12, facts.height // 40)
    strips = [_time_line(facts.width, height, parts, colours, length) for parts in spans.values() if parts]
    strip = np.concatenate(strips) if strips else np.zeros((0, facts.width, 3), dtype=np.uint8)
    present = _present(landmarks, people)
    with (
        atomic_path(out) as part,
        FilmWriter(part, facts.width, facts.height, facts.fps or 30) as writer,
        Bar(out.name, len(landmarks.times), shown=progress) as bar,
    ):
        for (moment, picture), here in zip(film_pictures(film), present):
            for number, row in here:
                label = next(
                    (name for start, end, name in spans.get(number, ()) if start <= moment < end), ""
                )
                name = f"person {number}" if len(people) > 1 else ""
                draw_person(
                    picture, landmarks.image[row], ": ".join(filter(None, (name, label))), own[number]
                )
            _write(picture, f"{moment:.2f} s", (0.02, 0.05), _GREY)
            if len(strip):
                picture[-len(strip) :] = strip
                cursor = min(facts.width - 2, int(facts.width * moment / length))
                picture[-len(strip) :, cursor : cursor + 2] = 255
            writer.write(picture, moment)
            bar.advance(1)
    return out


def _present(landmarks: FilmLandmarks, people: Sequence[Person]) -> list[list[tuple[int, int]]]:
    """Number and row of everybody in each frame."""
    present: list[list[tuple[int, int]]] = [[] for _ in landmarks.times]
    for one in people:
        for row in one.rows.tolist():
            present[landmarks.frame[row]].append((one.number, row))
    return present


def _bones(joints: int) -> Sequence[tuple[int, int]]:
    """Bones of pose estimators' layouts, by number of joints, and all four sides of the trunk."""
    topology = get_topology({33: "mediapipe-33-2d", 26: "halpe-26"}.get(joints, "coco-17"))
    left, right = (
        [topology.index(f"{name}_{side}") for name in ("shoulder", "hip")] for side in ("left", "right")
    )
    trunk = [(left[0], left[1]), (right[0], right[1]), (left[0], right[0]), (left[1], right[1])]
    return [*topology.bones, *trunk]


def draw_skeleton(picture: Picture, body: npt.NDArray[np.float32], colour: Colour) -> None:
    """Draw bones and joints of landmarks `(V, 4)` in pixels."""
    import cv2

    width = max(2, picture.shape[0] // 300)
    points = [(int(x), int(y)) for x, y in np.clip(body[:, :2], -1e5, 1e5)]
    for child, parent in _bones(len(body)):
        if min(body[child, 3], body[parent, 3]) >= _SURE:
            cv2.line(picture, points[child], points[parent], colour, width, cv2.LINE_AA)
    for point, sure in zip(points, body[:, 3]):
        if sure >= _SURE:
            cv2.circle(picture, point, width, (255, 255, 255), -1, cv2.LINE_AA)


def draw_person(picture: Picture, body: npt.NDArray[np.float32], text: str, colour: Colour) -> None:
    """Draw a skeleton, and write above its head."""
    draw_skeleton(picture, body, colour)
    height, width = picture.shape[:2]
    x, y = body[:, 0].min() / width, body[:, 1].min() / height - 0.02
    _write(picture, text, (float(np.clip(x, 0, 0.85)), float(np.clip(y, 0.05, 0.9))), colour)


def _write(picture: Picture, text: str, place: tuple[float, float], colour: Colour) -> None:
    """Write text at a place in shares of the picture."""
    import cv2

    height, width = picture.shape[:2]
    size, shown = height / 900, text.encode("ascii", "replace").decode()
    corner = (int(place[0] * width), int(place[1] * height))
    for shade, thick in (((0, 0, 0), 8), (colour, 3)):
        cv2.putText(
            picture,
            shown,
            corner,
            cv2.FONT_HERSHEY_SIMPLEX,
            1.3 * size,
            shade,
            max(1, round(thick * size)),
            cv2.LINE_AA,
        )


def _time_line(
    width: int, height: int, spans: Sequence[Span], colours: dict[str, Colour], length: float
) -> Picture:
    """A strip `(height, width, 3)` with the colour of the label at every moment."""
    strip = np.full((height, width, 3), 40, dtype=np.uint8)
    for start, end, label in spans:
        first, last = (int(width * moment / max(length, 1e-3)) for moment in (start, end))
        strip[2:, first : max(last, first + 1)] = colours[label]
    return strip
