"""When the feet touch and leave the ground, from their path relative to the hips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from halp.core.errors import InputError
from halp.skeleton import topology_for
from halp.tasks.body_frame import BodyFrame, smoothed
from halp.tasks.pose_tracks import Floats, PoseTrack

SIDES = ("left", "right")
OTHER = {"left": "right", "right": "left"}
_SMOOTHING = 0.05  # seconds
_QUICKEST = 0.4  # seconds of the quickest stride
_PROMINENT = 0.3  # of the usual way of a foot about the hips, below which an extreme is not a step
_SMALLEST = 0.1  # leg lengths that a foot has to move about the hips
_OFTEN = 0.5  # share of frames in which a heel or toe has to be seen to be used instead of the ankle
_LANDING = 0.13  # seconds in which a foot that is furthest in front meets the ground
_FAST = 50.0  # frames per second from which on the heel is seen to land
_OPPOSED = -0.3  # correlation of the ways of the two feet in a stride; bending and jumping move both alike
_HASTY = 0.6  # of the usual time between two contacts of a foot, below which one of them is a false one
_AMID = (0.2, 0.8)  # part of a stride in which the other foot meets the ground


def with_hips(poses: PoseTrack) -> PoseTrack:
    """Poses with hips taken from the pelvis markers (asis) if hips were not recorded."""
    names = poses.topology.joints
    if "hip_left" in names or not {"asis_left", "asis_right"} <= set(names):
        return poses
    renamed = [name.replace("asis_", "hip_") for name in names]
    return replace(poses, topology=topology_for(renamed, poses.topology.dimensions, name=poses.topology.name))


def foot_joint(poses: PoseTrack, side: str, kind: str) -> int:
    """The joint that shows contacts (heel) or toe-offs (toes); the ankle if neither exists."""
    names = {"contact": ("heel",), "lift": ("toe_big", "foot_index", "foot", "toe")}[kind]
    found = [f"{name}_{side}" for name in (*names, "ankle") if f"{name}_{side}" in poses.topology.joints]
    if not found or not {"hip_left", "hip_right"} <= set(poses.topology.joints):
        raise InputError(
            f"topology '{poses.topology.name}' of '{poses.recording}' lacks hips or ankles of both sides,"
            " which gait needs"
        )
    places = [poses.topology.index(name) for name in found]
    seen = np.isfinite(poses.joints[:, places]).all(axis=2).mean(axis=0)
    return next((place for place, share in zip(places, seen) if share > _OFTEN), places[-1])


def distance_ahead(relative: Floats, frame: BodyFrame, fps: float) -> Floats:
    """How far a foot is in front of the hips `(T,)`, smoothed."""
    return smoothed((relative * frame.forward).sum(1), _SMOOTHING * fps)


def extremes(way: Floats, leg: float, fps: float) -> np.ndarray:
    """Frames in which a foot is furthest ahead (or, with the negated path, behind)."""
    from scipy.signal import find_peaks

    low, high = np.percentile(way, [5, 95])
    smallest = max(_PROMINENT * float(high - low), _SMALLEST * leg)
    return np.asarray(find_peaks(way, prominence=smallest, distance=max(1, round(_QUICKEST * fps)))[0])


def foremost(ways: Mapping[str, Floats], leg: float, fps: float) -> dict[str, np.ndarray]:
    """Frames in which each foot is furthest ahead; of two without one of the other foot in between, the
    further.
    """
    found = {side: extremes(ways[side], leg, fps) for side in SIDES}
    between = np.concatenate([np.diff(frames) for frames in found.values()])
    usual = np.median(between) if len(between) else 0.0
    kept: dict[str, np.ndarray] = {}
    for side, frames in found.items():
        left: list[int] = []
        for at in frames.tolist():
            hasty = bool(left) and at - left[-1] < _HASTY * usual
            if hasty and not ((found[OTHER[side]] > left[-1]) & (found[OTHER[side]] < at)).any():
                at = max(at, left.pop(), key=lambda frame: float(ways[side][frame]))
            left.append(at)
        kept[side] = np.array(left, dtype=int)
    return kept


def impacts(poses: PoseTrack, joints: Floats, frame: BodyFrame, side: str, ahead: np.ndarray) -> np.ndarray:
    """Frames in which a heel, furthest ahead, stops falling; `ahead` if that cannot be seen.

    The leg swings back before it lands, so that the foremost place alone is about 50 ms early.
    """
    from scipy.ndimage import gaussian_filter1d

    heel = foot_joint(poses, side, "contact")
    if not poses.topology.joints[heel].startswith("heel") or joints.shape[2] < 3 or poses.fps < _FAST:
        return ahead
    height = (joints[:, heel] * frame.up).sum(1)
    slows = gaussian_filter1d(height, _SMOOTHING * poses.fps / 2, order=2, mode="nearest")
    reach = round(_LANDING * poses.fps) + 1
    return np.array([int(at) + int(slows[at : at + reach].argmax()) for at in ahead], dtype=int)


def feet_alternate(
    ways: dict[str, Floats], contacts: dict[str, np.ndarray], side: str, first: int, last: int
) -> bool:
    """Whether the feet alternate: the other lands once, about halfway, and they move in opposition."""
    from_here = (contacts[OTHER[side]] - first) / (last - first)
    inside = from_here[(from_here > 0) & (from_here < 1)]
    one, other = (ways[name][first : last + 1] - ways[name][first : last + 1].mean() for name in SIDES)
    size = float(np.sqrt((one**2).sum() * (other**2).sum()))
    opposed = float((one * other).sum()) < _OPPOSED * size
    return opposed and len(inside) == 1 and _AMID[0] <= inside[0] <= _AMID[1]


def accepted_events(frames: np.ndarray, refused: Sequence[tuple[int, int]], kept: set[int]) -> np.ndarray:
    """Which events belong to an accepted stride, or at least to no rejected one."""
    inside = [any(first <= at <= last for first, last in refused) and int(at) not in kept for at in frames]
    return frames[~np.array(inside, dtype=bool)]


def single_between(frames: np.ndarray, first: int, last: int) -> int | None:
    """The single event between two frames, None if there is none or more than one."""
    inside = frames[(frames > first) & (frames < last)]
    return int(inside[0]) if len(inside) == 1 else None
