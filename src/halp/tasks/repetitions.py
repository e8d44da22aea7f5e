"""Repetitions of a movement: counted and cut, with pauses, unequal tempo and a partial first or last one.

PoseTrack, centred and scaled, are projected onto their principal components. A repetition is an excursion from
where the movement rests and back: a peak of a component whose prominence is like that of the others. The
component whose excursions cover the longest way is taken, so that three waves of a raised hand count, and not
the raising.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from halp.core.errors import InputError, check_choice
from halp.data.reading import Reading, ReadingKeywords
from halp.data.spans import Event, Events
from halp.features.source import AnySource
from halp.tasks.angles import angle_joints, joint_angles
from halp.tasks.compare import align
from halp.tasks.intervals import mean_interval, rounded, with_interval
from halp.tasks.pose_tracks import Floats, PoseTrack, filled, read_poses, source_name

COMPONENTS = 5
_SMOOTHING = 0.1  # seconds
_FASTEST = 0.35  # seconds of the quickest repetition
_LIKE = 0.5  # of the usual prominence, below which an excursion is partial
_FAINT = 0.2  # of the usual prominence, below which it is nothing
_REST = 0.08  # of the height of an excursion, below which it has not begun or has ended
_ABOVE_NOISE = (
    0.1  # mean bone lengths that an excursion has to move the whole body by, root mean square over joints
)
_SMALLEST_BEND = 5.0  # degrees of an excursion of an angle
_SAMPLES = 48


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
    """Repetitions of one person in one recording; `curve` is what they were found in, `(T,)`."""

    poses: PoseTrack
    repetitions: list[Repetition]
    curve: Floats
    reference: int | None

    @property
    def count(self) -> int:
        return sum(not repetition.partial for repetition in self.repetitions)

    def events(self) -> list[Event]:
        """The repetitions as events, with what was measured of each in further columns."""
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
        partial = len(self.repetitions) - self.count
        summary = {
            "count": self.count,
            "count_interval": [self.count, self.count + partial],
            "partial": partial,
            "duration_mean": float(np.mean(whole)) if whole else None,
            "duration_interval": mean_interval(whole),
            "duration_cv": float(np.std(whole) / np.mean(whole)) if len(whole) > 1 else None,
            "cycle_mean": float(np.mean(cycles)) if cycles else None,
            "cycle_interval": mean_interval(cycles),
            "cadence": 60 / float(np.mean(cycles)) if cycles else None,
            "pause_mean": float(np.mean(pauses)) if pauses else None,
            "angle": next((r.angle for r in self.repetitions), ""),
            "range_mean": float(np.mean(ranges)) if ranges else None,
            "range_interval": mean_interval(ranges),
        }
        return {
            **self.poses.to_json(),
            **rounded(summary),
            "reference": self.reference,
            "repetitions": [repetition.to_json() for repetition in self.repetitions],
        }


@dataclass(frozen=True)
class RepetitionCounts(Sequence[Repetitions]):
    """Repetitions of every person of every recording of a source."""

    people: Sequence[Repetitions]
    origin: str

    def __len__(self) -> int:
        return len(self.people)

    @overload
    def __getitem__(self, place: int) -> Repetitions: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Repetitions]: ...
    def __getitem__(self, place: int | slice) -> Repetitions | Sequence[Repetitions]:
        return self.people[place]

    def events(self) -> Events:
        """All repetitions, with what was measured of each in further columns."""
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
    """Count and cut the repetitions of an exercise: duration, range of motion, smoothness, difference from a
    reference.

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
    """Count and cut the repetitions of one person.

    Parameters
    ----------
    reference : which whole repetition (from 1) the others are compared with; by default the one nearest to
    all others. angle : find repetitions in this joint angle, such as `knee_right`, and report its range.
    joint : find repetitions in the path of this joint about the hips, such as `wrist_left`.
    """
    _check_asked(poses, angle, joint)
    if len(poses.joints) < 3 * _FASTEST * poses.fps:
        return Repetitions(poses, [], np.zeros(len(poses.joints)), None)
    body = body_coordinates(poses)
    smooth = _smoothed(body.reshape(len(body), -1), poses.fps)
    if angle is not None:
        bend = _smoothed(filled(joint_angles(poses.joints, poses.topology)[angle])[:, None], poses.fps)
        bend -= bend.mean()
        curve, spans = _best_curve([bend[:, 0]], bend, poses.fps, _SMALLEST_BEND)
    else:
        kept = [poses.topology.index(joint)] if joint is not None else list(range(poses.joints.shape[1]))
        moved = smooth.reshape(*body.shape)[:, kept].reshape(len(body), -1)
        curve, spans = _best_component(moved, poses.fps, len(kept))
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
        raise InputError(
            "repetitions are found in one angle or in one joint; give --angle or --joint, not both"
        )
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


