"""Frames of a video per CPU second: everybody found and followed, beside the pose estimator on whole frames
for one person; and what no rule of the finder can save: decoding, and the estimator alone on two crops.

The video is the one that `HALP_TEST_FILM` names or that of the package `sports2d` (`pip install --no-deps
sports2d`); the weights are those of `halp pose-model`. Without both there is nothing to measure.
`HALP_BENCH_FRAMES` (150) frames are read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, milliseconds
from halp.core.errors import InputError
from halp.video.film import Picture, _opened, film_pictures
from halp.video.finder import Follower, Marks, PeopleFinder, PoseNetwork, Seen
from halp.video.networks import open_network, pose_estimator
from halp.video.pose_model import find_pose_model


def rows() -> list[Row]:
    """Frames per CPU second for everybody, and per person and frame, beside one person on whole frames."""
    film = _film()
    decoding = [] if film is None else decoding_rows(film)
    try:
        model = find_pose_model("")
    except InputError:
        film = None
    if film is None:
        return decoding
    count = int(os.environ.get("HALP_BENCH_FRAMES", "150"))
    one, found_one = _one_person(film, model, count)
    several, found = _everybody(film, model, count)
    return [
        *decoding,
        Row(
            "video: poses per CPU second",
            f"{found / several:.1f} ({count / several:.1f} frames, {found / count:.2f} people per frame)",
            f"{found_one / one:.1f}, one person on whole frames ({count / one:.1f} frames,"
            f" {found_one / count:.2f} people)",
            (found / several) / (found_one / one),
            0.8,
        ),
        floor_row(film, model, count, several / count),
    ]


def floor_row(film: Path, model: Path, count: int, whole: float) -> Row:
    """Frames with two people: decoding, and the estimator on the crops of both without anything else."""
    pairs: list[list[Picture]] = []
    with open_network(model) as network:
        finder = PeopleFinder(_Kept(network, pairs), 6)
        for moment, picture in islice(film_pictures(film), count):
            pairs.append([])
            finder(moment, picture)
        both = [crops for crops in pairs if len(crops) == 2]
        followers = [network.follower(), network.follower()]
        followed, decoded = 1e9, 1e9
        for _ in range(3):
            began = time.process_time()
            for crops in both:
                for follower, crop in zip(followers, crops):
                    follower.follow(crop)
            followed = min(followed, (time.process_time() - began) / len(both))
            began = time.process_time()
            read = sum(1 for _ in islice(film_pictures(film), count))
            decoded = min(decoded, (time.process_time() - began) / read)
    return Row(
        "video: frame with two people ÷ decoding and the estimator on both crops, nothing else",
        f"{milliseconds(whole)} for a frame of any kind, everything included",
        f"{milliseconds(decoded + followed)}: {milliseconds(decoded)} decoding, {milliseconds(followed)} both"
        f" crops ({len(both)} frames); at most {1 / (decoded + followed):.1f} such frames per CPU second",
        whole / (decoded + followed),
    )


class _Kept:
    """An estimator that keeps the crops its followers are given, for the last frame begun."""

    follows = True

    def __init__(self, network: PoseNetwork, crops: list[list[Picture]]) -> None:
        self.network, self.crops = network, crops

    def find(self, picture: Picture) -> Seen:
        return self.network.find(picture)

    def follower(self) -> Follower:
        return _KeptFollower(self.network.follower(), self.crops)


class _KeptFollower:
    def __init__(self, follower: Follower, crops: list[list[Picture]]) -> None:
        self.follower, self.crops = follower, crops

    def follow(self, crop: Picture) -> tuple[Marks, Marks] | None:
        self.crops[-1].append(crop)
        return self.follower.follow(crop)

    def reset(self) -> None:
        self.follower.reset()


def decoding_rows(film: Path, count: int = 15) -> list[Row]:
    """Frames in RGB as they are, beside frames that the decoder's own scaler halves: what that could save."""
    kinds: dict[str, Callable[[Any], Any]] = {
        "decoded": lambda frame: None,
        "whole": lambda frame: frame.to_ndarray(format="rgb24"),
        "halved": lambda frame: frame.reformat(frame.width // 2, frame.height // 2, "rgb24").to_ndarray(),
    }
    taken: dict[str, float] = {}
    for kind, action in [*kinds.items()] * 3:
        with _opened(film) as (container, stream):
            stream.thread_type, stream.codec_context.thread_count = "NONE", 1
            began = time.process_time()
            for frame in islice(container.decode(stream), count):
                action(frame)
            taken[kind] = min(taken.get(kind, 1e9), (time.process_time() - began) / count)
    whole, told = taken["whole"], f"{milliseconds(taken['decoded'])} without RGB"
    title = "frame in RGB as it is ÷ halved while it is converted"
    return [
        Row(title, milliseconds(whole), f"{milliseconds(taken['halved'])}; {told}", whole / taken["halved"])
    ]


def _one_person(film: Path, model: Path, count: int) -> tuple[float, int]:
    with pose_estimator(model, 1) as estimate:
        began = time.process_time()
        found = [
            len(estimate(picture, round(1000 * moment))[0])
            for moment, picture in islice(film_pictures(film), count)
        ]
        return time.process_time() - began, sum(found)


def _everybody(film: Path, model: Path, count: int) -> tuple[float, int]:
    with open_network(model) as network:
        finder = PeopleFinder(network, 6)
        began = time.process_time()
        found = [len(finder(moment, picture)[0]) for moment, picture in islice(film_pictures(film), count)]
        return time.process_time() - began, sum(found)


def _film() -> Path | None:
    spec = find_spec("Sports2D")
    places = [Path(os.environ.get("HALP_TEST_FILM", "none"))]
    places += [
        Path(folder) / "Demo" / "demo.mp4"
        for folder in (spec.submodule_search_locations or () if spec else ())
    ]
    return next((path for path in places if path.is_file()), None)
