"""Order and selection of the persons of a clip."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halp.data.clip import Frames, present


def present_first(frames: Frames) -> Frames:
    """Reorder `(T, P, V, C)`: persons who are ever seen first, otherwise in their order."""
    there = np.asarray(present(frames).any(axis=0))
    if not (there[1:] > there[:-1]).any():
        return frames
    return frames[:, np.argsort(~there, kind="stable")]


def motion_energy(frames: Frames) -> npt.NDArray[np.float32]:
    """How much each person moves and extends, `(T, P, V, C)` → `(P,)`: the authors' measure.

    The standard deviation over the joints of the frames where the person is there, summed over the
    coordinates.
    """
    there = present(frames)
    energy = np.zeros(frames.shape[1], dtype=np.float32)
    for person in np.flatnonzero(there.any(axis=0)):
        seen = there[:, person]
        joints = frames[:, person] if seen.all() else frames[seen, person]
        energy[person] = joints.reshape(-1, frames.shape[3]).T.copy().std(axis=1).sum()
    return energy


def keep_most_moving(bodies: Frames, persons: int) -> tuple[Frames, tuple[str, ...]]:
    """The persons with the largest motion energy, in descending order, and a note on the others."""
    repairs = []
    if bodies.shape[1] > persons:
        repairs.append(f"the {persons} of {bodies.shape[1]} bodies that move most kept")
    empty = int((~present(bodies).any(axis=1)).sum())
    if empty:
        repairs.append(f"{empty} of {len(bodies)} frames have no body")
    if bodies.shape[1] > 1:
        bodies = bodies[:, np.argsort(-motion_energy(bodies), kind="stable")[:persons]]
    return bodies, tuple(repairs)
