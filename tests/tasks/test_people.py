"""`halp people`: a row per person, a page with pictures, and the names that other verbs use."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import halp
from halp.cli import main
from halp.core.errors import InputError

pytest.importorskip("av", reason="PyAV is not installed (pip install halp-motion[video])")
pytest.importorskip("mediapipe", reason="mediapipe is not installed (pip install halp-motion[video])")

from halp.data.readers.video import VideoReader
from halp.tasks.pose_tracks import read_poses
from halp.video.film import FilmWriter
from halp.video.landmarks import FilmLandmarks, kept_landmarks, write_landmarks
from halp.video.people import find_people
from halp.video.pose_model import kept_pose_model

TIMES = np.arange(40) / 10
ADULT, CHILD = (20, 10, 60, 110), (100, 60, 120, 110)  # left, top, right, bottom


def body(left: float, top: float, right: float, bottom: float) -> Any:
    marks = np.full((33, 4), 0.9, dtype=np.float32)
    places = np.random.default_rng(2).uniform(0, 1, (33, 2))
    places[:2] = [[0, 0], [1, 1]]
    marks[:, :2] = places * [right - left, bottom - top] + [left, top]
    return marks


@pytest.fixture
def film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four seconds: a child throughout, an adult on the left from 1.0 to 2.5 s, and a false detection for two
    frames.
    """
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HALP_POSE_MODEL", raising=False)
    path = tmp_path / "visit.mp4"
    with FilmWriter(path, 160, 120, 10) as writer:
        for number, moment in enumerate(TIMES):
            picture = np.full((120, 160, 3), 60, dtype=np.uint8)
            picture[60:110, 100:120] = [200, 0, 0]
            if 10 <= number < 25:
                picture[10:110, 20:60] = [0, 0, 200]
            writer.write(picture, float(moment))
    frames = []
    for number in range(40):
        people = [body(*CHILD)]
        people += [body(*ADULT)] if 10 <= number < 25 else []
        people += [body(140, 5, 155, 35)] if number in (30, 31) else []
        frames.append(people)
    image = np.stack([one for people in frames for one in people])
    counts = np.array([len(people) for people in frames])
    kept_pose_model().parent.mkdir(parents=True)
    kept_pose_model().write_bytes(b"weights")
    found = FilmLandmarks(TIMES, counts, image, image / 100, (160, 120), {"estimator": "test"})
    write_landmarks(kept_landmarks(path, kept_pose_model(), VideoReader("video", "").persons), found)
    return path


def test_a_row_per_person_with_times_share_size_and_place(film: Path, capsys: Any) -> None:
    main(["people", str(film), "--json"])
    child, adult = json.loads(capsys.readouterr().out)
    assert (child["person"], child["first"], child["last"], child["share"]) == (1, 0.0, 3.9, 1.0)
    assert (adult["person"], adult["first"], adult["last"], adult["share"]) == (2, 1.0, 2.4, 0.375)
    assert (child["recording"], adult["recording"]) == ("visit#1", "visit#2")
    assert adult["height"] == pytest.approx(100 / 120, abs=0.01)
    assert adult["x"] < 0.5 < child["x"]


@pytest.mark.parametrize(
    ("person", "number"), [("largest", 2), ("longest", 1), ("left", 2), ("right", 1), ("1", 1), ("2", 2)]
)
def test_a_word_or_a_number_means_a_person(film: Path, person: str, number: int) -> None:
    (one,) = found = halp.people(film, person=person)
    assert one.number == number
    assert {event.recording for event in found.events()} == {f"visit#{number}"}  # as other commands name it


@pytest.mark.filterwarnings("ignore:.*people are seen")
def test_angles_and_repetitions_have_a_row_per_person(film: Path, capsys: Any) -> None:
    for command in ("angles", "repetitions"):
        main([command, str(film), "--json"])
        rows = json.loads(capsys.readouterr().out)
        assert {(row["recording"], row["person"]) for row in rows} == {("visit#1", 1), ("visit#2", 2)}