def _smoothed(values: Floats, fps: float) -> Floats:
    from scipy.ndimage import gaussian_filter1d

    return np.asarray(gaussian_filter1d(values, _SMOOTHING * fps / 2, axis=0, mode="nearest"))


def _best_component(values: Floats, fps: float, joints: int) -> tuple[Floats, list[tuple[int, int, bool]]]:
    """The principal component with the longest way over like excursions, and their spans (first, last,
    partial).
    """
    centred = values - values.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    return _best_curve(
        [centred @ axis for axis in axes[:COMPONENTS]], centred, fps, _ABOVE_NOISE * np.sqrt(joints)
    )


def _best_curve(
    curves: Sequence[Floats], centred: Floats, fps: float, smallest: float
) -> tuple[Floats, list[tuple[int, int, bool]]]:
    """The curve, upwards or downwards, with the longest way over like excursions of `smallest` or more, and
    their spans.
    """
    best: tuple[float, Floats, list[tuple[int, int, bool]]] = 0.0, curves[0], []
    for curve in curves:
        for side in (curve, -curve):
            spans, way = _excursions(side, fps, smallest)
            way *= _alikeness(centred, [(first, last) for first, last, partial in spans if not partial])
            # rest is where people begin and end: a curve that is high there shows the pauses and not the
            # movement
            edge = max(1, round(0.2 * fps))
            low, high = np.percentile(side, [5, 95])
            rest = (np.median(np.r_[side[:edge], side[-edge:]]) - low) / max(high - low, 1e-9)
            weight = way * (1.0 if rest < 0.5 else 0.6)
            if weight > best[0]:
                best = weight, side, spans
    return best[1], best[2]


def _excursions(curve: Floats, fps: float, smallest: float) -> tuple[list[tuple[int, int, bool]], float]:
    """Spans of like peaks, partial ones marked, and the summed prominence of the whole ones."""
    from scipy.signal import find_peaks

    peaks, facts = find_peaks(curve, prominence=smallest, distance=max(1, round(_FASTEST * fps)))
    prominence = facts["prominences"]
    if not len(peaks):
        return [], 0.0
    # the usual prominence is that of the most peaks that are at least as prominent: neither a fidget nor
    # noise sets it
    ordered = np.sort(prominence)[::-1]
    usual = float(ordered[(ordered * np.arange(1, len(ordered) + 1)).argmax()])
    usual = float(np.median(prominence[prominence >= usual]))
    kept = prominence >= _FAINT * usual
    peaks, prominence = peaks[kept], prominence[kept]
    spans = []
    for number, (peak, height) in enumerate(zip(peaks, prominence)):
        before = int(peaks[number - 1]) if number else 0
        after = int(peaks[number + 1]) if number + 1 < len(peaks) else len(curve) - 1
        first = _foot(curve, int(peak), before, -1)
        last = _foot(curve, int(peak), after, 1)
        spans.append((first, last, bool(height < _LIKE * usual)))
    return _with_cut_off(curve, spans, _FAINT * usual), float(prominence[prominence >= _LIKE * usual].sum())


def _with_cut_off(
    curve: Floats, spans: list[tuple[int, int, bool]], smallest: float
) -> list[tuple[int, int, bool]]:
    """The spans with the ends of repetitions that the recording begins or ends in: flanks without their
    peak.
    """
    first, last = spans[0][0], spans[-1][1]
    end = len(curve) - 1
    if first > 0 and curve[0] == curve[: first + 1].max() and curve[0] - curve[: first + 1].min() >= smallest:
        spans = [(0, min(_foot(curve, 0, first, 1), first), True), *spans]
    if last < end and curve[-1] == curve[last:].max() and curve[-1] - curve[last:].min() >= smallest:
        spans = [*spans, (max(_foot(curve, end, last, -1), last), end, True)]
    return spans


