"""Camera and film in the page: pictures of the browser go to the server, a film of the source is played
beside the skeleton.
"""

from __future__ import annotations

import base64
import math
import os
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer.conftest import Explorer
from explorer.test_page import counted, until, visit

from halp.video.pose_model import kept_pose_model

FILM = Path(os.environ.get("HALP_TEST_FILM", "none"))
PICTURE = base64.b64encode(bytes(3 * 8 * 6)).decode()


def test_camera_without_weights_says_how_to_fetch_them(browser: Any, explorer: Explorer) -> None:
    pytest.importorskip("mediapipe", reason="mediapipe is not installed (pip install halp-motion[video])")
    context = browser.new_context(permissions=["camera"])
    page = context.new_page()
    page.goto(explorer.address)
    page.wait_for_selector("html[data-ready=true]")
    page.click("#tab-camera")
    page.click("text=Start the camera")  # Chromium shows a picture of its own making
    assert "fetch them once with `halp pose-model`" in page.locator(".panel .error").inner_text()
    context.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"width": 8, "height": 7, "picture": PICTURE}, "has 168 bytes, not 144"),
        ({"width": 0, "height": 0, "picture": ""}, "0 bytes"),
        ({"width": 100_000, "height": 6, "picture": PICTURE}, "there is no width"),
        ({"width": 8, "height": 6, "picture": "<>"}, "base64"),
        ({"width": 8, "height": 6, "picture": PICTURE, "time": "now"}, "'time' must be a number"),
    ],
)
def test_what_is_no_picture_is_refused(explorer: Explorer, given: dict[str, Any], words: str) -> None:
    status, body = explorer.call("/api/camera", {"time": 0, **given})
    assert status == 400
    assert words in body.decode()


def test_missing_package_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from halp.core.errors import InputError
    from halp.explorer.camera import LiveCamera, picture_of

    (tmp_path / "own.task").write_bytes(b"weights")
    monkeypatch.setenv("HALP_POSE_MODEL", str(tmp_path / "own.task"))
    monkeypatch.setitem(sys.modules, "mediapipe", None)
    with pytest.raises(InputError, match=r"pip install 'halp-motion\[video\]'"):
        LiveCamera()._poses(picture_of(bytes(144), 8, 6), 1)


@pytest.mark.parametrize("pause", [0.03, 0.27, 0.9])
def test_window_of_the_camera_stays_full_however_rare_pictures_are(pause: float) -> None:
    from halp.explorer.camera import keep_window

    past: deque[tuple[float, None]] = deque()
    shares = []
    for number in range(100):
        past.append((pause * number, None))
        shares.append(keep_window(past, 2.0))
    full = shares.index(1.0)
    assert full == math.ceil(2 / pause)
    assert set(shares[full:]) == {1.0}
    assert 2 <= past[-1][0] - past[0][0] < 2 + pause


@pytest.mark.slow
@pytest.mark.skipif(not FILM.is_file(), reason="no film of a person: set HALP_TEST_FILM")
@pytest.mark.skipif(not kept_pose_model().is_file(), reason="no pose model: halp pose-model")
def test_person_in_a_film_is_seen_and_what_moves_alike_is_shown(
    browser: Any, launch: Callable[..., Explorer], tmp_path: Path
) -> None:
    explorer = launch(tmp_path / "labels.csv", HALP_POSE_MODEL=str(kept_pose_model()))
    with visit(browser, explorer) as page:
        page.click("#tab-camera")
        page.set_input_files(".panel input[type=file]", FILM)
        page.wait_for_selector("[data-seen] .mini canvas[data-frame]")
        counted(page, "[data-seen] .mini", 4)


