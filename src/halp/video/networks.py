"""Pose estimators behind one interface: MediaPipe task files, local ONNX (`halp.video.onnx_poses`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, missing_extra
from halp.video.film import Picture
from halp.video.finder import Follower, Marks, PoseNetwork, Seen

LANDMARKS = 33
QUIET = {"GLOG_minloglevel": "2", "TF_CPP_MIN_LOG_LEVEL": "3"}  # the estimator's own log
_AT_ONCE = 4  # people in one tile


@contextmanager
def open_network(model: Path) -> Iterator[PoseNetwork]:
    """The pose estimator of a file, by its ending: `.onnx`, or a task file of MediaPipe."""
    with ExitStack() as opened:
        if model.suffix == ".onnx":
            from halp.video.onnx_poses import OnnxPoses

            yield OnnxPoses(model, opened)
        else:
            yield MediaPipePoses(model, opened)


class MediaPipePoses:
    """MediaPipe's PoseLandmarker: 33 landmarks in the image and in space."""

    follows = True

    def __init__(self, model: Path, opened: ExitStack) -> None:
        self.model, self._opened = model, opened
        self._several = opened.enter_context(_landmarker(model, "IMAGE", _AT_ONCE))

    def find(self, picture: Picture) -> Seen:
        with _without_native_log():
            return _people(self._several.detect(_image(picture)), picture)

    def follower(self) -> Follower:
        return _MediaPipeFollower(self._opened.enter_context(_landmarker(self.model, "VIDEO", 1)))


class _MediaPipeFollower:
    def __init__(self, landmarker: Any) -> None:
        self._landmarker, self._clock = landmarker, 0

    def follow(self, crop: Picture) -> tuple[Marks, Marks] | None:
        self._clock += 33  # milliseconds; only their order matters
        with nullcontext() if self._clock > 66 else _without_native_log():
            image, world = _people(self._landmarker.detect_for_video(_image(crop), self._clock), crop)
        return (image[0], world[0]) if len(image) else None

    def reset(self) -> None:
        self.follow(np.zeros((64, 64, 3), dtype=np.uint8))  # an empty picture ends its tracking


@contextmanager
def pose_estimator(model: Path, persons: int) -> Iterator[Any]:
    """A function `(picture, milliseconds) → (image, world)`, each `(people, 33, 4)`, for live pictures."""
    if model.suffix == ".onnx":
        with open_network(model) as network:
            yield lambda picture, milliseconds: network.find(picture)
        return
    with _landmarker(model, "VIDEO", persons) as landmarker:
        seen = False  # the log warns once as it starts, and once more when it finds somebody

        def estimate(picture: Picture, milliseconds: int) -> Seen:
            nonlocal seen
            with nullcontext() if seen else _without_native_log():
                found = landmarker.detect_for_video(_image(picture), milliseconds)
            seen = seen or bool(found.pose_landmarks)
            return _people(found, picture)

        yield estimate


@contextmanager
def _landmarker(model: Path, mode: str, persons: int) -> Iterator[Any]:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import mediapipe as mp
    except ImportError:
        raise missing_extra("videos need mediapipe", "video") from None
    tasks = mp.tasks
    options = tasks.vision.PoseLandmarkerOptions(
        base_options=tasks.BaseOptions(model_asset_path=str(model)),
        running_mode=getattr(tasks.vision.RunningMode, mode),
        num_poses=persons,
    )
    try:
        with _without_native_log():
            landmarker = tasks.vision.PoseLandmarker.create_from_options(options)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"'{model}' is not a pose model that mediapipe can use ({str(error).splitlines()[0]})"
        ) from error
    with landmarker:
        yield landmarker


@contextmanager
def _without_native_log() -> Iterator[None]:
    """Discard C++ output to standard error during start-up, before its log settings apply."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _image(picture: Picture) -> Any:
    import mediapipe as mp

    return mp.Image(image_format=mp.ImageFormat.SRGB, data=picture)


def _people(found: Any, picture: Picture) -> Seen:
    height, width = picture.shape[:2]
    scale = np.array([width, height, width, 1], dtype=np.float32)
    return _numbers(found.pose_landmarks) * scale, _numbers(found.pose_world_landmarks)


def _numbers(people: Any) -> npt.NDArray[np.float32]:
    rows = [[(mark.x, mark.y, mark.z, mark.visibility) for mark in person] for person in people]
    return np.asarray(rows, dtype=np.float32).reshape(len(rows), LANDMARKS, 4)
