"""Curves over a normalised cycle (0 to 100 %): mean and band of an angle, and tests of differences.

A cycle goes from the start of one repetition or stride to the start of the next. The unit is the person:
cycles of a person are averaged first. Differences are tested by permutation of people with clusters in time
(the largest sum of |t| over a run of neighbouring moments, after Maris and Oostenveld, 2007), which keeps the
chance of a false alarm anywhere in the cycle at 5 %.
"""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from typing_extensions import Unpack

from halp.core.errors import InputError, check_choice, names_of
from halp.data.reading import Reading, ReadingKeywords
from halp.data.spans import Event, Events
from halp.features.source import AnySource
from halp.tasks.angles import joint_angles
from halp.tasks.clinical import clinical_angles
from halp.tasks.excursions import resampled
from halp.tasks.gait import find_gait
from halp.tasks.intervals import rounded
from halp.tasks.permutation import FEWEST, cluster_permutation
from halp.tasks.pose_tracks import Floats, PoseTrack, filled, read_poses, source_name
from halp.tasks.read_events import read_people
from halp.tasks.repetitions import find_repetitions

POINTS = 101
#: Why numbers have no interval, by their place in the answer; `low` and `high` are that of `mean`.
NO_INTERVAL = {
    "groups.std": "it describes the spread of people (or cycles)",
    "groups.min, max": "read from the mean curve, which has a band at every moment",
    "test.t": "a test statistic; p belongs to it",
    "test.threshold": "a test statistic",
    "test.clusters": "p belongs to a cluster; its edges are not estimates of where a difference begins",
}


@dataclass(frozen=True)
class Cycle:
    """One cycle of an angle: its span, person, and values `(101,)` in degrees."""

    recording: str
    person: str
    start: float
    stop: float
    side: str
    values: Floats


@dataclass(frozen=True)
class Curves:
    """Curves of an angle: every cycle, `groups` with mean and band, and the `test` of their difference."""

    angle: str
    cycles: Sequence[Cycle]
    groups: Sequence[dict[str, Any]]
    test: dict[str, Any] | None
    origin: str
    by: str

    def events(self) -> Events:
        """The cycles."""
        return Events([Event(c.recording, c.start, c.stop, "cycle", c.person, "model") for c in self.cycles])

    def to_json(self) -> dict[str, Any]:
        """Means with bands, and the test."""
        unit = {"unit": "deg", "points": POINTS, "smoothing": "none"}
        answer = {"angle": self.angle, "by": self.by, **unit, "groups": list(self.groups), "test": self.test}
        return rounded(answer | {"no_interval": NO_INTERVAL})