def _alikeness(values: Floats, spans: list[tuple[int, int]]) -> float:
    """How much of the movement within spans their mean explains, 0 … 1: little where two kinds of spans
    alternate.
    """
    if len(spans) < 2:
        return 0.5
    cuts = np.stack([resampled(values[first : last + 1], _SAMPLES // 2) for first, last in spans])
    total = ((cuts - cuts.mean((0, 1))) ** 2).sum()
    return float(max(0.0, 1 - ((cuts - cuts.mean(0)) ** 2).sum() / total)) if total > 0 else 0.0


def _foot(curve: Floats, peak: int, limit: int, step: int) -> int:
    """Where the flank of a peak towards `limit` ends: the last frame above a part of its height over the
    lowest point.
    """
    flank = curve[peak : limit + 1] if step > 0 else curve[limit : peak + 1][::-1]
    low = flank.min()
    below = np.flatnonzero(flank <= low + _REST * (curve[peak] - low))
    return peak + step * int(below[0])


def _distances(cuts: list[Floats], reference: int | None) -> tuple[list[float], int | None]:
    """Distances of repetitions to a reference by dynamic time warping, per frame and joint coordinate;
    default: medoid.
    """
    if not cuts:
        return [], None
    even = [resampled(cut, _SAMPLES) for cut in cuts]
    rows = range(len(even)) if reference is None else [reference]
    costs = [[np.sqrt(((even[row][:, None] - other[None]) ** 2).mean(-1)) for other in even] for row in rows]
    table = np.array([[align(cost)[1] for cost in row] for row in costs])
    chosen = int(table.sum(1).argmin())
    return table[chosen].tolist(), chosen if reference is None else reference


def resampled(values: Floats, count: int) -> Floats:
    """Values `(T, D)` at `count` even moments."""
    at = np.linspace(0, len(values) - 1, count)
    low = np.minimum(at.astype(int), max(len(values) - 2, 0))
    way = (at - low)[:, None]
    return values[low] * (1 - way) + values[np.minimum(low + 1, len(values) - 1)] * way


def _widest_angle(poses: PoseTrack, joint: str | None = None) -> str:
    """The joint angle with the largest range in the recording, robustly; empty if the topology has none.

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


def spectral_arc_length(speed: npt.ArrayLike, fps: float) -> float | None:
    """Smoothness of a speed profile: minus the arc length of its normalised spectrum up to 10 Hz; nearer to 0
    is smoother.

    After the definition of Balasubramanian and others (2012): the spectrum is cut where it stays below 5 %.
    """
    values = np.asarray(speed, dtype=np.float64)
    if len(values) < 4 or not values.any():
        return None
    size = 2 ** (int(np.ceil(np.log2(len(values)))) + 4)
    frequency = np.arange(size) * fps / size
    spectrum = np.abs(np.fft.fft(values, size))
    spectrum = (spectrum / spectrum.max())[frequency <= min(10.0, fps / 2)]
    frequency = frequency[: len(spectrum)]
    last = int(np.flatnonzero(spectrum >= 0.05).max())
    frequency, spectrum = frequency[: last + 1], spectrum[: last + 1]
    if len(frequency) < 2:
        return None
    steps = np.diff(frequency) / (frequency[-1] - frequency[0])
    return float(-np.sqrt(steps**2 + np.diff(spectrum) ** 2).sum())


def repetition_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `Repetitions.to_json` for people: units in the names of columns, intervals beside their
    means.
    """
    units = {"duration": "s", "cycle": "s", "range": "°"}
    shown = {name: row[name] for name in ("recording", "subject", "person", "count", "partial")}
    shown |= {
        f"{name} ({unit})": with_interval(row[f"{name}_mean"], row[f"{name}_interval"])
        for name, unit in units.items()
    }
    return shown | {"pause (s)": row["pause_mean"], "cadence (1/min)": row["cadence"], "angle": row["angle"]}
