"""Clinical angles of postures that were made by turning one limb at a time, in any heading and any
coordinates.
"""

from __future__ import annotations

import numpy as np
import pytest

from halp.skeleton import get_topology, topology_for
from halp.tasks.clinical import clinical_angles, clinical_rows, convention
from halp.tasks.pose_tracks import PoseTrack

# x is the right of the body, y is up, it faces −z: right-handed coordinates
UPRIGHT = {
    "hip_left": (-0.1, 0.9, 0), "hip_right": (0.1, 0.9, 0), "knee_left": (-0.1, 0.5, 0), "knee_right": (0.1, 0.5, 0),
    "ankle_left": (-0.1, 0.1, 0), "ankle_right": (0.1, 0.1, 0), "heel_left": (-0.1, 0.0, 0.05), "heel_right": (0.1, 0.0, 0.05),
    "foot_left": (-0.1, 0.0, -0.15), "foot_right": (0.1, 0.0, -0.15), "shoulder_left": (-0.2, 1.4, 0),
    "shoulder_right": (0.2, 1.4, 0), "elbow_left": (-0.2, 1.1, 0), "elbow_right": (0.2, 1.1, 0),
    "wrist_left": (-0.2, 0.8, 0), "wrist_right": (0.2, 0.8, 0),
}  # fmt: skip
LEG = ("knee", "ankle", "heel", "foot")


def turned(axis: str, degrees: float) -> np.ndarray:
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array({"x": [[1, 0, 0], [0, cos, -sin], [0, sin, cos]], "y": [[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]],
                     "z": [[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]]}[axis])  # fmt: skip


def posed(parts: dict[str, tuple[str, str, float]], world: np.ndarray | None = None) -> PoseTrack:
    """The upright body with joints turned: joint → (about which joint, axis, degrees); then the whole of it
    by `world`.
    """
    places = {name: np.array(place, dtype=float) for name, place in UPRIGHT.items()}
    for name, (about, axis, degrees) in parts.items():
        places[name] = places[about] + turned(axis, degrees) @ (places[name] - np.array(UPRIGHT[about])) \
            if about in UPRIGHT else places[name]  # fmt: skip
    joints = np.array(list(places.values()))
    joints = joints if world is None else joints @ world.T
    return PoseTrack("p", 0, np.repeat(joints[None], 40, axis=0), topology_for(list(UPRIGHT), 3), 30.0)


WORLDS = {
    "as made": np.eye(3),
    "turned": turned("y", 130),
    "z is up": turned("x", 90),
    "y is down": np.diag([1.0, -1.0, -1.0]),
    "left-handed": np.diag([-1.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_upright_is_zero_and_each_limb_has_its_sign(world: np.ndarray) -> None:
    def one(name: str, parts: dict[str, tuple[str, str, float]]) -> float:
        return float(clinical_angles(posed(parts, world))[name][20])

    for name, values in clinical_angles(posed({}, world)).items():
        assert values == pytest.approx(0, abs=1e-6), name
    # the body faces −z, so that a thigh comes forward by a positive turn about x
    leg = {f"{part}_left": ("hip_left", "x", 40.0) for part in LEG}
    assert one("hip_flexion_left", leg) == pytest.approx(40)
    assert one("hip_flexion_right", leg) == pytest.approx(0, abs=1e-6)
    assert one("knee_flexion_left", leg) == pytest.approx(0, abs=1e-5)
    back = {f"{part}_right": ("hip_right", "x", -25.0) for part in LEG}
    assert one("hip_flexion_right", back) == pytest.approx(-25)
    assert one(
        "hip_abduction_left", {f"{part}_left": ("hip_left", "z", -30.0) for part in LEG}
    ) == pytest.approx(30)
    assert one(
        "hip_abduction_right", {f"{part}_right": ("hip_right", "z", 30.0) for part in LEG}
    ) == pytest.approx(30)
    shank = {f"{part}_left": ("knee_left", "x", -70.0) for part in ("ankle", "heel", "foot")}
    assert one("knee_flexion_left", shank) == pytest.approx(70)
    foot = {f"{part}_left": ("ankle_left", "x", 15.0) for part in ("heel", "foot")}
    assert one("ankle_dorsiflexion_left", foot) == pytest.approx(15)
    arm = {f"{part}_right": ("shoulder_right", "z", 80.0) for part in ("elbow", "wrist")}
    assert one("shoulder_elevation_right", arm) == pytest.approx(80)
    assert one("elbow_flexion_right", {"wrist_right": ("elbow_right", "x", 50.0)}) == pytest.approx(50)


def test_trunk_and_pelvis_are_measured_against_the_vertical() -> None:
    upper = [name for name in UPRIGHT if name.split("_")[0] in ("shoulder", "elbow", "wrist")]
    poses = posed({})
    joints, place = poses.joints.copy(), [poses.topology.index(name) for name in upper]
    hips = np.array([0, 0.9, 0])
    for axis, degrees, name in (("x", -30.0, "trunk_flexion"), ("z", -20.0, "trunk_lateral_flexion")):
        bent = joints.copy()
        bent[:, place] = hips + (joints[:, place] - hips) @ turned(axis, degrees).T
        angles = clinical_angles(PoseTrack("p", 0, bent, poses.topology, 30.0))
        assert angles[name] == pytest.approx(-degrees, abs=1e-6)
        # the trunk bends and the thigh does not: the hip is flexed by as much
        if axis == "x":
            assert angles["hip_flexion_left"] == pytest.approx(30, abs=1e-6)
    tilted = joints.copy()
    tilted[:, poses.topology.index("hip_left"), 1] += 0.2 * np.tan(np.radians(10))
    assert clinical_angles(PoseTrack("p", 0, tilted, poses.topology, 30.0))[
        "pelvis_obliquity"
    ] == pytest.approx(10, abs=0.1)


def test_rows_say_zero_sign_unit_smoothing_and_why_there_is_no_interval() -> None:
    rows = {row["angle"]: row for row in clinical_rows(posed({}))}
    knee = rows["knee_flexion_left"]
    assert (knee["unit"], knee["zero"], knee["positive"]) == ("deg", "straight", "flexion")
    assert "Grood" in knee["isb"]
    assert "Savitzky" in knee["smoothing"]
    assert knee["interval"] is None
    assert "repetitions" in knee["interval_reason"]
    assert convention("pelvis_obliquity").positive == "left hip higher"


def test_two_dimensions_have_the_angles_of_the_picture_only() -> None:
    poses = posed({f"{part}_left": ("hip_left", "x", 40.0) for part in LEG})
    flat = PoseTrack(
        "p",
        0,
        np.stack([-poses.joints[..., 2], -poses.joints[..., 1]], -1),
        topology_for(list(UPRIGHT), 2),
        30.0,
    )
    angles = clinical_angles(flat)
    assert angles["hip_flexion_left"] == pytest.approx(40, abs=1e-6)
    assert "hip_abduction_left" not in angles
    assert "pelvis_obliquity" not in angles
    assert clinical_angles(
        PoseTrack("p", 0, np.ones((5, 33, 3)), get_topology("mediapipe-33"), 30.0)
    )  # no direction, no error
