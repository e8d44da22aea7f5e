"""Jitter of a recording: how much there is, and as little smoothing as takes it away."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halp.data.cleaning import body_size, seen_joints
from halp.data.clip import Frames

#: Frames that a joint's course may be averaged over.
WIDTHS = (3, 5, 7, 9, 13, 17, 25)


def jitter(courses: npt.NDArray[Any]) -> float:
    """Standard deviation of white noise on courses `(T, V, C)`; 0 if it cannot be told.

    Noise of variance σ² makes neighbouring second differences opposite: their mean product is −4 σ². A
    movement makes them alike.
    """
    bend = np.diff(courses, n=2, axis=0)
    opposite = bend[1:] * bend[:-1]
    return float(np.sqrt(max(-opposite.mean() / 4, 0.0))) if opposite.size else 0.0


def steady(frames: Frames, limit: float = 0.02) -> Frames:
    """Average the courses of a person's joints if they jitter by more than `limit` times the body's extent.

    Each joint is averaged over as many frames as leave the smallest squared error by Stein's unbiased
    estimate: few where it moves, many where it rests. A person below the limit is left as recorded, to the
    bit, and so is a joint that is missing in any frame.
    """
    from scipy.ndimage import uniform_filter1d

    seen = seen_joints(frames)
    least, found = limit * body_size(frames, seen), frames
    for person in range(frames.shape[1]):
        joints = np.flatnonzero(seen[:, person].all(axis=0))
        courses = frames[:, person, joints].astype(np.float64)
        if (noise := jitter(courses)) <= least:
            continue
        best, risk = courses.copy(), np.full(len(joints), 2 * noise**2)
        for width in (width for width in WIDTHS if width <= len(frames)):
            average = uniform_filter1d(courses, width, axis=0, mode="nearest")
            estimate = np.square(courses - average).mean(axis=(0, 2)) + 2 * noise**2 / width
            better, risk = estimate < risk, np.minimum(estimate, risk)
            best[:, better] = average[:, better]
        found = frames.copy() if found is frames else found
        found[:, person, joints] = best
    return found
