"""Angles in clinical conventions: signed, in a plane, zero in the neutral standing posture.

They are computed from joint centres, not from the anatomical axes of segments, so they approximate the angles
of the joint coordinate systems that the International Society of Biomechanics (ISB) recommends; `isb` names
the one each comes near to. Flexion, dorsiflexion, abduction and lean forward are positive. Planes are those
of the body in every frame, see
`halp.tasks.body_frame`. Values are as recorded, without smoothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from halp.core.errors import InputError
from halp.tasks.angles import angle_table, interior_angle
from halp.tasks.body_frame import BodyFrame, body_frame, middle
from halp.tasks.pose_tracks import Floats, PoseTrack

SMOOTHING = "angles: none; velocities: Savitzky-Golay, second order, 0.2 s"

# a person, its `BodyFrame` (None for bends of limbs), and a side
Measure = Callable[[PoseTrack, Any, str], Floats]
_PLANELESS = ("elbow_flexion", "knee_flexion")


@dataclass(frozen=True)
class ClinicalAngle:
    """A clinical angle: joints (without side), meaning of zero and plus, and the nearest ISB angle."""

    name: str
    needs: tuple[str, ...]
    zero: str
    positive: str
    isb: str
    flat: bool
    compute: Measure


def clinical_angles(poses: PoseTrack) -> dict[str, Floats]:
    """All clinical angles of a person's joints, in degrees `(T,)`, by name such as `knee_flexion_left`."""
    topology, frame = poses.topology, None
    if {"hip_left", "hip_right"} <= set(topology.joints):
        # without shoulders nothing tells where up is; bends of limbs do not need that
        with suppress(InputError):
            frame = body_frame(poses)
    result = {}
    for angle in ANGLES:
        if (topology.dimensions == 2 and not angle.flat) or (frame is None and angle.name not in _PLANELESS):
            continue
        for side in ("",) if angle.needs[0].endswith("*") else ("_left", "_right"):
            if all(_has(poses, need, side) for need in angle.needs):
                result[f"{angle.name}{side}"] = angle.compute(poses, frame, side)
    return result


def convention(name: str) -> ClinicalAngle:
    """The convention of a clinical angle by its name, with or without a side."""
    plain = name.removesuffix("_left").removesuffix("_right")
    return next(angle for angle in ANGLES if angle.name == plain)


def _has(poses: PoseTrack, need: str, side: str) -> bool:
    joints = poses.topology.joints
    if need.endswith("*"):  # a pair, or the joint in the middle
        part = need[:-1]
        return f"{part}_center" in joints or {f"{part}_left", f"{part}_right"} <= set(joints)
    return any(f"{name}{side}" in joints for name in need.split("|"))


def _at(poses: PoseTrack, names: str, side: str) -> Floats:
    """The first existing joint of these names."""
    found = next(name for name in names.split("|") if f"{name}{side}" in poses.topology.joints)
    return poses.joints[:, poses.topology.index(f"{found}{side}")]


def _bend(first: str, joint: str, last: str) -> Measure:
    """180° minus the interior angle: zero if the limb is straight."""

    def compute(poses: PoseTrack, frame: BodyFrame, side: str) -> Floats:
        return 180 - interior_angle(_at(poses, first, side), _at(poses, joint, side), _at(poses, last, side))

    return compute


def _trunk(poses: PoseTrack) -> Floats:
    """From the middle of the hips to the middle of the shoulders."""
    return middle(poses.joints, poses.topology, "shoulder") - middle(poses.joints, poses.topology, "hip")


def _signed(vector: Floats, zero: Floats, positive: Floats) -> Floats:
    """Degrees from `zero` towards `positive`, of a vector in the plane of the two; all `(T, C)`.

    `positive` is made perpendicular to `zero` first.
    """
    length = np.linalg.norm(zero, axis=1, keepdims=True)
    zero = zero / np.where(length > 1e-9, length, np.nan)
    side = positive - (positive * zero).sum(1, keepdims=True) * zero
    size = np.linalg.norm(side, axis=1, keepdims=True)
    side = side / np.where(size > 1e-9, size, np.nan)
    return np.degrees(np.arctan2((vector * side).sum(1), (vector * zero).sum(1)))


def _hip_flexion(poses: PoseTrack, frame: BodyFrame, side: str) -> Floats:
    thigh = _at(poses, "knee", side) - _at(poses, "hip", side)
    return _signed(thigh, -_trunk(poses), frame.forward)


