"""Synthetic data: subjects of different build and style perform actions in front of three cameras.

It stands in for recordings that may not be shipped. Everything follows from the seed: a clip is a function of
(seed, class, subject, camera, repetition) alone, so that asking for more clips never changes the ones there
were.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from halp.core.errors import InputError
from halp.data.clip import Clip, Frames
from halp.data.normalise import AUTHORS, normalise
from halp.data.splits import Indices, Split
from halp.data.store import Store, open_store
from halp.data.store_writer import StoreWriter
from halp.data.synthetic_body import (
    ACTIONS,
    BONES,
    CHANNELS,
    FPS,
    HAND_RESTS,
    LAP,
    SEAT,
    WIDTH,
    Action,
    Array,
    Manner,
    act,
    channel,
    channels,
    get_action,
    place_joints,
)
from halp.skeleton import KINECT_V2

__all__ = ["ACTIONS", "make_synthetic_store", "synthetic_clips", "synthetic_splits"]

CAMERAS = {1: -45.0, 2: 0.0, 3: 45.0}
SHORTEST, LONGEST = 30, 120
_SUBJECTS, _ORDER, _CLIPS = range(3)  # what a stream of random numbers is for

# The sensor sees the ends of the limbs least exactly.
_UNSTEADY = np.array(
    [1.7 if name.startswith(("hand", "thumb", "foot")) else 1.0 for name in KINECT_V2.joints]
)
_MIRROR = KINECT_V2.mirror
# How far a body sways all the time, and how far it moves now and then besides the action.
_IDLE = channels(
    {"forward": 0.01, "shift": 0.015, "lean": 1.5, "bend": 1, "twist": 2, "nod": 2, "look": 3}
    | dict.fromkeys(("main", "off"), (0.02, 0.02, 0.02))
)
_FIDGET = channels(
    {"shift": 0.06, "lean": 5, "bend": 5, "twist": 12, "nod": 10, "look": 25}
    | {"main": (0.11, 0.11, 0.11), "off": (0.2, 0.2, 0.2), "main_elbow": 0.1, "off_elbow": 0.2}
)

ONE_TAKE = len(ACTIONS) * 20 * len(CAMERAS)  # clips of the twenty people, every action once


@dataclass(frozen=True)
class Subject:
    """Build and habits of one person; lengths in metres."""

    bones: dict[str, float]
    tempo: float
    left_handed: float
    manner: Manner


def synthetic_clips(
    count: int | None = None, *, subjects: int = 20, repetitions: int = 1, seed: int = 0
) -> Iterator[Clip]:
    """Raw clips `(T, P, 25, 3)` in metres before the camera: every class × subject × camera × repetition.

    They come in a fixed shuffled order in which each run of `len(ACTIONS)` clips holds every class once, so
    that the first `count` of them are a fair sample.

    >>> clip = next(synthetic_clips(seed=3))
    >>> clip.shape[2:], 30 <= len(clip.frames) <= 120
    ((25, 3), True)
    """
    _check(subjects, repetitions, seed)
    total = len(ACTIONS) * subjects * len(CAMERAS) * repetitions
    count = total if count is None else count
    if not 0 < count <= total:
        raise InputError(
            f"{count} synthetic clips were asked for; {subjects} subjects with {repetitions} repetitions give"
            f" 1 to {total}: raise `subjects` or `repetitions`"
        )
    return itertools.islice(_clips(subjects, repetitions, seed), count)


def synthetic_splits(subjects: int = 20) -> list[Split]:
    """Cross-subject (every other subject trains) and cross-view (cameras 2 and 3 train), as in NTU RGB+D.

    >>> [(split.name, split.column, split.train[:2]) for split in synthetic_splits()]
    [('xsub', 'subject', (1, 3)), ('xview', 'camera', (2, 3))]
    """
    _check(subjects, 1, 0)
    return [
        Split("xsub", "subject", train=tuple(range(1, subjects + 1, 2))),
        Split("xview", "camera", train=(2, 3)),
    ]


def make_synthetic_store(
    path: str | os.PathLike[str],
    *,
    count: int | None = None,
    subjects: int = 20,
    repetitions: int = 1,
    seed: int = 0,
    normalisation: Sequence[str] = AUTHORS,
    overwrite: bool = False,
) -> Store:
    """Write normalised synthetic clips to a store of two persons and open it."""
    clips = synthetic_clips(count, subjects=subjects, repetitions=repetitions, seed=seed)
    origin = {
        "generator": "synthetic",
        "seed": seed,
        "subjects": subjects,
        "repetitions": repetitions,
        "count": count,
    }
    with StoreWriter(
        path,
        KINECT_V2,
        persons=2,
        class_names=ACTIONS,
        splits=synthetic_splits(subjects),
        normalisation=normalisation,
        origin=origin,
        overwrite=overwrite,
    ) as writer:
        for clip in clips:
            clip.frames = normalise(clip.frames, KINECT_V2, normalisation)
            writer.add(clip)
    return open_store(path)


def _check(subjects: int, repetitions: int, seed: int) -> None:
    bounds = {"subjects": (subjects, 2), "repetitions": (repetitions, 1)}
    for name, (value, lowest) in bounds.items():
        if not lowest <= value <= 999:
            raise InputError(
                f"synthetic clips cannot be made with {name} = {value}; it must be between {lowest} and 999"
            )
    if seed < 0:
        raise InputError(f"synthetic clips cannot be made with seed = {seed}; it must be at least 0")


def _clips(subjects: int, repetitions: int, seed: int) -> Iterator[Clip]:
    people = [make_subject(seed, subject) for subject in range(1, subjects + 1)]
    rng = np.random.default_rng((seed, _ORDER))
    cells = list(itertools.product(range(1, subjects + 1), CAMERAS, range(1, repetitions + 1)))
    order = [rng.permutation(len(cells)) for _ in ACTIONS]
    for turn in range(len(cells)):
        for label in rng.permutation(len(ACTIONS)):
            subject, camera, repetition = cells[order[label][turn]]
            yield _make_clip(int(label), subject, camera, repetition, seed=seed, person=people[subject - 1])


def make_subject(seed: int, subject: int) -> Subject:
    """Build and style of a person, determined by the seed and the person's number."""
    rng = np.random.default_rng((seed, _SUBJECTS, subject))
    stature = np.clip(rng.normal(1.72, 0.09), 1.5, 1.95)
    bones = {name: float(stature * share * rng.normal(1, 0.045)) for name, share in BONES.items()}
    rest = np.zeros(WIDTH)
    rest[CHANNELS["lean"]], rest[CHANNELS["nod"]] = rng.normal(2, 4), rng.normal(4, 6)
    rest[[channel("main_foot"), channel("off_foot")]] = rng.uniform(0, 0.12)
    manner = Manner(
        amplitude=float(rng.uniform(0.88, 1.12)),
        sharpness=float(rng.uniform(1.4, 2.6)),
        lateness=float(rng.uniform(0.85, 1.2)),
        carelessness=float(rng.uniform(0.04, 0.1)),
        rest=rest,
    )
    return Subject(bones, float(rng.uniform(0.8, 1.3)), 0.8 if rng.random() < 0.35 else 0.25, manner)


