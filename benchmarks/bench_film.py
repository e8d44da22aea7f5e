"""Frames per second of a film becoming poses, and which share of the time is not the pose estimator's.

The film is the one that `HALP_TEST_FILM` names or that of the package `sports2d` (`pip install --no-deps sports2d`); the weights
are those of `halp pose-model`. Without both there is nothing to measure. `HALP_BENCH_FRAMES` (150) pictures are read.
"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.harness import Row
from halp.core.errors import InputError
from halp.data.readers.video import VideoReader
from halp.video.landmarks import FilmLandmarks
from halp.video.live import watch
from halp.video.pose_model import describe_pose_model, find_pose_model


def rows() -> list[Row]:
    """One row: pictures per second with everything, beside those of the estimator alone."""
    film = _film()
    try:
        model = find_pose_model("")
    except InputError:
        film = None
    if film is None:
        return []
    seen = list(islice(watch(str(film), model, persons=1), int(os.environ.get("HALP_BENCH_FRAMES", "150"))))
    pictures, poses = (sum(getattr(one, name) for one in seen) / 1000 for name in ("grab", "pose"))
    counts = np.array([len(one.image) for one in seen])
    landmarks = FilmLandmarks(
        np.array([one.time for one in seen]),
        counts,
        np.concatenate([one.image for one in seen]),
        np.concatenate([one.world for one in seen]),
        seen[0].size,
        describe_pose_model(model),
    )
    began = time.perf_counter()
    VideoReader("video", "")._followed(landmarks)
    following = time.perf_counter() - began
    total = pictures + poses + following
    stages = f"pictures {pictures / total:.1%}, poses {poses / total:.1%}, following {following / total:.1%}"
    return [
        Row(
            f"film of {seen[0].size[0]} × {seen[0].size[1]}, pictures per second",
            f"{len(seen) / total:.1f} ({stages})",
            f"{len(seen) / poses:.1f}, the estimator alone",
            (total - poses) / total,
            0.2,
            at_most=True,
        )
    ]


def _film() -> Path | None:
    spec = find_spec("Sports2D")
    places = [Path(os.environ.get("HALP_TEST_FILM", "none"))]
    places += [Path(folder) / "Demo" / "demo.mp4" for folder in (spec.submodule_search_locations or () if spec else ())]
    return next((path for path in places if path.is_file()), None)
