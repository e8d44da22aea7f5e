"""Repetitions: recordings with a known number of them are counted and cut, made ones and real poses."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from interchange_samples import write_interchange

from benchmarks.exercises import synthetic_exercise
from halp.cli import main
from halp.core.errors import InputError
from halp.data.clip import Clip, present
from halp.data.windows import span_columns
from halp.skeleton import KINECT_V2, topology_for
from halp.tasks.excursions import spectral_arc_length
from halp.tasks.pose_tracks import PoseTrack
from halp.tasks.repetitions import Repetitions, find_repetitions


def poses_of(clip: Clip) -> PoseTrack:
    joints = np.where(present(clip.frames)[:, 0, None, None], clip.frames[:, 0], np.nan).astype(float)
    return PoseTrack(clip.name, 0, joints, KINECT_V2, clip.fps)


@pytest.mark.parametrize(
    ("action", "count"), [("squat", 3), ("kick", 5), ("jump", 4), ("pick up", 2), ("throw", 6)]
)
def test_made_exercises_with_pauses_and_partial_ends_are_counted(action: str, count: int) -> None:
    for seed in (101, 102):
        assert find_repetitions(poses_of(synthetic_exercise(action, count, seed))).count == count, seed


def squats(
    durations: list[float], *, pause: float = 0.5, cut: int = 0, depths: list[float] | None = None
) -> PoseTrack:
    """Exact squats of given durations and depths; `cut` frames are missing at the start and at the end."""
    parts, fps = [], 30.0
    for duration, depth in zip(durations, depths or [1.0] * len(durations)):
        time = np.linspace(0, 1, int(duration * fps), endpoint=False)
        parts += [depth * np.sin(np.pi * time) ** 2, np.zeros(int(pause * fps))]
    bend = np.concatenate(parts)
    bend = bend[cut : len(bend) - cut if cut else None]
    names = [
        "hip_center",
        "shoulder_center",
        "hip_left",
        "knee_left",
        "ankle_left",
        "hip_right",
        "knee_right",
        "ankle_right",
    ]
    joints = np.zeros((len(bend), 8, 3))
    angle = np.radians(60 * bend)
    for side, first in ((-0.2, 2), (0.2, 5)):
        joints[:, first] = joints[:, first + 1] = joints[:, first + 2] = [side, 0, 0]
        joints[:, first + 1, 1], joints[:, first + 1, 2] = -np.cos(angle), np.sin(angle)
        joints[:, first + 2, 1] = -2 * np.cos(angle)
    joints[:, 1, 1] = 1.0
    return PoseTrack("squats", 0, joints, topology_for(names, 3), fps)


def test_repetitions_are_cut_where_they_begin_and_end() -> None:
    durations = [1.0, 2.0, 1.4]
    result = find_repetitions(squats(durations))
    whole = [r for r in result.repetitions if not r.partial]
    assert [r.stop - r.start for r in whole] == pytest.approx(durations, rel=0.25)
    assert [r.start for r in whole] == pytest.approx([0.0, 1.5, 4.0], abs=0.25)
    assert {r.angle for r in whole} <= {"knee_left", "knee_right"}
    assert [r.range for r in whole] == pytest.approx([120, 120, 120], abs=8)  # knees bend by 2 · 60 degrees
    assert result.to_json()["count"] == 3


def test_cut_off_and_shallow_repetitions_are_partial_and_not_counted() -> None:
    result = find_repetitions(squats([1.5] * 5, cut=22))
    assert result.count == 4  # the first is cut off at its deepest point
    shallow = find_repetitions(squats([1.5] * 5, depths=[1, 1, 0.35, 1, 1]))
    assert shallow.count == 4
    assert [r.partial for r in shallow.repetitions] == [False, False, True, False, False]


def test_the_distance_to_the_reference_finds_the_one_that_is_different() -> None:
    result = find_repetitions(squats([1.5] * 5, depths=[1, 1, 0.7, 1, 1]))
    distances = [r.distance for r in result.repetitions]
    assert int(np.argmax(distances)) == 2
    assert result.reference in (1, 2, 4, 5)
    assert distances[result.reference - 1] == 0
    chosen = find_repetitions(squats([1.5] * 5, depths=[1, 1, 0.7, 1, 1]), reference=3)
    assert chosen.repetitions[2].distance == 0
    with pytest.raises(InputError, match="has 5 repetitions; --reference 9 is out of range"):
        find_repetitions(squats([1.5] * 5), reference=9)


def test_standing_still_is_no_repetition() -> None:
    poses = squats([1.5] * 3)
    still = PoseTrack("still", 0, np.repeat(poses.joints[:1], 200, axis=0), poses.topology, 30.0)
    assert find_repetitions(still).count == 0
    rng = np.random.default_rng(0)
    noisy = PoseTrack(
        "noise", 0, still.joints + rng.normal(0, 0.01, still.joints.shape), poses.topology, 30.0
    )
    assert find_repetitions(noisy).count == 0
    assert find_repetitions(PoseTrack("short", 0, still.joints[:5], poses.topology, 30.0)).repetitions == []


def test_smoothness_falls_where_a_movement_stops_and_starts() -> None:
    time = np.linspace(0, 1, 60)
    smooth = np.sin(np.pi * time) ** 2
    halting = smooth * (1 + 0.6 * np.sin(2 * np.pi * 5 * time))
    one, other = spectral_arc_length(smooth, 60.0), spectral_arc_length(halting, 60.0)
    assert one is not None
    assert other is not None
    assert other < one < -1
    assert spectral_arc_length(3 * smooth, 60.0) == pytest.approx(one)  # size does not matter
    assert spectral_arc_length([0.0] * 9, 60.0) is None


@pytest.mark.heavy
def test_real_trials_joined_to_one_recording_are_counted(shared: Path) -> None:
    """Squats and arm curls of UTD-MHAD: each trial is one repetition, four trials of one person in a row are
    four.
    """
    file = shared / "data" / "utd-mhad.npz"
    if not file.is_file():
        pytest.skip(f"there is no '{file}'")
    data = np.load(file, allow_pickle=False)
    topology = topology_for([str(joint) for joint in data["joint_names"]], 3)
    for name in ("squat", "arm curl", "lunge"):
        label = list(data["class_names"]).index(name)
        rows = np.flatnonzero((data["labels"] == label) & (data["subjects"] == 1))[:4]
        clips = [data["joints"][data["offsets"][r] : data["offsets"][r + 1], 0].astype(float) for r in rows]
        joined: list[np.ndarray] = []
        for clip in clips:
            clip = clip - clip[0, topology.index("hip_center")]
            if joined:
                way = np.linspace(0, 1, 12)[1:-1, None, None]
                joined.append(joined[-1][-1] * (1 - way) + clip[0] * way)
            joined.append(clip)
        result: Repetitions = find_repetitions(PoseTrack(name, 0, np.concatenate(joined), topology, 30.0))
        assert result.count == len(rows), name


def test_repetitions_command_writes_events_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poses = squats([1.2, 1.5, 1.8])
    clip = Clip(poses.joints[:, None] + 3, "s", fps=30.0)
    write_interchange([replace(clip, extra=span_columns(clip))], tmp_path / "s.npz", topology=poses.topology)
    out, page = tmp_path / "events.csv", tmp_path / "page.html"
    main(["repetitions", str(tmp_path / "s.npz"), "--out", str(out), "--html", str(page), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer[0]["count"] == 3
    assert {"duration", "range", "smoothness", "distance"} <= answer[0]["repetitions"][0].keys()
    with open(out) as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["repetition"] * 3
    assert list(rows[0])[:7] == ["recording", "start", "stop", "label", "subject", "source", "score"]
    assert "Repetitions" in page.read_text()


def test_a_cycle_goes_from_start_to_start_and_pauses_are_apart() -> None:
    result = find_repetitions(squats([1.0, 1.0, 1.0, 1.0], pause=0.6))
    whole = [r for r in result.repetitions if not r.partial]
    assert [r.cycle for r in whole[:-1]] == pytest.approx([1.6] * 3, abs=0.1)
    assert whole[-1].cycle is None
    for r in whole[:-1]:
        assert r.pause == pytest.approx(r.cycle - (r.stop - r.start), abs=1e-6)
    row = result.to_json()
    assert row["cadence"] == pytest.approx(60 / 1.6, rel=0.05)
    low, high = row["cycle_interval"]
    assert low <= row["cycle_mean"] <= high
    assert row["count_interval"] == [4, 4 + row["partial"]]


def test_repetitions_of_a_chosen_angle_or_joint_are_its_own() -> None:
    """Both knees bend together, and the right arm swings three times in between: each is counted by
    itself.
    """
    poses = squats([1.0] * 5, pause=0.6)
    names = [*poses.topology.joints, "shoulder_right", "elbow_right", "wrist_right"]
    time = np.arange(len(poses.joints)) / poses.fps
    swing = np.radians(50 * np.sin(np.pi * 3 * time / time[-1]) ** 2)
    arm = np.zeros((len(time), 3, 3))
    arm[:, 0] = [0.2, 1.0, 0.0]
    arm[:, 1] = [0.2, 0.6, 0.0]
    arm[:, 2] = np.stack([np.full_like(time, 0.2), 0.6 - 0.4 * np.cos(swing), 0.4 * np.sin(swing)], axis=1)
    poses = replace(
        poses, joints=np.concatenate([poses.joints, arm], axis=1), topology=topology_for(names, 3)
    )
    knee = find_repetitions(poses, angle="knee_right")
    elbow, wrist = find_repetitions(poses, angle="elbow_right"), find_repetitions(poses, joint="wrist_right")
    assert (knee.count, elbow.count, wrist.count) == (5, 3, 3)
    assert {r.angle for r in knee.repetitions} == {"knee_right"}
    assert {r.angle for r in wrist.repetitions} == {"elbow_right"}
    assert [r.range for r in elbow.repetitions] == pytest.approx([50] * 3, abs=3)
    with pytest.raises(InputError, match="angle of 'squats' 'knee_rigth'"):
        find_repetitions(poses, angle="knee_rigth")
    with pytest.raises(InputError, match="give --angle or --joint"):
        find_repetitions(poses, angle="knee_right", joint="wrist_right")
