"""Gait: foot contacts, strides and steps of a person who walks: times, lengths, symmetry, double support.

A foot touches the ground where it is furthest in front of the hips, and leaves it where it is furthest behind
them (the coordinate-based events of Zeni and others, 2008). Where heels are seen in space at 50 frames per
second or more, contact is the moment after that in which the heel stops falling. This holds on the ground and
on a treadmill, for walking forward; hips and both feet must be seen, and lengths have the unit of the
recording.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from typing_extensions import Unpack

from halp.core.listed import Listed
from halp.data.reading import Reading, ReadingKeywords
from halp.data.spans import Event, Events
from halp.features.source import AnySource
from halp.tasks.body_frame import SLANTED, BodyFrame, body_frame, middle
from halp.tasks.foot_contacts import (
    OTHER,
    SIDES,
    accepted_events,
    distance_ahead,
    extremes,
    feet_alternate,
    foot_joint,
    foremost,
    impacts,
    single_between,
    with_hips,
)
from halp.tasks.intervals import (
    asymmetry,
    asymmetry_interval,
    described,
    rate_interval,
    rounded,
    with_interval,
)
from halp.tasks.pose_tracks import Floats, PoseTrack, filled, read_poses, source_name

_MOVES = 0.5  # leg lengths that hips have to move for lengths of strides on the ground
MEASURES = {
    "stride_time": "s", "step_time": "s", "stance_time": "s", "swing_time": "s", "double_support": "s",
    "step_length": "unit of the recording", "stride_length": "unit of the recording",
}  # fmt: skip


#: Why numbers have no interval, by their place in the answer.
NO_INTERVAL = {
    "strides": "counted; contacts within 0.2 s of the ends of a recording may be missed",
    "steps": "counted, as strides are",
    "speed": "the distance of the hips over time: one value per walk",
    "*mean": "below two strides they have none",
    "*std": "they describe the spread of strides",
    "*asymmetry": "below five strides of a side they have none",
    "cadence": "below two strides it has none",
    "contacts": "single events: median error 10 ms with heels at 100 Hz, about two frames otherwise",
    "toe_offs": "single events, as contacts are",
    "details": "single strides, made of contacts and toe-offs",
}  # fmt: skip


@dataclass(frozen=True)
class Stride:
    """From one contact of a foot to its next, in seconds of the recording; parts not seen are None.

    `step_time` and `step_length` are of the step that begins the stride: from the contact of the other foot
    to this one.
    """

    side: str
    start: float
    stop: float
    toe_off: float | None
    step_time: float | None
    step_length: float | None
    stride_length: float | None
    double_support: float | None

    @property
    def stride_time(self) -> float:
        return self.stop - self.start

    @property
    def stance_time(self) -> float | None:
        return None if self.toe_off is None else self.toe_off - self.start

    @property
    def swing_time(self) -> float | None:
        return None if self.toe_off is None else self.stop - self.toe_off

    def to_json(self) -> dict[str, Any]:
        return {"side": self.side, "start": self.start, "stop": self.stop, "toe_off": self.toe_off} | {
            name: getattr(self, name) for name in MEASURES
        }


@dataclass(frozen=True)
class Gait:
    """Strides of one person in one recording, with their contacts and toe-offs `{side: seconds}`."""

    poses: PoseTrack
    strides: list[Stride]
    contacts: dict[str, Floats]
    toe_offs: dict[str, Floats]
    speed: float | None
    notes: tuple[str, ...] = ()

    def events(self) -> list[Event]:
        """Strides as events, `stride left` and `stride right`."""
        poses = self.poses
        subject = poses.subject or (f"person {poses.person + 1}" if poses.person else "")
        return [
            Event(poses.recording, s.start, s.stop, f"stride {s.side}", subject, "model", None,
                  {k: str(round(v, 6)) for k in MEASURES if (v := getattr(s, k)) is not None})
            for s in self.strides
        ]  # fmt: skip

    def measures(self) -> dict[str, dict[str, Any]]:
        """Every measure over both sides and per side, with intervals over strides, and its asymmetry."""
        result = {}
        for name, unit in MEASURES.items():
            step = 1 / self.poses.fps if unit == "s" else 0.0
            sides = {side: [getattr(s, name) for s in self.strides if s.side == side] for side in SIDES}
            known = {side: [v for v in values if v is not None] for side, values in sides.items()}
            both = described([*known["left"], *known["right"]], step)
            each = {side: described(values, step) for side, values in known.items()}
            difference = asymmetry(each["left"]["mean"], each["right"]["mean"])
            result[name] = {"unit": unit, **both, **each, "asymmetry": difference}
            result[name]["asymmetry_interval"] = asymmetry_interval(known["left"], known["right"])
        return result

    def to_json(self) -> dict[str, Any]:
        measures = self.measures()
        step = measures["step_time"]["mean"]
        between = measures["step_time"]["interval"]
        share = [s.double_support / s.stride_time for s in self.strides if s.double_support is not None]
        return rounded(
            {
                **self.poses.to_json(),
                "strides": len(self.strides),
                "steps": sum(s.step_time is not None for s in self.strides),
                "cadence": None if not step else 60 / step,
                "cadence_interval": rate_interval(between),
                "speed": self.speed,
                "double_support_share": described(share),
                "measures": measures,
                "contacts": {side: times.tolist() for side, times in self.contacts.items()},
                "toe_offs": {side: times.tolist() for side, times in self.toe_offs.items()},
                "details": [stride.to_json() for stride in self.strides],
                "notes": list(self.notes),
                "no_interval": NO_INTERVAL,
            }
        )


@dataclass(frozen=True)
class Gaits(Listed[Gait]):
    """Gait of every person of every recording of a source."""

    people: Sequence[Gait]
    origin: str

    def events(self) -> Events:
        """All strides, with measures in further columns."""
        return Events([event for one in self.people for event in one.events()])

    def to_json(self) -> list[dict[str, Any]]:
        """Measures, contacts and strides: an entry per person and recording."""
        return [one.to_json() for one in self.people]


def gait(source: AnySource, *, reading: Reading | None = None, **keywords: Unpack[ReadingKeywords]) -> Gaits:
    """Strides and steps of people who walk: times, lengths, cadence, symmetry and double support.

    Foot contacts are where a foot is furthest in front of the hips, toe-offs where it is furthest behind
    them. Hips and both feet must be seen. Lengths have the unit of the recording.

    Parameters
    ----------
    source : source
        A store, recordings of any format, or arrays.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields.

    Returns
    -------
    Gaits
        One `Gait` per person and recording.

    Examples
    --------
    $ halp gait walk.bvh --html gait.html
    $ halp gait recordings --out strides.csv --json

    >>> import numpy as np, halp
    >>> still = np.random.default_rng(0).normal(size=(1, 25, 3)) + np.zeros((90, 1, 1))
    >>> halp.gait(still, topology="kinect-v2", fps=30)[0].strides
    []
    """
    found = [find_gait(poses) for poses in read_poses(source, reading, **keywords)]
    for sentence in dict.fromkeys(f"'{one.poses.recording}': {note}" for one in found for note in one.notes):
        warnings.warn(sentence, stacklevel=2)
    return Gaits(found, source_name(source))


def find_gait(poses: PoseTrack) -> Gait:
    """Foot contacts, toe-offs and strides of one person.

    Parameters
    ----------
    poses : one person of one recording with hips (or the front of the pelvis) and both ankles; heels and toes
        are used if there are any.
    """
    poses = with_hips(poses.while_seen())
    joints, frame = filled(poses.joints), body_frame(poses)
    seen = {side: np.isfinite(poses.joints[:, foot_joint(poses, side, "contact")].sum(1)) for side in SIDES}
    hips = middle(joints, poses.topology, "hip")
    leg = float(np.median(np.linalg.norm(hips - middle(joints, poses.topology, "ankle"), axis=1)))
    ways = {
        kind: {
            side: distance_ahead(joints[:, foot_joint(poses, side, kind)] - hips, frame, poses.fps)
            for side in SIDES
        }
        for kind in ("contact", "lift")
    }
    leads = foremost(ways["contact"], leg, poses.fps)
    contacts = {side: impacts(poses, joints, frame, side, leads[side]) for side in SIDES}
    toe_offs = {side: extremes(-ways["lift"][side], leg, poses.fps) for side in SIDES}
    moved = float(np.abs(np.ptp((hips * frame.forward).sum(1)))) if len(hips) else 0.0
    travelled = float(np.linalg.norm(np.diff(hips[:: max(1, round(poses.fps / 4))], axis=0), axis=1).sum())
    ground = leg > 0 and moved > _MOVES * leg
    strides: list[Stride] = []
    spans_of = {side: list(pairwise(contacts[side].tolist())) for side in SIDES}
    doubtful = {
        side: [span for span in spans_of[side] if not feet_alternate(ways["contact"], contacts, side, *span)]
        for side in SIDES
    }
    for side in SIDES:
        other = OTHER[side]
        foot, others = (joints[:, poses.topology.index(f"ankle_{name}")] for name in (side, other))
        for first, last in spans_of[side]:
            if (first, last) in doubtful[side] or not seen[side][first : last + 1].mean() > 0.8:
                continue
            before = contacts[other][(contacts[other] > 2 * first - last) & (contacts[other] < first)]
            ahead = float(((foot - others)[first] * frame.forward[first]).sum())
            off = single_between(toe_offs[side], first, last)
            spans = _double_support(first, last, off, contacts[other], toe_offs[other])
            strides.append(
                Stride(
                    side,
                    float(poses.times[first]),
                    float(poses.times[last]),
                    None if off is None else float(poses.times[off]),
                    float(first - before[-1]) / poses.fps if len(before) else None,
                    ahead if len(before) else None,
                    float(np.linalg.norm(foot[last] - foot[first])) if ground else None,
                    None if spans is None else spans / poses.fps,
                )
            )
    strides.sort(key=lambda stride: (stride.start, stride.side))
    steps = {
        side: {at for span in set(spans_of[side]) - set(doubtful[side]) for at in span} for side in SIDES
    }
    refused = {
        side: [(0, len(joints))] if not strides and any(doubtful.values()) else doubtful[side]
        for side in SIDES
    }
    seconds = {kind: {side: poses.times[accepted_events(at, refused[side], steps[side])] for side, at in events.items()}
               for kind, events in (("contacts", contacts), ("toe_offs", toe_offs))}  # fmt: skip
    speed = travelled * poses.fps / max(len(hips) - 1, 1) if ground and strides else None
    notes = _notes(poses, frame, strides, ground, sum(map(len, doubtful.values())))
    return Gait(poses, strides, **seconds, speed=speed, notes=notes)


def _double_support(
    first: int, last: int, off: int | None, contacts: np.ndarray, lifts: np.ndarray
) -> float | None:
    """Frames of a stride in which both feet are on the ground: after its contact, and before its toe-off."""
    if off is None:
        return None
    lift, contact = single_between(lifts, first, off), single_between(contacts, first, last)
    if lift is None or contact is None:
        return None
    return float(lift - first + max(off - contact, 0))


def _notes(
    poses: PoseTrack, frame: BodyFrame, strides: list[Stride], ground: bool, doubtful: int
) -> tuple[str, ...]:
    notes = []
    if doubtful:
        what = "no strides are reported" if not strides else f"{doubtful} times this is not a stride"
        notes.append(f"the feet move forward, but do not alternate as in walking: {what}")
    if frame.slant > SLANTED:
        notes.append(
            f"the body leans {frame.slant:.0f}° from the vertical of the recording: is the camera tilted?"
        )
    if strides and not ground:
        notes.append(
            "the hips stay in place (a treadmill, or walking on the spot): stride length and speed are not"
            " known"
        )
    if poses.topology.dimensions == 2:
        notes.append("two dimensions: lengths are those in the image, correct only for walking across it")
    if len(strides) < 2:
        notes.append("fewer than two strides were seen: intervals need more")
    return tuple(notes)


def gait_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `Gait.to_json` for reading: units in column names, intervals beside means."""
    shown = {name: row[name] for name in ("recording", "subject", "person", "strides")}
    shown["cadence (steps/min)"] = with_interval(row["cadence"], row["cadence_interval"], 1)
    for name, measure in row["measures"].items():
        heading = f"{name.replace('_', ' ')} ({measure['unit']})"
        shown[heading] = with_interval(measure["mean"], measure["interval"])
    steps = row["measures"]["step_time"]["asymmetry"]
    return shown | {"step time asymmetry (%)": steps}