def _make_clip(
    label: int,
    subject: int,
    camera: int,
    repetition: int,
    *,
    seed: int,
    person: Subject | None = None,
    noisy: bool = True,
) -> Clip:
    """One clip; without noise it is the complete and exact motion as seen from the camera."""
    rng = np.random.default_rng((seed, _CLIPS, label, subject, camera, repetition))
    action = get_action(label)
    persons = [person or make_subject(seed, subject)]
    # Partners are not subjects of the data set, so that nobody of the test part is seen in the training part.
    persons += [make_subject(seed, int(rng.integers(1000, 2000))) for _ in action.parts[1:]]
    scene = film(_perform(action, persons, rng), camera, rng)
    frames = sense(scene, rng) if noisy else scene
    name = f"S001C{camera:03d}P{subject:03d}R{repetition:03d}A{label + 1:03d}"
    return Clip(frames.astype(np.float32), name, label, subject, camera, {"repetition": repetition})


def _perform(action: Action, persons: Sequence[Subject], rng: np.random.Generator) -> Array:
    """The joints `(T, P, 25, 3)` of an action around the origin: one person faces -z, two face each other."""
    length, phase = _timeline(action, persons[0].tempo, rng)
    seated = action.seated and rng.random() < 0.4
    tracks, turns = [], []
    for part, person in zip(action.parts, persons):
        manner = _manner_in_clip(person.manner, seated, rng)
        track = act(part, phase, manner, rng) + restlessness(length, rng)
        if not (seated or action.distance):
            track[:, channel("travel")] -= rng.uniform(-0.2, 0.7) * _settle(length, rng)
        tracks.append(track)
        turns.append(rng.normal(0, 20 if action.distance else 50) * _settle(length, rng))
    bones = {name: np.array([person.bones[name] for person in persons]) for name in BONES}
    joints = place_joints(np.stack(tracks, axis=1), bones)
    # Two people who meet use the same hand.
    if rng.random() < persons[0].left_handed:
        joints = joints[:, :, _MIRROR] * [-1, 1, 1]
    joints = _turn(joints, np.stack(turns, axis=1) + ([180] if len(persons) == 1 else [90, -90]))
    if len(persons) == 2:
        apart = action.distance * bones["thigh"].mean() / 0.39 + rng.normal(0, 0.03)
        joints[..., 0] += np.array([[-apart / 2], [apart / 2]])
        # Which of two bodies the sensor counts as the first is chance.
        joints = joints[:, :: int(rng.choice([1, -1]))]
    return joints


