"""Tracks in a video: detections of single frames joined to one track per person over the whole recording.

First, detections of neighbouring frames are joined to pieces that are beyond doubt; where two people are so
close that they could be exchanged, a piece ends. Then all pieces are linked at once, through gaps and cuts,
so that the sum of costs over the whole recording is least. A cost weighs place and speed, size, pose and, if
it is known, the colour of the clothes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_OPEN = 0.35  # seconds that a piece waits for its next detection
# body sizes, and body sizes per second, that a joint may be from where it was expected
_REACH, _SPEED = (0.3, 2.0)
_CONTESTED = 0.35  # body sizes from the expected place of two people within which they could be exchanged
_UNLINKED = 9.0  # cost of a piece without a successor
_WALKING = 0.3  # body sizes per second
_DOUBTFUL = 3.0  # cost above which a piece that may be of two people is nobody's
_TURN = 0.6  # body sizes per second of a change of speed, over half a second, that costs most
_ALIKE = 0.3  # usual distance of two histograms of one person, as light and background change
_ALONE = 1.0  # body sizes that somebody who is alone may move from one frame to the next
_OTHER_SIZE = 0.7  # logarithm of the change of size that makes it somebody else
_BLOCK = 8192  # frames compared at once
_BRIEF = 8  # frames; shorter pieces do not decide who is who
_WEAK = 0.65  # mean score below which they do not either
_ON_ANOTHER = 0.6  # share of a body in the box of another that makes it a second detection
_NEAR_END = 15  # frames at the end of a piece that tell its size
_ODD_SIZE = 0.35  # logarithm of a size, relative to the usual one, of a pose that fails
_CANDIDATES = 40  # successors that a piece may have, nearest in time first
_OTHER_SCENE = 30.0  # mean difference of pixels, of 255, of two shots
_CROWD = (
    30  # more people than this in a frame are a crowd; the surest are kept so that the work stays bounded
)


@dataclass(frozen=True)
class Detections:
    """People of all frames: times `(T,)` in seconds, each person's frame `(N,)`, and joints `(N, V, C)`.

    Missing joints are zeros. `look` `(N, L)` are colour histograms of clothes, all zeros where unknown;
    `scene` `(T, S)` is every frame, much reduced; `scores` `(N,)` say how sure each detection is, 0 to 1.
    """

    times: Floats
    frame: Rows
    joints: npt.NDArray[np.float32]
    look: npt.NDArray[np.uint8] | None = None
    scene: npt.NDArray[np.uint8] | None = None
    scores: Floats | None = None

    def cut(self, one: Rows, other: Rows) -> npt.NDArray[np.bool_]:
        """Whether two frames show different scenes, so that positions in them are unrelated."""
        if self.scene is None or not self.scene.shape[1]:
            return np.zeros(len(one), dtype=bool)
        return np.abs(self.scene[one].astype(np.int16) - self.scene[other]).mean(axis=1) > _OTHER_SCENE


@dataclass
class _Piece:
    rows: list[int]
    contested: bool
    step: Floats
    entered: Floats | None = None  # the step when people met


def track_people(found: Detections) -> list[Rows]:
    """Rows of every person in order of time, the person seen longest first.

    >>> joints = np.ones((4, 5, 2), dtype=np.float32) * [[[1]], [[90]], [[2]], [[91]]] + np.arange(5)[:, None]
    >>> found = Detections(np.array([0.0, 0.1]), np.array([0, 0, 1, 1]), joints)
    >>> [rows.tolist() for rows in track_people(found)]
    [[0, 2], [1, 3]]
    """
    if not len(found.frame):
        return []
    geometry = _Geometry(found)
    if _is_alone(found, geometry):
        return [np.arange(len(found.frame))]
    pieces = _pieces(found, geometry, np.ones(len(found.frame), dtype=bool))
    if any(piece.contested for piece in pieces):
        # who is seen for a moment, as false detections are, does not put others in doubt
        brief = [piece for piece in pieces if not piece.contested and _is_weak(piece, found)]
        moments = np.zeros(len(found.frame), dtype=bool)
        moments[[row for piece in brief for row in piece.rows]] = True
        pieces = _pieces(found, geometry, ~moments) + brief
    exchanged = [piece for piece in pieces if _turns_back(piece, geometry)]
    pieces = [piece for piece in pieces if not _turns_back(piece, geometry)] or exchanged
    # often false: they join when the others are linked
    weak = [piece for piece in pieces if _is_weak(piece, found)]
    strong = [piece for piece in pieces if not _is_weak(piece, found)]
    strong = _linked_until_stable(strong, found, geometry)
    twice = [piece for piece in weak if _is_on_another(piece, strong, found, geometry)]
    weak = [piece for piece in weak if not any(piece is other for other in twice)]
    strong, left = _absorbed(strong, weak, _UNLINKED, found, geometry)
    strong, _ = _absorbed(strong, exchanged, _DOUBTFUL, found, geometry)
    pieces = [*_linked_until_stable([*strong, *left], found, geometry, _DOUBTFUL), *twice]
    tracks = [np.array(piece.rows, dtype=np.int64) for piece in pieces]
    return sorted(tracks, key=lambda rows: (-len(rows), int(rows[0])))


def _is_alone(found: Detections, geometry: _Geometry) -> bool:
    """Whether nobody is ever beside, or farther than a body from, the previous person: nothing to assign."""
    rows, frames = np.arange(len(found.frame)), found.frame
    grown = np.abs(np.diff(np.log(geometry.size))) > _OTHER_SIZE
    if (np.diff(frames) == 0).any() or grown.any() or found.cut(frames[1:], frames[:-1]).any():
        return False
    blocks = range(0, len(rows) - 1, _BLOCK)
    still = np.zeros(found.joints.shape[2])
    return all(
        (geometry.apart(part[1:], part[:-1], still) <= _ALONE).all()
        for part in (rows[at : at + _BLOCK + 1] for at in blocks)
    )


def _is_weak(piece: _Piece, found: Detections) -> bool:
    return len(piece.rows) < _BRIEF or (
        found.scores is not None and float(found.scores[piece.rows].mean()) < _WEAK
    )


def _is_on_another(piece: _Piece, tracks: Sequence[_Piece], found: Detections, geometry: _Geometry) -> bool:
    """Whether a piece lies in the boxes of others most of its time: somebody who is found twice."""
    others = np.array([row for track in tracks for row in track.rows], dtype=np.int64)
    inside = 0
    for row in piece.rows:
        beside = others[found.frame[others] == found.frame[row]]
        low = np.maximum(geometry.low[row], geometry.low[beside])
        common = np.maximum(np.minimum(geometry.high[row], geometry.high[beside]) - low, 0).prod(axis=1)
        own = np.prod(geometry.high[row] - geometry.low[row])
        inside += bool((common > _ON_ANOTHER * own).any())
    return 2 * inside >= len(piece.rows)


def _turns_back(piece: _Piece, geometry: _Geometry) -> bool:
    """Whether a piece that starts where two people meet ends in the opposite direction: it may have switched
    from one to the other.
    """
    if not piece.contested or piece.entered is None:
        return False
    size = np.median(geometry.size[piece.rows])
    start, end = piece.entered / size, _speed(piece, geometry, -1) / size
    fast = float(np.linalg.norm(start)), float(np.linalg.norm(end))
    return min(fast) > _WALKING and float(start @ end) < -0.5 * fast[0] * fast[1]


def _absorbed(
    tracks: list[_Piece], weak: Sequence[_Piece], limit: float, found: Detections, geometry: _Geometry
) -> tuple[list[_Piece], list[_Piece]]:
    """Tracks with the weak pieces that fill one of their gaps at a cost below the limit, and the others."""
    left = []
    for piece in weak:
        costs = [_gap_cost(track, piece, found, geometry) for track in tracks]
        if costs and min(costs) < limit:
            track = tracks[int(np.argmin(costs))]
            track.rows = sorted([*track.rows, *piece.rows])
        else:
            left.append(piece)
    return tracks, left


def _gap_cost(track: _Piece, piece: _Piece, found: Detections, geometry: _Geometry) -> float:
    """Cost of a piece in a gap of a track: the mean of its links to both sides; infinite without a gap."""
    at = int(np.searchsorted(track.rows, piece.rows[0]))
    before, after = track.rows[:at], track.rows[at:]
    frames = found.frame
    inside = (not before or frames[before[-1]] < frames[piece.rows[0]]) and (
        not after or frames[piece.rows[-1]] < frames[after[0]]
    )
    if not (before and after and inside):
        return float("inf")
    three = [_Piece(rows, False, track.step) for rows in (before[-30:], piece.rows, after[:30])]
    return float(_link_costs(three, np.array([[0, 1], [1, 2]]), found, geometry).mean())


def _linked_until_stable(
    pieces: list[_Piece], found: Detections, geometry: _Geometry, limit: float = _UNLINKED
) -> list[_Piece]:
    """Links make pieces longer, and longer pieces know their clothes better."""
    count = 0
    while len(pieces) != count:
        count = len(pieces)
        pieces = _linked(pieces, found, geometry, limit)
    return pieces


class _Geometry:
    """Middle `(N, C)` and size `(N,)` of every body, and its pose about the middle in sizes."""

    def __init__(self, found: Detections) -> None:
        joints = found.joints.astype(np.float64)
        self.there = (joints != 0).any(axis=2)
        weight = self.there[..., None] / np.maximum(self.there.sum(axis=1), 1)[:, None, None]
        self.middle = (joints * weight).sum(axis=1)
        self.low = np.where(self.there[..., None], joints, np.inf).min(axis=1)
        self.high = np.where(self.there[..., None], joints, -np.inf).max(axis=1)
        self.size = np.maximum(np.nan_to_num(np.linalg.norm(self.high - self.low, axis=1), posinf=0.0), 1e-6)
        self.pose = (joints - self.middle[:, None]) / self.size[:, None, None]
        self.time = found.times[found.frame]

    def apart(self, one: Rows, other: Rows, move: Floats) -> Floats:
        """Mean distance `(…)` of joints of rows `one`, moved by `move`, from `other`, in body sizes."""
        shift = (self.middle[one] + move - self.middle[other])[..., None, :]
        size = np.maximum(self.size[one], self.size[other])
        first, second = (self.pose[rows] * self.size[rows][..., None, None] for rows in (one, other))
        both = self.there[one] & self.there[other]
        away = np.linalg.norm(first - second + shift, axis=-1) * both
        shared = both.sum(axis=-1)
        return np.where(shared > 0, away.sum(axis=-1) / np.maximum(shared, 1) / size, 1e6)


def _pieces(found: Detections, geometry: _Geometry, chosen: npt.NDArray[np.bool_]) -> list[_Piece]:
    """The chosen detections joined from frame to frame as long as no two people can be confused."""
    from scipy.optimize import linear_sum_assignment  # slow to import

    done: list[_Piece] = []
    active: list[_Piece] = []
    edges = np.searchsorted(found.frame, np.arange(len(found.times) + 1))
    numbers = np.arange(len(found.times))
    cuts = found.cut(numbers, np.maximum(numbers - 1, 0))
    for frame, (first, last) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist())):
        now = found.times[frame]
        waiting = [p for p in active if now - geometry.time[p.rows[-1]] <= _OPEN and not cuts[frame]]
        done += [piece for piece in active if not any(piece is other for other in waiting)]
        rows = np.arange(first, last)[:_CROWD]
        rows = rows[chosen[rows]]
        active, taken = list(waiting), set()
        if len(rows) and waiting:
            ends = np.array([piece.rows[-1] for piece in waiting])
            passed = now - geometry.time[ends]
            move = np.stack([piece.step for piece in waiting]) * passed[:, None]
            costs = geometry.apart(ends[:, None], rows[None], move[:, None])
            near = costs < _CONTESTED
            reach = _REACH + _SPEED * passed
            for place, column in zip(*linear_sum_assignment(np.minimum(costs, 10.0))):
                if costs[place, column] > reach[place]:
                    continue
                row, piece = int(rows[column]), waiting[place]
                contested = bool(near[:, column].sum() > 1 or near[place].sum() > 1)
                taken.add(row)
                if contested == piece.contested:
                    speed = (geometry.middle[row] - geometry.middle[piece.rows[-1]]) / max(
                        passed[place], 1e-3
                    )
                    piece.step = 0.7 * piece.step + 0.3 * speed
                    piece.rows.append(row)
                else:
                    active = [other for other in active if other is not piece]
                    done.append(piece)
                    active.append(_Piece([row], contested, piece.step.copy(), piece.step.copy()))
        active += [
            _Piece([int(row)], False, np.zeros(found.joints.shape[2]))
            for row in rows
            if int(row) not in taken
        ]
    return done + active


def _linked(pieces: Sequence[_Piece], found: Detections, geometry: _Geometry, limit: float) -> list[_Piece]:
    """Pieces joined to longer ones by the assignment of successors with the smallest total cost."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    pieces = sorted(pieces, key=lambda piece: piece.rows[0])
    starts = np.array([geometry.time[piece.rows[0]] for piece in pieces])
    ends = np.array([geometry.time[piece.rows[-1]] for piece in pieces])
    order = np.argsort(starts, kind="stable")
    after = np.searchsorted(starts[order], ends, side="right")
    pairs = [(i, int(j)) for i, at in enumerate(after.tolist()) for j in order[at : at + _CANDIDATES]]
    costs = _link_costs(pieces, np.array(pairs, dtype=np.int64).reshape(-1, 2), found, geometry)
    kept = costs < limit
    one, other = (np.array(pairs, dtype=np.int64).reshape(-1, 2)[kept]).T
    count = len(pieces)
    # every piece may also have no successor
    weights = np.concatenate([costs[kept] + 1e-6, np.full(count, limit)])
    places = (np.concatenate([one, np.arange(count)]), np.concatenate([other, count + np.arange(count)]))
    _, successor = min_weight_full_bipartite_matching(csr_array((weights, places), shape=(count, 2 * count)))
    has_one_before = {int(next_) for next_ in successor if next_ < count}
    joined = []
    for number in range(count):
        if number in has_one_before:
            continue
        chain = [number]
        while successor[chain[-1]] < count:
            chain.append(int(successor[chain[-1]]))
        joined.append(
            _Piece([row for link in chain for row in pieces[link].rows], False, pieces[number].step)
        )
    return joined


