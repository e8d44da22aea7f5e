"""Views of a whole batch by index arithmetic against one clip at a time in NumPy, as data loaders do it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness import Row, interleaved, milliseconds
from halp.augment import ClipPool, ViewSettings, draw_crops, draw_matrices, random_views, transform

CLIPS, BATCH, PERSONS, JOINTS = 200, 64, 2, 25

Array = NDArray[np.float32]


def rows() -> list[Row]:
    """Two views of every clip of a batch, as one training step needs them."""
    torch_generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(40, 301, (CLIPS,), generator=torch_generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    frames = torch.randn(int(lengths.sum()), PERSONS, JOINTS, 3, generator=torch_generator)
    pool = ClipPool(frames, offsets, lengths, torch.device("cpu"))
    stored = [frames[o : o + n].numpy() for o, n in zip(offsets.tolist(), lengths.tolist())]
    settings = ViewSettings()
    batch = torch.arange(BATCH).repeat(2)
    check_equal(pool, stored, batch, settings)

    random = np.random.default_rng(0)
    ours, reference = interleaved(
        lambda: random_views(pool, batch, settings, torch_generator),
        lambda: np.stack([one_view(stored[i], settings, random) for i in batch.tolist()]),
        repeats=15,
        inner=(3, 1),
    )
    name = f"views of a batch vs per-clip NumPy (2 × {BATCH} clips)"
    return [Row(name, milliseconds(ours), milliseconds(reference), reference / ours, 10)]


def check_equal(pool: ClipPool, stored: list[Array], batch: torch.Tensor, settings: ViewSettings) -> None:
    """Both ways make the same view out of the same draws; otherwise the comparison would mean nothing."""
    start, length = draw_crops(pool.lengths[batch], settings, torch.Generator().manual_seed(1))
    matrices = draw_matrices(len(batch), JOINTS, settings, torch.Generator().manual_seed(2))
    ours = transform(pool.cut(batch, start, length, settings.frames), matrices)
    for i in range(0, len(batch), 16):
        first, number = int(start[i]), int(length[i])
        cut = resize(stored[int(batch[i])][first : first + number], settings.frames)
        theirs = np.einsum("tpvc,vdc->tpvd", cut, matrices[i].numpy())
        np.testing.assert_allclose(ours[i].numpy(), theirs, atol=1e-4)


def one_view(clip: Array, settings: ViewSettings, random: np.random.Generator) -> Array:
    """A random crop of one clip, resized, with joints corrupted or the whole sheared."""
    length = max(
        int(len(clip) * random.uniform(settings.crop_min, settings.crop_max)),
        min(settings.crop_frames, len(clip)),
    )
    start = random.integers(len(clip) - length + 1)
    view = resize(clip[start : start + length], settings.frames)
    if random.random() < settings.corrupt_probability:
        joints = random.choice(JOINTS, round(settings.corrupt_joints * JOINTS), replace=False)
        if random.random() < settings.corrupt_zero:
            view[:, :, joints] = 0
        else:
            view[:, :, joints] = view[:, :, joints] @ random.uniform(-1, 1, (3, 3)).astype(np.float32)
        return view
    shear = np.eye(3) + settings.shear * random.uniform(-1, 1, (3, 3)) * (1 - np.eye(3))
    return view @ shear.astype(np.float32)


def resize(clip: Array, frames: int) -> Array:
    """Linear interpolation in time, every coordinate of every joint on its own."""
    position = np.clip((np.arange(frames) + 0.5) * len(clip) / frames - 0.5, 0, len(clip) - 1)
    flat = clip.reshape(len(clip), -1)
    resized = np.stack([np.interp(position, np.arange(len(clip)), column) for column in flat.T], axis=1)
    return resized.reshape(frames, *clip.shape[1:]).astype(np.float32)
