"""Live recognition: frames arrive one at a time; every stride gives an answer with its latency."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.clip import Frames, present
from halp.data.spans import Event
from halp.data.topology_file import find_topology
from halp.data.windows import WindowSettings
from halp.features.encode import embed_frames
from halp.features.opening import open_source
from halp.features.ready import prepare_source
from halp.skeleton import Topology
from halp.tasks.calibration import Reject, check_rejection
from halp.tasks.model_folder import Model, as_model
from halp.tasks.segment import STRIDE, WINDOW, timeline_cutting
from halp.tasks.segments import SEEN, predicted

Frame = npt.NDArray[np.float32]
LONGEST_LINE = 4 * 2**20  # bytes of a frame on standard input
LONGEST_WINDOW = 100_000  # frames
MOST_PERSONS = 100
MOST_BAD = 30  # lines at the start of the input of which none is a frame
LARGEST_COORDINATE = 1e7  # a coordinate beyond it is no place of a joint, in whatever unit


@dataclass
class LiveRecognition:
    """Keeps the last window of frames; `push` gives an answer at every stride once the window is full.

    Parameters
    ----------
    model
        What `classify_fit` or `load_model` gave, or the folder of a model.
    fps
        Frames per second that come in; by default the rate that the model was fitted with, if it was given.
    window, stride
        Seconds of a window and between two answers; by default those that the model was fitted with, else 2
        and 0.5.
    topology
        The joint layout of the frames, or its name; that of the encoder unless given.
    reject
        "auto" for the rate of the model, "none" for never, or the share of known windows that may be
        rejected.
    """

    model: Model | str | os.PathLike[str]
    fps: float | None = None
    window: float | None = None
    stride: float | None = None
    topology: Topology | str | None = None
    reject: Reject = "auto"
    frames: int = field(default=0, init=False)
    answers: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.model = self._fitted = as_model(self.model)
        check_rejection(self.reject)
        self._cut()
        encoder = self._fitted.encoder
        self.layout = encoder.topology if self.topology is None else find_topology(self.topology)
        blank = np.zeros((self.width, 1, len(self.layout), self.layout.dimensions), dtype=np.float32)
        self._ready = prepare_source(encoder, open_source(blank, topology=self.layout, fps=self.fps))
        self._ring = blank
        self._latencies: deque[float] = deque(maxlen=10_000)
        self._busy = 0.0
        self._warm_up()

    def _cut(self) -> None:
        """Rate, window and stride, by default those of the model."""
        if self.window is None and self.stride is not None:
            self.window = self._fitted.cutting.window or WINDOW
        cutting = timeline_cutting(self._fitted, WindowSettings(self.window, self.stride, self.fps))
        if cutting.fps is None:
            raise InputError(
                "frames do not state their rate, and the model was fitted without one; give it with --fps or fps="
            )
        self.window, self.stride, self.fps = cutting.window or WINDOW, cutting.stride or STRIDE, cutting.fps
        self._rate, self._step = self.fps, self.stride
        self.width = max(1, round(self.window * self.fps))
        if self.width > LONGEST_WINDOW:
            raise InputError(
                f"a window of {self.window:g} s at {self.fps:g} frames per second has {self.width:,} frames, "
                f"more than {LONGEST_WINDOW:,}; choose a shorter window"
            )

    def _warm_up(self) -> None:
        """Recognise noise once, so that everything is loaded before the first frame."""
        self._ring[:] = np.random.default_rng(0).uniform(1, 2, self._ring.shape)
        self._recognise()
        self._ring[:] = 0

    def push(self, frame: Frame | None) -> Event | None:
        """Take one frame `(V, C)`, `(P, V, C)`, or None (nobody); an answer where a stride is complete."""
        began = time.perf_counter()
        if not self.take(frame):
            return None
        best, probability, rejected = self._recognise()
        spent = time.perf_counter() - began
        self._busy += spent
        self._latencies.append(1000 * spent)
        return predicted("live", *self.span, best, probability, rejected, milliseconds=round(1000 * spent, 3))

    def take(self, frame: Frame | None) -> bool:
        """Take one frame; returns whether a stride is complete."""
        place = self.frames % self.width
        self._ring[place] = 0
        if frame is not None:
            persons = self._checked(frame)
            if len(persons) > self._ring.shape[1]:
                more = len(persons) - self._ring.shape[1]
                self._ring = np.pad(self._ring, ((0, 0), (0, more), (0, 0), (0, 0)))
            self._ring[place, : len(persons)] = persons
        self.frames += 1
        # strides are counted in time, so that rounding does not add up
        if self.frames < self.width + round(self.answers * self._step * self._rate):
            return False
        self.answers += 1
        return True

    @property
    def span(self) -> tuple[float, float]:
        """Start and stop of the last window in seconds."""
        return (self.frames - self.width) / self._rate, self.frames / self._rate

    def window_frames(self) -> Frames | None:
        """The last window, ready for the encoder; None if nobody is seen most of the time."""
        window = np.roll(self._ring, -self.frames % self.width, axis=0)
        if present(window).any(1).mean() < SEEN:
            return None
        return self._ready.window(self._ready.recording(window, self._rate), self._rate)

    def _checked(self, frame: Frame) -> Frame:
        """The persons `(P, V, C)` of a frame; zeros for joints that are not seen."""
        shape = (len(self.layout), self.layout.dimensions)
        frame = np.asarray(frame, dtype=np.float32)
        frame = frame[None] if frame.ndim == 2 else frame
        if frame.ndim != 3 or frame.shape[1:] != shape or len(frame) > MOST_PERSONS:
            raise InputError(
                f"a frame has shape {frame.shape}; topology '{self.layout.name}' needs (persons, {shape})"
            )
        return np.where((np.abs(frame) <= LARGEST_COORDINATE).all(-1, keepdims=True), frame, 0)

    def _recognise(self) -> tuple[str | None, float | None, bool | None]:
        """Best class, its probability, and whether it is rejected; None if nobody is seen mostly."""
        frames = self.window_frames()
        if frames is None:
            return None, None, None
        classifier = self._fitted.classifier
        prediction = classifier.predict(embed_frames(self._fitted.encoder, [frames]), reject=self.reject)
        return (
            classifier.classes[prediction.best[0]],
            float(prediction.probability[0]),
            bool(prediction.rejected[0]) if classifier.can_reject(self.reject) else None,
        )

    @property
    def busy(self) -> float:
        """Seconds spent on recognition so far."""
        return self._busy

    def summary(self, rate: float | None = None) -> str:
        """Frames and answers so far, latency, and the frame rate that it can sustain."""
        if not self.answers:
            return f"{self.frames} frames, no answer: a window of {self.window:g} s has {self.width} frames"
        median, high = np.quantile(self._latencies, [0.5, 0.95])
        return (
            f"{self.frames} frames, {self.answers} answers; latency {median:.1f} ms (median), {high:.1f} ms"
            f" (95 %); keeps up with {self.frames / max(self._busy, 1e-9) if rate is None else rate:.0f}"
            " frames per second"
        )


@dataclass
class FrameReader:
    """Frames from JSON lines: joints `(V, C)` or persons `(P, V, C)`, bare or as {"joints": …}.

    `null` is a missing joint or person; `null` or `[]` instead of a frame is nobody. A line that is not a
    frame counts as a frame in which nobody is seen, which keeps the clock running; `bad` counts them and
    `problem` describes the last one. Where none of the first `MOST_BAD` lines is a frame, or none of all, or
    there is none, the stream is refused.
    """

    lines: BinaryIO
    topology: Topology
    read: int = field(default=0, init=False)
    bad: int = field(default=0, init=False)
    problem: str = field(default="", init=False)

    def __iter__(self) -> Iterator[Frame | None]:
        while line := self.lines.readline(LONGEST_LINE + 1):
            self.read += 1
            if line.strip():
                frame = self._frame(line)
                if self.bad == self.read and self.bad >= MOST_BAD:
                    raise InputError(f"none of the first {MOST_BAD} lines is a frame: {self.problem}")
                yield frame
        if not self.read:
            raise InputError("standard input ended before the first frame; check the program that sends them")
        if self.bad == self.read:
            raise InputError(f"none of the {self.read} lines is a frame: {self.problem}")

    def _frame(self, line: bytes) -> Frame | None:
        try:
            if len(line) > LONGEST_LINE:
                while line and not line.endswith(b"\n"):
                    line = self.lines.readline(LONGEST_LINE)
                raise ValueError(f"longer than {LONGEST_LINE:,} bytes")
            return parse_frame(line, self.topology)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            words = str(error).splitlines()[:1] or [""]
            self.bad += 1
            self.problem = (
                f"line {self.read} of standard input is not a frame ({words[0][:120]}) and counts as nobody;"
                f" write a JSON array of {len(self.topology)} joints with {self.topology.dimensions}"
                " coordinates per line"
            )
            return None


def parse_frame(line: bytes | str, topology: Topology) -> Frame | None:
    """The persons `(P, V, C)` of a line of JSON, or None; raises Python's errors if it is not a frame."""
    data = json.loads(line)
    return frame_persons(data["joints"] if isinstance(data, dict) else data, topology)


