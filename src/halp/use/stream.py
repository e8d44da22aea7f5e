"""Live recognition: frames come in one at a time, an answer goes out every stride, with the time that it took."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.clips.clip import Clip
from halp.clips.normalise import normalise
from halp.errors import InputError
from halp.skeleton import Topology, map_joints
from halp.use.embed import embed_clips
from halp.use.model_folder import Model

Frame = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LiveAnswer:
    """The class of the last window, its span in seconds, and how long it took from its last frame on."""

    start: float
    end: float
    label: str | None
    probability: float
    milliseconds: float

    def to_json(self) -> dict[str, Any]:
        return {
            "start": round(self.start, 6),
            "end": round(self.end, 6),
            "label": self.label,
            "probability": round(self.probability, 6),
            "milliseconds": round(self.milliseconds, 3),
        }


@dataclass
class LiveRecognition:
    """Keeps the last window of frames `(P, V, C)`; `push` gives an answer at every stride once the window is full."""

    model: Model
    fps: float
    window: float
    stride: float
    topology: Topology | None = None
    latencies: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("fps", "window", "stride"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise InputError(f"{name} is {getattr(self, name)}; a stream needs a number above 0")
        encoder = self.model.encoder
        self.topology = self.topology or encoder.topology
        self.width = max(1, round(self.window * self.fps))
        shape = (self.width, encoder.persons, len(encoder.topology), encoder.topology.dimensions)
        self._ring = np.zeros(shape, dtype=np.float32)
        self.frames = 0
        self._answered = 0

    def push(self, frame: Frame) -> LiveAnswer | None:
        """Take one frame; an answer where a stride is complete."""
        began = time.perf_counter()
        encoder = self.model.encoder
        if self.topology is not None and self.topology.joints != encoder.topology.joints:
            frame = map_joints(frame[None], self.topology, encoder.topology)[0]
        place = self.frames % self.width
        self._ring[place] = 0
        self._ring[place, : min(len(frame), encoder.persons)] = frame[: encoder.persons]
        self.frames += 1
        # strides are counted in time, so that rounding does not add up
        due = self.width + round(self._answered * self.stride * self.fps)
        if self.frames < due:
            return None
        self._answered += 1
        return self._answer(began)

    def _answer(self, began: float) -> LiveAnswer:
        encoder = self.model.encoder
        place = self.frames % self.width
        window = np.concatenate([self._ring[place:], self._ring[:place]])
        frames = normalise(window, encoder.topology, encoder.normalisation)
        found = self.model.classifier.predict(embed_clips(encoder, [Clip(frames, "live")]))
        label = int(found.label[0])
        spent = 1000 * (time.perf_counter() - began)
        self.latencies.append(spent)
        return LiveAnswer(
            (self.frames - self.width) / self.fps,
            self.frames / self.fps,
            None if label < 0 else self.model.classifier.classes[label],
            float(found.probability[0]),
            spent,
        )

    def summary(self) -> dict[str, float]:
        """Frames and answers so far, median and 95 % latency in milliseconds, and frames per second it could keep up with."""
        spent = np.array(self.latencies) if self.latencies else np.zeros(1)
        busy = float(spent.sum()) / 1000
        return {
            "frames": self.frames,
            "answers": len(self.latencies),
            "latency_median_ms": float(np.median(spent)),
            "latency_95_ms": float(np.quantile(spent, 0.95)),
            "frames_per_second": self.frames / busy if busy else float("inf"),
        }


def read_frames(lines: Iterable[str], topology: Topology) -> Iterator[Frame]:
    """Frames from JSON lines: joints `(V, C)` or persons `(P, V, C)`, bare or as {"joints": …}; null is a missing joint."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _frame(line, number, topology)


def _frame(line: str, number: int, topology: Topology) -> Frame:
    expected = (len(topology), topology.dimensions)
    try:
        data = json.loads(line)
        data = data["joints"] if isinstance(data, dict) else data
        blank = [None] * expected[1]

        def filled(value: Any, depth: int) -> Any:
            return blank if value is None and depth == 1 else [filled(v, depth - 1) for v in value] if depth else value

        deep = 3 if np.ndim(next((one for one in data if one is not None), [])) == 2 else 2
        frame = np.array(filled(data, deep), dtype=np.float64)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(
            f"line {number} of standard input is not a frame ({type(error).__name__}: {error}); write one JSON array of "
            f"{expected[0]} joints with {expected[1]} coordinates per line"
        ) from None
    frame = frame[None] if frame.ndim == 2 else frame
    if frame.ndim != 3 or frame.shape[1:] != expected or not len(frame):
        raise InputError(
            f"line {number} of standard input has shape {frame.shape}; topology '{topology.name}' needs {expected[0]} joints "
            f"with {expected[1]} coordinates, or a list of persons of them"
        )
    return np.where(np.isfinite(frame).all(-1, keepdims=True), frame, 0).astype(np.float32)
