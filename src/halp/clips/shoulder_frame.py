"""Normalisation of the ST-GCN family (CrosSCLR, AimCLR): every person and every frame by itself, by the shoulders."""

from __future__ import annotations

import numpy as np

from halp.clips.clip import Frames, present
from halp.errors import InputError
from halp.skeleton import Topology

MIDDLE = "shoulder_center"


def centre_persons(frames: Frames, topology: Topology) -> Frames:
    """Subtract from every person, in every frame, its own joint between the shoulders; what is missing stays zero."""
    if MIDDLE not in topology.joints:
        raise InputError(
            f"step 'centre-persons' needs a joint '{MIDDLE}', which topology '{topology.name}' does not have"
        )
    middle = frames[:, :, topology.index(MIDDLE)]
    missing = (frames == 0).all(axis=3, keepdims=True)
    return np.where(missing, np.float32(0), frames - middle[:, :, None]).astype(np.float32)


def turn_each_frame(frames: Frames, topology: Topology) -> Frames:
    """Turn every frame about the vertical (y) so that the first person's shoulder line points along x, seen from above.

    A frame in which it cannot be seen is turned like the one before.
    """
    if topology.across is None or topology.dimensions != 3:
        raise InputError(f"step 'yaw-frames' needs the 3D shoulders of a body, which '{topology.name}' does not name")
    start, end = (frames[:, 0, topology.index(joint)].astype(np.float64) for joint in topology.across)
    x, z = (end - start)[:, 0], (end - start)[:, 2]
    length = np.hypot(x, z)
    known = present(frames)[:, 0] & (length > 1e-9)
    if not known.any():
        return frames
    source = np.maximum.accumulate(np.where(known, np.arange(len(frames)), np.argmax(known)))
    cosine, sine = ((part[source] / length[source]).astype(np.float32)[:, None, None] for part in (x, z))
    turned = frames.copy()
    turned[..., 0] = cosine * frames[..., 0] + sine * frames[..., 2]
    turned[..., 2] = cosine * frames[..., 2] - sine * frames[..., 0]
    return turned
