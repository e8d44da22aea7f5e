"""Normalisation as named steps: pure functions of a clip's frames; a store records the steps applied."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from halp.core.errors import InputError, check_choice
from halp.data import cleaning
from halp.data.cleaning import interpolate_gaps, mean_line, seen_joints, trunk
from halp.data.clip import Clip, Frames, frame_numbers, present, runs
from halp.data.jitter import steady
from halp.data.persons import motion_energy, present_first
from halp.data.rotation import rotation_between, turned
from halp.skeleton import Topology

Step = Callable[[Frames, Topology], Frames]
STEPS: dict[str, Step] = {
    "track-persons": cleaning.track_persons,
    "upright": cleaning.upright,
    "metres": cleaning.metres,
    "fill-gaps": cleaning.fill_gaps,
}

#: Steps that may carry a number: what they do with it, its default and what it means; one of them needs the
#: frame rate.
NUMBERED: dict[str, tuple[Callable[..., Frames], float, str]] = {
    "interpolate-gaps": (interpolate_gaps, math.inf, "it is the longest gap to fill, in frames"),
    "remove-outliers": (
        cleaning.remove_outliers,
        10.0,
        "it says how many times its usual step a joint has to jump",
    ),
    "smooth": (cleaning.smooth, 7.0, "it is an odd number of frames, at least 5"),
    "steady": (steady, 0.02, "it is the jitter to leave alone, as a share of the body's extent"),
    "lowpass": (cleaning.lowpass, 6.0, "it is a frequency in hertz"),
    "pick": (lambda frames, count: pick_frames(frames, count), 50.0, "it is the number of frames to keep"),
}
#: Steps that look at a recording as a whole and keep its frames in time; they go before windows are cut.
CLEANING = frozenset({*NUMBERED, "track-persons", "upright", "metres", "picture-up"} - {"pick"})
#: Steps that refer to the first person.
FIRST_PERSON = frozenset(
    {"upright", "metres", "picture-up", "centre", "rotate-first", "rotate-mean", "yaw", "yaw-frames", "scale"}
)
#: What the authors do to NTU and PKU-MMD before they store them.
AUTHORS = ("fill", "centre", "rotate-first")


def step(name: str) -> Callable[[Step], Step]:
    """Register a normalisation step under a name."""

    def add(function: Step) -> Step:
        STEPS[name] = function
        return function

    return add


def check_steps(steps: Sequence[str]) -> tuple[str, ...]:
    """The steps as a tuple if all of them are known; an error names the nearest spelling.

    A step may carry a number, as in `smooth=9` or `interpolate-gaps=10`.
    """
    for given in steps:
        name, equals, value = given.partition("=")
        check_choice("normalisation step", name, [*STEPS, *NUMBERED])
        if equals and name not in NUMBERED:
            raise InputError(f"normalisation step '{name}' takes no number; write it without '={value}'")
        if equals and not (re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) and float(value) > 0):
            raise InputError(f"step '{given}': '{value}' is not a number above 0; {NUMBERED[name][2]}")
    return tuple(steps)


def normalise(frames: Frames, topology: Topology, steps: Sequence[str], fps: float = -1.0) -> Frames:
    """Apply the named steps in order to frames `(T, P, V, C)`; absent persons and joints stay all zeros.

    Where a step refers to the first person, whoever is there comes first. `fps` is the frame rate where it is
    known (-1 otherwise); only `lowpass` needs it.
    """
    frames = present_first(frames) if FIRST_PERSON.intersection(steps) else frames
    for given in check_steps(steps):
        name, _, value = given.partition("=")
        if name in NUMBERED:
            function, default, _ = NUMBERED[name]
            rate = {"fps": fps} if name == "lowpass" else {}
            frames = function(frames, float(value) if value else default, **rate)
        else:
            frames = STEPS[name](frames, topology)
    return frames


def normalise_clip(clip: Clip, topology: Topology, steps: Sequence[str]) -> Clip:
    """The clip after the named steps; the frames that `drop-empty` leaves out are noted in `absent`."""
    frames, numbers = clip.frames, frame_numbers(len(clip.frames), clip.absent)
    for name in check_steps(steps):
        if name == "drop-empty":
            numbers = numbers[present(frames).any(axis=1)]
        frames = normalise(frames, topology, (name,), clip.fps)
    left_out = np.ones(clip.span, dtype=bool)
    left_out[numbers] = False
    return replace(clip, frames=frames, absent=runs(left_out))


@step("order-persons")
def order_persons(frames: Frames, topology: Topology) -> Frames:
    """Put the person of largest motion energy first."""
    return frames[:, np.argsort(-motion_energy(frames), kind="stable")]


@step("drop-empty")
def drop_empty_frames(frames: Frames, topology: Topology) -> Frames:
    """Remove the frames in which nobody is seen."""
    there = present(frames).any(axis=1)
    if there.all():
        return frames
    if not there.any():
        raise InputError("nobody is seen in any frame of the clip; leave the clip out")
    return frames[there]


@step("fill")
def fill_by_repetition(frames: Frames, topology: Topology) -> Frames:
    """Fill a person's missing frames as the authors do, by repetition.

    A person who is missing at the start has all seen frames moved to the front; what is missing at the end is
    filled by repeating the person's frames from the start. Gaps in between stay, unless the start was
    missing.
    """
    there = present(frames)
    if there.all():
        return frames
    length = len(frames)
    frames = frames.copy()
    for person in np.flatnonzero(there.any(axis=0)):
        seen = there[:, person]
        source = np.arange(length) if seen[0] else np.flatnonzero(seen)
        until = np.flatnonzero(seen)[-1] + 1 if seen[0] else len(source)
        frames[:, person] = frames[source[np.arange(length) % until], person]
    return frames


@step("centre")
def centre_each_frame(frames: Frames, topology: Topology) -> Frames:
    """Subtract the first person's centre joint in every frame from everybody (if missing, the last seen)."""
    if not topology.centre:
        raise InputError(f"step 'centre' needs to know the centre joint of topology '{topology.name}'")
    centre = frames[:, 0, topology.index(topology.centre)]
    there = present(frames)[:, 0]
    if not there.any():
        return frames
    if not there.all():
        last_seen = np.maximum.accumulate(np.where(there, np.arange(len(frames)), np.argmax(there)))
        centre = centre[last_seen]
    moved = frames - centre[:, None, None]
    # Coordinate by coordinate: a reduction over an axis of three costs more than all the rest.
    missing = np.logical_and.reduce([frames[..., axis] == 0 for axis in range(frames.shape[3])])
    if missing.any():
        moved[missing] = 0
    return moved


