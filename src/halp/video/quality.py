"""Unreliable joint positions of a person in a video: sudden jumps, and limbs that turn too fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halp.data.cleaning import find_spikes
from halp.data.clip import Frames
from halp.skeleton import Topology

FASTEST = 1000.0  # degrees per second that a limb turns by; what is faster counts as a tracking error
_LIMBS = ("elbow", "wrist", "knee", "ankle")
_STEP = 1 / 30  # seconds that a turn is measured over


@dataclass(frozen=True)
class FastTurn:
    """The fastest turn among the errors."""

    joint: str
    frame: int
    person: int
    speed: float  # degrees per second


def unsure_joints(
    frames: Frames, topology: Topology, fps: float
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], FastTurn | None]:
    """Positions `(T, P, V)` that jump away and back, those of too fast limbs, and the fastest turn."""
    jumps = find_spikes(frames)
    kept = np.where(jumps[..., None], np.float32(0), frames)
    fast, worst = _fast_turns(kept, topology, fps)
    return jumps, fast, worst


def _fast_turns(
    frames: Frames, topology: Topology, fps: float
) -> tuple[npt.NDArray[np.bool_], FastTurn | None]:
    seen = (frames != 0).any(axis=3)
    fast = np.zeros_like(seen)
    worst: FastTurn | None = None
    step = max(1, round(_STEP * fps)) if fps > 0 else 1
    for child, parent in topology.bones:
        if not topology.joints[child].startswith(_LIMBS) or len(frames) <= step:
            continue
        both = seen[..., child] & seen[..., parent]
        bone = frames[..., child, :] - frames[..., parent, :]
        bone = bone / np.maximum(np.linalg.norm(bone, axis=-1, keepdims=True), 1e-9)
        turn = np.degrees(np.arccos(np.clip((bone[step:] * bone[:-step]).sum(axis=-1), -1, 1))) * fps / step
        wrong = (turn > FASTEST) & both[step:] & both[:-step]
        fast[step:, :, child] |= wrong
        fast[:-step, :, child] |= wrong
        speed = np.where(wrong, turn, 0.0)
        if wrong.any() and (worst is None or speed.max() > worst.speed):
            frame, person = np.unravel_index(speed.argmax(), speed.shape)
            worst = FastTurn(topology.joints[child], int(frame), int(person), float(speed.max()))
    return fast, worst
