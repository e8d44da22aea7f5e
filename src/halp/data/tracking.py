"""Tracking: detections of single frames become `(T, P, V, C)` with one slot per person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halp.data.clip import Frames
from halp.data.tracks import Detections, track_people

# More people than this in one picture are a crowd; the surest are kept so that the work stays bounded.
CROWD = 30
_RATE = 30.0  # frames per second that pose files are taken to have, for how far a person may get from frame to frame


@dataclass
class Detection:
    """One person in one frame: joints `(V, C)`, zeros if missing; `identity` is a tracker's number or -1."""

    joints: Frames
    score: float = 1.0
    identity: int = -1


def follow(
    detections: Sequence[Sequence[Detection]], persons: int, joints: int, dimensions: int
) -> tuple[Frames, tuple[str, ...]]:
    """Join detections of T frames to at most `persons` tracks `(T, P, V, C)`, longest first; notes the rest.

    A tracker's own identity decides if there is one; otherwise people are tracked over the whole recording
    (`halp.data.tracks`).
    """
    known: dict[int, list[tuple[int, Frames]]] = {}
    loose: list[tuple[int, Frames]] = []
    for time, frame in enumerate(detections):
        people = sorted(
            (person for person in frame if person.joints.any()), key=lambda person: -person.score
        )[:CROWD]
        for person in people:
            own = known.setdefault(person.identity, []) if person.identity >= 0 else loose
            if own is loose or not own or own[-1][0] != time:  # an identity is in one place at a time
                own.append((time, person.joints))
            else:
                loose.append((time, person.joints))
    tracks = list(known.values())
    if loose:
        times = np.arange(len(detections)) / _RATE
        found = Detections(
            times, np.array([time for time, _ in loose]), np.stack([body for _, body in loose])
        )
        tracks += [[loose[row] for row in rows] for rows in track_people(found)]
    tracks.sort(key=lambda track: (-len(track), track[0][0]))
    frames = np.zeros((len(detections), persons, joints, dimensions), dtype=np.float32)
    for place, track in enumerate(tracks[:persons]):
        for time, body in track:
            frames[time, place] = body
    left_out = len(tracks) - persons
    return frames, (f"{left_out} of {len(tracks)} tracked persons left out",) if left_out > 0 else ()