def frame_persons(data: Any, topology: Topology) -> Frame | None:
    """The persons `(P, V, C)` of a frame as nested lists, None for missing parts or for no person at all."""
    if data is None or data == []:
        return None
    if not isinstance(data, list):
        raise TypeError(f"{type(data).__name__} instead of a list")
    joints, dimensions = len(topology), topology.dimensions
    blank = [None] * dimensions
    first = next((item for item in data if item is not None), None)
    if first is None:
        return None
    persons = data if len(first) == joints else [data]
    if len(persons) > MOST_PERSONS:
        raise ValueError(f"{len(persons):,} persons, more than {MOST_PERSONS}")
    filled = [
        [blank if joint is None else joint for joint in ([blank] * joints if person is None else person)]
        for person in persons
    ]
    check_numbers(filled, 3)
    frame = np.array(filled, dtype=np.float64)
    if frame.shape[1:] != (joints, dimensions):
        raise ValueError(f"shape {frame.shape}")
    seen = np.isfinite(frame).all(-1, keepdims=True)
    if np.abs(frame, where=seen, out=np.zeros_like(frame)).max() > LARGEST_COORDINATE:
        raise ValueError(f"a coordinate beyond {LARGEST_COORDINATE:g}")
    return np.where(seen, frame, 0).astype(np.float32) if seen.any() else None


def check_numbers(nested: Any, depth: int) -> None:
    """Raise if nested lists hold anything but numbers and None; `depth` is the level of nesting."""
    for _ in range(depth - 1):
        nested = chain.from_iterable(nested)
    if others := set(map(type, nested)) - {int, float, type(None)}:
        raise ValueError(f"{others.pop().__name__} instead of numbers")