def _axes(topology: Topology, name: str) -> tuple[tuple[str, str], tuple[str, str]]:
    if topology.up is None or topology.across is None or topology.dimensions != 3:
        raise InputError(f"step '{name}' needs the 3D axes of a body, which '{topology.name}' does not name")
    return topology.up, topology.across


@step("rotate-first")
def rotate_by_first_frame(frames: Frames, topology: Topology) -> Frames:
    """Rotate the whole clip so that in the first frame `up` is z, then `across` is x (the authors' order)."""
    axes = _axes(topology, "rotate-first")
    there = present(frames)[:, 0]
    if not there.any():
        return frames
    body = frames[int(np.argmax(there)), 0].astype(np.float64)
    rotation = np.eye(3)
    for (start, end), axis in zip(axes, (2, 0)):
        direction = body[topology.index(end)] - body[topology.index(start)]
        rotation = rotation_between(rotation @ direction, np.eye(3)[axis]) @ rotation
    return turned(frames, rotation)


@step("rotate-mean")
def rotate_by_mean_axes(frames: Frames, topology: Topology) -> Frames:
    """Rotate the whole clip: mean trunk along z, mean shoulder line, orthogonalised, along x."""
    up, across = _axes(topology, "rotate-mean")
    trunk = ("hip_center", "shoulder_center")
    vertical = mean_line(frames, topology, trunk if set(trunk) <= set(topology.joints) else up)
    z = vertical / max(float(np.linalg.norm(vertical)), 1e-9)
    shoulders = mean_line(frames, topology, across)
    x = shoulders - (shoulders @ z) * z
    if np.linalg.norm(x) < 1e-9 or np.linalg.norm(vertical) < 1e-9:
        return turned(frames, rotation_between(vertical, np.eye(3)[2]))
    x /= np.linalg.norm(x)
    return turned(frames, np.stack([x, np.cross(z, x), z]))


@step("yaw")
def turn_about_the_vertical(frames: Frames, topology: Topology) -> Frames:
    """Rotate the whole clip about the vertical (y): mean shoulder line, seen from above, along x."""
    _, across = _axes(topology, "yaw")
    line = mean_line(frames, topology, across)
    line[1] = 0
    return turned(frames, rotation_between(line, np.eye(3)[0]))


@step("scale")
def scale_by_body_size(frames: Frames, topology: Topology) -> Frames:
    """Divide by the first person's size: the mean over bones of their median length."""
    bones = np.array(topology.bones, dtype=np.int64).reshape(-1, 2)
    person = frames[:, 0].astype(np.float64)
    lengths = np.linalg.norm(person[:, bones[:, 0]] - person[:, bones[:, 1]], axis=2)
    seen = (person != 0).any(axis=2)
    # The centre joint lies at zero once a clip is centred, and is seen all the same.
    if topology.centre:
        seen[:, topology.index(topology.centre)] |= present(frames)[:, 0]
    known = seen[:, bones[:, 0]] & seen[:, bones[:, 1]]
    if known.all():
        medians = np.median(lengths, axis=0).tolist()
    else:
        there = np.flatnonzero(known.any(axis=0))
        medians = [float(np.median(lengths[known[:, bone], bone])) for bone in there]
    size = sum(medians) / len(medians) if medians else 0.0
    return frames if size < 1e-9 else (frames / np.float32(size)).astype(np.float32)


