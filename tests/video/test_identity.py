"""Who is the same person in several videos: alike, nearer than anybody else, and never two of one video."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("av", reason="PyAV is not installed (pip install halp-motion[video])")

import halp
from halp.cli import main
from halp.core.errors import InputError
from halp.data.readers.video import VideoReader
from halp.skeleton import get_topology
from halp.video.film import FilmWriter
from halp.video.identity import Appearance, body_build, distances, same_people
from halp.video.landmarks import FilmLandmarks, kept_landmarks, write_landmarks
from halp.video.pose_model import kept_pose_model

JOINTS = get_topology("mediapipe-33").joints
TALL, SMALL = (
    np.array([0.2, 0.2, -0.25, -0.3, 0.1, -0.35, 0.4]),
    np.array([0.3, 0.1, -0.1, -0.3, 0.0, -0.5, 0.5]),
)


def clothes(colour: int) -> np.ndarray:
    look = np.zeros(48)
    look[colour::8] = 255
    return look


def person(film: str, build: np.ndarray, colour: int = 1, seed: int = 0, spread: float = 0.005) -> Appearance:
    return Appearance(film, clothes(colour), build + np.random.default_rng(seed).normal(0, spread, 7))


def test_the_same_two_people_of_three_videos_have_two_names() -> None:
    people = [person(film, build, seed=n) for n, film in enumerate("abc") for build in (TALL, SMALL)]
    numbers, matches = same_people(people)
    assert numbers == [0, 1] * 3
    assert len(matches) == 12  # each of six in both other videos
    assert all(0.4 <= match.sure <= 1 and match.distance < 1 for match in matches)


def test_other_clothes_or_another_build_is_somebody_else() -> None:
    people = [person("a", TALL, 1), person("b", TALL, 5), person("c", SMALL, 1)]
    assert same_people(people) == ([0, 1, 2], [])


def test_somebody_who_could_be_either_of_two_keeps_a_name_of_his_own() -> None:
    """Two people of one video are as near as each other to the one of the other video."""
    people = [person("a", TALL, seed=1), person("a", TALL, seed=2), person("b", TALL, seed=3)]
    assert same_people(people) == ([0, 1, 2], [])


def test_what_is_not_known_joins_nobody() -> None:
    unseen = [Appearance("b", np.zeros(48), TALL), Appearance("c", clothes(1), np.full(7, np.nan))]
    assert same_people([person("a", TALL), *unseen])[0] == [0, 1, 2]


builds = st.lists(st.floats(-0.03, 0.03), min_size=7, max_size=7).map(np.array)
crowds = st.lists(st.tuples(st.sampled_from("abcd"), builds, st.integers(0, 1)), min_size=1, max_size=9)


@given(crowds, st.randoms(use_true_random=False))
def test_no_name_is_given_twice_in_a_video_and_the_order_does_not_matter(crowd: Any, random: Any) -> None:
    people = [Appearance(film, clothes(colour), build) for film, build, colour in crowd]
    numbers, matches = same_people(people)
    named = list(zip((one.film for one in people), numbers))
    assert len(set(named)) == len(named)
    assert sorted(set(numbers)) == list(range(max(numbers) + 1))
    table = distances(people)
    assert all(table[a, b] <= 1 for a in range(len(people)) for b in range(a) if numbers[a] == numbers[b])
    assert all(match.sure >= 0.4 for match in matches)
    if len({match.sure for match in matches}) == len(matches):  # equal ones may be taken in either order
        order = random.sample(range(len(people)), len(people))
        again = same_people([people[at] for at in order])[0]
        pairs = {(a, b) for a in range(len(people)) for b in range(len(people)) if numbers[a] == numbers[b]}
        assert pairs == {
            (order[a], order[b]) for a in range(len(order)) for b in range(len(order)) if again[a] == again[b]
        }


def skeleton(seed: int, frames: int = 12) -> np.ndarray:
    """A body `(frames, 33, 4)` that turns, with a little noise."""
    rng = np.random.default_rng(seed)
    pose = np.random.default_rng(seed).normal(0, 0.3, (33, 3))
    for place, name in enumerate(JOINTS):
        if name.endswith("_right"):  # both sides are alike
            pose[place] = pose[JOINTS.index(name.replace("_right", "_left"))] * [-1, 1, 1]
    angle = np.linspace(0, 2, frames)
    turn = np.stack([np.cos(angle), np.sin(angle), -np.sin(angle), np.cos(angle)], 1).reshape(-1, 2, 2)
    marks = np.full((frames, 33, 4), 0.9, dtype=np.float32)
    marks[..., :3] = pose + rng.normal(0, 0.001, (frames, 33, 3))
    marks[..., [0, 2]] = np.einsum("tvc,tcd->tvd", marks[..., [0, 2]], turn)
    return marks


def test_proportions_do_not_depend_on_size_turn_or_hidden_joints() -> None:
    marks = skeleton(0)
    build = body_build(marks, JOINTS)
    larger = marks * np.array([3, 3, 3, 1], dtype=np.float32)
    assert body_build(larger, JOINTS) == pytest.approx(build, abs=1e-5)
    larger[3, JOINTS.index("knee_left")] = [50, 50, 50, 0.1]  # hardly visible
    assert body_build(larger, JOINTS) == pytest.approx(build, abs=0.01)
    assert np.isnan(body_build(marks * np.array([1, 1, 1, 0], dtype=np.float32), JOINTS)).all()
    assert np.abs(body_build(skeleton(1), JOINTS) - build).max() > 0.1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two videos of one second: the same two people, in the other order and at other places."""
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HALP_POSE_MODEL", raising=False)
    kept_pose_model().parent.mkdir(parents=True)
    kept_pose_model().write_bytes(b"weights")
    films = tmp_path / "films"
    films.mkdir()
    for name, seeds in (("monday", (0, 1)), ("tuesday", (1, 0))):
        with FilmWriter(films / f"{name}.mp4", 160, 120, 10) as writer:
            for number in range(12):
                writer.write(np.full((120, 160, 3), 60 + len(name), dtype=np.uint8), number / 10)
        bodies = np.stack([skeleton(seed) for seed in seeds], axis=1)  # (T, 2, 33, 4)
        image = bodies * np.array([20, 20, 20, 1], dtype=np.float32)
        image[:, 0, :, :2] += [40, 60]
        image[:, 1, :, :2] += [120, 60]
        looks = np.tile(np.stack([clothes(1 + 3 * seed) for seed in seeds]), (12, 1)).astype(np.uint8)
        found = FilmLandmarks(np.arange(12) / 10, np.full(12, 2), image.reshape(-1, 33, 4).astype(np.float32),
                              bodies.reshape(-1, 33, 4), (160, 120), {"estimator": "test"}, looks)  # fmt: skip
        path = kept_landmarks(films / f"{name}.mp4", kept_pose_model(), VideoReader("video", "").persons)
        write_landmarks(path, found)
    return films