def _link_costs(pieces: Sequence[_Piece], pairs: Rows, found: Detections, geometry: _Geometry) -> Floats:
    """How unlikely it is that the second piece of each pair `(K, 2)` is the same person as the first."""
    first, last = (np.array([_sound_end(part, geometry) for part in parts]) for parts in _ends(pieces))
    speeds = [np.stack([_speed(piece, geometry, side) for piece in pieces]) for side in (1, -1)]
    one, other = pairs.T
    end, start = last[one], first[other]
    gap = np.maximum(geometry.time[start] - geometry.time[end], 1e-3)
    # a pose that fails at the end of a piece has an odd size, so the usual one near the end counts
    sizes = [np.array([np.median(geometry.size[part]) for part in parts]) for parts in _ends(pieces)]
    before, later = sizes[1][one], sizes[0][other]
    size = np.maximum(before, later)
    cut = found.cut(found.frame[end], found.frame[start])
    coasting = np.minimum(gap, 0.7)[:, None]
    way = geometry.middle[start] - geometry.middle[end]
    ahead = np.linalg.norm(way - speeds[1][one] * coasting, axis=1) / size
    behind = np.linalg.norm(way - speeds[0][other] * coasting, axis=1) / size
    place = (ahead + behind) / 2 / (0.3 + 1.0 * gap)
    too_far = ~cut & (np.minimum(np.linalg.norm(way, axis=1) / size, ahead) > 1.0 + 3.0 * gap)
    ratio = np.abs(np.log(later / before)) / np.where(cut, 1.0, 0.3 + 0.1 * gap)
    pose = geometry.apart(end, start, way) / 0.25 * np.clip(1 - gap / 0.5, 0, 1)
    looks = _looks(pieces, found)
    unlike, known = unlike_looks(looks[one], looks[other])
    alike = np.where(
        known, np.minimum(unlike / _ALIKE, 2.5) ** 2, np.where(cut, 3.0, 0.0) + 2.0 * np.log1p(gap)
    )
    cost = np.where(cut, 1.0, np.minimum(place, 5.0) ** 2) + np.minimum(ratio, 4.0) ** 2
    cost += np.where(cut, 0.0, np.minimum(pose, 3.0) ** 2) + alike + 0.3 * np.log1p(gap)
    # who stands has no direction, and may start in any
    walks = [np.linalg.norm(speed, axis=1) / size > _WALKING for speed in (speeds[1][one], speeds[0][other])]
    turn = np.linalg.norm(speeds[1][one] - speeds[0][other], axis=1) / size / (0.5 + gap)
    cost += np.where(walks[0] & walks[1] & ~cut, np.minimum(turn, _TURN) ** 2, 0.0)
    return np.where(too_far, np.inf, cost)


