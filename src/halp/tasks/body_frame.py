"""Up, forward and right axes of a body in every frame: the reference for gait, trunk and signed angles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halp.core.errors import InputError
from halp.skeleton import Topology
from halp.tasks.pose_tracks import Floats, PoseTrack, filled

_SMOOTHING = 0.5  # seconds over which the direction of the body is averaged
SLANTED = (
    25.0  # degrees between the body and the nearest axis of the coordinates, beyond which up is in doubt
)


@dataclass(frozen=True)
class BodyFrame:
    """Unit vectors `(T, C)`: `up`, `forward` (where the body faces), `right` (its own; 0 in 2D).

    `slant` is the angle in degrees between the mean direction from ankles to shoulders and `up`: where it is
    large, the camera is tilted or the person lies, and what refers to the vertical is in doubt.
    """

    up: Floats
    forward: Floats
    right: Floats
    slant: float


def body_frame(poses: PoseTrack) -> BodyFrame:
    """Up is the coordinate axis nearest to the body's own; forward is perpendicular to it and the hips.

    In two dimensions the person is seen from the side, and faces the way the feet or the nose point, else the
    way it moves.
    """
    joints = filled(poses.joints)
    hips, legs = middle(joints, poses.topology, "hip"), _is_seen(poses, "ankle")
    trunk = _is_seen(poses, "shoulder") or not legs
    top = middle(joints, poses.topology, "shoulder") if trunk else hips
    bottom = middle(joints, poses.topology, "ankle") if legs else hips
    axis = np.nanmedian(top - bottom, axis=0)
    place = int(np.abs(axis).argmax())
    up = np.zeros(joints.shape[2])
    up[place] = np.sign(axis[place]) or 1.0
    size = float(np.linalg.norm(axis))
    slant = float(np.degrees(np.arccos(np.clip(axis @ up / size, -1, 1)))) if size > 0 else 90.0
    ups = np.tile(up, (len(joints), 1))
    if joints.shape[2] == 2:
        forward = np.array([_facing_2d(joints, poses.topology), 0.0]) if place == 1 else np.array([0.0, 1.0])
        return BodyFrame(ups, np.tile(forward, (len(joints), 1)), np.zeros_like(ups), slant)
    across = joints[:, poses.topology.index("hip_right")] - joints[:, poses.topology.index("hip_left")]
    across -= (across @ up)[:, None] * up
    across = _unit(smoothed(across, _SMOOTHING * poses.fps))
    # up × right is forward in right-handed coordinates; feet or nose tell where that is otherwise
    forward = np.cross(up, across)
    forward = forward * _facing_sign(joints, poses.topology, forward)
    return BodyFrame(ups, forward, across, slant)


def middle(joints: Floats, topology: Topology, part: str) -> Floats:
    """The middle of a pair of joints `(T, C)`, or the joint in the middle of the body if there is no pair."""
    names = [name for name in (f"{part}_left", f"{part}_right") if name in topology.joints]
    names = (
        names
        if len(names) == 2
        else [name for name in (f"{part}_center", *names) if name in topology.joints][:1]
    )
    if not names:
        raise InputError(f"topology '{topology.name}' has no {part}s, which define up and forward")
    return np.asarray(joints[:, [topology.index(name) for name in names]].mean(axis=1))


def _is_seen(poses: PoseTrack, part: str) -> bool:
    """Whether both joints of a part, or the one in the middle, are seen at all."""
    there = [name for name in poses.topology.joints if name in (f"{part}_left", f"{part}_right")]
    there = there if len(there) == 2 else [f"{part}_center"]
    places = [poses.topology.joints.index(name) for name in there if name in poses.topology.joints]
    return bool(places) and bool(np.isfinite(poses.joints[:, places]).all(axis=2).any(axis=0).all())


def _pointing(joints: Floats, topology: Topology) -> list[Floats]:
    """Vectors `(T, C)` that point forward in any posture: feet first, then the nose."""
    pairs = [(f"{toe}_{side}", f"{heel}_{side}") for side in ("left", "right")
             for toe in ("foot_index", "toe_big", "foot", "toe") for heel in ("heel", "ankle")]  # fmt: skip
    pairs += [("nose", f"ear_{side}") for side in ("left", "right")]
    there = [(a, b) for a, b in pairs if a in topology.joints and b in topology.joints]
    return [joints[:, topology.index(a)] - joints[:, topology.index(b)] for a, b in there]


def _facing_sign(joints: Floats, topology: Topology, forward: Floats) -> float:
    """−1 where feet and nose point against `forward`, as if left-handed or with sides exchanged."""
    votes = [np.sign(np.median((vector * forward).sum(1))) for vector in _pointing(joints, topology)]
    return -1.0 if sum(votes) < 0 else 1.0


def _facing_2d(joints: Floats, topology: Topology) -> float:
    votes = sum(np.sign(np.median(vector[:, 0])) for vector in _pointing(joints, topology))
    hips = middle(joints, topology, "hip")[:, 0]
    return float(np.sign(votes) or np.sign(hips[-1] - hips[0]) or 1.0)


def smoothed(values: Floats, width: float) -> Floats:
    """Values `(T, …)` under a Gaussian with a standard deviation of half a width in frames."""
    from scipy.ndimage import gaussian_filter1d

    return np.asarray(gaussian_filter1d(values, width / 2, axis=0, mode="nearest"))


def _unit(values: Floats) -> Floats:
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
