"""Points of a request as an array; an error names the invalid frame."""

from __future__ import annotations

from typing import Any

import numpy as np

from halp.core.errors import InputError
from halp.data.clip import Frames
from halp.skeleton import Topology
from halp.tasks.live import LARGEST_COORDINATE, MOST_PERSONS, check_numbers, frame_persons

MOST_FRAMES = 100_000


def points_array(data: list[Any], topology: Topology) -> Frames:
    """Points of a request `(T, P, V, C)`; missing ones are zero.

    Frames are joints or persons as nested lists, or None; the number of persons may vary.
    """
    if not 0 < len(data) <= MOST_FRAMES:
        raise InputError(f"'points' has {len(data):,} frames; send 1 to {MOST_FRAMES:,}")
    even = _even_points(data, topology)
    return _frame_by_frame(data, topology) if even is None else even


def _even_points(data: list[Any], topology: Topology) -> Frames | None:
    """All points at once, if all frames have the same persons and joints."""
    try:
        array = np.array(data, dtype=np.float64)
        array = array[:, None] if array.ndim == 3 else array
        if array.shape[2:] != (len(topology), topology.dimensions) or array.shape[1] > MOST_PERSONS:
            return None
        check_numbers(data, 4 if isinstance(data[0][0][0], list) else 3)
    except (ValueError, TypeError, OverflowError):
        return None
    known = np.isfinite(array).all(-1, keepdims=True)
    if np.abs(array, where=known, out=np.zeros_like(array)).max(initial=0) > LARGEST_COORDINATE:
        return None
    return np.where(known, array, 0).astype(np.float32)


def _frame_by_frame(data: list[Any], topology: Topology) -> Frames:
    """Points of frames of different shapes, or with an invalid frame."""
    frames = []
    for number, one in enumerate(data):
        try:
            frames.append(frame_persons(one, topology))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            joints, dimensions = len(topology), topology.dimensions
            raise InputError(
                f"frame {number} of 'points' does not fit topology '{topology.name}' ({str(error)[:120]}): give"
                f" ({joints}, {dimensions}) or (persons, {joints}, {dimensions}) numbers, null where missing"
            ) from None
    people = max((len(frame) for frame in frames if frame is not None), default=1)
    points = np.zeros((len(frames), people, len(topology), topology.dimensions), dtype=np.float32)
    for place, frame in zip(points, frames):
        if frame is not None:
            place[: len(frame)] = frame
    return points
