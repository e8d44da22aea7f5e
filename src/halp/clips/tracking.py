"""Persons followed over frames: detections of single frames become `(T, P, V, C)` with one person a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from halp.clips.clip import Frames

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

    A tracker's own identity decides where there is one; otherwise each frame is assigned to the tracks so that the sum of
    mean joint distances is least, and a body farther away than its own size starts a new track.
    """
    tracks: list[_Track] = []
    for time, frame in enumerate(detections):
        people = sorted((one for one in frame if one.joints.any()), key=lambda one: -one.score)[:CROWD]
        matched = _match(people, tracks)
        for one in people:
            track = matched.get(id(one))
            if track is None:
                track = _Track(one.joints, one.identity)
                tracks.append(track)
            track.seen[time] = track.last = one.joints
    tracks.sort(key=lambda track: (-len(track.seen), min(track.seen)))
    frames = np.zeros((len(detections), persons, joints, dimensions), dtype=np.float32)
    for place, track in enumerate(tracks[:persons]):
        for time, body in track.seen.items():
            frames[time, place] = body
    left_out = len(tracks) - persons
    return frames, (f"{left_out} of {len(tracks)} tracked persons left out",) if left_out > 0 else ()


def _match(people: Sequence[Detection], tracks: Sequence[_Track]) -> dict[int, _Track]:
    """The track of every detection that has one, by `id` of the detection."""
    by_identity = {track.identity: track for track in tracks if track.identity >= 0}
    matched: dict[int, _Track] = {}
    for one in people:
        track = by_identity.pop(one.identity, None) if one.identity >= 0 else None
        if track is not None:
            matched[id(one)] = track
    loose = [one for one in people if one.identity < 0]
    # Tracks that ended long ago are not asked again, or a long video of passers-by would take forever.
    open_tracks = [track for track in tracks if track.identity < 0][-4 * CROWD :]
    if loose and open_tracks:
        from scipy.optimize import linear_sum_assignment  # slow to import, and listing formats does not need it

        costs = _costs(loose, open_tracks)
        for row, column in zip(*linear_sum_assignment(np.minimum(costs, 10 * FARTHEST))):
            if costs[row, column] <= FARTHEST:
                matched[id(loose[row])] = open_tracks[column]
    return matched


def _costs(people: Sequence[Detection], tracks: Sequence[_Track]) -> npt.NDArray[np.float64]:
    """Mean distance of the joints both have, in sizes of the body `(people, tracks)`; 1e6 where they share none."""
    now = np.stack([one.joints for one in people])[:, None].astype(np.float64)
    before = np.stack([track.last for track in tracks])[None].astype(np.float64)
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
