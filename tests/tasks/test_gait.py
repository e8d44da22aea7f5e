"""Gait against walking that was made with known contacts, lengths and asymmetry, and against steps counted by
hand.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gait_samples import NAMES, walk
from interchange_samples import write_interchange

from halp.cli import main
from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.skeleton import get_topology, topology_for
from halp.tasks.gait import find_gait
from halp.tasks.pose_tracks import PoseTrack


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"treadmill": True},
        {"turn": 2.0},
        {"fps": 30.0},
        {"late": 0.42},
        {"noise": 0.004},
        {"cycle": 0.8, "stance": 0.55},
    ],
    ids=str,
)
def test_contacts_and_toe_offs_are_those_that_made_the_walk(how: dict[str, float]) -> None:
    poses, contacts, lifts = walk(**how)
    found = find_gait(poses)
    slack = 0.04 if poses.fps > 60 else 0.07
    for side in ("left", "right"):
        # the first and the last may be cut off by the ends of the recording
        assert len(found.contacts[side]) >= len(contacts[side]) - 1
        assert found.contacts[side][1:-1] == pytest.approx(
            contacts[side][: len(found.contacts[side])][1:-1], abs=slack
        )
        near = [np.abs(found.toe_offs[side] - time).min() for time in lifts[side][1:-1]]
        assert max(near) < slack


def test_measures_of_a_lame_walk_are_those_that_made_it() -> None:
    """Left steps are longer in time: the right foot comes 0.42 cycles after the left one, the left 0.58 after
    the right.
    """
    poses, _, _ = walk(late=0.42, cycle=1.2, speed=1.1)
    found = find_gait(poses).to_json()
    measures = found["measures"]
    assert measures["stride_time"]["mean"] == pytest.approx(1.2, abs=0.01)
    assert measures["step_time"]["right"]["mean"] == pytest.approx(0.42 * 1.2, abs=0.03)
    assert measures["step_time"]["left"]["mean"] == pytest.approx(0.58 * 1.2, abs=0.03)
    assert measures["step_time"]["asymmetry"] == pytest.approx(32, abs=6)
    assert measures["stride_length"]["mean"] == pytest.approx(1.1 * 1.2, rel=0.02)
    assert found["speed"] == pytest.approx(1.1, rel=0.03)
    assert found["cadence"] == pytest.approx(60 / 0.6, rel=0.02)
    low, high = found["cadence_interval"]
    assert low < found["cadence"] < high
    assert measures["stance_time"]["mean"] == pytest.approx(0.62 * 1.2, abs=0.04)
    # both feet stand for 2 · stance − 1 of a cycle, whatever the delay between them
    assert found["double_support_share"]["mean"] == pytest.approx(0.24, abs=0.05)
    # at a contact the other foot stands where it touched down: step lengths add up to the stride
    left, right = (measures["step_length"][side]["mean"] for side in ("left", "right"))
    assert left + right == pytest.approx(1.1 * 1.2, rel=0.05)


def test_on_a_treadmill_lengths_on_the_ground_are_not_invented() -> None:
    found = find_gait(walk(treadmill=True)[0])
    assert found.speed is None
    assert {stride.stride_length for stride in found.strides} == {None}
    assert any("treadmill" in note for note in found.notes)
    assert found.to_json()["measures"]["step_length"]["mean"] > 0.3


def test_standing_has_no_strides_and_a_body_without_feet_is_refused() -> None:
    poses, _, _ = walk()
    still = replace(poses, joints=np.repeat(poses.joints[:1], 300, axis=0))
    assert find_gait(still).strides == []
    assert find_gait(still).to_json()["cadence"] is None
    arms = PoseTrack(
        "a", 0, np.ones((60, 3, 3)), topology_for(["hip_left", "hip_right", "shoulder_left"], 3), 30.0
    )
    with pytest.raises(InputError, match="lacks hips or ankles of both sides"):
        find_gait(arms)


@pytest.mark.parametrize("late", [0.0, 0.08])
def test_feet_that_come_forward_together_take_no_strides(late: float) -> None:
    """Jumping forward: both feet land at once, or nearly so."""
    found = find_gait(walk(late=late)[0])
    assert found.strides == []
    assert not any(len(times) for events in (found.contacts, found.toe_offs) for times in events.values())
    assert found.speed is None
    assert found.notes[0].startswith("the feet move forward, but do not alternate as in walking: no strides")


def test_somebody_who_stops_to_jump_has_strides_before_and_none_of_the_jumps() -> None:
    steps, contacts, _ = walk(seconds=6)
    jumps = walk(late=0.0, seconds=6)[0].joints
    jumps = jumps + (steps.joints[-1, NAMES.index("hip_left")] - jumps[0, NAMES.index("hip_left")])
    found = find_gait(replace(steps, joints=np.concatenate([steps.joints, jumps])))
    assert len(found.strides) >= 7
    assert max(stride.stop for stride in found.strides) < 7.0
    assert found.contacts["left"][1:4] == pytest.approx(contacts["left"][1:4], abs=0.04)
    assert "times this is not a stride" in found.notes[0]


def test_a_foot_that_twitches_forward_does_not_touch_the_ground_twice() -> None:
    poses, contacts, _ = walk()
    early = contacts["left"][4] - 0.42  # in the swing before this contact
    joints = poses.joints.copy()
    feet = [NAMES.index(f"{name}_left") for name in ("ankle", "heel", "foot")]
    joints[:, feet, 2] += 0.6 * np.exp(-(((poses.times - early) / 0.06) ** 2))[:, None]
    found = find_gait(replace(poses, joints=joints))
    assert len(found.contacts["left"]) == len(find_gait(poses).contacts["left"])
    assert found.contacts["left"][1:-1] == pytest.approx(contacts["left"][1:-1], abs=0.04)


def test_a_marker_of_the_pelvis_replaces_hips_and_joints_never_seen_are_not_used() -> None:
    poses, contacts, _ = walk()
    names = [name.replace("hip_", "asis_") for name in NAMES]
    joints = poses.joints.copy()
    joints[
        :, [NAMES.index(f"{name}_{side}") for name in ("heel", "shoulder") for side in ("left", "right")]
    ] = np.nan
    found = find_gait(PoseTrack("walk", 0, joints, topology_for(names, 3), poses.fps))
    for side in ("left", "right"):
        near = [np.abs(found.contacts[side] - time).min() for time in contacts[side][1:-1]]
        assert max(near) < 0.08  # by the ankle, which is a little early


def test_contacts_are_when_the_heel_lands_and_not_when_it_is_furthest_in_front() -> None:
    poses, contacts, _ = walk(noise=0.001)
    feet = [NAMES.index(f"{name}_left") for name in ("ankle", "heel", "foot")]
    joints = poses.joints.copy()
    early = np.zeros(len(joints))
    for time in contacts["left"]:  # the leg swings back for 60 ms before it lands
        part = np.clip((poses.times - time + 0.06) / 0.06, 0, 1) * (poses.times < time + 0.3)
        early += 0.12 * np.sin(np.pi * part) * (poses.times < time)
    joints[:, feet, 2] += early[:, None]
    found = find_gait(PoseTrack("walk", 0, joints, poses.topology, poses.fps))
    away = [
        found.contacts["left"][np.abs(found.contacts["left"] - time).argmin()] - time
        for time in contacts["left"][1:-1]
    ]
    assert np.abs(np.mean(away)) < 0.015


def test_two_dimensions_seen_from_the_side() -> None:
    poses, contacts, _ = walk()
    flat = np.stack([poses.joints[..., 2], -poses.joints[..., 1]], axis=-1)  # y of pictures points down
    found = find_gait(PoseTrack("walk", 0, flat, topology_for(NAMES, 2), poses.fps))
    assert found.contacts["left"][1:-1] == pytest.approx(
        contacts["left"][: len(found.contacts["left"])][1:-1], abs=0.04
    )
    assert any("two dimensions" in note for note in found.notes)


def test_the_command_answers_per_person(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    poses, _, _ = walk(fps=50.0)
    topology = get_topology("kinect-v2")
    frames = np.zeros((len(poses.joints), 1, 25, 3), np.float32)
    for name in set(NAMES) & set(topology.joints):
        frames[:, 0, topology.index(name)] = poses.joints[:, NAMES.index(name)]
    write_interchange([Clip(frames, "walk", fps=50.0)], tmp_path / "walk.npz", topology=topology)
    out = tmp_path / "strides.csv"
    main(["gait", str(tmp_path / "walk.npz"), "--fps", "50", "--out", str(out), "--json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert row["strides"] >= 18
    assert row["measures"]["stride_time"]["mean"] == pytest.approx(1.1, abs=0.02)
    assert "stride left" in out.read_text()
    main(["gait", str(tmp_path / "walk.npz"), "--fps", "50", "--html", str(tmp_path / "gait.html")])
    assert "stride time (s)" in capsys.readouterr().out
