"""The actions of the synthetic clips as data: key poses over the phase of an action, and how a person carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from halp.clips.synthetic_body import Array, Pose, channel, channels

Wave = tuple[str, int, float, float, float]


@dataclass(frozen=True)
class Part:
    """What one person does: key poses `phase → pose` (channels that a pose leaves out are at rest) and oscillations.

    A wave is (channel, axis, amplitude, cycles an action, phase), and the channel `beat` of the key poses fades it in.
    """

    keys: Mapping[float, Pose]
    waves: tuple[Wave, ...] = ()

    @cached_property
    def phases(self) -> Array:
        return np.array(list(self.keys), dtype=float)

    @cached_property
    def targets(self) -> Array:
        """Key poses `(K, WIDTH)`, NaN where a channel is at rest."""
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
    parts: tuple[Part, ...]
    repeats: int = 1
    seated: bool = False
    distance: float = 0.0


@dataclass(frozen=True)
class Manner:
    """How somebody moves: the size of movements, how abruptly they start and stop, early or late, and how exactly."""

    amplitude: float
    sharpness: float
    lateness: float
    carelessness: float
    rest: Array = field(repr=False)


def act(part: Part, phase: Array, manner: Manner, rng: np.random.Generator) -> Array:
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

_GUARD = (-0.15, -0.05, 0.45)


def _both(hand: tuple[float, float, float], **others: float | tuple[float, float, float]) -> Pose:
    return {"main": hand, "off": hand, **others}


def _held(pose: Pose, start: float, end: float, **late: float) -> Part:
    return Part({0: {}, start: pose, end: {**pose, **late}, 1: {}})


_EXTEND: Pose = {"main": (-0.2, -0.3, 0.78), "lean": 6}
_CARRY: Pose = _both((-0.25, -0.35, 0.45), nod=8)
_EMBRACE: Pose = _both((-0.3, 0.05, 0.62), main_elbow=0.5, off_elbow=0.5, lean=10, travel=0.0)
_SLEEVES: dict[float, Pose] = {
    0: {},
    0.2: {"main": (0.35, -0.45, -0.35), "off": (-0.45, -0.15, 0.4), "twist": -15, "main_elbow": 0.3},
    0.4: {"main": (0.3, 0.05, 0.25), "off": (-0.3, 0.05, 0.4), "twist": -5, "main_elbow": 0.6},
    0.6: {"main": (-0.3, -0.2, 0.45), "off": (0.35, -0.45, -0.4), "twist": 18, "off_elbow": 0.3},
    0.8: _both((-0.12, -0.25, 0.45), nod=15),
    1: {},
}

_ACTIONS: dict[str, Action] = {
    "drink": Action(
        2.0, (_held({"main": (-0.25, 0.2, 0.42), "main_elbow": 0.2}, 0.3, 0.72, nod=-14),), repeats=2, seated=True
    ),
    "phone call": Action(
        2.4,
        (_held({"main": (-0.1, 0.3, 0.16), "main_elbow": 0.2, "nod": 6}, 0.25, 0.85, look=-10),),
        repeats=2,
        seated=True,
    ),
    "check watch": Action(
        1.8,
        (_held({"off": (-0.3, -0.15, 0.48), "off_elbow": 0.5, "nod": 24, "look": 6}, 0.3, 0.75),),
        repeats=2,
        seated=True,
    ),
    "wave": Action(
        1.9,
        (Part(_held({"main": (0.32, 0.5, 0.3), "beat": 1}, 0.2, 0.85).keys, (("main", 0, 0.24, 3, 0),)),),
        repeats=2,
        seated=True,
    ),
    "clap": Action(
        1.8,
        (
            Part(
                _held(_both((-0.2, -0.22, 0.55), beat=1), 0.18, 0.85).keys,
                (("main", 0, 0.14, 4, 0), ("off", 0, 0.14, 4, 0)),
            ),
        ),
        repeats=2,
        seated=True,
    ),
    "point": Action(
        1.7, (_held({"main": (0.12, 0.02, 0.97), "twist": 8, "look": -8}, 0.3, 0.75),), repeats=2, seated=True
    ),
    "throw": Action(
        1.4,
        (
            Part(
                {
                    0: {},
                    0.35: {
                        "main": (0.3, 0.3, -0.4),
                        "main_elbow": 0.5,
                        "off": (0.0, -0.15, 0.6),
                        "twist": -32,
                        "lean": -8,
                    },
                    0.58: {
                        "main": (-0.1, 0.2, 0.95),
                        "twist": 25,
                        "lean": 14,
                        "off_foot": (0, 0, 0.1),
                        "forward": 0.08,
                    },
                    0.72: {"main": (-0.35, -0.4, 0.7), "twist": 30, "lean": 18, "forward": 0.08},
                    1: {},
                }
            ),
        ),
        repeats=2,
    ),
    "kick": Action(
        1.3,
        (
            Part(
                {
                    0: {},
                    0.3: {"main_foot": (0, 0.18, -0.4), "lean": 8, "shift": -0.1, "off": (0.2, -0.6, 0.45)},
                    0.55: {"main_foot": (-0.05, 0.5, 0.72), "lean": -12, "shift": -0.1, "main": (0.4, -0.6, -0.2)},
                    0.8: {"main_foot": (0, 0.1, 0.1), "shift": -0.06},
                    1: {},
                }
            ),
        ),
        repeats=2,
    ),
    "sit down": Action(1.7, (Part({0: {}, 0.5: {"lean": 38, "sink": 0.24, "forward": -0.24}, 1: SEAT}),)),
    "stand up": Action(1.6, (Part({0: SEAT, 0.4: {"lean": 42, "sink": 0.36, "forward": -0.22}, 1: {}}),)),
    "squat": Action(1.7, (_held(_both((-0.1, -0.1, 0.85), sink=0.46, forward=-0.2, lean=32), 0.45, 0.6),), repeats=2),
    "pick up": Action(
        2.0,
        (
            Part(
                {
                    0: {},
                    0.4: {"main": (-0.15, -0.5, 0.85), "sink": 0.42, "forward": -0.15, "lean": 66, "nod": 10},
                    0.5: {"main": (-0.15, -0.5, 0.85), "sink": 0.42, "forward": -0.15, "lean": 68, "nod": 10},
                    0.8: {"main": (-0.15, -0.4, 0.5), "nod": 12},
                    1: {},
                }
            ),
        ),
    ),
    "bow": Action(1.9, (_held({"lean": 55, "nod": 18, "forward": -0.1}, 0.42, 0.58),), repeats=2),
    "jump": Action(
        1.3,
        (
            Part(
                {
                    0: {},
                    0.28: _both((0.15, -0.85, -0.45), sink=0.24, lean=28, forward=-0.06),
                    0.5: _both((0.2, 0.1, 0.8), sink=-0.32, main_foot=(0, 0.3, 0), off_foot=(0, 0.3, 0)),
                    0.7: _both((0.2, -0.6, 0.5), sink=0.2, lean=20, forward=-0.06),
                    1: {},
                }
            ),
        ),
        repeats=3,
    ),
    "walk": Action(2.6, (Part({0: {"travel": -1.5}, 1: {"travel": 1.5, "lean": 4}}, ()),)),
    "stretch": Action(
        2.4,
        (Part(_held(_both((0.18, 0.96, 0.1), lean=-8, nod=-10, beat=1), 0.35, 0.7).keys, (("bend", 0, 9, 1.3, 0),)),),
        seated=True,
    ),
    "put on jacket": Action(2.8, (Part(_SLEEVES),)),
    "take off jacket": Action(2.6, (Part({1 - phase: pose for phase, pose in reversed(_SLEEVES.items())}),)),
    "punch": Action(
        1.3,
        (
            Part(
                {
                    0: {},
                    0.3: {"main": (0.15, -0.1, -0.15), "off": _GUARD, "twist": -25, "main_elbow": 0.3},
                    0.5: {"main": (-0.2, 0.12, 0.97), "off": _GUARD, "twist": 28, "lean": 12, "forward": 0.1},
                    0.65: {"main": _GUARD, "off": _GUARD},
                    1: {},
                }
            ),
            Part({0: {}, 0.45: {}, 0.62: {"lean": -18, "nod": -16, "forward": -0.12, "twist": 20}, 1: {}}),
        ),
        repeats=2,
        distance=0.85,
    ),
    "push": Action(
        1.4,
        (
            Part(
                {
                    0: {},
                    0.3: _both((0.02, -0.25, 0.25), lean=-4),
                    0.52: _both((-0.1, -0.02, 0.95), lean=18, forward=0.14),
                    0.65: _both((-0.1, -0.1, 0.8), lean=12, forward=0.1),
                    1: {},
                }
            ),
            Part(
                {0: {}, 0.45: {}, 0.65: {"lean": -12, "travel": -0.35, "main": (0.4, -0.7, 0.4)}, 1: {"travel": -0.4}}
            ),
        ),
        distance=0.8,
    ),
    "shake hands": Action(
        2.0,
        (
            Part(_held({**_EXTEND, "beat": 1}, 0.3, 0.8).keys, (("main", 1, 0.15, 4, 0),)),
            Part(_held({**_EXTEND, "beat": 1}, 0.34, 0.8).keys, (("main", 1, 0.15, 4, 0),)),
        ),
        distance=1.0,
    ),
    "hand over": Action(
        2.0,
        (
            Part({0: _CARRY, 0.4: _EXTEND, 0.55: _EXTEND, 0.8: {}, 1: {}}),
            Part({0: {}, 0.25: {}, 0.5: _EXTEND, 0.6: _EXTEND, 0.85: _CARRY, 1: _CARRY}),
        ),
        distance=1.0,
    ),
    "high five": Action(
        1.5,
        tuple(
            Part(
                {
                    0: {},
                    0.25: {"main": (0.15, 0.35, 0.1)},
                    0.5: {"main": (-0.15, 0.55, 0.72), "lean": 6},
                    end: {},
                    1: {},
                }
            )
            for end in (0.85, 0.9)
        ),
        repeats=2,
        distance=0.95,
    ),
    "hug": Action(
        2.6,
        tuple(
            Part(
                {
                    0: {"travel": -0.4},
                    0.4: {**_EMBRACE, "look": turn},
                    0.72: {**_EMBRACE, "look": turn},
                    1: {"travel": -0.3},
                }
            )
            for turn in (15, 20)
        ),
        distance=0.34,
    ),
}
ACTIONS: tuple[str, ...] = tuple(_ACTIONS)


def get_action(label: int) -> Action:
    """The action of a zero-based label."""
    return _ACTIONS[ACTIONS[label]]
