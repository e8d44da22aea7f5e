"""The moving body of synthetic clips: pose channels become the 25 joints of the Kinect-v2 layout.

The trunk goes by joint angles; arms and legs are two rigid bones whose elbow or knee bends to its natural
side so that the wrist or ankle comes where the track puts it. Limbs keep their lengths and standing feet keep
to the floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.files import read_toml
from halp.skeleton import KINECT_V2

Array = npt.NDArray[np.float64]
Pose = Mapping[str, float | tuple[float, float, float]]

FPS = 30
STRIDE = 1.3  # two steps, in leg lengths

# Angles in degrees; hands from the shoulder and feet from their place on the floor as (outward, up, forward);
# hands in arm lengths, everything else in leg lengths. "main" is the right side here, a left-handed body is
# mirrored afterwards.
_WIDTHS = {
    **dict.fromkeys(
        ("travel", "forward", "shift", "sink", "lean", "bend", "twist", "nod", "look", "beat"), 1
    ),
    **{"off_elbow": 1, "main_elbow": 1, "off": 3, "main": 3, "off_foot": 3, "main_foot": 3},
}
_ENDS = np.cumsum(list(_WIDTHS.values()))
WIDTH = int(_ENDS[-1])
CHANNELS = {name: slice(int(end) - width, int(end)) for (name, width), end in zip(_WIDTHS.items(), _ENDS)}

# Fractions of the stature of an average adult, as the Kinect sees the joints.
BONES = {
    **{"loin": 0.165, "chest": 0.125, "neck": 0.04, "head": 0.07, "shoulder": 0.095, "shoulder_drop": 0.02},
    **{"upper_arm": 0.15, "forearm": 0.14, "hand": 0.04, "tip": 0.04, "thumb": 0.03},
    **{"hip": 0.045, "hip_drop": 0.008, "thigh": 0.225, "shin": 0.215, "ankle": 0.045, "foot": 0.075},
}
_SIDE = np.array([1.0, -1.0])  # left, right on the x axis
_OUTWARD = np.stack([_SIDE, np.ones(2), np.ones(2)], axis=-1)


def channel(name: str, axis: int = 0) -> int:
    """Column of a channel in a track."""
    return CHANNELS[name].start + axis


def channels(pose: Pose, others: float = 0.0) -> Array:
    """A pose as one row of a track `(WIDTH,)`; channels that it does not name get the value `others`.

    >>> channels({"lean": 5.0, "main": (0.1, 0.2, 0.3)})[CHANNELS["main"]].tolist()
    [0.1, 0.2, 0.3]
    """
    row = np.full(WIDTH, others)
    for name, value in pose.items():
        row[CHANNELS[name]] = value
    return row


def place_joints(track: Array, bones: Mapping[str, Array]) -> Array:
    """Joints of bodies that start at the origin, in metres with x to their left, y up and z ahead.

    Args:
        track: pose channels `(T, P, WIDTH)`.
        bones: for every name of `BONES` a length in metres `(P,)`.

    Returns:
        `(T, P, 25, 3)`.
    """
    part = {name: track[..., where] for name, where in CHANNELS.items()}
    leg = bones["thigh"] + bones["shin"]
    arm = bones["upper_arm"] + bones["forearm"]
    travel = part["travel"][..., 0]
    swing, lift = _gait(travel)

    feet = np.stack([part["off_foot"], part["main_foot"]], axis=2)
    feet = feet * leg[:, None, None] * _OUTWARD
    feet[..., 0] += _SIDE * (bones["hip"] + 0.04 * leg)[:, None]
    feet[..., 1] += lift * leg[:, None] + bones["ankle"][:, None]
    feet[..., 2] += (swing + travel[..., None]) * leg[:, None]

    pelvis = np.stack(
        [-part["shift"][..., 0], 0.98 - part["sink"][..., 0], travel + part["forward"][..., 0]], axis=-1
    )
    pelvis = pelvis * leg[:, None]
    pelvis[..., 1] += bones["ankle"] + bones["hip_drop"]
    aside, down = _SIDE[:, None] * bones["hip"][:, None, None] * [1.0, 0, 0], bones["hip_drop"][:, None, None]
    to_hips = aside - down * [0, 1.0, 0]
    apart = pelvis[:, :, None] + to_hips - feet
    # The hips come down where a planted foot would otherwise not reach the floor.
    reach = (0.99 * leg[:, None]) ** 2 - apart[..., 0] ** 2 - apart[..., 2] ** 2
    highest = feet[..., 1] + np.sqrt(np.maximum(reach, 0)) + bones["hip_drop"][:, None]
    pelvis[..., 1] = np.minimum(pelvis[..., 1], highest.min(axis=-1))
    hips = pelvis[:, :, None] + to_hips

    zero = np.zeros_like(travel)
    lean, bend, twist = (part[name][..., 0] for name in ("lean", "bend", "twist"))
    turns = np.stack(
        [
            np.stack([0.6 * lean, 0.5 * bend, 0.3 * twist], axis=-1),
            np.stack([lean, bend, twist], axis=-1),
            np.stack([part["nod"][..., 0], zero, part["look"][..., 0]], axis=-1),
        ],
        axis=2,
    )
    rotations = _rotations(np.deg2rad(turns))
    low, high = rotations[:, :, 0], rotations[:, :, 1]
    spine = pelvis + low[..., 1] * bones["loin"][:, None]
    shoulder_center = spine + high[..., 1] * bones["chest"][:, None]
    neck = shoulder_center + high[..., 1] * bones["neck"][:, None]
    head = neck + (high @ rotations[:, :, 2])[..., 1] * bones["head"][:, None]
    across = high[..., 0][:, :, None] * (_SIDE * bones["shoulder"][:, None])[..., None]
    shoulders = (shoulder_center - high[..., 1] * bones["shoulder_drop"][:, None])[:, :, None] + across

    hands = np.stack([part["off"], part["main"]], axis=2)
    hands[..., 2] -= 0.8 * swing
    hands = shoulders + (hands * arm[:, None, None] * _OUTWARD) @ np.swapaxes(high, -1, -2)
    raised = np.stack([part["off_elbow"], part["main_elbow"]], axis=2)[..., 0]
    pole = np.stack([0.35 + raised, raised - 1.0, np.full_like(raised, -0.35)], axis=-1) * _OUTWARD
    pole = pole @ np.swapaxes(high, -1, -2)
    elbows, wrists, thumb_side = _two_bones(shoulders, hands, bones["upper_arm"], bones["forearm"], pole)
    along = (wrists - elbows) / bones["forearm"][:, None, None]
    palms = wrists + along * bones["hand"][:, None, None]
    tips = palms + along * bones["tip"][:, None, None]
    thumbs = palms + (0.6 * along + 0.8 * thumb_side) * bones["thumb"][:, None, None]

    ahead = np.stack([0.15 * _SIDE, np.zeros(2), np.ones(2)], axis=-1)
    knees, ankles, _ = _two_bones(
        hips, feet, bones["thigh"], bones["shin"], np.broadcast_to(ahead, feet.shape)
    )
    shin = (ankles - knees) / bones["shin"][:, None, None]
    # A foot lies flat on the floor and stands square to the shin in the air.
    flat = np.clip(1 - (ankles[..., 1] - bones["ankle"][:, None]) / 0.15, 0, 1)[..., None]
    toe = flat * (ahead - [0, 0.35, 0]) + (1 - flat) * (
        ahead - shin * (shin * ahead).sum(axis=-1, keepdims=True)
    )
    toes = ankles + toe / np.linalg.norm(toe, axis=-1, keepdims=True) * bones["foot"][:, None, None]

    middles = {
        "hip_center": pelvis,
        "spine": spine,
        "neck": neck,
        "head": head,
        "shoulder_center": shoulder_center,
    }
    pairs = {
        **{
            "shoulder": shoulders,
            "elbow": elbows,
            "wrist": wrists,
            "hand": palms,
            "hand_tip": tips,
            "thumb": thumbs,
        },
        **{"hip": hips, "knee": knees, "ankle": ankles, "foot": toes},
    }
    sides = {
        f"{name}_{side}": pair[:, :, at]
        for name, pair in pairs.items()
        for at, side in enumerate(("left", "right"))
    }
    places = {**middles, **sides}
    return np.stack([places[joint] for joint in KINECT_V2.joints], axis=2)


def _gait(travel: Array) -> tuple[Array, Array]:
    """Steps for a path `(T, P)`: each foot's swing ahead of the hips and its lift, `(T, P, 2)`."""
    pace = np.clip(np.abs(np.gradient(travel, axis=0)) * FPS / 0.6, 0, 1)[..., None]
    angle = 2 * np.pi * travel[..., None] / STRIDE + np.array([0.0, np.pi])
    # A triangle wave keeps the standing foot in its place on the floor while the hips pass over it.
    swing = STRIDE / 4 * pace * np.arcsin(0.98 * np.cos(angle)) / np.arcsin(0.98)
    return swing, 0.14 * pace * np.maximum(0, -np.sin(angle))


