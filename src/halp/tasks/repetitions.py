"""Repetitions of a movement: counted and segmented, with pauses, changing tempo and partial ones at the ends.

Poses, centred and scaled, are projected onto their principal components. A repetition is an excursion from
where the movement rests and back: a peak of a component whose prominence is like that of the others. The
component whose excursions cover the longest way is taken, so that three waves of a raised hand count, and not
the raising.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from typing_extensions import Unpack

from halp.core.errors import InputError, check_choice
from halp.core.listed import Listed
from halp.data.reading import Reading, ReadingKeywords
from halp.data.spans import Event, Events
from halp.features.source import AnySource
from halp.tasks.angles import angle_joints, joint_angles
from halp.tasks.body_frame import smoothed
from halp.tasks.compare import align
from halp.tasks.excursions import FASTEST, SAMPLES, best_component, best_curve, resampled, spectral_arc_length
from halp.tasks.intervals import mean_interval, rate_interval, rounded, with_interval
from halp.tasks.pose_tracks import Floats, PoseTrack, filled, read_poses, source_name

_SMOOTHING = 0.1  # seconds
UNITS = {"start": "s", "stop": "s", "duration": "s", "cycle": "s", "pause": "s", "range": "°"}
_SMALLEST_BEND = 5.0  # degrees of an excursion of an angle


#: Why numbers have no interval, by their place in the answer.
NO_INTERVAL = {
    "partial": "part of count_interval",
    "*_mean": "below two repetitions they have none",
    "cadence": "below two repetitions it has none",
    "duration_cv": "it describes the spread of repetitions",
    "repetitions": "single repetitions; the means above have intervals",
}


@dataclass(frozen=True)
class Repetition:
    """One repetition, in seconds; `partial` ones are cut off or much smaller, and are not counted.

    `cycle` is the time from its start to the start of the next one, `pause` the part of it after its stop:
    for a leg in walking, the stride and the stance. Both are None for the last one.
    """

    start: float
    stop: float
    partial: bool
    angle: str
    range: float | None
    smoothness: float | None
    distance: float | None
    cycle: float | None = None
    pause: float | None = None

    def to_json(self) -> dict[str, Any]:
        values = {"duration": self.stop - self.start, **vars(self)}
        return {name: round(v, 6) if isinstance(v, float) else v for name, v in values.items()}


@dataclass(frozen=True)
class Repetitions:
    """Repetitions of one person in one recording; they were found in `curve` `(T,)`."""

    poses: PoseTrack
    repetitions: list[Repetition]
    curve: Floats
    reference: int | None

    @property
    def count(self) -> int:
        return sum(not repetition.partial for repetition in self.repetitions)

    def events(self) -> list[Event]:
        """The repetitions as events, with their measures as columns."""
        poses, events = self.poses, []
        subject = poses.subject or (f"person {poses.person + 1}" if poses.person else "")
        for r in self.repetitions:
            measured = {
                k: str(v)
                for k, v in r.to_json().items()
                if k not in ("start", "stop", "partial") and v is not None
            }
            label = "partial" if r.partial else "repetition"
            events.append(Event(poses.recording, r.start, r.stop, label, subject, "model", None, measured))
        return events

    def to_json(self) -> dict[str, Any]:
        whole = [r.stop - r.start for r in self.repetitions if not r.partial]
        cycles = [r.cycle for r in self.repetitions if r.cycle is not None and not r.partial]
        pauses = [r.pause for r in self.repetitions if r.pause is not None and not r.partial]
        ranges = [r.range for r in self.repetitions if r.range is not None and not r.partial]
        partial, step = len(self.repetitions) - self.count, 1 / self.poses.fps
        cycle = mean_interval(cycles, step, serial=True)
        summary = {
            "count": self.count,
            "count_interval": [self.count, self.count + partial],
            "partial": partial,
            "duration_mean": float(np.mean(whole)) if whole else None,
            "duration_interval": mean_interval(whole, step),
            "duration_cv": float(np.std(whole) / np.mean(whole)) if len(whole) > 1 else None,
            "cycle_mean": float(np.mean(cycles)) if cycles else None,
            "cycle_interval": cycle,
            "cadence": 60 / float(np.mean(cycles)) if cycles else None,
            "cadence_interval": rate_interval(cycle),
            "pause_mean": float(np.mean(pauses)) if pauses else None,
            "pause_interval": mean_interval(pauses, step),
            "angle": next((r.angle for r in self.repetitions), ""),
            "range_mean": float(np.mean(ranges)) if ranges else None,
            "range_interval": mean_interval(ranges),
        }
        return {
            **self.poses.to_json(),
            **rounded(summary),
            "reference": self.reference,
            "no_interval": NO_INTERVAL,
            "repetitions": [repetition.to_json() for repetition in self.repetitions],
        }


@dataclass(frozen=True)
class RepetitionCounts(Listed[Repetitions]):
    """Repetitions of every person of every recording of a source."""

    people: Sequence[Repetitions]
    origin: str

    def events(self) -> Events:
        """All repetitions, with their measures as columns."""
        return Events([event for one in self.people for event in one.events()])

    def to_json(self) -> list[dict[str, Any]]:
        """Counts and repetitions: an entry per person and recording."""
        return [one.to_json() for one in self.people]


def repetitions(
    source: AnySource,
    *,
    angle: str | None = None,
    joint: str | None = None,
    reference: int | None = None,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> RepetitionCounts:
    """Count and segment the repetitions of an exercise: duration, range, smoothness, difference.

    Pauses, unequal tempo and a partial first or last repetition are allowed; partial ones are listed and not
    counted.

    Parameters
    ----------
    source : source
        A store, recordings of any format, or arrays.
    angle : str, optional
        Find repetitions in this joint angle, such as knee_right (default: in the movement of the whole body).
    joint : str, optional
        Find repetitions in the path of this joint, such as wrist_left.
    reference : int, optional
        Which repetition (from 1) the others are compared with (default: the one nearest to all others).
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields.

    Returns
    -------
    RepetitionCounts
        One `Repetitions` per person and recording.

    Examples
    --------
    $ halp repetitions squats.bvh --html repetitions.html
    $ halp repetitions recordings --angle knee_right --out repetitions.csv --json

    >>> import numpy as np, halp
    >>> body = np.random.default_rng(0).normal(size=(1, 25, 3)) + np.zeros((90, 1, 1))
    >>> len(halp.repetitions(body, topology="kinect-v2", fps=30))
    1
    """
    how: dict[str, Any] = {"reference": reference, "angle": angle, "joint": joint}
    found = [find_repetitions(poses, **how) for poses in read_poses(source, reading, **keywords)]
    return RepetitionCounts(found, source_name(source))


def find_repetitions(
    poses: PoseTrack, *, reference: int | None = None, angle: str | None = None, joint: str | None = None
) -> Repetitions:
    """Count and segment the repetitions of one person.

    Parameters
    ----------
    reference
        The whole repetition (from 1) that the others are compared with; by default the one nearest to all.
    angle
        Find repetitions in this joint angle, such as `knee_right`, and report its range.
    joint
        Find repetitions in the path of this joint about the hips, such as `wrist_left`.
    """
    poses = poses.while_seen()
    _check_asked(poses, angle, joint)
    if len(poses.joints) < 3 * FASTEST * poses.fps:
        return Repetitions(poses, [], np.zeros(len(poses.joints)), None)
    body = body_coordinates(poses)
    smooth = smoothed(body.reshape(len(body), -1), _SMOOTHING * poses.fps)
    if angle is not None:
        bend = smoothed(
            filled(joint_angles(poses.joints, poses.topology)[angle])[:, None], _SMOOTHING * poses.fps
        )
        bend -= bend.mean()
        curve, spans = best_curve([bend[:, 0]], bend, poses.fps, _SMALLEST_BEND)
    else:
        kept = [poses.topology.index(joint)] if joint is not None else list(range(poses.joints.shape[1]))
        moved = smooth.reshape(*body.shape)[:, kept].reshape(len(body), -1)
        curve, spans = best_component(moved, poses.fps, len(kept))
    whole = [at for at, (_, _, partial) in enumerate(spans) if not partial]
    if reference is not None and not 1 <= reference <= len(whole):
        raise InputError(
            f"'{poses.recording}' has {len(whole)} repetitions; --reference {reference} is out of range"
        )
    cuts = [smooth[first : last + 1] for first, last, _ in spans]
    distances, medoid = _distances([cuts[at] for at in whole], None if reference is None else reference - 1)
    angle = angle or _widest_angle(poses, joint)
    values = filled(joint_angles(poses.joints, poses.topology)[angle]) if angle else None
    result = []
    for at, (first, last, partial) in enumerate(spans):
        room = round(0.2 * (last - first))  # the flanks that the cut leaves out belong to the range of motion
        around = slice(max(first - room, 0), last + room + 1)
        speed = np.linalg.norm(np.diff(cuts[at], axis=0), axis=1) * poses.fps
        result.append(
            Repetition(
                float(poses.times[first]),
                float(poses.times[last]) + 1 / poses.fps,
                partial,
                angle,
                float(np.ptp(values[around])) if values is not None else None,
                spectral_arc_length(speed, poses.fps),
                None if partial else distances[whole.index(at)],
            )
        )
    timed = [
        replace(one, cycle=after.start - one.start, pause=max(after.start - one.stop, 0.0))
        for one, after in pairwise(result)
    ]
    return Repetitions(poses, [*timed, *result[-1:]], curve, None if medoid is None else medoid + 1)


def _check_asked(poses: PoseTrack, angle: str | None, joint: str | None) -> None:
    """Refuse an angle or a joint that the recording does not have."""
    if angle is not None and joint is not None:
        raise InputError("repetitions are found in one angle or one joint; give --angle or --joint")
    if angle is not None:
        check_choice(f"angle of '{poses.recording}'", angle, angle_joints(poses.topology))
        if not np.isfinite(joint_angles(poses.joints, poses.topology)[angle]).any():
            raise InputError(f"'{angle}' is never seen in '{poses.recording}'; choose another angle")
    if joint is not None:
        check_choice(f"joint of '{poses.recording}'", joint, poses.topology.joints)


def body_coordinates(poses: PoseTrack) -> Floats:
    """Joints `(T, V, C)` about the middle of the hips, in mean bone lengths, gaps filled."""
    topology, joints = poses.topology, filled(poses.joints)
    names = [name for name in topology.joints if name in ("hip_center", "hip_left", "hip_right")]
    names = ["hip_center"] if "hip_center" in names else names or [topology.centre or topology.joints[0]]
    centre = joints[:, [topology.index(name) for name in names]].mean(axis=1, keepdims=True)
    bones = [np.linalg.norm(joints[:, child] - joints[:, parent], axis=1) for child, parent in topology.bones]
    length = float(np.median(np.mean(bones, axis=0))) if bones else 1.0
    return (joints - centre) / max(length, 1e-9)


def _distances(cuts: list[Floats], reference: int | None) -> tuple[list[float], int | None]:
    """DTW distances of repetitions to a reference (default: medoid), per frame and joint coordinate."""
    if not cuts:
        return [], None
    even = [resampled(cut, SAMPLES) for cut in cuts]
    rows = range(len(even)) if reference is None else [reference]
    costs = [[np.sqrt(((even[row][:, None] - other[None]) ** 2).mean(-1)) for other in even] for row in rows]
    table = np.array([[align(cost)[1] for cost in row] for row in costs])
    chosen = int(table.sum(1).argmin())
    return table[chosen].tolist(), chosen if reference is None else reference


def _widest_angle(poses: PoseTrack, joint: str | None = None) -> str:
    """The joint angle with the largest robust range in the recording; empty if the topology has none.

    With `joint`, of the angles that move this joint, if there are any: the joint lies in their middle or at
    an end.
    """
    triples = angle_joints(poses.topology)
    if not triples:
        return ""
    place = None if joint is None else poses.topology.index(joint)
    ranges = {
        name: float(np.ptp(np.nanpercentile(angle, [2, 98])))
        for name, angle in joint_angles(poses.joints, poses.topology).items()
        if np.isfinite(angle).any()
    }
    moving = {name: size for name, size in ranges.items() if place in triples[name]}
    ranges = moving or ranges
    return max(ranges, key=lambda name: ranges[name]) if ranges else ""


def repetition_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `Repetitions.to_json` for reading: units in column names, intervals beside means."""
    shown = {name: row[name] for name in ("recording", "subject", "person", "count", "partial")}
    shown |= {
        f"{name} ({unit})": with_interval(row[f"{name}_mean"], row[f"{name}_interval"])
        for name, unit in UNITS.items()
        if f"{name}_mean" in row
    }
    cadence = with_interval(row["cadence"], row["cadence_interval"], 1)
    return shown | {"cadence (1/min)": cadence, "angle": row["angle"]}
