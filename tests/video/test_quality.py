"""Joint positions of a video that are not to be trusted are found, and movements that people make are not
among them.
"""

from __future__ import annotations

import numpy as np
import pytest

from halp.skeleton import get_topology
from halp.video.quality import FASTEST, unsure_joints

TOPOLOGY = get_topology("mediapipe-33")
ELBOW, WRIST = TOPOLOGY.index("elbow_left"), TOPOLOGY.index("wrist_left")


def swinging(fps: float, speed: float, seconds: float = 2.0) -> np.ndarray:
    """A body at rest whose left forearm turns at this many degrees per second, with a millimetre of noise."""
    random = np.random.default_rng(0)
    body = random.uniform(0.2, 1.0, (33, 3))
    frames = np.repeat(body[None, None], int(seconds * fps), axis=0)
    angle = np.radians(speed) * np.arange(len(frames)) / fps
    frames[:, 0, WRIST] = body[ELBOW] + 0.25 * np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    return (frames + random.normal(scale=0.001, size=frames.shape)).astype(np.float32)


@pytest.mark.parametrize("fps", [10, 25, 30, 60, 240])
def test_a_fast_but_possible_swing_is_kept_and_an_impossible_one_is_named(fps: float) -> None:
    jumps, fast, worst = unsure_joints(swinging(fps, 600), TOPOLOGY, fps)
    assert not jumps.any()
    assert not fast.any()
    assert worst is None
    impossible = 1.4 * FASTEST
    _, fast, worst = unsure_joints(swinging(fps, impossible), TOPOLOGY, fps)
    assert worst is not None
    assert worst.joint == "wrist_left"
    assert worst.speed == pytest.approx(impossible, rel=0.1)
    assert fast[:, 0, WRIST].all()
    assert not np.delete(fast, WRIST, axis=2).any()


def test_a_joint_that_jumps_away_for_a_frame_is_marked_there_alone() -> None:
    frames = swinging(30, 60)
    frames[20, 0, ELBOW] += 2.0
    jumps, _, _ = unsure_joints(frames, TOPOLOGY, 30)
    assert np.argwhere(jumps).tolist() == [[20, 0, ELBOW]]


def test_a_limb_that_is_exchanged_for_the_other_is_left_out_where_it_changes() -> None:
    frames = swinging(30, 0)
    frames[30:, 0, WRIST] = (
        2 * frames[30:, 0, ELBOW] - frames[30:, 0, WRIST]
    )  # the other way from one frame to the next
    _, fast, worst = unsure_joints(frames, TOPOLOGY, 30)
    assert np.flatnonzero(fast[:, 0, WRIST]).tolist() == [29, 30]
    assert worst is not None
    assert worst.speed == pytest.approx(180 * 30, rel=0.05)
    assert worst.person == 0
    _, _, worst = unsure_joints(np.concatenate([swinging(30, 0), frames], axis=1), TOPOLOGY, 30)
    assert worst is not None
    assert (worst.person, worst.frame) == (1, 29)