def _film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, people: int) -> Path:
    """Four seconds of a film whose landmarks are in the cache: people side by side, 24 pixels apart."""
    pytest.importorskip("av", reason="PyAV is not installed (pip install halp-motion[video])")
    from halp.data.readers.video import VideoReader
    from halp.video.film import FilmWriter
    from halp.video.landmarks import FilmLandmarks, kept_landmarks, write_landmarks

    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    path, times = tmp_path / "films" / "wave.mp4", np.arange(40) / 10
    path.parent.mkdir()
    with FilmWriter(path, 64, 48, 10) as writer:
        for number, moment in enumerate(times):
            writer.write(np.full((48, 64, 3), 5 * number, dtype=np.uint8), moment)
    kept_pose_model().parent.mkdir(parents=True)
    kept_pose_model().write_bytes(b"weights")
    body = (
        np.random.default_rng(0).uniform(1, 9, (people, 33, 4)) + np.linspace(0, 3, 40)[:, None, None, None]
    )
    body[..., 0] += 24 * np.arange(people)[:, None]
    body[..., 3] = 0.9
    image = body.reshape(-1, 33, 4).astype(np.float32)
    found = FilmLandmarks(
        times, np.full(40, people, dtype=np.int64), image, image / 100, (64, 48), {"estimator": "test"}
    )
    write_landmarks(kept_landmarks(path, kept_pose_model(), VideoReader("video", "").persons), found)
    return path


@pytest.fixture
def film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return _film(tmp_path, monkeypatch, 1)


@pytest.fixture
def film_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return _film(tmp_path, monkeypatch, 2)


def test_a_click_on_the_picture_chooses_the_person_of_a_film(
    browser: Any, launch: Callable[..., Explorer], film_of_two: Path, tmp_path: Path
) -> None:
    explorer = launch(tmp_path / "labels.csv", source=film_of_two.parent, HALP_CACHE=os.environ["HALP_CACHE"])
    names = explorer.get("names")
    assert names == ["wave#1", "wave#2"]
    people = explorer.get("people?recording=0")
    assert [one["person"] for one in people] == [1, 2]
    for one in people:
        assert names[explorer.arrays("rows")[1]["recording"][one["rows"][0]]] == f"wave#{one['person']}"
        left, top, right, bottom = np.array(one["boxes"]).T
        assert (
            (left >= 0) & (left < right) & (right <= 1) & (top >= 0) & (top < bottom) & (bottom <= 1)
        ).all()
    middle = [np.mean(np.array(one["boxes"])[:, [0, 2]]) for one in people]
    assert abs(middle[0] - middle[1]) == pytest.approx(24 / 64, abs=0.02), "each box is around its person"
    with visit(browser, explorer) as page:
        page.evaluate("row => halpLook(row)", people[0]["rows"][0])
        page.wait_for_selector(".person[aria-pressed=true] >> text=1")
        page.click("[aria-label^=pause]")  # what moves is no place to click for a test
        page.click(".person >> text=2")
        page.wait_for_selector(".person[aria-pressed=true] >> text=2")
        until(page, "() => document.querySelector('.time-head b').textContent === 'wave#2'")
        page.fill(".panel input[name=label]", "second")
        page.keyboard.press("Enter")
        until(page, "() => halpActs.value.length === 0")
    labelled = {event["recording"] for event in explorer.get("events")}
    assert labelled == {"wave#2"}


def test_film_is_played_in_step_and_sent_by_parts_under_the_token(
    browser: Any, launch: Callable[..., Explorer], film: Path, tmp_path: Path
) -> None:
    explorer = launch(tmp_path / "labels.csv", source=film.parent, HALP_CACHE=os.environ["HALP_CACHE"])
    status, part = explorer.call("/api/film?recording=0", headers={"Range": "bytes=4-11"})
    assert (status, part) == (206, film.read_bytes()[4:12])
    assert explorer.call("/api/film?recording=0", headers={"X-Halp-Token": ""})[0] == 403
    for wrong in ("1", "-1", "../labels.csv", ""):
        assert explorer.call(f"/api/film?recording={wrong}")[0] == 400
    with visit(browser, explorer) as page:
        page.fill("#find", "wave")
        page.wait_for_selector("#find-list li")
        page.keyboard.press("Enter")
        page.wait_for_selector(".player canvas[data-frame]")
        page.keyboard.press("Escape")
        until(page, "() => document.querySelector('video.film')?.duration > 3")
        page.click("[aria-label^=pause]")
        page.evaluate("halpLine.act.scrub(2)")
        until(page, "() => Math.abs(document.querySelector('video.film').currentTime - 2) < 0.03")


def test_recording_that_is_no_film_has_none(explorer: Explorer) -> None:
    status, body = explorer.call("/api/film?recording=0")
    assert (status, b"not a video" in body) == (400, True)