@step("box")
def scale_to_box(frames: Frames, topology: Topology) -> Frames:
    """Scale each axis of a clip to [−1, 1] over all its joints, like P&C; missing joints stay zero."""
    seen = seen_joints(frames)
    if not seen.any():
        return frames
    points = frames[seen].astype(np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    scaled = np.zeros_like(frames)
    scaled[seen] = 2 * (points - low) / np.maximum(high - low, 1e-9) - 1
    return scaled


def pick_frames(frames: Frames, count: float) -> Frames:
    """Every n-th frame, n = frames // count, and of these the first `count`, as P&C does."""
    every = max(1, len(frames) // int(count))
    return frames[::every][: int(count)]


ANCHORS = ("hip_center", "shoulder_center")
#: Of the trunk's length: what it must rise or fall in the picture to tell which way is up.
STANDING = 0.3


@step("picture-up")
def picture_up(frames: Frames, topology: Topology) -> Frames:
    """Key points `(T, P, V, 2)` with y up; y counts downwards unless the first trunk shows otherwise."""
    _refuse_space(topology, "picture-up")
    line = trunk(frames, topology)
    if line is not None and line[1] > STANDING * float(np.linalg.norm(line)):
        return frames
    return np.ascontiguousarray(frames * np.array([1, -1], dtype=np.float32))


@step("picture")
def picture(frames: Frames, topology: Topology) -> Frames:
    """Every person with the middle of the hips (else shoulders, else all joints) at the origin.

    Coordinates are divided by twice their root mean square over the clip; gaps of a joint are filled on
    straight lines first, and a joint that is never seen stays missing (all zeros).
    `halp.augment.cameras.Picture` does the same to batches.
    """
    _refuse_space(topology, "picture")
    frames = interpolate_gaps(frames)
    seen = seen_joints(frames)
    result = np.zeros_like(frames)
    anchors = [topology.index(joint) for joint in ANCHORS if joint in topology.joints]
    for person in np.flatnonzero(seen.any(axis=(0, 2))):
        points, there = frames[:, person].astype(np.float64), seen[:, person]
        joint = next((joint for joint in anchors if there[:, joint].any()), None)
        if joint is None:
            anchor = points[there].mean(axis=0)[None]
        else:
            last = np.maximum.accumulate(
                np.where(there[:, joint], np.arange(len(points)), np.argmax(there[:, joint]))
            )
            anchor = points[last, joint]
        moved = (points - anchor[:, None]) * there[..., None]
        result[:, person] = moved / max(2 * np.sqrt(np.square(moved[there]).mean()), 1e-6)
    return result


def _refuse_space(topology: Topology, name: str) -> None:
    if topology.dimensions != 2:
        raise InputError(f"step '{name}' is for 2D key points; clips of '{topology.name}' are in 3D")


MIDDLE = "shoulder_center"


@step("centre-persons")
def centre_persons(frames: Frames, topology: Topology) -> Frames:
    """Subtract from every person, in every frame, their own joint between the shoulders; zeros stay zero."""
    if MIDDLE not in topology.joints:
        raise InputError(f"step 'centre-persons' needs a joint '{MIDDLE}', not in topology '{topology.name}'")
    middle = frames[:, :, topology.index(MIDDLE)]
    missing = (frames == 0).all(axis=3, keepdims=True)
    return np.where(missing, np.float32(0), frames - middle[:, :, None]).astype(np.float32)


@step("yaw-frames")
def turn_each_frame(frames: Frames, topology: Topology) -> Frames:
    """Rotate every frame about the vertical (y) so that the first person's shoulder line points along x.

    A frame in which it cannot be seen is turned like the one before.
    """
    if topology.across is None or topology.dimensions != 3:
        raise InputError(f"step 'yaw-frames' needs 3D shoulders, which '{topology.name}' does not name")
    start, end = (frames[:, 0, topology.index(joint)].astype(np.float64) for joint in topology.across)
    x, z = (end - start)[:, 0], (end - start)[:, 2]
    length = np.hypot(x, z)
    known = present(frames)[:, 0] & (length > 1e-9)
    if not known.any():
        return frames
    source = np.maximum.accumulate(np.where(known, np.arange(len(frames)), np.argmax(known)))
    cosine, sine = ((part[source] / length[source]).astype(np.float32)[:, None, None] for part in (x, z))
    turned = frames.copy()
    turned[..., 0] = cosine * frames[..., 0] + sine * frames[..., 2]
    turned[..., 2] = cosine * frames[..., 2] - sine * frames[..., 0]
    return turned
