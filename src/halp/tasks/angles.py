"""Joint angles by name: ranges, angular velocity and left–right asymmetry.

Convention: an angle is the interior angle between two bones at a joint, 0 to 180 degrees, 180 where the limb
is straight; it has no sign and no plane. Flexion in clinical terms is 180 minus it. In two dimensions it is
the angle of the projection onto the image, which equals the angle only where the limb moves in the image
plane.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import Unpack

from halp.core.errors import InputError, check_choice
from halp.data.reading import Reading, ReadingKeywords
from halp.data.spans import Event, Events
from halp.features.source import AnySource
from halp.skeleton import Topology
from halp.tasks.intervals import asymmetry, headed, rounded
from halp.tasks.pose_tracks import Floats, PoseTrack, read_poses, source_name

FLAT = "the poses have two dimensions: angles are those of the projection onto the image, so ranges and velocities only compare movements in the image plane"  # noqa: E501
SINGLE = (
    "one recording does not tell the error of its extremes; `halp repetitions` and `halp curves` give"
    " intervals over cycles"
)
CAMERA = (
    "angles are estimated from one camera: the range of a knee or shoulder (5th to 95th percentile) differed by"
    " more than 25° between variations of one video in one of twenty cases, by 37° at most; extremes are less certain"
)
_SMOOTHING = 0.2  # seconds of the window that velocities are fitted in

# the joint in the middle, and what may lie on either side of it
_SIDED = {
    "elbow": (("shoulder",), "elbow", ("wrist",)),
    "shoulder": (("hip",), "shoulder", ("elbow",)),
    "hip": (("shoulder",), "hip", ("knee",)),
    "knee": (("hip",), "knee", ("ankle",)),
    "ankle": (("knee",), "ankle", ("foot", "foot_index", "toe_big", "toe")),
    "wrist": (("elbow",), "wrist", ("hand", "index", "hand_tip")),
}
_MIDDLE = {"neck": (("hip_center", "spine"), "shoulder_center", ("head", "nose"))}


def angle_joints(topology: Topology) -> dict[str, tuple[int, int, int]]:
    """The angles whose joints a topology has: name → (one end, joint, other end).

    >>> from halp.skeleton import get_topology
    >>> list(angle_joints(get_topology("coco-17")))[:4]
    ['elbow_left', 'elbow_right', 'shoulder_left', 'shoulder_right']
    """

    def first(names: Iterable[str]) -> int | None:
        return next((topology.index(name) for name in names if name in topology.joints), None)

    result = {}
    named: dict[str, tuple[Iterable[str], str, Iterable[str]]] = {
        f"{name}_{side}": ([f"{j}_{side}" for j in one], f"{joint}_{side}", [f"{j}_{side}" for j in other])
        for name, (one, joint, other) in _SIDED.items()
        for side in ("left", "right")
    }
    for name, (one, joint, other) in {**named, **_MIDDLE}.items():
        triple = first(one), first([joint]), first(other)
        if None not in triple:
            result[name] = triple
    return result  # type: ignore[return-value]


def interior_angle(one: Floats, joint: Floats, other: Floats) -> Floats:
    """Degrees `(…)` between the bones from a joint to two others, all `(…, C)`; NaN if a bone has no length.

    >>> interior_angle(np.array([1.0, 0, 0]), np.zeros(3), np.array([0, 2.0, 0])).round(6).tolist()
    90.0
    """
    a, b = one - joint, other - joint
    dot = (a * b).sum(-1)
    squares = (a**2).sum(-1) * (b**2).sum(-1)
    # atan2 keeps its precision for nearly straight limbs, where the arc cosine loses it
    degrees = np.degrees(np.arctan2(np.sqrt(np.maximum(squares - dot**2, 0)), dot))
    return np.where(squares > 0, degrees, np.nan)


def joint_angles(joints: Floats, topology: Topology) -> dict[str, Floats]:
    """All angles of poses `(T, V, C)` in degrees `(T,)`, NaN if a joint is missing."""
    triples = angle_joints(topology)
    if not triples:
        raise InputError(
            f"topology '{topology.name}' has no joints that make an angle, such as hip, knee and ankle of one"
            " side; name its joints with --topology"
        )
    return {name: interior_angle(*(joints[:, joint] for joint in triple)) for name, triple in triples.items()}


def angular_velocity(angle: Floats, fps: float) -> Floats:
    """Degrees per second `(T,)`: slopes of parabolas over 0.2 seconds (Savitzky–Golay); NaN in gaps."""
    velocity = np.full(len(angle), np.nan)
    for run in np.ma.clump_unmasked(np.ma.masked_invalid(angle)):  # nobody may be seen for a while
        if run.stop - run.start >= _SMOOTHING * fps or run.stop - run.start == len(angle):
            velocity[run] = _slope(angle[run], fps)
    return velocity


def _slope(angle: Floats, fps: float) -> Floats:
    """Smoothed derivative of an angle without gaps."""
    from scipy.signal import savgol_filter

    width = max(5, 2 * round(_SMOOTHING * fps / 2) + 1)
    if len(angle) < width:
        return np.gradient(angle) * fps if len(angle) > 1 else np.full(len(angle), np.nan)
    return np.asarray(savgol_filter(angle, width, 2, deriv=1, delta=1 / fps))


FASTEST = 1000.0  # degrees per second that hardly any joint reaches: faster ones are probably tracking errors


@dataclass(frozen=True)
class Angles:
    """Joint angles of every person of every recording of a source."""

    people: Sequence[PoseTrack]
    origin: str
    convention: str = "interior"

    def to_json(self) -> list[dict[str, Any]]:
        """Ranges, velocities and asymmetry: a row per person and angle."""
        from halp.tasks.clinical import clinical_rows

        rows = angle_rows if self.convention == "interior" else clinical_rows
        return rounded([row for poses in self.people for row in rows(poses)])

    def series(self) -> list[dict[str, Any]]:
        """Every angle of both conventions and its velocity over time: a row per person and frame."""
        from halp.tasks.clinical import clinical_angles

        return [row for poses in self.people for row in angle_series(poses, clinical_angles(poses))]

    def events(self) -> Events:
        """The time that each person was observed."""
        spans = (
            (poses, float(poses.times[0]), float(poses.times[-1]) + 1 / poses.fps) for poses in self.people
        )
        return Events([Event(p.recording, start, stop, "", p.subject, "model") for p, start, stop in spans])


def angles(
    source: AnySource,
    *,
    convention: str = "interior",
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Angles:
    """Joint angles of recordings: ranges, velocities and left-right asymmetry, and every angle over time.

    Interior angles lie between two bones, 0 to 180 degrees, 180 where the limb is straight. Clinical ones are
    0 if the body stands upright and have a sign: flexion, dorsiflexion, abduction and lean forward are
    positive. Any topology that has the joints. Angles are not smoothed; velocities are slopes over 0.2 s.

    Parameters
    ----------
    source : source
        A store, recordings of any format, or arrays.
    convention : str
        `interior`, or `clinical` (knee_flexion, ankle_dorsiflexion, trunk_flexion, pelvis_obliquity and
        others).
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields.

    Returns
    -------
    Angles
        `to_json` gives ranges, `series` the angles over time.

    Examples
    --------
    $ halp angles squats.bvh --html angles.html
    $ halp angles recordings --convention clinical --out angles.csv --json

    >>> import numpy as np, halp
    >>> clip = np.random.default_rng(0).normal(size=(30, 25, 3))
    >>> [row["angle"] for row in halp.angles(clip, topology="kinect-v2", fps=30).to_json()][:2]
    ['elbow_left', 'elbow_right']
    """
    people = [poses.while_seen() for poses in read_poses(source, reading, **keywords)]
    if any(poses.topology.dimensions == 2 for poses in people):
        warnings.warn(FLAT, stacklevel=2)
    answer = Angles(
        people, source_name(source), check_choice("convention", convention, ("interior", "clinical"))
    )
    fast = [row for row in answer.to_json() if row["outliers"]]
    if fast:
        more = f", and {len(fast) - 1} more angles do" if len(fast) > 1 else ""
        warnings.warn(
            f"{fast[0]['angle']} of '{fast[0]['recording']}' changes faster than {FASTEST:,.0f} °/s in"
            f" {fast[0]['outliers']} frame{'s' * (fast[0]['outliers'] > 1)}{more}: probably tracking errors",
            stacklevel=2,
        )
    return answer


def angle_rows(poses: PoseTrack) -> list[dict[str, Any]]:
    """A row per angle: smallest, largest, range, mean, fastest change, and asymmetry of the sides.

    `asymmetry` is 200 · (left − right) / (left + right) of the ranges, in per cent: 0 is alike, positive is
    more on the left.
    `outliers` counts frames that change faster than 1,000 degrees per second.
    """
    return angle_table(poses, joint_angles(poses.joints, poses.topology))


def angle_table(poses: PoseTrack, angles: Mapping[str, Floats]) -> list[dict[str, Any]]:
    """Rows of `angle_rows` for angles `(T,)` by name."""
    rows: dict[str, dict[str, Any]] = {}
    for name, angle in angles.items():
        known = angle[np.isfinite(angle)]
        if not len(known):
            continue
        speed = np.abs(angular_velocity(angle, poses.fps))
        rows[name] = {
            **poses.to_json(),
            "angle": name,
            "min": float(known.min()),
            "max": float(known.max()),
            "range": float(np.ptp(known)),
            "mean": float(known.mean()),
            "unit": "deg",
            "peak_velocity": float(np.nanmax(speed)) if np.isfinite(speed).any() else None,
            "missing": float(1 - len(known) / len(angle)),
            "outliers": int((speed[np.isfinite(speed)] > FASTEST).sum()),
            "asymmetry": None,
            "interval": None,
            "interval_reason": CAMERA if poses.height_px else SINGLE,
        }
    for name, row in rows.items():
        right = rows.get(name.replace("_left", "_right")) if name.endswith("_left") else None
        if right is not None:
            row["asymmetry"] = right["asymmetry"] = asymmetry(row["range"], right["range"])
    return list(rows.values())


HEADINGS = {
    "min": "min (°)", "max": "max (°)", "range": "range (°)", "mean": "mean (°)", "peak_velocity": "peak velocity (°/s)",
    "missing": "missing (% of frames)", "outliers": "outliers (frames)", "asymmetry": "asymmetry (%)",
}  # fmt: skip


def angle_row(row: Mapping[str, Any], hidden: Iterable[str] = ()) -> dict[str, Any]:
    """A row of `Angles.to_json` for reading: units in column names, without what is the same in all rows."""
    hidden = {"unit", "smoothing", "interval", "interval_reason", *hidden}
    shown = {**row, "missing": round(100 * row["missing"])}
    return headed({name: value for name, value in shown.items() if name not in hidden}, HEADINGS)


def angle_series(poses: PoseTrack, more: Mapping[str, Floats] | None = None) -> list[dict[str, Any]]:
    """A row per frame: `time_s`, angles as `…_deg`, velocities as `…_deg_per_s`; None if missing.

    `more` has further angles by name, such as clinical ones.
    """
    columns: dict[str, Floats] = {}
    for name, angle in {**joint_angles(poses.joints, poses.topology), **(more or {})}.items():
        columns[f"{name}_deg"], columns[f"{name}_deg_per_s"] = angle, angular_velocity(angle, poses.fps)
    return [
        {**poses.to_json(), "time_s": round(float(time), 6)}
        | {name: round(float(v[at]), 4) if np.isfinite(v[at]) else None for name, v in columns.items()}
        for at, time in enumerate(poses.times)
    ]