def _ends(pieces: Sequence[_Piece]) -> tuple[list[list[int]], list[list[int]]]:
    """The first rows of every piece, and the last ones, both from the end inwards."""
    return [piece.rows[:_NEAR_END] for piece in pieces], [
        piece.rows[: -_NEAR_END - 1 : -1] for piece in pieces
    ]


def _sound_end(rows: Sequence[int], geometry: _Geometry) -> int:
    """The first row whose body has the usual size: poses often fail just before a person is lost."""
    sizes = geometry.size[rows]
    usual = np.abs(np.log(sizes / np.median(sizes))) < _ODD_SIZE
    return int(rows[int(usual.argmax())])


def _speed(piece: _Piece, geometry: _Geometry, side: int) -> Floats:
    """Mean speed over the first (1) or last (-1) third of a second; of a single frame, that of the next."""
    rows = np.array(piece.rows[:30] if side == 1 else piece.rows[-30:])
    times = geometry.time[rows]
    near = rows[np.abs(times - (times[0] if side == 1 else times[-1])) <= 0.35]
    passed = geometry.time[near[-1]] - geometry.time[near[0]]
    return (geometry.middle[near[-1]] - geometry.middle[near[0]]) / passed if passed > 0 else piece.step


def _looks(pieces: Sequence[_Piece], found: Detections) -> Floats:
    """Mean histogram `(pieces, L)` of every piece; zeros where it is not known."""
    if found.look is None or not found.look.shape[1]:
        return np.zeros((len(pieces), 0))
    return np.stack(
        [found.look[piece.rows[:: max(1, len(piece.rows) // 50)]].mean(axis=0) for piece in pieces]
    )


def unlike_looks(one: Floats, other: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Hellinger distance of histograms `(K, L)`, 0 to 1, and whether both are known."""
    totals = one.sum(axis=1), other.sum(axis=1)
    known = (totals[0] > 0) & (totals[1] > 0)
    shares = [part / np.maximum(total, 1e-9)[:, None] for part, total in zip((one, other), totals)]
    overlap = np.sqrt(shares[0] * shares[1]).sum(axis=1) if one.shape[1] else np.zeros(len(one))
    return np.sqrt(np.maximum(1 - overlap, 0)), known
