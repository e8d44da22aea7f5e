"""Recordings of exercises with a known number of repetitions, by the people of `halp.data.synthetic`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from halp.core.errors import check_choice
from halp.data.clip import Clip
from halp.data.synthetic import film, make_subject, restlessness, sense
from halp.data.synthetic_body import ACTIONS, FPS, act, get_action, place_joints

# actions of one person that begin and end at rest and do one thing in between
EXERCISES = (
    "squat",
    "bow",
    "kick",
    "jump",
    "pick up",
    "point",
    "throw",
    "stretch",
    "drink",
    "check watch",
    "phone call",
)


def synthetic_exercise(
    action: str, count: int, seed: int, *, pauses: bool = True, partial: bool = True
) -> Clip:
    """A recording of `count` repetitions in 25 joints at 30 frames per second.

    The tempo of a repetition is 0.7 to 1.5 times the usual, its size 0.85 to 1.1 times. With `pauses`, two in
    five are followed by up to 2.5 seconds of rest; with `partial`, half of the recordings begin in the middle
    of a further repetition, and half end early in one. The body sways and fidgets, and a sensor adds jitter,
    drift and lost frames.
    """
    rng = np.random.default_rng((seed, count, EXERCISES.index(check_choice("exercise", action, EXERCISES))))
    kind = get_action(ACTIONS.index(action))
    person = make_subject(seed, 1)

    def rest(low: float, high: float) -> np.ndarray:
        return np.zeros(int(rng.uniform(low, high) * FPS))

    frames = kind.seconds * FPS
    cut_off = rng.random(2) < (0.5 if partial else 0.0)
    phases = [np.linspace(rng.uniform(0.6, 0.8), 1, int(0.4 * frames)) if cut_off[0] else rest(0.3, 1.5)]
    for _ in range(count):
        phases.append(np.linspace(0, 1, int(frames / person.tempo * rng.uniform(0.7, 1.5))))
        if pauses and rng.random() < 0.4:
            phases.append(rest(0.3, 2.5))
    phases.append(np.linspace(0, rng.uniform(0.1, 0.25), int(0.2 * frames)) if cut_off[1] else rest(0.3, 1.5))
    track = np.concatenate(
        [
            act(
                kind.parts[0],
                phase,
                replace(person.manner, amplitude=person.manner.amplitude * rng.uniform(0.85, 1.1)),
                rng,
            )
            for phase in phases
        ]
    )
    track += 0.5 * restlessness(len(track), rng)
    joints = place_joints(track[:, None], {name: np.array([length]) for name, length in person.bones.items()})
    scene = sense(film(joints, 1, rng), rng)
    return Clip(
        scene.astype(np.float32), f"{action}-{count}-{seed}", fps=float(FPS), extra={"repetitions": count}
    )
