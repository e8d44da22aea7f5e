"""Persons followed over frames: detections of single frames become `(T, P, V, C)` with one person a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from halp.data.clip import Frames

# More people than this in one picture are a crowd; the surest are kept so that the work stays bounded.
CROWD = 30
# A body that reappears farther away than this many of its own sizes is somebody else.
FARTHEST = 1.0


@dataclass
class Detection:
    """One person in one frame: joints `(V, C)`, zeros where missing; `identity` is a tracker's number, -1 without one."""

    joints: Frames
    score: float = 1.0
    identity: int = -1


@dataclass
class _Track:
    last: Frames
    identity: int
    seen: dict[int, Frames] = field(default_factory=dict)


def follow(
    detections: Sequence[Sequence[Detection]], persons: int, joints: int, dimensions: int
) -> tuple[Frames, tuple[str, ...]]:
    """Join the detections of T frames to at most `persons` tracks `(T, P, V, C)`, the longest first, and say what was left out.

    A tracker's own identity decides if there is one; otherwise each frame is assigned to the tracks so that the sum of
    mean joint distances is least, and a body farther away than its own size starts a new track.
    """
    crowds = [
        sorted((person for person in frame if person.joints.any()), key=lambda person: -person.score)[:CROWD]
        for frame in detections
    ]
    tracks = _single_track(crowds) or []
    for time, people in enumerate(crowds if not tracks else ()):
        matched = _match(people, tracks)
        for person in people:
            track = matched.get(id(person))
            if track is None:
                track = _Track(person.joints, person.identity)
                tracks.append(track)
            track.seen[time] = track.last = person.joints
    tracks.sort(key=lambda track: (-len(track.seen), min(track.seen)))
    frames = np.zeros((len(detections), persons, joints, dimensions), dtype=np.float32)
    for place, track in enumerate(tracks[:persons]):
        for time, body in track.seen.items():
            frames[time, place] = body
    left_out = len(tracks) - persons
    return frames, (f"{left_out} of {len(tracks)} tracked persons left out",) if left_out > 0 else ()


def _single_track(crowds: Sequence[Sequence[Detection]]) -> list[_Track] | None:
    """The only track of frames in which nobody is ever beside, or far from, the person before; None elsewhere."""
    alone = {time: people[0].joints for time, people in enumerate(crowds) if people}
    if not alone or any(len(people) > 1 or (people and people[0].identity >= 0) for people in crowds):
        return None
    bodies = np.stack(list(alone.values())).astype(np.float64)
    if (_distances(bodies[1:], bodies[:-1]) > FARTHEST).any():
        return None
    return [_Track(bodies[-1], -1, alone)]


def _match(people: Sequence[Detection], tracks: Sequence[_Track]) -> dict[int, _Track]:
    """The track of every detection that has one, by `id` of the detection."""
    by_identity = {track.identity: track for track in tracks if track.identity >= 0}
    matched: dict[int, _Track] = {}
    for person in people:
        track = by_identity.pop(person.identity, None) if person.identity >= 0 else None
        if track is not None:
            matched[id(person)] = track
    loose = [person for person in people if person.identity < 0]
    # Tracks that ended long ago are not asked again, or a long video of passers-by would take forever.
    open_tracks = [track for track in tracks if track.identity < 0][-4 * CROWD :]
    if loose and open_tracks:
        from scipy.optimize import linear_sum_assignment  # slow to import, and listing formats does not need it

        now = np.stack([person.joints for person in loose])[:, None].astype(np.float64)
        before = np.stack([track.last for track in open_tracks])[None].astype(np.float64)
        costs = _distances(now, before)
        for row, column in zip(*linear_sum_assignment(np.minimum(costs, 10 * FARTHEST))):
            if costs[row, column] <= FARTHEST:
                matched[id(loose[row])] = open_tracks[column]
    return matched


def _distances(now: npt.NDArray[np.float64], before: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Mean distance of the joints both have, in sizes of the body: `(…, V, C)` → `(…)`; 1e6 where they share none."""
    both = (now != 0).any(axis=-1) & (before != 0).any(axis=-1)
    shared = both.sum(axis=-1)
    distance = (np.linalg.norm(now - before, axis=-1) * both).sum(axis=-1) / np.maximum(shared, 1)
    size = np.maximum(_sizes(now), _sizes(before))
    return np.where(shared > 0, distance / np.maximum(size, 1e-9), 1e6)


def _sizes(bodies: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Diagonal of the box around the joints that are there: `(…, V, C)` → `(…)`."""
    there = (bodies != 0).any(axis=-1, keepdims=True)
    low = np.where(there, bodies, np.inf).min(axis=-2)
    high = np.where(there, bodies, -np.inf).max(axis=-2)
    return np.linalg.norm(high - low, axis=-1)