def _rotations(angles: Array) -> Array:
    """Rotation matrices `(…, 3, 3)` from (lean ahead, bend right, turn left) in radians `(…, 3)`."""
    (sx, sz, sy), (cx, cz, cy) = np.moveaxis(np.sin(angles), -1, 0), np.moveaxis(np.cos(angles), -1, 0)
    rows = [
        [cy * cz + sy * sx * sz, -cy * sz + sy * sx * cz, sy * cx],
        [cx * sz, cx * cz, -sx],
        [-sy * cz + cy * sx * sz, sy * sz + cy * sx * cz, cy * cx],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _two_bones(
    root: Array, target: Array, upper: Array, lower: Array, pole: Array
) -> tuple[Array, Array, Array]:
    """Middle and end joint of two bones `(T, P, 2, 3)` from `root` to `target`, bent towards `pole`.

    The third result is the unit direction square to the lower bone, away from the bend.
    """
    upper, lower = upper[:, None, None], lower[:, None, None]
    way = target - root
    distance = np.linalg.norm(way, axis=-1, keepdims=True)
    way = way / np.maximum(distance, 1e-6)
    distance = np.clip(distance, 0.3 * (upper + lower), 0.995 * (upper + lower))
    side = pole - way * (pole * way).sum(axis=-1, keepdims=True)
    side = side / np.maximum(np.linalg.norm(side, axis=-1, keepdims=True), 1e-6)
    before = (distance**2 + upper**2 - lower**2) / (2 * distance)
    height = np.sqrt(np.maximum(upper**2 - before**2, 0))
    middle = root + before * way + height * side
    end = root + distance * way
    square = -((distance - before) * side + height * way) / lower
    return middle, end, square


Wave = tuple[str, int, float, float, float]


@dataclass(frozen=True)
class Role:
    """What one person does: key poses `phase → pose` (other channels are at rest) and oscillations.

    A wave is (channel, axis, amplitude, cycles an action, phase), and the channel `beat` of the key poses
    fades it in.
    """

    keys: Mapping[float, Pose]
    waves: tuple[Wave, ...] = ()

    @cached_property
    def phases(self) -> Array:
        return np.array(list(self.keys), dtype=float)

    @cached_property
    def targets(self) -> Array:
        """Key poses `(K, WIDTH)`, NaN if a channel is at rest."""
        rows = []
        for pose in self.keys.values():
            # An arm that moves takes its elbow along, however it rested.
            elbows = {f"{side}_elbow": 0.0 for side in ("main", "off") if side in pose}
            rows.append(channels({**elbows, **pose}, others=np.nan))
        return np.stack(rows)


@dataclass(frozen=True)
class Action:
    """One class: its parts (one per person), the usual duration, and in what ways it may be carried out."""

    seconds: float
    parts: tuple[Role, ...]
    repeats: int = 1
    seated: bool = False
    distance: float = 0.0


@dataclass(frozen=True)
class Manner:
    """How somebody moves: amplitude, abruptness, timing and accuracy."""

    amplitude: float
    sharpness: float
    lateness: float
    carelessness: float
    rest: Array = field(repr=False)


def act(part: Role, phase: Array, manner: Manner, rng: np.random.Generator) -> Array:
    """The track `(T, WIDTH)` of a part at phases `(T,)` between 0 and 1, carried out in somebody's manner."""
    asked = ~np.isnan(part.targets)
    stretch = np.where(asked, manner.amplitude * (np.nan_to_num(part.targets) - manner.rest), 0)
    blur = rng.normal(size=stretch.shape) * asked * np.maximum(np.abs(stretch), 0.15) * manner.carelessness
    poses = manner.rest + stretch + blur
    phases = part.phases**manner.lateness
    at = np.clip(np.searchsorted(phases, phase, side="right") - 1, 0, len(phases) - 2)
    way = np.clip((phase - phases[at]) / (phases[at + 1] - phases[at]), 0, 1)
    there, back = way**manner.sharpness, (1 - way) ** manner.sharpness
    track = poses[at] + (poses[at + 1] - poses[at]) * (there / (there + back))[:, None]
    quicker, start = rng.uniform(0.75, 1.3), rng.uniform(-0.15, 0.15)
    for name, axis, amplitude, cycles, offset in part.waves:
        wave = np.sin(2 * np.pi * (cycles * quicker * phase + offset + start))
        track[:, channel(name, axis)] += manner.amplitude * amplitude * wave * track[:, channel("beat")]
    return track


# How hands rest, as (hand, elbow): hanging, in a pocket, on the hip, clasped in front, behind the back.
HAND_RESTS = (
    ((0.12, -0.97, 0.06), 0.0),
    ((0.10, -0.78, 0.12), 0.3),
    ((0.24, -0.62, 0.02), 0.9),
    ((-0.22, -0.66, 0.40), 0.2),
    ((-0.12, -0.74, -0.26), 0.3),
)
LAP = (-0.08, -0.66, 0.48)
SEAT: Pose = {"sink": 0.46, "forward": -0.42, "lean": 4, "main": LAP, "off": LAP}


def _read_action(seconds: float, parts: list[dict[str, Any]], **fields: Any) -> Action:
    persons = (Role(dict(part["keys"]), tuple(map(tuple, part.get("waves", ())))) for part in parts)
    return Action(seconds, tuple(persons), **fields)


_ACTIONS = {
    name: _read_action(**facts)
    for name, facts in read_toml(Path(__file__).with_name("synthetic_actions.toml")).items()
}
ACTIONS: tuple[str, ...] = tuple(_ACTIONS)


def get_action(label: int) -> Action:
    """The action of a zero-based label."""
    return _ACTIONS[ACTIONS[label]]
