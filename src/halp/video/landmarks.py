"""Landmarks of the people in a film, picture by picture, by mediapipe's PoseLandmarker; kept in the cache once they are known."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import atomic_path, is_sealed, seal, sha256
from halp.core.progress import Bar
from halp.video.film import Picture, film_facts, film_pictures
from halp.video.pose_model import cache_folder, describe_pose_model

LANDMARKS = 33
QUIET = {"GLOG_minloglevel": "2", "TF_CPP_MIN_LOG_LEVEL": "3"}  # the estimator's own log
_VERSION = 1  # of the files in the cache


@dataclass(frozen=True)
class FilmLandmarks:
    """Landmarks of all pictures: times `(T,)` in seconds, people `(T,)`, and for every person in turn `(sum people, 33, 4)`.

    `image` is x and y in pixels, depth in pixels and visibility; `world` is x, y, z in metres from the hips and visibility.
    """

    times: npt.NDArray[np.float64]
    people: npt.NDArray[np.int64]
    image: npt.NDArray[np.float32]
    world: npt.NDArray[np.float32]
    size: tuple[int, int]
    estimator: dict[str, str]

    @property
    def fps(self) -> float:
        """Frames per second: the usual distance between two pictures."""
        steps = np.diff(self.times)
        return float(1 / np.median(steps[steps > 0])) if (steps > 0).any() else -1.0

    def frames(self) -> list[slice]:
        """The rows of every picture."""
        ends = np.cumsum(self.people)
        return [slice(int(end - count), int(end)) for end, count in zip(ends, self.people)]


@contextmanager
def pose_estimator(model: Path, persons: int) -> Iterator[Any]:
    """A function `(picture, milliseconds) → (image, world)`, each `(people, 33, 4)`."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import mediapipe as mp
    except ImportError:
        raise InputError("films need mediapipe; install it with `pip install 'halp-motion[video]'`") from None
    tasks = mp.tasks
    options = tasks.vision.PoseLandmarkerOptions(
        base_options=tasks.BaseOptions(model_asset_path=str(model)),
        running_mode=tasks.vision.RunningMode.VIDEO,
        num_poses=persons,
    )
    try:
        with _without_native_log():
            landmarker = tasks.vision.PoseLandmarker.create_from_options(options)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"'{model}' is not a pose model that mediapipe can use ({str(error).splitlines()[0]})"
        ) from error

    seen = False  # the log warns once as it starts, and once more when it finds somebody

    def estimate(picture: Picture, milliseconds: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        nonlocal seen
        with nullcontext() if seen else _without_native_log():
            found = landmarker.detect_for_video(mp.Image(image_format=mp.ImageFormat.SRGB, data=picture), milliseconds)
        seen = seen or bool(found.pose_landmarks)
        height, width = picture.shape[:2]
        image = _numbers(found.pose_landmarks) * np.array([width, height, width, 1], dtype=np.float32)
        return image, _numbers(found.pose_world_landmarks)

    with landmarker:
        yield estimate


@contextmanager
def _without_native_log() -> Iterator[None]:
    """What C++ writes to standard error as it starts, before its own settings for that are in force, goes nowhere."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _numbers(people: Any) -> npt.NDArray[np.float32]:
    rows = [[(mark.x, mark.y, mark.z, mark.visibility) for mark in person] for person in people]
    return np.asarray(rows, dtype=np.float32).reshape(len(rows), LANDMARKS, 4)


def film_landmarks(path: Path, model: Path, persons: int, *, progress: bool = True) -> FilmLandmarks:
    """Landmarks of a film, from the cache where this film was seen before with the same weights and number of persons."""
    progress = progress and multiprocessing.parent_process() is None  # one of several processes keeps quiet
    estimator, kept = describe_pose_model(model), kept_landmarks(path, model, persons)
    if is_sealed(kept):
        return read_landmarks(kept)
    if kept.exists():
        warnings.warn(f"kept landmarks of '{path}' are damaged ('{kept}'); they are made again", stacklevel=2)
    times, people, image, world = [], [], [], []
    size = film_facts(path)
    with pose_estimator(model, persons) as estimate, Bar(path.name, size.frames, shown=progress) as bar:
        before = -1
        for moment, picture in film_pictures(path):
            before = max(before + 1, round(1000 * moment))  # the estimator wants growing times
            seen, body = estimate(picture, before)
            times.append(moment)
            people.append(len(seen))
            image.append(seen)
            world.append(body)
            bar.advance(1)
    if not times:
        raise InputError(f"film '{path}' has no picture; leave it out")
    found = FilmLandmarks(
        np.array(times),
        np.array(people, dtype=np.int64),
        np.concatenate(image),
        np.concatenate(world),
        (size.width, size.height),
        estimator,
    )
    write_landmarks(kept, found)
    return found


def kept_landmarks(path: Path, model: Path, persons: int) -> Path:
    """Where the cache has the landmarks of a film, found with these weights and so many persons at most."""
    facts = json.dumps([_VERSION, sha256(path), describe_pose_model(model), persons])
    return cache_folder() / "landmarks" / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.npz"


def write_landmarks(path: Path, found: FilmLandmarks) -> None:
    """Write landmarks of a film as an `.npz` file."""
    facts = json.dumps({"size": found.size, "estimator": found.estimator})
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as part, part.open("wb") as file:
        np.savez_compressed(
            file,
            times=found.times,
            people=found.people,
            image=found.image,
            world=found.world,
            facts=np.frombuffer(facts.encode(), dtype=np.uint8),
        )
    seal(path)


def read_landmarks(path: Path) -> FilmLandmarks:
    """Landmarks that `write_landmarks` wrote."""
    with np.load(path, allow_pickle=False) as data:
        facts = json.loads(data["facts"].tobytes())
        width, height = facts["size"]
        places = data["image"], data["world"]
        return FilmLandmarks(data["times"], data["people"], *places, (width, height), facts["estimator"])
