"""Live camera: the page sends images and gets the people in them and similar movements."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.explorer.collection import Collection
from halp.features.encode import embed_frames
from halp.features.opening import open_source
from halp.features.ready import prepare_source
from halp.reports.player import describe_body
from halp.skeleton import get_topology
from halp.tasks.heads import unit
from halp.tasks.index import search_exactly
from halp.tasks.segments import SEEN

if TYPE_CHECKING:
    from halp.explorer.fewlabel import FewLabelModel
    from halp.video.live import LivePicture

LARGEST_PICTURE = 640  # pixels of a side of a picture
WINDOW = 2.0  # seconds that are looked at, unless the collection is cut otherwise
NEAREST = 4


class LiveCamera:
    """Keeps the poses of the last few seconds; opens the pose estimator at the first picture."""

    def __init__(self) -> None:
        self._lock, self._opened = threading.Lock(), ExitStack()
        self._estimate: Any = None
        self._last = 0
        self._seen: deque[tuple[float, npt.NDArray[np.float32] | None]] = deque()

    def close(self) -> None:
        with self._lock:
            self._opened.close()

    def look(
        self,
        collection: Collection,
        model: FewLabelModel | None,
        picture: npt.NDArray[np.uint8],
        moment: float,
    ) -> dict[str, Any]:
        """The people in a picture `(height, width, 3)`, and their recent movements."""
        from halp.video.live import LivePicture

        with self._lock:
            began = time.perf_counter()
            image, world = self._poses(picture, collection.encoder.persons)
            seen = LivePicture(moment, image, world, (picture.shape[1], picture.shape[0]), 0.0, 0.0)
            posed = time.perf_counter()
            answer = {"people": self._outlines(seen), "body": describe_body(get_topology("mediapipe-33-2d"))}
            answer |= self._recognise(collection, model, seen)
            spent = {"pose": 1000 * (posed - began), "recognition": 1000 * (time.perf_counter() - posed)}
            return {**answer, "milliseconds": {name: round(value, 1) for name, value in spent.items()}}

    def _poses(self, picture: npt.NDArray[np.uint8], persons: int) -> Any:
        if self._estimate is None:
            from halp.video.networks import pose_estimator
            from halp.video.pose_model import find_pose_model

            self._estimate = self._opened.enter_context(pose_estimator(find_pose_model(), persons))
        self._last = max(self._last + 1, round(1000 * time.monotonic()))
        return self._estimate(picture, self._last)

    @staticmethod
    def _outlines(seen: LivePicture) -> list[list[list[float]]]:
        """Positions in the picture between 0 and 1, with the visibility of each."""
        return np.round(seen.image[..., [0, 1, 3]] / [*seen.size, 1], 4).tolist()

    def _recognise(
        self, collection: Collection, model: FewLabelModel | None, seen: LivePicture
    ) -> dict[str, Any]:
        encoder, past = collection.encoder, self._seen
        length = collection.source.cutting.window or WINDOW
        # another camera, or one that was stopped
        if past and not past[-1][0] < seen.time < past[-1][0] + length:
            past.clear()
        past.append((seen.time, seen.joints(encoder.topology.dimensions)))
        share = keep_window(past, length)
        there = [frame for _, frame in past if frame is not None]
        if share < 1 or len(there) < SEEN * len(past):
            return {"filled": round(share, 2), "seen": bool(there)}
        vector = self._vector(collection, length)
        rows, similarity = (
            part[0] for part in search_exactly(collection.table.vectors, unit(vector), NEAREST)
        )
        hits = [
            {**collection.describe(int(row)), "similarity": round(float(s), 3)}
            for row, s in zip(rows, similarity)
        ]
        answer: dict[str, Any] = {"filled": 1.0, "seen": True, "nearest": hits}
        if model is not None:
            prediction = model.classifier.predict(vector)
            answer |= {
                "label": (
                    None if prediction.rejected[0] else model.classifier.classes[int(prediction.best[0])]
                ),
                "best": model.classifier.classes[int(prediction.best[0])],
                "probability": round(float(prediction.probability[0]), 3),
            }
        return answer

    def _vector(self, collection: Collection, length: float) -> npt.NDArray[np.float32]:
        """The vector `(1, F)` of the last seconds, at even times."""
        encoder = collection.encoder
        times = np.array([moment for moment, _ in self._seen])
        count = max(2, len(times))
        even = np.linspace(times[0], times[-1], count)
        people = max(len(frame) for _, frame in self._seen if frame is not None)
        frames = np.zeros((count, people, 33, encoder.topology.dimensions), dtype=np.float32)
        for place, nearest in enumerate(np.abs(times[None] - even[:, None]).argmin(1)):
            frame = self._seen[nearest][1]
            if frame is not None:
                frames[place, : len(frame)] = frame
        layout = "mediapipe-33" if encoder.topology.dimensions == 3 else "mediapipe-33-2d"
        fps = (count - 1) / (times[-1] - times[0])
        ready = prepare_source(encoder, open_source(frames, topology=layout, fps=fps))
        return embed_frames(encoder, [ready.window(ready.recording(frames, fps), fps)])


def keep_window(past: deque[tuple[float, Any]], length: float) -> float:
    """Drop frames outside a window of `length` seconds; returns the covered share of it."""
    while len(past) > 1 and past[-1][0] - past[1][0] >= length:
        past.popleft()
    return min(1.0, (past[-1][0] - past[0][0]) / length)


def picture_of(data: bytes, width: int, height: int) -> npt.NDArray[np.uint8]:
    """Red, green and blue bytes as an image; nothing is decoded."""
    if len(data) != 3 * width * height or not data:
        raise InputError(f"a picture of {width} × {height} has {3 * width * height} bytes, not {len(data)}")
    return np.frombuffer(data, dtype=np.uint8).reshape(height, width, 3)
