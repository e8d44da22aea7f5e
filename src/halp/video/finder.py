"""People in video frames: detected in overlapping tiles at intervals, tracked in crops in between."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from halp.video.film import Picture

Marks = npt.NDArray[np.float32]
# people in the image (pixels, visibility) and in space (metres, visibility), each (n, V, 4)
Seen = tuple[Marks, Marks]
Area = tuple[int, int, int, int]  # left, top, right, bottom

_OVERLAP = 0.25  # of neighbouring tiles
_SCAN = 1.0  # seconds between two looks at all tiles
_RESCAN = 0.2  # seconds, while somebody was lost a moment ago or nobody is there
_LOST = 0.3  # seconds that a lost person is looked for in the last place
_NEAR = (
    3.0  # side of the area that a person who was lost a moment ago is searched for in, in sides of the box
)
_ROOM = 1.6  # side of a crop, in sides of the person's box
_SAME = 0.2  # mean joint distance, in body sizes, below which two poses are of one person
SAME_BOX = 0.7  # share of the box of each of two poses in the other, above which they are of one person
_LEAST = 32  # pixels of the shorter side of an area that is searched
_JUMP = 0.6  # body sizes from one frame to the next that nobody moves
_GROWTH = 0.4  # logarithm of the change of a body's size from one frame to the next that is possible
_VISIBLE = 0.35  # mean visibility below which a person who was followed is lost
_CERTAIN = 0.5  # mean visibility below which a pose in a tile is not a person


class Follower(Protocol):
    """Tracks one person from crop to crop."""

    def follow(self, crop: Picture) -> tuple[Marks, Marks] | None:
        """The person `(V, 4)` in pixels of the crop and in space, or None."""
        ...

    def reset(self) -> None:
        """Reset the tracker."""
        ...


class PoseNetwork(Protocol):
    """A pose estimator: detects several people in one image, most confident first, and tracks single ones.

    An estimator that does not follow looks at every frame as a whole.
    """

    follows: bool

    def find(self, picture: Picture) -> Seen: ...

    def follower(self) -> Follower: ...


@dataclass
class _Followed:
    follower: Follower
    marks: Marks  # last seen, (V, 4)
    seen: float  # when
    step: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))  # pixels per second
    missed: bool = False


class PeopleFinder:
    """Frame by frame, the people in a video, at most `persons` at a time."""

    def __init__(self, network: PoseNetwork, persons: int) -> None:
        self.network, self.persons = network, persons
        self._followed: list[_Followed] = []
        self._idle: list[Follower] = []
        self._scanned = self._looked = -math.inf  # when all tiles, and when any place, were searched
        self._gone: list[tuple[float, Marks]] = []  # when people were lost, and where

    def __call__(self, moment: float, picture: Picture) -> Seen:
        """People of the next frame."""
        if not self.network.follows:
            image, world = self.network.find(picture)
            return image[: self.persons], world[: self.persons]
        found = [seen for person in list(self._followed) if (seen := self._follow(person, moment, picture))]
        found += self._start(self._search(moment, picture), moment, found)
        return _stacked(found)

    def _search(self, moment: float, picture: Picture) -> Seen:
        """People in all tiles, at intervals, or near the places in which a person was just lost."""
        self._gone = [(when, marks) for when, marks in self._gone if moment - when < _SCAN]
        due = moment - self._looked >= _RESCAN
        if moment - self._scanned >= _SCAN or (due and not self._followed):
            self._scanned = self._looked = moment
            return scan(self.network, picture)
        lost = [marks for _, marks in self._gone] + [one.marks for one in self._followed if one.missed]
        if not due or not lost:
            return _stacked([])
        self._looked = moment
        return scan(self.network, picture, [area for marks in lost if (area := _area(marks, picture))])

    def _follow(self, person: _Followed, moment: float, picture: Picture) -> tuple[Marks, Marks] | None:
        passed = moment - person.seen
        middle, side = _square(person.marks)
        left, top, crop = cut(picture, middle + person.step * min(passed, 0.1), side * (_ROOM + 2 * passed))
        seen = person.follower.follow(crop) if crop.size else None
        if seen is not None:
            image = seen[0] + np.array([left, top, 0, 0], dtype=np.float32)
            others = [other.marks for other in self._followed if other is not person and other.seen == moment]
            grown = abs(math.log(max(_square(image)[1], 1) / max(side, 1))) > _GROWTH + passed
            far = distance(image, person.marks) > _JUMP * (1 + 10 * max(passed - 0.05, 0))
            twice = any(distance(image, other) < _SAME / 2 for other in others)
            if image[:, 3].mean() >= _VISIBLE and not (far or grown or twice):
                moved = (_square(image)[0] - middle) / max(passed, 1e-3)
                person.step = 0.5 * person.step + 0.5 * moved
                person.marks, person.seen, person.missed = image, moment, False
                return image, seen[1]
        person.missed = True
        if passed > _LOST:
            self._release(person)
            self._gone.append((moment, person.marks))
        return None

    def _start(
        self, found: Seen, moment: float, followed: list[tuple[Marks, Marks]]
    ) -> Iterator[tuple[Marks, Marks]]:
        """New people, and lost people found again, in a scan."""
        for image, world in zip(*found):
            if any(is_same(image, other) for other, _ in followed):
                continue
            missed = [person for person in self._followed if person.missed]
            again = min(missed, key=lambda person: distance(image, person.marks), default=None)
            if again is not None and distance(image, again.marks) < _JUMP:
                self._release(again)
            if len(self._followed) >= self.persons:
                continue
            follower = self._idle.pop() if self._idle else self.network.follower()
            self._followed.append(_Followed(follower, image, moment))
            yield image, world

    def _release(self, person: _Followed) -> None:
        person.follower.reset()
        self._idle.append(person.follower)
        self._followed = [other for other in self._followed if other is not person]


def scan(network: PoseNetwork, picture: Picture, areas: Sequence[Area] | None = None) -> Seen:
    """People in some areas of an image, or in the whole and overlapping tiles; without duplicates, most
    confident first.
    """
    height, width = picture.shape[:2]
    found: list[tuple[bool, float, Marks, Marks]] = []
    for left, top, right, bottom in tiles(width, height) if areas is None else areas:
        image, world = network.find(np.ascontiguousarray(picture[top:bottom, left:right]))
        for marks, body in zip(image + np.array([left, top, 0, 0], dtype=np.float32), world):
            inside = ((marks[:, :2] >= [left, top]) & (marks[:, :2] < [right, bottom])).all(axis=1).mean()
            edges = (left if left else -np.inf, top if top else -np.inf)
            ends = (right if right < width else np.inf, bottom if bottom < height else np.inf)
            part = bool(
                (marks[:, :2] <= np.add(edges, 2)).any() or (marks[:, :2] >= np.subtract(ends, 2)).any()
            )
            if marks[:, 3].mean() >= _CERTAIN and inside > 0.5:
                found.append((part, float(marks[:, 3].mean() * inside), marks, body))
    kept: list[tuple[Marks, Marks]] = []
    for part, _, marks, body in sorted(found, key=lambda one: (one[0], -one[1])):  # whole people first
        same = any(is_same(marks, other) or (part and is_within(marks, other) > 0.5) for other, _ in kept)
        if not same:
            kept.append((marks, body))
    return _stacked(kept)


def is_same(one: Marks, other: Marks) -> bool:
    """Whether two poses in a frame belong to one person: close joints, or one box inside the other."""
    return distance(one, other) < _SAME or min(is_within(one, other), is_within(other, one)) > SAME_BOX


def is_within(one: Marks, other: Marks) -> float:
    """Share of the box of a pose that lies in the box of another."""
    low = np.maximum(one[:, :2].min(axis=0), other[:, :2].min(axis=0))
    high = np.minimum(one[:, :2].max(axis=0), other[:, :2].max(axis=0))
    return float(np.prod(np.maximum(high - low, 0)) / max(np.prod(np.ptp(one[:, :2], axis=0)), 1e-6))


def _area(marks: Marks, picture: Picture) -> Area | None:
    """The surroundings of a pose inside the image; None if almost all of it lies outside."""
    (x, y), side = _square(marks)[0], max(_square(marks)[1] * _NEAR, 64)
    height, width = picture.shape[:2]
    left, right = (int(np.clip(x + half, 0, width)) for half in (-side / 2, side / 2))
    top, bottom = (int(np.clip(y + half, 0, height)) for half in (-side / 2, side / 2))
    return (left, top, right, bottom) if min(right - left, bottom - top) >= _LEAST else None


def tiles(width: int, height: int) -> list[Area]:
    """The whole image, then overlapping tiles that are nearly square: left, top, right, bottom.

    >>> len(tiles(1280, 720)), len(tiles(720, 1280)), len(tiles(2560, 720))
    (7, 7, 15)
    """
    short = min(width, height) / 2
    columns, rows = (max(2, int(side / short + 0.25)) for side in (width, height))
    edges = [
        [_edges(side, count, place) for place in range(count)]
        for side, count in ((width, columns), (height, rows))
    ]
    return [(0, 0, width, height)] + [
        (left, top, right, bottom) for top, bottom in edges[1] for left, right in edges[0]
    ]


def _edges(side: int, count: int, place: int) -> tuple[int, int]:
    """Start and end of each of `count` overlapping stretches of a side."""
    length = side / (count - (count - 1) * _OVERLAP)
    start = place * length * (1 - _OVERLAP)
    return int(start), min(side, math.ceil(start + length))


def cut(picture: Picture, middle: npt.NDArray[np.float64], side: float) -> tuple[int, int, Picture]:
    """The part of a square that lies inside the image, and its corner."""
    height, width = picture.shape[:2]
    left, top = (int(np.clip(edge, 0, limit)) for edge, limit in zip(middle - side / 2, (width, height)))
    right, bottom = (int(np.clip(edge, 0, limit)) for edge, limit in zip(middle + side / 2, (width, height)))
    return left, top, np.ascontiguousarray(picture[top:bottom, left:right])


def distance(one: Marks, other: Marks) -> float:
    """Mean distance of the joints of two poses `(V, 4)`, in sizes of the larger body."""
    size = max(_square(one)[1], _square(other)[1], 1.0)
    return float(np.linalg.norm(one[:, :2] - other[:, :2], axis=1).mean()) / size


def _square(marks: Marks) -> tuple[npt.NDArray[np.float64], float]:
    """Middle and longer side of the box around a pose."""
    low, high = marks[:, :2].min(axis=0), marks[:, :2].max(axis=0)
    return (low + high).astype(np.float64) / 2, float((high - low).max())


def _stacked(people: list[tuple[Marks, Marks]]) -> Seen:
    if not people:
        return np.zeros((0, 0, 4), dtype=np.float32), np.zeros((0, 0, 4), dtype=np.float32)
    return np.stack([image for image, _ in people]), np.stack([world for _, world in people])