@pytest.mark.filterwarnings("ignore:.*people are seen")
def test_angles_of_a_video_say_how_far_one_camera_is_off(film: Path, capsys: Any) -> None:
    main(["angles", str(film), "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert {row["person"] for row in rows} == {1, 2}
    for row in rows:
        assert row["interval"] is None
        assert row["interval_reason"].startswith("angles are estimated from one camera")
    page = film.parent / "angles.html"
    main(["angles", str(film), "--html", str(page)])
    assert "estimated from one camera" in " ".join(capsys.readouterr().err.split())
    assert "estimated from one camera" in page.read_text(encoding="utf-8")
    assert {round(poses.height_px) for poses in read_poses(film)} == {50, 100}


@pytest.mark.filterwarnings("ignore:.*people are seen", "ignore:.*uncertain joint", "ignore:.*tracking error")
def test_before_and_after_a_person_is_seen_he_or_she_is_absent_and_nothing_is_missing(film: Path) -> None:
    found = halp.angles(film)
    spans = {(e.recording, round(e.start, 3), round(e.stop, 3)) for e in found.events()}
    assert spans == {("visit#1", 0.0, 4.0), ("visit#2", 1.0, 2.5)}
    assert {row["missing"] for row in found.to_json()} == {0.0}
    assert min(row["time_s"] for row in found.series() if row["person"] == 2) == 1.0


@pytest.mark.filterwarnings("ignore:.*people are seen")
def test_why_shares_and_heights_of_people_have_no_interval_is_said_everywhere(
    film: Path, capsys: Any
) -> None:
    page = film.parent / "people.html"
    main(["people", str(film), "--html", str(page)])
    shown = capsys.readouterr()
    for place in (" ".join(shown.err.split()), page.read_text(encoding="utf-8")):
        assert "Without an interval: first, last, share (every frame is looked at" in place
    assert "no_interval" not in shown.out
    assert halp.people(film).to_json()[0]["no_interval"]["height"]


@pytest.mark.filterwarnings("ignore:.*people are seen", "ignore:.*uncertain joint")
def test_if_as_many_are_seen_as_are_followed_others_may_be_in_view(film: Path) -> None:
    found = VideoReader("video", "").people(film)[1]
    assert VideoReader("video", "").at_limit(found) == ""
    write_landmarks(kept_landmarks(film, kept_pose_model(), 2), found)
    with pytest.warns(UserWarning, match="2 people are followed at a time .*two of them in turn") as told:
        halp.people(film, persons=2)
    assert len([one for one in told if "in turn" in str(one.message)]) == 1
    with pytest.warns(UserWarning, match="give a larger --persons"):
        halp.angles(film, persons=2)


@pytest.mark.filterwarnings(
    "ignore:.*people are seen", "ignore:.*uncertain joint", "ignore:.*joint positions"
)
@pytest.mark.filterwarnings("ignore:.*tracking error", "ignore:.*squeezed", "ignore:.*missing")
def test_a_video_of_several_people_is_not_a_hit_of_its_own_search(film: Path, tmp_path: Path) -> None:
    folder = tmp_path / "films"
    folder.mkdir()
    found = VideoReader("video", "").people(film)[1]
    for name in ("visit", "later"):
        other = folder / f"{name}.mp4"
        other.write_bytes(film.read_bytes() + (b"" if name == "visit" else b"later"))
        write_landmarks(kept_landmarks(other, kept_pose_model(), VideoReader("video", "").persons), found)
    how: Any = {"k": 4, "cache": False, "progress": False}
    with pytest.warns(UserWarning, match="the query shows 2 people .*choose one with --person"):
        hits = halp.search("halp-base", folder / "visit.mp4", folder, **how)
    assert {hit.recording for hit in hits} == {"later#1", "later#2"}
    hits = halp.search("halp-base", folder / "visit.mp4", folder, person="2", **how)
    assert [hit.recording for hit in hits] == ["later#2"]


def test_when_each_person_is_seen_is_written_as_events(film: Path, tmp_path: Path) -> None:
    events = halp.people(film).events()
    assert [
        (e.recording, round(e.start, 3), round(e.stop, 3), e.label, e.more["person"]) for e in events
    ] == [("visit#1", 0.0, 4.0, "seen", 1), ("visit#2", 1.0, 2.5, "seen", 2)]


def test_the_thumbnail_shows_the_person(film: Path) -> None:
    people = halp.people(film)
    adult = people.thumbnail(people[1]).reshape(-1, 3).mean(axis=0)
    assert adult[2] > adult[0] + 30  # blue
    child = people.thumbnail(people[0]).reshape(-1, 3).mean(axis=0)
    assert child[0] > child[2] + 10  # red


def test_the_page_shows_everybody_without_another_file(film: Path, tmp_path: Path) -> None:
    main(["people", str(film), "--html", str(tmp_path / "people.html")])
    page = (tmp_path / "people.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg;base64,") == 3
    assert "--person 2 chooses this person alone" in page
    assert "first (s)" in page


def test_a_person_who_is_found_twice_is_one_person(film: Path) -> None:
    """A second follower may hang on somebody for a while, with another pose."""
    people = halp.people(film)
    landmarks = people.landmarks
    twice = body(102, 65, 118, 108)
    twice[:, :2] = twice[::-1, :2]
    image = np.concatenate(
        [np.insert(landmarks.image[rows], 1, twice, axis=0) for rows in landmarks.frames()]
    )
    doubled = replace(landmarks, people=landmarks.people + 1, image=image, world=image / 100)
    assert [one.number for one in find_people(doubled)] == [1, 2]
    assert [one.share for one in find_people(doubled)] == [1.0, 0.375]


def test_another_pose_of_somebody_that_begins_before_the_first_one_ends_is_the_same_person(
    film: Path,
) -> None:
    """From 1.5 to 2 s the child is found twice, in the same box with other joints; later only the other way."""
    landmarks = halp.people(film).landmarks
    other = body(101, 61, 119, 109)
    other[:, :2], other[:, 3] = other[::-1, :2], 0.8
    frames = []
    for number, part in enumerate(landmarks.frames()):
        child, *adults = landmarks.image[part]
        frames.append([*([child] if number < 20 else []), *([other] if number >= 15 else []), *adults])
    image, counts = np.stack([one for people in frames for one in people]), np.array(list(map(len, frames)))
    changed = replace(landmarks, people=counts, image=image, world=image / 100)
    assert [one.share for one in find_people(changed)] == [1.0, 0.375]


@pytest.mark.parametrize(
    ("name", "keywords", "words"),
    [
        ("notes.txt", {}, "is not a video file"),
        (".", {}, "for a folder of videos use `halp same-people`"),
        ("none.mp4", {}, "there is no video"),
        ("visit.mp4", {"person": "tallest"}, "--person is all, longest, largest, left, right or a number"),
        ("visit.mp4", {"person": "7"}, "there is no person 7; 2 people are seen"),
        ("visit.mp4", {"fps": 30.0}, "leave out format, fps and window"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(film: Path, name: str, keywords: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        halp.people(film.parent / name, **keywords)
