"""The preparation as torch operations gives what the library gives, whatever layout, length, persons and gaps
a recording has.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import halp
from halp.core.errors import InputError
from halp.core.packages import list_encoders
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.graph_steps import GRAPH_STEPS
from halp.features.prepare_graph import PrepareGraph
from halp.skeleton import Topology, get_topology

SHIPPED = {
    "body-16": ["kinect-v1", "kinect-v2", "body-16", "mediapipe-33", "smpl-22"],
    "body-16-2d": ["coco-17", "openpose-25", "mediapipe-33-2d"],
}
CASES = [
    (name, facts["topology"]["name"], layout)
    for name, facts in list_encoders().items()
    for layout in SHIPPED[facts["topology"]["name"]]
]


def reads(target: Topology, steps: list[str]) -> PretrainedEncoder:
    """An encoder of which only the preparation is asked."""
    return PretrainedEncoder(torch.nn.Identity(), target, persons=2, frames=32, normalisation=steps)


def recording(topology: Topology, frames: int, persons: int, lost: list[str], seed: int) -> np.ndarray:
    """Somebody who moves about, of whom a detector lost parts."""
    draw = np.random.default_rng(seed)
    shape = (frames, persons, len(topology), topology.dimensions)
    x = draw.normal(size=(1, *shape[1:])) + 3 * draw.normal(size=(1, persons, 1, shape[3]))
    steps = 0.05 * draw.normal(size=shape) + 0.05 * draw.normal(size=(frames, persons, 1, shape[3]))
    x = x + np.cumsum(steps, axis=0)
    x = x.astype(np.float32)
    if "joints" in lost:
        x[draw.random(shape[:3]) < 0.3] = 0
    if "frames" in lost:
        x[draw.random(shape[:2]) < 0.2] = 0
    if "long" in lost:
        x[frames // 3 : frames // 3 + frames // 2, -1] = 0
    if "start" in lost:
        x[: frames // 6] = 0
    if "first" in lost:
        x[:, 0] = 0
    if "joint" in lost:
        x[:, :, 3] = 0
    if "all" in lost:
        x[:] = 0
    return x


def assert_equal_to_the_library(target: Topology, steps: list[str], layout: Topology, x: np.ndarray) -> None:
    graph = PrepareGraph(layout, target, 2, 32, steps)
    wanted = halp.prepare_for(reads(target, steps), x, topology=layout)
    points = np.where((x == 0).all(-1, keepdims=True), np.float32(np.nan), x)
    np.testing.assert_allclose(graph(torch.from_numpy(points)[None]).numpy(), wanted, atol=1e-5)


LOST = st.lists(
    st.sampled_from(["joints", "frames", "long", "start", "first", "joint", "all"]), max_size=3, unique=True
)


@pytest.mark.parametrize(("name", "target", "layout"), CASES)
@settings(max_examples=25, deadline=None)
@given(frames=st.integers(1, 150), persons=st.integers(1, 4), lost=LOST, seed=st.integers(0, 2**16))
def test_points_are_prepared_as_by_the_library(
    name: str, target: str, layout: str, frames: int, persons: int, lost: list[str], seed: int
) -> None:
    steps, known = list(list_encoders()[name]["normalisation"]), get_topology(layout)
    assert_equal_to_the_library(
        get_topology(target), steps, known, recording(known, frames, persons, lost, seed)
    )


@pytest.mark.parametrize("step", list(GRAPH_STEPS))
@settings(max_examples=15, deadline=None)
@given(frames=st.integers(1, 60), persons=st.integers(1, 3), lost=LOST, seed=st.integers(0, 2**16))
def test_every_step_is_that_of_the_library(
    step: str, frames: int, persons: int, lost: list[str], seed: int
) -> None:
    body = get_topology("body-16-2d" if "picture" in step else "body-16")
    if step == "drop-empty" and "all" in lost:
        return  # the library leaves such a clip as it is
    assert_equal_to_the_library(body, [step], body, recording(body, frames, persons, lost, seed))


def test_clips_of_a_batch_do_not_disturb_each_other() -> None:
    body = get_topology("body-16")
    steps = list(list_encoders()["halp-base"]["normalisation"])
    graph = PrepareGraph(body, body, 2, 64, steps)
    kinds = [[], ["joints"], ["first"], ["all"], ["start", "frames"]]
    clips = torch.from_numpy(
        np.stack([recording(body, 50, 3, lost, seed) for seed, lost in enumerate(kinds)])
    )
    alone = torch.cat([graph(clip[None]) for clip in clips])
    torch.testing.assert_close(graph(clips), alone, atol=1e-6, rtol=0)


def test_joints_that_are_nowhere_are_missing() -> None:
    """The library refuses such recordings, a graph cannot."""
    body = get_topology("body-16")
    graph = PrepareGraph(body, body, 2, 64, list(list_encoders()["halp-base"]["normalisation"]))
    clip = torch.from_numpy(recording(body, 50, 1, [], seed=0))[None]
    for value in (float("inf"), -float("inf"), 1e30):
        clip[0, 7, 0, 5, 1] = value
        lost = clip.clone()
        lost[0, 7, 0, 5] = float("nan")
        torch.testing.assert_close(graph(clip), graph(lost), atol=0, rtol=0)
        assert torch.isfinite(graph(clip)).all()


def test_unknown_steps_are_named() -> None:
    body = get_topology("body-16")
    with pytest.raises(InputError, match="'lowpass=6'"):
        PrepareGraph(body, body, 2, 64, ["centre", "lowpass=6"])
