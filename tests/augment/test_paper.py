"""Views and streams against slow references that treat one clip at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from halp.augment import (
    ClipPool,
    ViewSettings,
    centre_crops,
    centre_views,
    draw_crops,
    draw_matrices,
    random_views,
    transform,
)
from halp.core.errors import InputError
from halp.core.sampling import generator
from halp.data.store import Store
from halp.skeleton import KINECT_V2
from halp.skeleton.streams import derive


def pool_of(clips: list[np.ndarray]) -> ClipPool:
    lengths = torch.tensor([len(clip) for clip in clips])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    frames = torch.from_numpy(np.ascontiguousarray(np.concatenate(clips), dtype=np.float32))
    return ClipPool(frames, offsets, lengths, torch.device("cpu"))


def invented(*lengths: int, persons: int = 2, joints: int = 25, dimensions: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(length, persons, joints, dimensions)).astype(np.float32) for length in lengths]


def slow_resize(clip: np.ndarray, frames: int) -> np.ndarray:
    """Linear interpolation by torch, one clip at a time, half-pixel centres."""
    flat = torch.from_numpy(clip.astype(np.float64).reshape(1, len(clip), -1)).transpose(1, 2)
    return (
        F.interpolate(flat, frames, mode="linear", align_corners=False)
        .transpose(1, 2)
        .numpy()
        .reshape(frames, *clip.shape[1:])
    )


@pytest.mark.parametrize("frames", [1, 7, 64])
def test_cut_equals_resizing_each_clip_alone(frames: int) -> None:
    clips = invented(1, 2, 30, 64, 65, 300)
    start, length = torch.tensor([0, 1, 5, 0, 3, 200]), torch.tensor([1, 1, 20, 64, 60, 100])
    cut = pool_of(clips).cut(torch.arange(6), start, length, frames)
    for row, clip in enumerate(clips):
        part = clip[start[row] : start[row] + length[row]]
        np.testing.assert_allclose(cut[row], slow_resize(part, frames), atol=1e-5)


def test_evaluation_crop_equals_the_authors_on_real_clips(shared: Path) -> None:
    reference = np.load(shared / "fixtures" / "ntu_reference.npz")
    ends = np.cumsum(reference["frames"])
    normalised = reference["normalised"].transpose(1, 3, 2, 0)
    pool = pool_of(np.split(normalised, ends[:-1]))
    views = centre_views(pool, torch.arange(len(ends)), 64)
    np.testing.assert_allclose(views, reference["centre95"].transpose(0, 2, 4, 3, 1), atol=1e-6)


def test_crops_follow_the_authors_rule() -> None:
    settings = ViewSettings()
    lengths = torch.tensor([1, 10, 63, 64, 65, 300]).repeat(2000)
    start, length = draw_crops(lengths, settings, generator(0, "test"))
    assert (length >= lengths.clamp_max(64)).all()
    assert (length <= lengths).all()
    assert (start >= 0).all()
    assert (start + length <= lengths).all()
    long = length[lengths == 300].double()
    # ratio U(0.1, 1) of 300 frames, floored at 64: P(64) = (64/300 − 0.1) / 0.9, mean by the same integral
    at_floor = (64.0 / 300 - 0.1) / 0.9
    assert abs((long == 64).double().mean() - at_floor) < 0.03
    expected = at_floor * 64 + (1 - at_floor) * (64 + 300) / 2
    assert abs(long.mean() - expected) < 6
    assert start[lengths == 300].max() > 200


def test_centre_crop_of_one_frame_is_that_frame() -> None:
    start, length = centre_crops(torch.tensor([1, 2, 39, 40, 103]))
    assert start.tolist() == [0, 0, 0, 1, 2]
    assert length.tolist() == [1, 2, 39, 38, 99]


def test_transform_equals_a_loop_over_joints() -> None:
    clips = torch.from_numpy(np.stack(invented(9, 9, 9)))
    matrices = draw_matrices(3, 25, ViewSettings(rotation=0.2), generator(1, "test"))
    moved = transform(clips, matrices)
    for clip in range(3):
        for joint in range(25):
            np.testing.assert_allclose(
                moved[clip, :, :, joint], clips[clip, :, :, joint] @ matrices[clip, joint].T, atol=1e-5
            )


def test_each_clip_is_either_sheared_or_has_the_stated_share_of_joints_corrupted() -> None:
    matrices = draw_matrices(4000, 25, ViewSettings(), generator(2, "test"))
    eye = torch.eye(3)
    untouched = (matrices == eye).all(-1).all(-1).sum(1)
    corrupted = untouched == 10  # 15 of 25 are hit
    sheared = (matrices == matrices[:, :1]).flatten(1).all(1)
    assert (corrupted ^ sheared).all()
    assert abs(corrupted.double().mean() - 0.5) < 0.03
    shear = matrices[sheared][:, 0]
    assert (shear.diagonal(dim1=1, dim2=2) == 1).all()
    off = shear[:, ~eye.bool()]
    assert off.abs().max() <= 1
    assert abs(off.mean()) < 0.02
    assert abs(off.std() - 1 / 3**0.5) < 0.02
    hit = ~(matrices[corrupted] == eye).all(-1).all(-1)
    zeroed = (matrices[corrupted] == 0).all(-1).all(-1)
    is_zero = zeroed.sum(1) == 15
    assert abs(is_zero.double().mean() - 0.5) < 0.04
    assert ((zeroed == hit).all(1) | (~zeroed).all(1)).all()
    mixed = matrices[corrupted][~is_zero]
    first = mixed[torch.arange(len(mixed)), hit[~is_zero].int().argmax(1)]
    assert (mixed[hit[~is_zero]].view(len(mixed), 15, 3, 3) == first[:, None]).all()
    assert abs(hit.double().mean(0) - 0.6).max() < 0.05


def test_rotation_alone_keeps_lengths() -> None:
    settings = ViewSettings(corrupt_probability=0, shear=0, rotation=0.5)
    matrices = draw_matrices(50, 3, settings, generator(3, "test"))
    np.testing.assert_allclose(matrices @ matrices.mT, torch.eye(3).expand(50, 3, 3, 3), atol=1e-5)
    plane = draw_matrices(50, 3, settings, generator(3, "test"), dimensions=2)
    np.testing.assert_allclose(plane @ plane.mT, torch.eye(2).expand(50, 3, 2, 2), atol=1e-5)


@pytest.mark.heavy
def test_same_generator_gives_the_same_view_and_another_another(store: Store) -> None:
    pool = ClipPool.from_store(store)
    clips = torch.arange(8)
    one, two, three = (random_views(pool, clips, ViewSettings(), generator(0, "v", n)) for n in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)
    assert one.shape == (8, 64, 2, 25, 3)


def test_memory_mapped_pool_gives_the_same_views(store: Store) -> None:
    kept, mapped = ClipPool.from_store(store), ClipPool.from_store(store, keep=False)
    clips = torch.tensor([5, 3, 100])
    views = [random_views(pool, clips, ViewSettings(), generator(0, "v")) for pool in (kept, mapped)]
    assert torch.equal(*views)


def test_streams_equal_their_definitions() -> None:
    clips = torch.from_numpy(np.stack(invented(6, 6)))
    motion, bone = derive(clips, "motion", KINECT_V2), derive(clips, "bone", KINECT_V2)
    assert torch.equal(derive(clips, "joint", KINECT_V2), clips)
    for frame in range(5):
        assert torch.equal(motion[:, frame], clips[:, frame + 1] - clips[:, frame])
    assert (motion[:, 5] == 0).all()
    for joint, parent in enumerate(KINECT_V2.parents):
        assert torch.equal(bone[:, :, :, joint], clips[:, :, :, joint] - clips[:, :, :, parent])
    assert (bone[:, :, :, 20] == 0).all()
    with pytest.raises(InputError, match="did you mean 'bone'"):
        derive(clips, "bones", KINECT_V2)


def test_motion_of_one_frame_is_zero() -> None:
    assert (derive(torch.ones(1, 1, 1, 25, 3), "motion", KINECT_V2) == 0).all()


@pytest.mark.parametrize(
    ("setting", "value"),
    [("frames", 0), ("crop_min", 0.0), ("crop_max", 1.5), ("corrupt_joints", -0.1), ("corrupt_zero", 2.0)],
)
def test_impossible_view_settings_are_refused(setting: str, value: float) -> None:
    with pytest.raises(InputError, match=setting):
        ViewSettings(**{setting: value})
