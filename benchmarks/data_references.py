"""The straightforward way with an NTU file, to time the library against: loops over lines, joints and
frames.
"""

from __future__ import annotations

import io
import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
_BODY = (
    "id",
    "clipped",
    "left",
    "left_sure",
    "right",
    "right_sure",
    "restricted",
    "lean_x",
    "lean_y",
    "tracking",
)
_JOINT = ("x", "y", "z", "depth_x", "depth_y", "colour_x", "colour_y", "w", "rx", "ry", "rz", "tracking")


def read_by_lines(text: str) -> list[list[dict]]:
    """All frames as lists of bodies, each a dictionary with a list of joints, read line by line."""
    file = io.StringIO(text)
    frames = []
    for _ in range(int(file.readline())):
        bodies = []
        for _ in range(int(file.readline())):
            body: dict = {key: float(word) for key, word in zip(_BODY, file.readline().split())}
            body["joints"] = []
            for _ in range(int(file.readline())):
                body["joints"].append(
                    {key: float(word) for key, word in zip(_JOINT, file.readline().split())}
                )
            bodies.append(body)
        frames.append(bodies)
    return frames


def coordinates(frames: list[list[dict]], most: int = 4, persons: int = 2) -> Array:
    """The bodies of largest motion energy as `(P, T, V, C)`."""
    data = np.zeros((most, len(frames), 25, 3))
    for time, bodies in enumerate(frames):
        for person, body in enumerate(bodies):
            if person < most:
                for joint, place in enumerate(body["joints"]):
                    data[person, time, joint] = [place["x"], place["y"], place["z"]]
    energies = []
    for body_frames in data:
        seen = body_frames[body_frames.sum(-1).sum(-1) != 0]
        energies.append(sum(seen[..., axis].std() for axis in range(3)) if len(seen) else 0.0)
    return data[np.argsort(energies)[::-1][:persons]]


def normalise_by_loops(data: Array) -> Array:
    """Fill, centre and rotate `(P, T, V, C)` person by person, frame by frame and joint by joint."""
    data = data.copy()
    for person in data:
        if person.sum() == 0:
            continue
        if person[0].sum() == 0:
            seen = person[person.sum(-1).sum(-1) != 0].copy()
            person *= 0
            person[: len(seen)] = seen
        for time, frame in enumerate(person):
            if frame.sum() == 0 and person[time:].sum() == 0:
                for later in range(time, len(person)):
                    person[later] = person[(later - time) % time]
                break
    centre = data[0][:, 1:2].copy()
    for person in data:
        if person.sum() != 0:
            mask = (person.sum(-1) != 0)[..., None]
            person[:] = (person - centre) * mask
    for (end, start), axis in (((1, 0), [0.0, 0.0, 1.0]), ((8, 4), [1.0, 0.0, 0.0])):
        matrix = _rotation(data[0, 0, end] - data[0, 0, start], np.array(axis))
        for person in data:
            if person.sum() == 0:
                continue
            for frame in person:
                if frame.sum() == 0:
                    continue
                for joint in range(len(frame)):
                    frame[joint] = np.dot(matrix, frame[joint])
    return data


def _rotation(source: Array, target: Array) -> Array:
    """Rotation by the angle between two vectors about their cross product, by half-angle parameters."""
    axis = np.cross(source, target)
    lengths = np.linalg.norm(source) * np.linalg.norm(target)
    if np.linalg.norm(axis) < 1e-9 or lengths < 1e-9:
        return np.eye(3)
    angle = math.acos(float(np.clip(source @ target / lengths, -1, 1)))
    axis = axis / np.linalg.norm(axis)
    a = math.cos(angle / 2)
    b, c, d = -axis * math.sin(angle / 2)
    return np.array(
        [
            [a * a + b * b - c * c - d * d, 2 * (b * c + a * d), 2 * (b * d - a * c)],
            [2 * (b * c - a * d), a * a + c * c - b * b - d * d, 2 * (c * d + a * b)],
            [2 * (b * d + a * c), 2 * (c * d - a * b), a * a + d * d - b * b - c * c],
        ]
    )
