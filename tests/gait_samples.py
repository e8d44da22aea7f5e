"""A walker that was made, with known contacts of the feet."""

from __future__ import annotations

import numpy as np

from halp.skeleton import topology_for
from halp.tasks.pose_tracks import PoseTrack

NAMES = ("hip_left", "hip_right", "knee_left", "knee_right", "ankle_left", "ankle_right", "shoulder_left",
         "shoulder_right", "heel_left", "heel_right", "foot_left", "foot_right")  # fmt: skip


def walk(*, cycle: float = 1.1, stance: float = 0.62, late: float = 0.5, speed: float = 1.2, seconds: float = 12.0,
         fps: float = 100.0, treadmill: bool = False, turn: float = 0.0, noise: float = 0.0,
         seed: int = 0) -> tuple[PoseTrack, dict[str, np.ndarray], dict[str, np.ndarray]]:  # fmt: skip
    """A walker whose feet stand still in stance and move forward in swing; contacts and toe-offs in seconds.

    The left foot touches the ground at 0, `cycle`, …, the right one `late` cycles after it. y is up, the way
    leads along z, turned about y by `turn` radians.
    """
    time = np.arange(round(seconds * fps)) / fps
    joints = np.zeros((len(time), len(NAMES), 3))
    length = speed * cycle
    events = {}
    for side, shift in (("left", 0.0), ("right", late * cycle)):
        phase = (time - shift) / cycle
        number, part = np.floor(phase), phase - np.floor(phase)
        swing = np.clip((part - stance) / (1 - stance), 0, 1)
        # stands where it touched down, half of a stance ahead of the hips
        place = (
            length * number
            + speed * (shift + stance * cycle / 2)
            + _swing(swing, length, 0.8 * speed * (1 - stance) * cycle)
        )
        x, lift = (0.1 if side == "right" else -0.1), 0.1 * np.sin(np.pi * swing)
        for name, ahead, height in (("ankle", 0.0, 0.08), ("heel", -0.05, 0.03), ("foot", 0.15, 0.02)):
            joints[:, NAMES.index(f"{name}_{side}")] = np.stack(
                [np.full_like(time, x), height + lift, place + ahead], 1
            )
        joints[:, NAMES.index(f"hip_{side}")] = np.stack(
            [np.full_like(time, x), np.full_like(time, 0.9), speed * time], 1
        )
        joints[:, NAMES.index(f"shoulder_{side}")] = joints[:, NAMES.index(f"hip_{side}")] + [0, 0.5, 0]
        ankle, hip = (joints[:, NAMES.index(f"{n}_{side}")] for n in ("ankle", "hip"))
        joints[:, NAMES.index(f"knee_{side}")] = (ankle + hip) / 2 + [0, 0, 0.05]
        touches = shift + cycle * np.arange(-1, seconds / cycle + 1)
        events[side] = touches, touches + stance * cycle
    if treadmill:
        joints[..., 2] -= (speed * time)[:, None]
    cos, sin = np.cos(turn), np.sin(turn)
    joints = joints @ np.array([[cos, 0, -sin], [0, 1, 0], [sin, 0, cos]])
    joints += noise * np.random.default_rng(seed).normal(size=joints.shape)
    poses = PoseTrack("walk", 0, joints, topology_for(NAMES, 3), fps)
    inside = lambda times: times[(times > 0.1) & (times < seconds - 0.1)]  # noqa: E731
    return poses, {s: inside(e[0]) for s, e in events.items()}, {s: inside(e[1]) for s, e in events.items()}


def _swing(part: np.ndarray, length: float, slope: float) -> np.ndarray:
    """The way of a foot in swing, which leaves and meets the ground with some speed (a cubic Hermite
    curve).
    """
    return length * part**2 * (3 - 2 * part) + slope * (part * (1 - part) ** 2 - part**2 * (1 - part))