def curves(
    source: AnySource,
    angle: str,
    *,
    cycles: str = "auto",
    by: str | None = None,
    people: str | os.PathLike[str] | Mapping[str, str] | None = None,
    resamples: int = 9999,
    seed: int = 0,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Curves:
    """Mean curve of an angle over a normalised cycle with its 95 % band; compares groups or sides.

    Parameters
    ----------
    source : source
        A store, recordings of any format, or arrays.
    angle : str
        An angle such as knee_flexion_right (clinical) or knee_right (interior); with `--by side` without its
        side.
    cycles : str
        How cycles are cut: gait (strides of the side of the angle), repetitions (of the angle), or auto: gait
        where strides are found, else repetitions.
    by : str, optional
        `side` compares left and right of the same people; `group` compares the groups that `people` names.
    people : path or mapping, optional
        A CSV table with the columns recording (or subject) and group, the study group.
    resamples : int
        Random permutations, if not all can be tried.
    seed : int
        Of the permutations.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields.

    Returns
    -------
    Curves
        Cycles, means with bands, and the test.

    Examples
    --------
    $ halp curves walks knee_flexion --by side --html curves.html
    $ halp curves recordings knee_flexion_right --by group --people people.csv --json

    >>> import numpy as np, halp
    >>> still = np.random.default_rng(0).normal(size=(1, 25, 3)) + np.zeros((90, 1, 1))
    >>> halp.curves(still, "knee_left", topology="kinect-v2", fps=30)
    Traceback (most recent call last):
    ...
    halp.core.errors.InputError: no cycle of 'knee_left' was found in recordings; ...
    """
    check_choice("cycles", cycles, ("auto", "gait", "repetitions"))
    if by is not None:
        check_choice("by", by, ("side", "group"))
    if by == "side" and angle.endswith(("_left", "_right")):
        raise InputError(
            f"--by side compares left and right; name the angle without a side: {angle.rpartition('_')[0]}"
        )
    if (by == "group") != (people is not None):
        raise InputError(
            "curves of groups need both --by group and --people, a table with the columns recording and group"
        )
    if people is not None and not isinstance(people, Mapping):
        people = read_people(people, "group", ("recording", "subject", "person", "participant", "name"))
    sides = ("left", "right") if by == "side" else ("",)
    found: list[Cycle] = []
    for poses in read_poses(source, reading, **keywords):
        for side in sides:
            found += cycles_of(poses, f"{angle}_{side}" if side else angle, cycles)
    if not found:
        raise InputError(
            f"no cycle of '{angle}' was found in {source_name(source)}; cycles need two starts of a stride or"
            " a repetition"
        )
    belongs = _membership(found, by, people)
    names = sorted({name for name in belongs if name})
    if by is not None and len(names) != 2:
        raise InputError(f"two {by}s are compared, not {len(names)} ({names_of(names)}); leave some out")
    groups = [_group(name, [c for c, own in zip(found, belongs) if own == name]) for name in names or [""]]
    test = _compare(found, belongs, names, by, resamples, seed) if by is not None else None
    return Curves(angle, found, groups, test, source_name(source), by or "")


def cycles_of(poses: PoseTrack, angle: str, kind: str = "auto") -> list[Cycle]:
    """The cycles of an angle of one person."""
    angles = joint_angles(poses.joints, poses.topology) | clinical_angles(poses)
    check_choice(f"angle of '{poses.recording}'", angle, angles)
    side = next((side for side in ("left", "right") if angle.endswith(side)), "")
    values, spans = angles[angle], list(_spans(poses, angle, side, kind))
    known, whole = np.isfinite(values), filled(values)
    person = poses.subject or (
        f"{poses.recording}, person {poses.person + 1}" if poses.person else poses.recording
    )
    return [
        Cycle(
            poses.recording,
            person,
            float(poses.times[first]),
            float(poses.times[last]),
            side,
            resampled(whole[first : last + 1, None], POINTS)[:, 0],
        )
        for first, last in spans
        if last > first and known[first : last + 1].mean() > 0.8
    ]


def _spans(poses: PoseTrack, angle: str, side: str, kind: str) -> Iterator[tuple[int, int]]:
    """First and last frame of every cycle."""
    starts: list[float] = []
    if kind in ("auto", "gait") and side:
        try:
            starts = find_gait(poses).contacts[side].tolist()
        except InputError:
            if kind == "gait":
                raise
    if len(starts) < 3 and kind != "gait":
        interior = joint_angles(poses.joints, poses.topology)
        chosen = angle if angle in interior else f"{angle.split('_')[0]}_{side}"
        found = find_repetitions(poses, angle=chosen if chosen in interior else None).repetitions
        starts = [r.start for r in found if not r.partial]
    frames = [round((start - poses.start) * poses.fps) for start in starts]
    yield from pairwise(frames)


def _membership(cycles: Sequence[Cycle], by: str | None, people: Mapping[str, str] | None) -> list[str]:
    if by is None:
        return [""] * len(cycles)
    if by == "side":
        return [cycle.side for cycle in cycles]
    table = people or {}
    belongs = [table.get(cycle.person) or table.get(cycle.recording) or "" for cycle in cycles]
    missing = sorted({cycle.person for cycle, own in zip(cycles, belongs) if not own})
    if missing:
        warnings.warn(f"{names_of(missing)} have no group and are left out", stacklevel=3)
    return belongs


def person_curves(cycles: Sequence[Cycle]) -> dict[str, Floats]:
    """The mean curve `(101,)` of every person."""
    by_person: dict[str, list[Floats]] = defaultdict(list)
    for cycle in cycles:
        by_person[cycle.person].append(cycle.values)
    return {person: np.mean(values, axis=0) for person, values in by_person.items()}


def _group(name: str, cycles: Sequence[Cycle]) -> dict[str, Any]:
    """Mean and bands of a group: over people if there are several, else over the cycles of one person."""
    from scipy.stats import t

    persons = person_curves(cycles)
    unit = "person" if len(persons) > 1 else "cycle"
    rows = np.array(list(persons.values()) if unit == "person" else [cycle.values for cycle in cycles])
    std = rows.std(axis=0, ddof=1) if len(rows) > 1 else None
    reach = None if std is None else t.ppf(0.975, len(rows) - 1) * std / np.sqrt(len(rows))
    mean = rows.mean(axis=0)
    return {
        "group": name,
        "unit": unit,
        "people": len(persons),
        "cycles": len(cycles),
        "mean": mean.tolist(),
        "std": None if std is None else std.tolist(),
        "low": None if reach is None else (mean - reach).tolist(),
        "high": None if reach is None else (mean + reach).tolist(),
        "band": "95 % interval of the mean at each moment" if reach is not None else "one cycle has none",
    }


def _compare(
    cycles: Sequence[Cycle],
    belongs: Sequence[str],
    names: Sequence[str],
    by: str | None,
    resamples: int,
    seed: int,
) -> dict[str, Any] | None:
    """The permutation test of two study groups, or of two sides of the same people."""
    parts = [[c for c, own in zip(cycles, belongs) if own == name] for name in names]
    first, second = (person_curves(part) for part in parts)
    paired = by == "side"
    if paired:
        both = sorted(first.keys() & second.keys())
        rows = [np.array([curves[person] for person in both]) for curves in (first, second)]
    else:
        twice = sorted(first.keys() & second.keys())
        if twice:
            raise InputError(
                f"{names_of(twice)} is in both groups; groups need different people: for two conditions of"
                " the same people use `halp stats --within`, for two sides --by side"
            )
        rows = [np.array(list(curves.values())) for curves in (first, second)]
    if min(map(len, rows)) < FEWEST:
        return {
            "reason": (
                f"a test needs {FEWEST} or more people {'with both sides' if paired else 'in each group'}"
            )
        }
    test = cluster_permutation(rows[0], rows[1], paired=paired, resamples=resamples, seed=seed)
    return {"first": names[0], "second": names[1], "people": [len(part) for part in rows], **test}
