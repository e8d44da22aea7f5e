"""Pose estimators from a local ONNX file: one-stage RTMO, or RTMPose on boxes found by MediaPipe.

The kind is told by the outputs. RTMO: boxes `(1, N, 5)` and key points `(1, N, K, 3)` of a letterboxed BGR
picture. RTMPose: two classifications of coordinates (`simcc`), `(1, K, 2 W)` and `(1, K, 2 H)`, of a
normalised RGB crop of W × H. K is 17 (COCO), 26 (Halpe) or 133 (COCO whole body). There is no depth: places
in space are all zeros.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, missing_extra
from halp.skeleton import Topology, get_topology, topology_for
from halp.video.film import Picture
from halp.video.finder import Follower, Marks, PoseNetwork, Seen, distance

_FEET = tuple(f"{name}_{side}" for side in ("left", "right") for name in ("toe_big", "toe_small", "heel"))
_FACE = tuple(f"face_{number}" for number in range(68))
_HANDS = tuple(f"hand_{side}_{number}" for side in ("left", "right") for number in range(21))
_MEAN, _STD = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
_SURE = 0.3  # score of a person below which a box is not one
_SAME = 0.15  # mean joint distance, in body sizes, of two boxes around one person
_ROOM = 1.25  # side of the box that RTMPose reads, in sides of the person


@cache
def _session(model: Path) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise missing_extra("ONNX pose models need onnxruntime", "onnx") from None
    try:
        return onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common type of error
        raise InputError(f"'{model}' is not an ONNX file that onnxruntime can use ({error})") from error


def is_one_stage(model: Path) -> bool:
    """Whether a file finds people by itself (RTMO) or reads boxes (RTMPose)."""
    shapes = [len(output.shape) for output in _session(model).get_outputs()]
    if shapes[:2] == [3, 4]:
        return True
    if shapes == [3, 3]:
        return False
    raise InputError(
        f"'{model}' has outputs of {shapes} dimensions; a pose model has boxes and key points (RTMO: [3, 4])"
        " or two classifications of coordinates (RTMPose: [3, 3])"
    )


def onnx_topology(model: Path) -> Topology:
    """The joint layout of an ONNX file, by its number of key points."""
    output = _session(model).get_outputs()[1 if is_one_stage(model) else 0]
    count = output.shape[2 if is_one_stage(model) else 1]
    if count == 133:
        return topology_for(
            (*get_topology("coco-17").joints, *_FEET, *_FACE, *_HANDS), 2, name="coco-wholebody-133"
        )
    known = {17: "coco-17", 26: "halpe-26"}
    if count not in known:
        raise InputError(f"'{model}' gives {count} key points; layouts of 17, 26 and 133 are known")
    return get_topology(known[count])


class OnnxPoses:
    """An ONNX file as pose estimator; `opened` closes what it opens."""

    def __init__(self, model: Path, opened: ExitStack) -> None:
        self.model, self.session, self._opened = model, _session(model), opened
        self.follows = not is_one_stage(model)  # a one-stage network looks at every frame as a whole
        self._boxes: PoseNetwork | None = None
        first = self.session.get_inputs()[0]
        height, width = (side if isinstance(side, int) else 640 for side in first.shape[2:])
        self.name, self.size = first.name, (width, height)

    def find(self, picture: Picture) -> Seen:
        found = self._find_by_boxes(picture) if self.follows else self._find_all(picture)
        image = np.stack(found) if found else np.zeros((0, 0, 4), dtype=np.float32)
        return image, np.zeros_like(image)

    def follower(self) -> Follower:
        return _OnnxFollower(self)

    def _run(self, pixels: npt.NDArray[Any]) -> list[Any]:
        return list(self.session.run(None, {self.name: pixels.transpose(2, 0, 1)[None].astype(np.float32)}))

    def _find_all(self, picture: Picture) -> list[Marks]:
        import cv2

        width, height = self.size
        scale = min(width / picture.shape[1], height / picture.shape[0])
        small = cv2.resize(picture, None, fx=scale, fy=scale)[:height, :width]
        canvas = np.full((height, width, 3), 114, dtype=np.uint8)
        canvas[: small.shape[0], : small.shape[1]] = small
        boxes, points = self._run(canvas[..., ::-1])[:2]
        kept: list[Marks] = []
        for row in np.argsort(-boxes[0, :, 4], kind="stable"):
            marks = _marks(points[0, row, :, :2] / scale, points[0, row, :, 2])
            if boxes[0, row, 4] >= _SURE and all(distance(marks, other) >= _SAME for other in kept):
                kept.append(marks)
        return kept

    def _find_by_boxes(self, picture: Picture) -> list[Marks]:
        if self._boxes is None:
            from halp.video.networks import MediaPipePoses
            from halp.video.pose_model import kept_pose_model

            if not kept_pose_model().is_file():
                raise InputError(
                    f"'{self.model}' reads boxes of people, which MediaPipe finds; run `halp pose-model` once"
                )
            self._boxes = MediaPipePoses(kept_pose_model(), self._opened)
        found, _ = self._boxes.find(picture)
        return [self.in_box(picture, body[:, :2].min(axis=0), body[:, :2].max(axis=0)) for body in found]

    def in_box(self, picture: Picture, low: npt.NDArray[Any], high: npt.NDArray[Any]) -> Marks:
        """The person in a box of the image."""
        import cv2

        width, height = self.size
        side = _ROOM * float(max((high - low)[0] * height / width, (high - low)[1], 8))
        middle = (low + high) / 2
        corner = middle - np.array([side * width / height, side]) / 2
        scale = height / side
        move = np.array([[scale, 0, -scale * corner[0]], [0, scale, -scale * corner[1]]])
        crop = cv2.warpAffine(picture, move, (width, height))
        across, down = self._run((crop - _MEAN) / _STD)[:2]
        places = np.stack([across[0].argmax(axis=1), down[0].argmax(axis=1)], axis=1) / 2
        scores = np.minimum(across[0].max(axis=1), down[0].max(axis=1))
        return _marks(places / scale + corner, np.clip(scores, 0, 1))


class _OnnxFollower:
    """RTMPose in the middle of a crop around the last pose."""

    def __init__(self, poses: OnnxPoses) -> None:
        self._poses = poses

    def follow(self, crop: Picture) -> tuple[Marks, Marks] | None:
        size = np.array(crop.shape[1::-1], dtype=np.float64)
        marks = self._poses.in_box(crop, 0.2 * size, 0.8 * size)
        return (marks, np.zeros_like(marks)) if marks[:, 3].mean() >= _SURE else None

    def reset(self) -> None:
        """Does nothing: no state is kept from crop to crop."""


def _marks(places: npt.NDArray[Any], scores: npt.NDArray[Any]) -> Marks:
    marks = np.zeros((len(places), 4), dtype=np.float32)
    marks[:, :2], marks[:, 3] = places, scores
    return marks
