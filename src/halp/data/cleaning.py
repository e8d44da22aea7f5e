"""Cleaning of recordings: gaps, spikes, jitter, swapped persons, axes and units.

Each function takes frames `(T, P, V, C)` with zeros for what is missing, and keeps every frame in its place
in time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.clip import Frames, present
from halp.skeleton import Topology

Mask = npt.NDArray[np.bool_]
#: Runs of at most this many frames count as a spike; what lasts longer is taken for a real movement.
LONGEST_SPIKE = 3
#: Share of a clip that a person may be missing before it counts as away.
LONGEST_ABSENCE = 1 / 3
# Metres in the units that recordings come in, and the usual length of a trunk in metres.
_UNITS = (1.0, 0.01, 0.001, 0.0254)
_TRUNK = 0.5
# The trunk points along an axis when it leans less than about 35 degrees from it.
_ALONG = 0.8


def seen_joints(frames: Frames) -> Mask:
    """Which joints are present `(T, P, V)`; missing ones are all zeros."""
    return np.asarray(np.logical_or.reduce([frames[..., axis] != 0 for axis in range(frames.shape[3])]))


def interpolate_gaps(frames: Frames, limit: float = np.inf) -> Frames:
    """Interpolate joints linearly over gaps of at most `limit` frames.

    Only between a person's first and last frame; a joint that starts late or ends early stays where it is
    seen next.
    """
    seen = seen_joints(frames)
    there: Mask = np.asarray(seen.any(axis=2))
    inside = (np.maximum.accumulate(there) & np.maximum.accumulate(there[::-1])[::-1])[..., None]
    gaps = inside & ~seen & seen.any(axis=0)
    if not gaps.any():
        return frames
    lines, lengths = _lines(frames, seen)
    return np.where((gaps & (lengths <= limit))[..., None], lines, frames).astype(np.float32)


def fill_gaps(frames: Frames, topology: Topology) -> Frames:
    """Fill gaps left by a detector: single joints, and all joints of a person for up to a third of the clip.

    Joints go on straight lines relative to the middle of the person's hips (or the layout's centre joint),
    which goes on a straight line itself: the result does not depend on whether the recording was centred
    before. A person who is not seen for longer is away and stays absent; so does a person or a joint that is
    never seen.
    """
    seen = seen_joints(frames)
    gaps = _fillable(seen)
    if not gaps.any():
        return frames
    centre = np.zeros_like(frames[:, :, :1])
    anchor = anchor_joint(topology)
    if anchor:
        joint = topology.index(anchor)
        centre, _ = _lines(frames[:, :, [joint]], seen[:, :, [joint]])
    lines, _ = _lines(frames - centre, seen)
    return np.where(gaps[..., None], lines + centre, frames).astype(np.float32)


def anchor_joint(topology: Topology) -> str:
    """The joint relative to which gaps are filled; empty if a layout has none."""
    return "hip_center" if "hip_center" in topology.joints else topology.centre


def _fillable(seen: Mask) -> Mask:
    """Which joints `(T, P, V)` `fill_gaps` fills."""
    there: Mask = np.asarray(seen.any(axis=2))
    inside = np.maximum.accumulate(there) & np.maximum.accumulate(there[::-1])[::-1]
    _, _, lengths = _neighbours(there)
    near = there | (inside & (lengths <= len(seen) * LONGEST_ABSENCE))
    return near[..., None] & ~seen & seen.any(axis=0)


def gap_counts(frames: Frames) -> tuple[int, int]:
    """How many joint positions of a clip `fill_gaps` fills, and how many there are with them."""
    seen = seen_joints(frames)
    filled = int(_fillable(seen).sum())
    return filled, filled + int(seen.sum())


def _neighbours(seen: Mask) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where something was last and will next be seen, `(T, …)`, and the number of frames between the two.

    At the ends there is one neighbour only, and the gap is as long as the way to it; of what is seen, the gap
    is -1 frames.
    """
    count = len(seen)
    time = np.arange(count).reshape(-1, *[1] * (seen.ndim - 1))
    before = np.maximum.accumulate(np.where(seen, time, -1), axis=0)
    after = np.minimum.accumulate(np.where(seen, time, count)[::-1], axis=0)[::-1]
    lengths = np.where(before < 0, after, np.where(after >= count, count - 1 - before, after - before - 1))
    return np.where(before < 0, after, before), np.where(after >= count, before, after), lengths


