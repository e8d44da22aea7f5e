"""Matching of people across videos: the colours of clothes and the proportions of the body.

Both change with light, camera and clothes, so two people are taken for one only where they are alike and
clearly more alike than either is to anybody else. People of one video are never the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from halp.data.tracks import unlike_looks

Floats = npt.NDArray[np.float64]

_LOOK = 0.25  # Hellinger distance of the colours of one person's clothes that is usual in other light
_BUILD = 0.04  # root mean square of the logarithms of proportions: two adults differ by 0.05, one by 0.02
_FAR = 1.0  # distance beyond which two people are not taken for one
_MARGIN = 0.6  # of the distance to the next person that the distance to the same one may be
_SEEN = 0.5  # visibility of joints whose bones are measured
_BONES = (("hip", "knee"), ("knee", "ankle"), ("shoulder", "elbow"), ("elbow", "wrist"))


@dataclass(frozen=True)
class Appearance:
    """A person of a video: clothes colours `(L,)`, 0 if unknown, and log body proportions `(7,)`, or NaN."""

    film: str
    look: Floats
    build: Floats


@dataclass(frozen=True)
class Match:
    """Two people, by index, taken to be one; `sure`: 0 if another is as near, 1 if nobody else is."""

    first: int
    second: int
    distance: float
    sure: float


def body_build(world: npt.NDArray[np.float32], joints: Sequence[str]) -> Floats:
    """Centred logarithms of median lengths of thigh, shank, arm, forearm, shoulders, hips, trunk.

    `world` `(T, V, 4)` are places in space and visibility. All NaN where a part is never seen.
    """

    def at(name: str) -> npt.NDArray[np.float32]:
        marks = world[:, joints.index(name)]
        return np.where(marks[:, 3:] > _SEEN, marks[:, :3], np.nan)

    sides = {
        name: [at(f"{name}_{side}") for side in ("left", "right")]
        for name in ("hip", "knee", "ankle", "shoulder", "elbow", "wrist")
    }
    ways = [np.concatenate([a - b for a, b in zip(sides[one], sides[other])]) for one, other in _BONES]
    ways += [sides["shoulder"][0] - sides["shoulder"][1], sides["hip"][0] - sides["hip"][1]]
    ways.append((np.add(*sides["shoulder"]) - np.add(*sides["hip"])) / 2)
    lengths = [np.linalg.norm(way, axis=1) for way in ways]
    known = [length[np.isfinite(length) & (length > 0)] for length in lengths]
    logs = np.array([np.log(np.median(length)) if len(length) else np.nan for length in known])
    return logs - logs.mean()


def distances(people: Sequence[Appearance]) -> Floats:
    """Distances of people `(N, N)` in units of the typical one; infinite within a video or if unknown."""
    table = np.full((len(people), len(people)), np.inf)
    for one, other in combinations(range(len(people)), 2):
        first, second = people[one], people[other]
        look, known = unlike_looks(first.look[None], second.look[None])
        build = float(np.sqrt(((first.build - second.build) ** 2).mean()))
        if first.film != second.film and known[0] and np.isfinite(build):
            table[one, other] = table[other, one] = float(np.hypot(look[0] / _LOOK, build / _BUILD))
    return table


def same_people(people: Sequence[Appearance]) -> tuple[list[int], list[Match]]:
    """A number for every person, from 0, shared by those taken to be one; and the matches behind it.

    A match needs two people of different videos who are nearest to each other in these videos, near enough,
    and nearer than anybody else there by a margin. Groups grow from the surest match on, as long as all of
    their people are near each other and no two of one video.
    """
    table = distances(people)
    groups = {place: {place} for place in range(len(people))}
    matches = sorted(_matches(people, table), key=lambda match: (-match.sure, match.distance))
    kept = []
    for match in matches:
        one, other = groups[match.first], groups[match.second]
        if one is not other:
            if any(table[a, b] > _FAR for a in one for b in other):
                continue
            one |= other
            for place in other:
                groups[place] = one
        kept.append(match)
    firsts = [min(groups[place]) for place in range(len(people))]
    order = {first: number for number, first in enumerate(sorted(set(firsts)))}
    return [order[first] for first in firsts], kept


def _matches(people: Sequence[Appearance], table: Floats) -> list[Match]:
    """Pairs of people who are close, and closer by a margin than either is to others of the two videos."""
    films = np.array([person.film for person in people])
    found = []
    for one, other in zip(*np.where(np.triu(table) <= _FAR)):
        nearest = float(table[one, other])
        rivals = [table[one, place] for place in np.flatnonzero(films == films[other]) if place != other]
        rivals += [table[place, other] for place in np.flatnonzero(films == films[one]) if place != one]
        second = float(min([*rivals, _FAR / _MARGIN]))  # a stranger may be as near as that
        if nearest <= _MARGIN * second:
            found.append(Match(int(one), int(other), nearest, 1 - nearest / second))
    return found
