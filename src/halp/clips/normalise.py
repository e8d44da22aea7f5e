"""Normalisation as named steps: each a pure function of a clip's frames; a store records which ones made it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from halp.clips.clip import Frames, present
from halp.errors import InputError, choose
from halp.skeleton import Topology

Step = Callable[[Frames, Topology], Frames]
STEPS: dict[str, Step] = {}


def step(name: str) -> Callable[[Step], Step]:
    """Register a normalisation step under a name."""

    def add(function: Step) -> Step:
        STEPS[name] = function
        return function

    return add


def normalise(frames: Frames, topology: Topology, steps: Sequence[str]) -> Frames:
    """Apply the named steps in order to frames `(T, P, V, C)`; absent persons stay all zeros."""
    for name in steps:
        frames = STEPS[choose("normalisation step", name, STEPS)](frames, topology)
    return frames


def _joint(topology: Topology, name: str, step_name: str) -> int:
    if not name:
        raise InputError(f"step '{step_name}' needs to know the centre and axes of topology '{topology.name}'")
    return topology.index(name)


def _moved(frames: Frames, change: Callable[[Frames], Frames]) -> Frames:
    """Apply a change of coordinates to the persons who are there."""
    there = present(frames)[..., None, None]
    return np.where(there, change(frames), np.float32(0)).astype(np.float32)


@step("centre")
def centre_each_frame(frames: Frames, topology: Topology) -> Frames:
    """Subtract the first person's centre joint in every frame from everybody (the last one seen where it is missing)."""
    joint = _joint(topology, topology.centre, "centre")
    centre = frames[:, 0, joint]
    there = present(frames)[:, 0]
    if not there.any():
        return frames
    last_seen = np.maximum.accumulate(np.where(there, np.arange(len(frames)), np.argmax(there)))
    return _moved(frames, lambda x: x - centre[last_seen][:, None, None])


@step("rotate-first")
def rotate_by_first_frame(frames: Frames, topology: Topology) -> Frames:
    """Turn the whole clip so that in the first frame `up` lies on z and then `across` on x (the authors' order)."""
    if topology.up is None or topology.across is None or topology.dimensions != 3:
        raise InputError(f"step 'rotate-first' needs the 3D axes of a body, which '{topology.name}' does not name")
    there = present(frames)[:, 0]
    if not there.any():
        return frames
    body = frames[int(np.argmax(there)), 0].astype(np.float64)
    rotation = np.eye(3)
    for (start, end), axis in ((topology.up, 2), (topology.across, 0)):
        direction = body[topology.index(end)] - body[topology.index(start)]
        rotation = rotation_between(rotation @ direction, np.eye(3)[axis]) @ rotation
    return _moved(frames, lambda x: x @ rotation.T.astype(np.float32))


def rotation_between(source: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The smallest rotation that turns the direction `source` onto `target`; identity where there is no direction.

    >>> rotation_between(np.array([0.0, 2.0, 0.0]), np.array([0.0, 0.0, 1.0])).round(6).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]
    """
    lengths = np.linalg.norm(source) * np.linalg.norm(target)
    if lengths < 1e-9:
        return np.eye(3)
    axis = np.cross(source, target) / lengths
    sine, cosine = np.linalg.norm(axis), source @ target / lengths
    if sine < 1e-9:
        if cosine > 0:
            return np.eye(3)
        perpendicular = np.eye(3)[np.argmin(np.abs(source))]
        perpendicular = perpendicular - source * (source @ perpendicular) / (source @ source)
        perpendicular /= np.linalg.norm(perpendicular)
        return 2 * np.outer(perpendicular, perpendicular) - np.eye(3)
    x, y, z = axis / sine
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + sine * cross + (1 - cosine) * cross @ cross


AUTHORS = ("centre", "rotate-first")