def _hip_abduction(poses: PoseTrack, frame: BodyFrame, side: str) -> Floats:
    thigh = _at(poses, "knee", side) - _at(poses, "hip", side)
    return _signed(thigh, -_trunk(poses), frame.right * (1 if side == "_right" else -1))


def _elevation(poses: PoseTrack, frame: BodyFrame, side: str) -> Floats:
    arm = _at(poses, "elbow", side) - _at(poses, "shoulder", side)
    return interior_angle(arm, np.zeros_like(arm), -_trunk(poses))


def _dorsiflexion(poses: PoseTrack, frame: BodyFrame, side: str) -> Floats:
    back = "heel" if f"heel{side}" in poses.topology.joints else "ankle"
    foot = _at(poses, _TOES, side) - _at(poses, back, side)
    shank = _at(poses, "knee", side) - _at(poses, "ankle", side)
    return 90 - interior_angle(foot, np.zeros_like(foot), shank)


def _lean(poses: PoseTrack, frame: BodyFrame, side: str) -> Floats:
    return _signed(_trunk(poses), frame.up, frame.forward)


def _side_lean(poses: PoseTrack, frame: BodyFrame, side: str) -> Floats:
    return _signed(_trunk(poses), frame.up, frame.right)


def _obliquity(poses: PoseTrack, frame: BodyFrame, side: str) -> Floats:
    across = (
        poses.joints[:, poses.topology.index("hip_right")] - poses.joints[:, poses.topology.index("hip_left")]
    )
    return -np.degrees(np.arctan2((across * frame.up).sum(1), np.abs((across * frame.right).sum(1))))


_TOES = "foot_index|toe_big|foot|toe"
ANGLES = (
    ClinicalAngle(
        "elbow_flexion", ("shoulder", "elbow", "wrist"), "straight", "flexion",
        "elbow e1: flexion (+) / hyperextension (-) (Wu 2005)", True, _bend("shoulder", "elbow", "wrist"),
    ),
    ClinicalAngle(
        "knee_flexion", ("hip", "knee", "ankle"), "straight", "flexion",
        "knee e1: flexion (+) / extension (-) (Grood and Suntay 1983)", True, _bend("hip", "knee", "ankle"),
    ),
    ClinicalAngle(
        "hip_flexion", ("hip", "knee", "shoulder*"), "thigh in line with the trunk", "flexion (thigh forward)",
        "hip e1: flexion (+) / extension (-) (Wu 2002)", True, _hip_flexion,
    ),
    ClinicalAngle(
        "hip_abduction", ("hip", "knee", "shoulder*"), "thigh in line with the trunk", "abduction (thigh outward)",
        "hip e2: adduction (+) / abduction (-), sign reversed (Wu 2002)", False, _hip_abduction,
    ),
    ClinicalAngle(
        "ankle_dorsiflexion", ("knee", "ankle", _TOES), "foot at a right angle to the shank", "dorsiflexion",
        "ankle e1: dorsiflexion (+) / plantarflexion (-) (Wu 2002)", True, _dorsiflexion,
    ),
    ClinicalAngle(
        "shoulder_elevation", ("shoulder", "elbow", "hip*"), "arm along the trunk", "arm raised, in any plane",
        "thoracohumeral elevation, sign reversed (Wu 2005)", True, _elevation,
    ),
    ClinicalAngle(
        "trunk_flexion", ("shoulder*", "hip*"), "upright", "lean forward",
        "thorax relative to the laboratory: flexion (+) / extension (-), sign reversed (Wu 2005)", True, _lean,
    ),
    ClinicalAngle(
        "trunk_lateral_flexion", ("shoulder*", "hip*"), "upright", "lean to the right",
        "thorax relative to the laboratory: lateral flexion right (+) (Wu 2005)", False, _side_lean,
    ),
    ClinicalAngle(
        "pelvis_obliquity", ("hip*",), "hips level", "left hip higher",
        "pelvis relative to the laboratory: obliquity; anterior tilt needs markers of the pelvis", False, _obliquity,
    ),
)  # fmt: skip


def clinical_rows(poses: PoseTrack) -> list[dict[str, Any]]:
    """Rows of clinical angles as `angle_rows` gives them, with zero, sign and the name that the ISB uses."""
    rows = angle_table(poses, clinical_angles(poses))
    for row in rows:
        known = convention(row["angle"])
        row |= {"zero": known.zero, "positive": known.positive, "isb": known.isb, "smoothing": SMOOTHING}
    return rows