def _lines(frames: npt.NDArray[Any], seen: Mask) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Joints on the line between where they were last and will next be seen, and the frames between.

    At the ends the joint stays with its one neighbour. What comes of a joint that is never seen has no
    meaning.
    """
    before, after, lengths = _neighbours(seen)
    time = np.arange(len(frames))[:, None, None]
    share = ((time - before) / np.maximum(after - before, 1)).astype(frames.dtype)[..., None]
    persons, joints = np.ogrid[: frames.shape[1], : frames.shape[2]]
    low, high = (frames[np.clip(place, 0, len(frames) - 1), persons, joints] for place in (before, after))
    return low + share * (high - low), lengths


def find_spikes(frames: Frames, factor: float = 10.0) -> Mask:
    """Joints `(T, P, V)` that jump away and back within three frames by more than `factor` times their usual
    step.

    The usual step is the third quartile of the joint's own speed, and at least a hundredth of the body's size
    per frame.
    """
    seen = seen_joints(frames)
    spikes = np.zeros_like(seen)
    limit = factor * _usual_step(frames, seen)
    for width in range(1, LONGEST_SPIKE + 1):
        if len(frames) < width + 2:
            break
        first, inside, last = frames[: -width - 1], frames[1:-width], frames[width + 1 :]
        ends = frames[width:-1]
        both = seen[: -width - 1] & seen[1:-width] & seen[width:-1] & seen[width + 1 :]
        out, back = np.linalg.norm(inside - first, axis=-1), np.linalg.norm(last - ends, axis=-1)
        home = np.linalg.norm(last - first, axis=-1)
        jumps = both & (out > limit) & (back > limit) & (home <= 0.5 * np.minimum(out, back))
        for place in range(width):
            spikes[1 + place : len(frames) - width + place] |= jumps
    return spikes


def _usual_step(frames: Frames, seen: Mask) -> npt.NDArray[np.float32]:
    """How far a joint usually goes in one frame, `(1, P, V)`."""
    steps = np.linalg.norm(np.diff(frames, axis=0), axis=-1)
    known = np.where(seen[1:] & seen[:-1], steps, np.nan)
    usual = np.zeros((1, *seen.shape[1:]), dtype=np.float32)
    some = np.isfinite(known).any(axis=0)
    if some.any():
        usual[0][some] = np.nanquantile(known[:, some], 0.75, axis=0)
    return np.maximum(usual, 0.01 * body_size(frames, seen))


def body_size(frames: Frames, seen: Mask) -> float:
    """Median extent of a body: the longest side of the box around its seen joints."""
    low = np.where(seen[..., None], frames, np.inf).min(axis=2)
    high = np.where(seen[..., None], frames, -np.inf).max(axis=2)
    there = seen.any(axis=2)
    return float(np.median((high - low).max(axis=-1)[there])) if there.any() else 0.0


def remove_outliers(frames: Frames, factor: float = 10.0) -> Frames:
    """Set spikes to missing, so that `interpolate-gaps` can fill them."""
    spikes = find_spikes(frames, factor)
    return np.where(spikes[..., None], np.float32(0), frames) if spikes.any() else frames


def smooth(frames: Frames, window: float = 7.0) -> Frames:
    """Savitzky-Golay filter of second order over `window` frames (odd); missing joints stay missing."""
    width = int(window)
    if width != window or width < 5 or width % 2 == 0:
        raise InputError(f"step 'smooth={window:g}' needs an odd number of frames, at least 5")
    if len(frames) < width:
        return frames
    from scipy.signal import savgol_filter

    return _filtered(frames, lambda values: savgol_filter(values, width, 2, axis=0))


def lowpass(frames: Frames, hertz: float = 6.0, fps: float = -1.0) -> Frames:
    """Zero-phase Butterworth filter of fourth order with a cut-off at `hertz`."""
    if fps <= 0:
        raise InputError(f"step 'lowpass={hertz:g}' needs the frame rate, which is not recorded; give --fps")
    if hertz >= fps / 2:
        raise InputError(f"step 'lowpass={hertz:g}' is not below half the frame rate ({fps:g}); choose less")
    from scipy.signal import butter, sosfiltfilt

    sections = butter(2, hertz, fs=fps, output="sos")
    if len(frames) <= 3 * (2 * len(sections) + 1):
        return frames
    return _filtered(frames, lambda values: sosfiltfilt(sections, values, axis=0))


def _filtered(frames: Frames, function: Any) -> Frames:
    """Apply a filter over time to gap-free series: gaps are bridged linearly and restored."""
    seen = seen_joints(frames)
    lines, _ = _lines(frames.astype(np.float64), seen)
    bridged = np.where(np.asarray(seen.any(axis=0))[..., None], lines, 0.0)
    result = function(bridged.reshape(len(frames), -1)).reshape(frames.shape)
    return np.where(seen[..., None], result, 0.0).astype(np.float32)


def track_persons(frames: Frames, topology: Topology) -> Frames:
    """Assign every person to one slot for the whole recording, independent of the order of detections."""
    if frames.shape[1] < 2:
        return frames
    from halp.data.tracking import Detection, follow

    there = present(frames)
    people = [[Detection(body) for body in bodies[seen]] for bodies, seen in zip(frames, there)]
    return follow(people, *frames.shape[1:])[0]


def exchanged_persons(frames: Frames) -> int:
    """Frames after which the first two persons fit far better when swapped."""
    if frames.shape[1] < 2 or len(frames) < 2:
        return 0
    there: Mask = np.asarray(present(frames)[:, :2].all(axis=1))
    pair = frames[:, :2].mean(axis=2)
    kept = np.linalg.norm(pair[1:] - pair[:-1], axis=-1).sum(axis=1)
    swapped = np.linalg.norm(pair[1:, ::-1] - pair[:-1], axis=-1).sum(axis=1)
    return int((there[1:] & there[:-1] & (2 * swapped < kept)).sum())


def mean_line(frames: Frames, topology: Topology, ends: tuple[str, str]) -> npt.NDArray[np.float64]:
    """Mean vector `(C,)` between two joints of the first person over frames where it is seen, or zeros."""
    there = present(frames)[:, 0]
    start, end = (frames[there, 0, topology.index(joint)].astype(np.float64) for joint in ends)
    return (end - start).mean(axis=0) if there.any() else np.zeros(frames.shape[3])


def trunk_ends(topology: Topology) -> tuple[str, str] | None:
    """The two joints between which the trunk lies; None if a layout names none."""
    pairs = (("hip_center", "shoulder_center"), ("hip_center", "neck"), ("hip_center", "head"), topology.up)
    return next((pair for pair in pairs if pair is not None and set(pair) <= set(topology.joints)), None)


def trunk(frames: Frames, topology: Topology) -> npt.NDArray[np.float64] | None:
    """Mean vector `(C,)` from the hips to the shoulders or the head of the first person; None if unknown."""
    ends = trunk_ends(topology)
    if ends is None or not present(frames)[:, 0].any():
        return None
    line = mean_line(frames, topology, ends)
    return line if np.isfinite(line).all() else None


def up_axis(frames: Frames, topology: Topology) -> tuple[int, float] | None:
    """The axis along the trunk of the first person, and its sign; None if the trunk lies across all axes."""
    line = trunk(frames, topology) if frames.shape[3] == 3 else None
    length = 0.0 if line is None else float(np.linalg.norm(line))
    if line is None or length < 1e-9:
        return None
    axis = int(np.argmax(np.abs(line)))
    return (axis, float(np.sign(line[axis]))) if abs(line[axis]) >= _ALONG * length else None


def upright(frames: Frames, topology: Topology) -> Frames:
    """Turn the recording by quarter turns so that y points up, where the trunk follows another axis."""
    up = up_axis(frames, topology)
    if up is None or up == (1, 1.0):
        return frames
    axis, sign = up
    rotation = np.zeros((3, 3), dtype=np.float32)
    rotation[1, axis] = sign
    # The other two axes are chosen so that left stays left: the determinant is one.
    others = [other for other in range(3) if other != axis]
    rotation[0, others[0]] = 1
    rotation[2, others[1]] = 1
    rotation[2] *= np.float32(round(float(np.linalg.det(rotation.astype(np.float64)))))
    return (frames.reshape(-1, 3) @ rotation.T).reshape(frames.shape)


def handedness(frames: Frames, topology: Topology) -> float | None:
    """Evidence that the first person's left side is on the left, from 1 to -1; None if it is undecidable.

    The left side has to lie where up × forward points. Forward is told by the feet, the nose or the bend of
    the knees.
    """
    if frames.shape[3] != 3 or not {"hip_left", "hip_right"} <= set(topology.joints):
        return None
    there = present(frames)[:, 0]
    body = {joint: frames[there, 0, place].astype(np.float64) for place, joint in enumerate(topology.joints)}
    # Centred clips have their centre at zero; any other joint there is missing.
    body |= {joint: np.where((at == 0).all(axis=1, keepdims=True) & (joint != topology.centre), np.nan, at)
             for joint, at in body.items()}  # fmt: skip
    hips = (body["hip_left"] + body["hip_right"]) / 2
    top = next((body[joint] for joint in ("shoulder_center", "neck", "head", "nose") if joint in body), None)
    if top is None and {"shoulder_left", "shoulder_right"} <= body.keys():
        top = (body["shoulder_left"] + body["shoulder_right"]) / 2
    forward = _forward(body)
    if top is None or forward is None:
        return None
    triple = np.cross(top - hips, forward) * (body["hip_left"] - body["hip_right"])
    lengths = np.prod(
        [np.linalg.norm(v, axis=1) for v in (top - hips, forward, body["hip_left"] - body["hip_right"])],
        axis=0,
    )
    known = np.isfinite(triple).all(axis=1) & (lengths > 1e-12)
    return float((triple[known].sum(axis=1) / lengths[known]).mean()) if known.any() else None


def _forward(body: dict[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.float64] | None:
    """Which way a person faces `(T, 3)`: where the feet, else the nose, else the knees point."""
    sides = ("left", "right")
    feet = ("heel foot_index", "heel toe_big", "ankle toe_big", "ankle foot_index", "ankle foot")
    for start, end in map(str.split, feet):
        if {f"{joint}_{side}" for joint in (start, end) for side in sides} <= body.keys():
            return body[f"{end}_left"] - body[f"{start}_left"] + body[f"{end}_right"] - body[f"{start}_right"]
    if {"nose", "ear_left", "ear_right"} <= body.keys():
        return body["nose"] - (body["ear_left"] + body["ear_right"]) / 2
    legs = ("hip", "knee", "ankle")
    if {f"{joint}_{side}" for joint in legs for side in sides} <= body.keys():
        hip, knee, ankle = (body[f"{joint}_left"] + body[f"{joint}_right"] for joint in legs)
        return knee - (hip + ankle) / 2
    return None


def unit_factor(frames: Frames, topology: Topology) -> float | None:
    """Metres per unit of a 3D recording, estimated from the length of the trunk; None if impossible."""
    line = trunk(frames, topology) if frames.shape[3] == 3 else None
    length = 0.0 if line is None else float(np.linalg.norm(line))
    if length <= 1e-6:
        return None
    return min(_UNITS, key=lambda unit: abs(np.log(length * unit / _TRUNK)))


def metres(frames: Frames, topology: Topology) -> Frames:
    """Convert a 3D recording in millimetres, centimetres or inches to metres, by the length of its trunk."""
    factor = unit_factor(frames, topology)
    return frames if factor in (None, 1.0) else (frames * np.float32(factor)).astype(np.float32)
