"""People found in tiles and followed in crops, with an estimator that sees bright figures and no weights at
all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av", reason="PyAV is not installed (pip install halp-motion[video])")

from halp.video import landmarks as landmarks_module
from halp.video.film import FilmWriter, Picture
from halp.video.finder import Marks, PeopleFinder, Seen, scan, tiles
from halp.video.landmarks import film_landmarks, kept_landmarks
from halp.video.people import find_people

BODY = np.random.default_rng(1).uniform(0, 1, (33, 2))
BODY[:2] = [[0, 0], [1, 1]]


def figure(left: float, top: float, right: float, bottom: float) -> Marks:
    marks = np.full((33, 4), 0.9, dtype=np.float32)
    marks[:, :2] = BODY * [right - left, bottom - top] + [left, top]
    return marks


class Bright:
    """Sees every bright figure that fills at least a third of the height of what it is shown."""

    follows = True

    def __init__(self) -> None:
        self.found = self.followed = 0

    def find(self, picture: Picture) -> Seen:
        self.found += 1
        bodies = [figure(*box) for box in _boxes(picture) if box[3] - box[1] >= picture.shape[0] / 3]
        marks = np.array(bodies, dtype=np.float32).reshape(-1, 33, 4)
        return marks, marks / 100

    def follower(self) -> Any:
        outer = self

        class Follower:
            def follow(self, crop: Picture) -> tuple[Marks, Marks] | None:
                outer.followed += 1
                middle = crop.shape[1] / 2
                boxes = sorted(_boxes(crop), key=lambda box: abs((box[0] + box[2]) / 2 - middle))
                return (figure(*boxes[0]), figure(*boxes[0]) / 100) if boxes else None

            def reset(self) -> None:
                pass

        return Follower()


def _boxes(picture: Picture) -> list[tuple[int, int, int, int]]:
    import cv2

    _, _, facts, _ = cv2.connectedComponentsWithStats((picture[..., 0] > 128).astype(np.uint8))
    return [(x, y, x + w, y + h) for x, y, w, h, area in facts[1:].tolist() if area > 20]


def draw(people: list[tuple[int, int, int]], size: tuple[int, int] = (640, 360)) -> Picture:
    """People as (x, y, height)."""
    picture = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    for x, y, height in people:
        picture[y : y + height, x : x + height // 2] = 255
    return picture


def test_people_too_small_for_the_whole_picture_are_found_in_tiles_and_each_once() -> None:
    network, picture = Bright(), draw([(40, 40, 80), (300, 150, 80), (560, 250, 80), (420, 40, 240)])
    assert len(network.find(picture)[0]) == 1  # the large one
    image, world = scan(network, picture)
    assert len(image) == len(world) == 4
    assert sorted(image[:, :, 0].min(axis=1).tolist()) == [40, 300, 420, 560]


@pytest.mark.parametrize("size", [(1280, 720), (720, 1280), (1768, 497), (64, 48)])
def test_tiles_cover_the_whole_picture_and_overlap(size: tuple[int, int]) -> None:
    covered = np.zeros(size[::-1], dtype=int)
    for left, top, right, bottom in tiles(*size)[1:]:
        covered[top:bottom, left:right] += 1
    assert covered.min() >= 1
    assert covered.max() >= 2


def test_between_two_scans_each_person_is_followed_in_a_crop_and_new_people_come_with_the_next_scan() -> None:
    network = Bright()
    finder = PeopleFinder(network, 6)
    counts = []
    for number in range(60):
        people = [(40 + 4 * number, 60, 90), (500 - 3 * number, 200, 100)]
        people += [(20, 240, 90)] if number >= 15 else []
        counts.append(len(finder(number / 30, draw(people))[0]))
    assert counts == [2] * 30 + [3] * 30
    assert network.found == 2 * len(tiles(640, 360))
    assert network.followed == 2 * 29 + 2 + 3 * 29


def test_a_person_who_hides_is_looked_for_and_found_again_and_no_more_are_followed_than_asked_for() -> None:
    finder = PeopleFinder(Bright(), 2)
    counts = []
    for number in range(90):
        hidden = 20 <= number < 50
        people = [(100, 60, 90), (300, 200, 100), (500, 200, 100)]
        counts.append(len(finder(number / 30, draw([] if hidden else people))[0]))
    assert set(counts[:20]) == {2}
    assert set(counts[20:50]) == {0}
    assert set(counts[60:]) == {2}


@pytest.fixture
def video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, list[int]]:
    """Five seconds of two people, weights that are none, and how often a picture was looked at."""
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    path, model = tmp_path / "film.mp4", tmp_path / "own.task"
    model.write_bytes(b"weights")
    with FilmWriter(path, 640, 360, 10) as writer:
        for number in range(50):
            writer.write(draw([(40 + 5 * number, 60, 90), (500 - 5 * number, 200, 100)]), number / 10)
    looked: list[int] = []

    class Counted(Bright):
        def find(self, picture: Picture) -> Seen:
            looked.append(1)
            if len(looked) == 30:  # in the fifth second
                os.kill(os.getpid(), signal.SIGKILL)
            return super().find(picture)

    @contextmanager
    def open_counted(model: Path) -> Iterator[Bright]:
        yield Counted()

    monkeypatch.setattr(landmarks_module, "open_network", open_counted)
    monkeypatch.setattr(landmarks_module, "PART", 1.0)
    return path, model, looked


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks a process and kills it")
def test_parts_that_were_finished_before_a_kill_are_not_looked_at_again(
    video: tuple[Path, Path, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mediapipe", reason="mediapipe is not installed (pip install halp-motion[video])")
    path, model, looked = video
    process = os.fork()
    if process == 0:
        try:
            film_landmarks(path, model, 6, progress=False)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    looked.extend([1] * 30)
    parts = list((tmp_path / "cache" / "landmarks").glob("*.parts/*.npz"))
    assert len(parts) == 4  # one scan of seven tiles at the beginning of every second
    before = {part: part.stat().st_mtime_ns for part in parts}
    whole = film_landmarks(path, model, 6, progress=False)
    assert len(looked) == 30 + 7
    assert not any(part.exists() for part in before)  # joined
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "other"))
    looked.extend([1] * 100)
    again = film_landmarks(path, model, 6, progress=False)
    for name in ("times", "people", "image", "world", "look", "scene"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(again, name))
    assert kept_landmarks(path, model, 6).is_file()
    assert [round(one.share, 2) for one in find_people(whole)] == [1.0, 1.0]


def test_after_a_loss_the_surroundings_are_searched_and_not_all_tiles() -> None:
    network = Bright()
    finder = PeopleFinder(network, 6)
    counts = []
    for number in range(28):  # under a second: all tiles are searched once, in the first frame
        hidden = 5 <= number < 18
        people = [(40, 60, 90)] + ([] if hidden else [(400 + 2 * number, 200, 100)])
        counts.append(len(finder(number / 30, draw(people))[0]))
    assert counts[:5] == [2] * 5
    assert counts[5:18] == [1] * 13
    assert counts[24:] == [2] * 4  # found again near the place of the loss
    assert len(tiles(640, 360)) < network.found <= len(tiles(640, 360)) + 6
