"""Frames of a camera or video as they arrive, with the people in them, at an even rate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, missing_extra
from halp.skeleton import get_topology
from halp.video.film import Picture, film_facts, film_pictures
from halp.video.networks import pose_estimator

_BONES = get_topology("mediapipe-33-2d").bones


@dataclass(frozen=True)
class LivePicture:
    """People `(P, 33, 4)` of a frame, in pixels and in metres, and its processing time in milliseconds."""

    time: float
    image: npt.NDArray[np.float32]
    world: npt.NDArray[np.float32]
    size: tuple[int, int]
    grab: float
    pose: float

    def joints(self, dimensions: int, min_score: float = 0.3) -> npt.NDArray[np.float32] | None:
        """Joints `(P, 33, C)` as the video reader returns them; None if nobody is seen."""
        if not len(self.image):
            return None
        sure = (self.image[..., 3:] >= min_score).astype(np.float32)
        turned = np.array([-1, -1, 1], dtype=np.float32)
        return (self.world[..., :3] * turned if dimensions == 3 else self.image[..., :2]) * sure


def camera_rate(camera: str) -> float:
    """Frames per second of a video; 0 for a camera, whose rate is unknown."""
    return 0.0 if camera.isdecimal() else film_facts(Path(camera)).fps


def watch(camera: str, model: Path, *, persons: int = 1) -> Iterator[LivePicture]:
    """Frames of camera number N, or of a video, with the people in them."""
    pictures = _camera_pictures(int(camera)) if camera.isdecimal() else film_pictures(Path(camera))
    with pose_estimator(model, persons) as estimate:
        before, began = -1, time.perf_counter()
        for moment, picture in pictures:
            grabbed = time.perf_counter()
            before = max(before + 1, round(1000 * moment))
            image, world = estimate(picture, before)
            done = time.perf_counter()
            size = (picture.shape[1], picture.shape[0])
            yield LivePicture(moment, image, world, size, 1000 * (grabbed - began), 1000 * (done - grabbed))
            began = time.perf_counter()


def _camera_pictures(number: int) -> Iterator[tuple[float, Picture]]:
    try:
        import cv2
    except ImportError:
        raise missing_extra("cameras need OpenCV", "video") from None
    camera: Any = cv2.VideoCapture(number)
    if not camera.isOpened():
        raise InputError(f"camera {number} cannot be opened; is another program using it, or is it number 1?")
    began = time.perf_counter()
    try:
        while True:
            there, picture = camera.read()
            if not there:
                return
            yield time.perf_counter() - began, np.ascontiguousarray(picture[..., ::-1])
    finally:
        camera.release()


def terminal_skeleton(
    people: npt.NDArray[np.float32], size: tuple[int, int], columns: int = 48, rows: int = 20
) -> str:
    """The people in a frame drawn as lines of text."""
    canvas = [[" "] * columns for _ in range(rows)]
    scale = np.array([columns / size[0], rows / size[1]])
    for body in people:
        for child, parent in _BONES:
            if min(body[child, 3], body[parent, 3]) < 0.3:
                continue
            ends = body[[child, parent], :2] * scale
            for share in np.linspace(0, 1, 2 * columns):
                x, y = (ends[0] + share * (ends[1] - ends[0])).astype(int)
                if 0 <= x < columns and 0 <= y < rows:
                    canvas[y][x] = "o" if share in (0, 1) else "."
    return "\n".join("".join(row).rstrip() for row in canvas)
