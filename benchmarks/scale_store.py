"""Stores of any number of clips for measurements: synthetic people, each clip warped in its own way."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.data.normalise import normalise
from halp.data.splits import Split
from halp.data.store_writer import StoreWriter
from halp.data.synthetic import synthetic_clips
from halp.data.topology_file import find_topology
from halp.skeleton import KINECT_V2, map_joints

FRAMES, BLOCK, SUBJECTS = 12, 20_000, 40
STEPS = ("centre", "rotate-mean", "scale")


@lru_cache(1)
def _bases() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    frames, labels = [], []
    for clip in synthetic_clips(720, seed=1):
        rows = np.linspace(0, len(clip.frames) - 1, FRAMES).round().astype(int)
        mapped = map_joints(clip.frames[rows, :1], KINECT_V2, find_topology("body-16"))
        frames.append(normalise(mapped.astype(np.float32), find_topology("body-16"), STEPS, 30.0))
        labels.append(clip.label)
    return np.stack([clip for clip in frames if len(clip) == FRAMES]), np.array(labels)


def warped(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Frames `(N, T, 1, 16, 3)` of clips by number: gains of the joints and a sway, so that no two are equal."""
    bases, draw = _bases()[0], np.random.default_rng(int(numbers[0]))
    shape = (len(numbers), 1, 1, 1, 3)
    gain = 1 + 0.06 * draw.standard_normal((len(numbers), 1, 1, 16, 3), dtype=np.float32)
    phase, speed = draw.random(shape, dtype=np.float32) * 6.28, 1 + draw.random(shape, dtype=np.float32)
    time = np.linspace(0, 6.28, FRAMES, dtype=np.float32)[None, :, None, None, None]
    clips = bases[numbers % len(bases)]
    return np.asarray(clips * gain + 0.03 * np.sin(time * speed + phase) * (clips != 0), dtype=np.float32)


def make_store(path: Path, count: int) -> None:
    """Write a store of so many clips."""
    labels = _bases()[1]
    names = [f"a{number}" for number in range(int(labels.max()) + 1)]
    split = Split("xsub", "subject", tuple(range(0, SUBJECTS, 2)))
    writer = StoreWriter(
        path, find_topology("body-16"), persons=1, class_names=names, splits=[split], normalisation=STEPS
    )
    with writer:
        for first in range(0, count, BLOCK):
            numbers = np.arange(first, min(first + BLOCK, count))
            _append(writer, warped(numbers), numbers, labels[numbers % len(labels)])


def _append(
    writer: StoreWriter, frames: npt.NDArray[np.float32], numbers: npt.NDArray[np.int64], labels: Any
) -> None:
    """What `StoreWriter.add` does clip by clip, for many clips of one length."""
    count, data = len(numbers), frames.tobytes()
    writer._file.write(data)
    writer._hash.update(data)
    writer._total += count * FRAMES
    names = [f"p{number % 997:03}/c{number:07}" for number in numbers.tolist()]
    columns = {
        "name": names, "length": [FRAMES] * count, "label": labels.tolist(),
        "subject": (numbers % SUBJECTS).tolist(), "camera": (1 + numbers % 3).tolist(), "recording": names,
        "start": [0.0] * count, "end": [FRAMES / 30] * count, "fps": [30.0] * count,
    }  # fmt: skip
    for column, values in columns.items():
        writer._columns.setdefault(column, []).extend(values)


if __name__ == "__main__":
    make_store(Path(sys.argv[1]), int(sys.argv[2]))
