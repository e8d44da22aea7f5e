"""Rotations of poses."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from halp.data.clip import Frames

Vector = npt.NDArray[np.float64]


def turned(frames: Frames, rotation: Vector) -> Frames:
    return (frames.reshape(-1, 3) @ rotation.T.astype(np.float32)).reshape(frames.shape)


def rotation_between(source: Vector, target: Vector) -> Vector:
    """The smallest rotation that maps direction `source` onto `target`; the identity if either is zero.

    >>> rotation_between(np.array([0.0, 2.0, 0.0]), np.array([0.0, 0.0, 1.0])).round(6).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]
    """
    lengths = math.sqrt(source @ source), math.sqrt(target @ target)
    if lengths[0] * lengths[1] < 1e-9:
        return np.eye(3)
    start, end = source / lengths[0], target / lengths[1]
    middle = start + end
    # One plus the cosine, accurate for nearly opposite directions too.
    bend = middle @ middle / 2
    if bend < 1e-12:
        perpendicular = np.eye(3)[np.argmin(np.abs(start))]
        perpendicular = perpendicular - start * (start @ perpendicular)
        perpendicular /= np.linalg.norm(perpendicular)
        return 2 * np.outer(perpendicular, perpendicular) - np.eye(3)
    turn = np.outer(end, start)
    turn = turn - turn.T
    return np.eye(3) + turn + turn @ turn / bend