def _timeline(action: Action, tempo: float, rng: np.random.Generator) -> tuple[int, Array]:
    """Number of frames and the phase of the action in each, `(T,)`: a pause or late start, repeats, pause."""
    duration = min(action.seconds * FPS / (tempo * rng.uniform(0.8, 1.25)), LONGEST - FPS)
    repeats = min(int(rng.integers(1, action.repeats + 1)), max(1, int((LONGEST - FPS) / duration)))
    before, after = rng.uniform(-0.2, 1.5, size=2) * min(duration, FPS)
    length = int(np.clip(round(before + repeats * duration + after), SHORTEST, LONGEST))
    done = np.clip((np.arange(length) - before) / duration, 0, repeats)
    return length, done - np.minimum(np.floor(done), repeats - 1)


def _manner_in_clip(manner: Manner, seated: bool, rng: np.random.Generator) -> Manner:
    """A person's style in one clip: nobody moves the same way twice."""
    rest = manner.rest.copy()
    for side in ("main", "off"):
        hand, elbow = HAND_RESTS[int(rng.choice(len(HAND_RESTS), p=(0.4, 0.15, 0.15, 0.15, 0.15)))]
        rest[CHANNELS[side]], rest[CHANNELS[f"{side}_elbow"]] = hand, elbow
        if seated:
            rest[CHANNELS[side]] = LAP
    if seated:
        rest[CHANNELS["sink"]], rest[CHANNELS["forward"]] = SEAT["sink"], SEAT["forward"]
    rest[CHANNELS["main"]] += rng.normal(0, 0.03, size=3)
    return replace(
        manner,
        amplitude=manner.amplitude * rng.uniform(0.85, 1.1),
        sharpness=manner.sharpness * rng.uniform(0.85, 1.2),
        lateness=manner.lateness * rng.uniform(0.85, 1.2),
        rest=rest,
    )


def _settle(length: int, rng: np.random.Generator) -> Array:
    """From 1 to 0 some time in a clip, `(T,)`: people step up and turn to what they do, or away from it."""
    way = np.clip((np.arange(length) - rng.uniform(-0.2, 1.0) * length) / rng.uniform(12, 30), 0, 1)
    return 1 - way * way * (3 - 2 * way)


def restlessness(length: int, rng: np.random.Generator) -> Array:
    """Movements besides the action, `(T, WIDTH)`: sway, looking around, an occasional shift of weight."""
    frame = np.arange(length)[:, None]
    speed, start = rng.uniform(0.2, 0.6, size=WIDTH) / FPS, rng.uniform(0, 1, size=WIDTH)
    sway = _IDLE * np.sin(2 * np.pi * (speed * frame + start))
    centres, widths = rng.uniform(0, length, size=2), rng.uniform(8, 25, size=2)
    bumps = np.exp(-0.5 * ((frame - centres) / widths) ** 2)
    return sway + bumps @ (_FIDGET * rng.normal(size=(2, WIDTH)))


def film(joints: Array, camera: int, rng: np.random.Generator) -> Array:
    """Scene to camera coordinates: x to the sensor's left, y up from it, z ahead, in metres."""
    height, distance = rng.uniform(0.7, 1.5), rng.uniform(2.8, 3.6)
    tilt = np.arctan2(height - 0.9, distance) + rng.normal(0, 0.02)
    place = np.array([rng.normal(0, 0.2), -height, distance])
    seen = _turn(joints, CAMERAS[camera] + rng.normal(0, 18)) + place
    cosine, sine = np.cos(tilt), np.sin(tilt)
    return seen @ np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])


def _turn(joints: Array, degrees: float | Array) -> Array:
    """Turn joints `(…, V, 3)` about the vertical axis, z towards x, by one angle or one a body `(…)`."""
    angle = np.deg2rad(degrees)[..., None]
    cosine, sine = np.cos(angle), np.sin(angle)
    x, y, z = np.moveaxis(joints, -1, 0)
    return np.stack([cosine * x + sine * z, y, cosine * z - sine * x], axis=-1)


def sense(joints: Array, rng: np.random.Generator) -> Frames:
    """Errors of a depth sensor: jitter, slow drift, missing or repeated frames, bodies lost for a while."""
    length, persons = joints.shape[:2]
    jitter = rng.uniform(0.004, 0.008) * rng.standard_normal(joints.shape, dtype=np.float32)
    knots = rng.normal(0, 0.008, size=(length // 12 + 2, *joints.shape[1:]))
    at, way = np.divmod(np.arange(length) / 12, 1)
    at, way = at.astype(int), way[:, None, None, None]
    drift = knots[at] * (1 - way) + knots[at + 1] * way
    frames = (joints + (jitter + drift) * _UNSTEADY[:, None]).astype(np.float32)
    for person in np.flatnonzero(rng.random(persons) < 0.12):
        gap = int(rng.integers(3, 13))
        start = int(rng.integers(0, length - gap))
        frames[start : start + gap, person] = 0
    return frames[_kept_frames(length, rng)]


def _kept_frames(length: int, rng: np.random.Generator) -> Indices:
    """Which frames arrive: some are repeated instead of the next one, a few are lost."""
    source = np.arange(length)
    source[1:] -= rng.random(length - 1) < rng.choice([0.0, 0.08])
    lost = rng.random(length) < rng.choice([0.0, 0.04])
    lost[np.cumsum(lost) > length - SHORTEST] = False
    return source[~lost]