def test_the_command_names_people_over_the_videos_of_a_folder(
    folder: Path, tmp_path: Path, capsys: Any
) -> None:
    pytest.importorskip("mediapipe", reason="mediapipe is not installed (pip install halp-motion[video])")
    events = tmp_path / "people.csv"
    main(["same-people", str(folder), "--out", str(events), "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["subject"] for row in rows] == ["person 1", "person 1", "person 2", "person 2"]
    same = {
        frozenset(r["recording"] for r in rows if r["subject"] == name) for name in ("person 1", "person 2")
    }
    assert same == {frozenset(("monday#1", "tuesday#2")), frozenset(("monday#2", "tuesday#1"))}
    assert all(row["sure"] > 0.4 for row in rows)
    assert events.read_text(encoding="utf-8").count("person 1") == 2
    found = halp.same_people(folder)
    assert len(found) == 4
    assert {(e.recording, e.start, round(e.stop, 6)) for e in found.events()} == {
        (f"{day}#{number}", 0.0, 1.2) for day in ("monday", "tuesday") for number in (1, 2)
    }


def test_a_video_that_cannot_be_read_does_not_hold_up_the_others(folder: Path, tmp_path: Path) -> None:
    (folder / "broken.mp4").write_bytes(b"not a video")
    with pytest.warns(UserWarning, match=r"left out: video '.*broken\.mp4' cannot be read"):
        assert len(halp.same_people(folder)) == 4
    alone = tmp_path / "alone"
    alone.mkdir()
    (folder / "broken.mp4").rename(alone / "broken.mp4")
    with pytest.raises(InputError, match="cannot be read"):
        halp.same_people(alone)


def test_a_folder_without_videos_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        halp.same_people(tmp_path)
