"""Joint angles against an independent formula, in two and three dimensions, and what the command writes."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from interchange_samples import write_interchange

from halp.cli import main
from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.windows import span_columns
from halp.skeleton import get_topology, list_topologies, topology_for
from halp.tasks.angles import angle_joints, angle_rows, angular_velocity, interior_angle, joint_angles
from halp.tasks.pose_tracks import PoseTrack, read_poses

LEG = topology_for(["hip_left", "knee_left", "ankle_left", "hip_right", "knee_right", "ankle_right"], 3)


def bending_legs(frames: int = 61, fps: float = 30.0, left: float = 90.0, right: float = 60.0) -> PoseTrack:
    """Knees that bend from straight by `left` and `right` degrees and back, with unit bones."""
    time = np.arange(frames) / fps
    joints = np.zeros((frames, 6, 3))
    for first, bend in ((0, left), (3, right)):
        angle = np.radians(bend * np.sin(np.pi * time / time[-1]) ** 2)
        joints[:, first : first + 3, 0] = first
        joints[:, first, 1] = 1.0
        joints[:, first + 1, 1] = 0.0
        joints[:, first + 2, 1], joints[:, first + 2, 2] = -np.cos(angle), np.sin(angle)
    return PoseTrack("legs", 0, joints + 5, LEG, fps)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_angles_are_those_of_the_law_of_cosines(dimensions: int) -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 200, dimensions))
    sides = [np.linalg.norm(one - other, axis=1) for one, other in ((a, b), (c, b), (a, c))]
    expected = np.degrees(
        np.arccos((sides[0] ** 2 + sides[1] ** 2 - sides[2] ** 2) / (2 * sides[0] * sides[1]))
    )
    np.testing.assert_allclose(interior_angle(a, b, c), expected, atol=1e-6)


def test_angles_do_not_change_with_place_size_and_direction() -> None:
    rng = np.random.default_rng(1)
    topology = get_topology("kinect-v2")
    joints = rng.normal(size=(5, 25, 3))
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    one, other = joint_angles(joints, topology), joint_angles(3 * joints @ turn + [1, 2, 3], topology)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], atol=1e-8)


def test_every_body_topology_has_the_knees_and_elbows_it_has_joints_for() -> None:
    assert {"kinect-v2", "coco-17"} <= set(list_topologies())
    for name in list_topologies():
        topology = get_topology(name)
        angles = angle_joints(topology)
        for angle, parts in {"knee": "hip knee ankle", "elbow": "shoulder elbow wrist"}.items():
            for side in ("left", "right"):
                has = all(f"{part}_{side}" in topology.joints for part in parts.split())
                assert has == (f"{angle}_{side}" in angles), (name, angle)
    with pytest.raises(InputError, match="no joints that make an angle"):
        joint_angles(np.zeros((1, 2, 3)), topology_for(["head", "tail"], 3))


def test_ranges_velocities_and_asymmetry_of_bending_legs() -> None:
    rows = {row["angle"]: row for row in angle_rows(bending_legs())}
    assert rows["knee_left"]["max"] == pytest.approx(180)
    assert rows["knee_left"]["range"] == pytest.approx(90, abs=1e-6)
    assert rows["knee_left"]["asymmetry"] == rows["knee_right"]["asymmetry"] == pytest.approx(200 * 30 / 150)
    # d/dt of 90 · sin²(π t / 2) is 90 · π / 2 at its steepest
    assert rows["knee_left"]["peak_velocity"] == pytest.approx(90 * np.pi / 2, rel=0.02)


def test_velocity_of_a_straight_line_is_its_slope_and_gaps_stay_gaps() -> None:
    line = 3.0 * np.arange(20) / 10.0
    np.testing.assert_allclose(angular_velocity(line, 10.0), 3.0)
    poses = bending_legs()
    poses.joints[10, 1] = np.nan
    angle = joint_angles(poses.joints, LEG)["knee_left"]
    assert np.isnan(angle[10])
    assert np.isfinite(np.delete(angle, 10)).all()


def _save(poses: PoseTrack, path: Path, name: str = "legs") -> None:
    clip = Clip(poses.joints[:, None], name, subject=1, fps=poses.fps)
    write_interchange([replace(clip, extra=span_columns(clip))], path, topology=poses.topology)


def test_angles_command_writes_a_column_per_angle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _save(bending_legs(), tmp_path / "legs.npz")
    out, page = tmp_path / "angles.csv", tmp_path / "angles.html"
    main(["angles", str(tmp_path / "legs.npz"), "--out", str(out), "--html", str(page), "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert {row["angle"] for row in rows} == {"knee_left", "knee_right"}
    with open(out) as file:
        table = list(csv.DictReader(file))
    assert len(table) == 61
    assert float(table[30]["knee_left_deg"]) == pytest.approx(90, abs=1e-3)
    assert float(table[30]["time_s"]) == 1.0
    assert "knee_left_deg_per_s" in table[0]
    assert float(table[30]["knee_flexion_left_deg"]) == pytest.approx(90, abs=1e-3)
    main(["angles", str(tmp_path / "legs.npz"), "--convention", "clinical"])
    shown = capsys.readouterr().out
    assert "max (°)" in shown
    assert "knee_flexion_left" in shown
    assert "Ranges of motion" in page.read_text()


def test_two_dimensions_are_labelled_as_a_projection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = bending_legs()
    topology = topology_for(LEG.joints, 2)
    _save(PoseTrack("legs", 0, flat.joints[..., [1, 2]], topology, 30.0), tmp_path / "flat.npz")
    main(["angles", str(tmp_path / "flat.npz"), "--json"])
    streams = capsys.readouterr()
    assert "projection onto the image" in " ".join(streams.err.split())
    assert json.loads(streams.out)[0]["range"] == pytest.approx(90, abs=1e-3)


def test_a_recording_that_does_not_state_its_rate_is_refused(tmp_path: Path) -> None:
    poses = bending_legs()
    write_interchange([Clip(poses.joints[:, None], "legs")], tmp_path / "legs.npz", topology=LEG)
    with pytest.raises(InputError, match="does not state its frames per second"):
        list(read_poses(tmp_path / "legs.npz"))
    assert next(read_poses(tmp_path / "legs.npz", fps=25)).fps == 25


def test_velocity_leaves_a_gap_where_nobody_is_seen() -> None:
    angle = np.linspace(0.0, 90.0, 60)
    angle[:3] = angle[30:40] = angle[-2:] = np.nan
    velocity = angular_velocity(angle, 30.0)
    np.testing.assert_array_equal(np.isnan(velocity), np.isnan(angle))
    np.testing.assert_allclose(velocity[np.isfinite(velocity)], 90 / 59 * 30)
