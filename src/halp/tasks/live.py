"""Live recognition: frames come in one at a time, an answer goes out every stride, with the time that it took."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.clip import present
from halp.data.normalise import normalise
from halp.data.spans import Event
from halp.data.topology_file import find_topology
from halp.data.windows import WindowSettings
from halp.features.embed import embed_frames
from halp.skeleton import Topology, map_joints
from halp.tasks.classifier import Reject, check_rejection
from halp.tasks.model_folder import Model
from halp.tasks.segments import SEEN, predicted

Frame = npt.NDArray[np.float32]
LONGEST_LINE = 4 * 2**20  # bytes of a frame on standard input
LONGEST_WINDOW = 100_000  # frames
MOST_PERSONS = 100
HOPELESS = 30  # lines at the start of a stream of which none is a frame
LARGEST = 1e7  # a coordinate beyond it is no place of a joint, in whatever unit


@dataclass
class LiveRecognition:
    """Keeps the last window of frames; `push` gives an answer at every stride once the window is full.

    Parameters
    ----------
    model
        What `classify_fit` or `load_model` gave.
    fps
        Frames per second that come in.
    window, stride
        Seconds of a window and between two answers.
    topology
        The joint layout of the frames, or its name; that of the encoder unless given.
    reject
        "auto" for the rate of the model, "none" for never, or the share of known windows that may be rejected.
    """

    model: Model
    fps: float
    window: float
    stride: float
    topology: Topology | str | None = None
    reject: Reject = "auto"
    frames: int = field(default=0, init=False)
    answers: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        WindowSettings(self.window, self.stride, self.fps)
        check_rejection(self.reject)
        encoder = self.model.encoder
        self.layout = encoder.topology if self.topology is None else find_topology(self.topology)
        self.width = max(1, round(self.window * self.fps))
        if self.width > LONGEST_WINDOW:
            raise InputError(
                f"a window of {self.window:g} s at {self.fps:g} frames per second has {self.width:,} frames, "
                f"more than {LONGEST_WINDOW:,}; choose a shorter window"
            )
        shape = (self.width, encoder.persons, len(encoder.topology), encoder.topology.dimensions)
        self._ring = np.zeros(shape, dtype=np.float32)
        self._latencies: deque[float] = deque(maxlen=10_000)
        self._busy = 0.0
        self._warm_up()

    def _warm_up(self) -> None:
        """Recognise noise once: what is loaded or built at the first use is there before the first frame."""
        self._ring[:] = np.random.default_rng(0).uniform(1, 2, self._ring.shape)
        self._recognise()
        self._ring[:] = 0

    def push(self, frame: Frame | None) -> Event | None:
        """Take one frame `(V, C)` or `(P, V, C)`, None where nobody is seen; an answer where a stride is complete."""
        began = time.perf_counter()
        place = self.frames % self.width
        self._ring[place] = 0
        if frame is not None:
            persons = self._mapped(frame)
            self._ring[place, : len(persons)] = persons
        self.frames += 1
        # strides are counted in time, so that rounding does not add up
        if self.frames < self.width + round(self.answers * self.stride * self.fps):
            return None
        best, probability, rejected = self._recognise()
        spent = time.perf_counter() - began
        self.answers += 1
        self._busy += spent
        self._latencies.append(1000 * spent)
        span = (self.frames - self.width) / self.fps, self.frames / self.fps
        return predicted("live", *span, best, probability, rejected, milliseconds=round(1000 * spent, 3))

    def _mapped(self, frame: Frame) -> Frame:
        """As many persons of a frame as the encoder takes, in its layout."""
        shape, encoder = (len(self.layout), self.layout.dimensions), self.model.encoder
        frame = np.asarray(frame, dtype=np.float32)
        frame = frame[None] if frame.ndim == 2 else frame
        if frame.ndim != 3 or frame.shape[1:] != shape:
            raise InputError(f"a frame has shape {frame.shape}; topology '{self.layout.name}' needs (persons, {shape})")
        frame = np.where((np.abs(frame) <= LARGEST).all(-1, keepdims=True), frame, 0)[: encoder.persons]
        if self.layout.joints != encoder.topology.joints:
            frame = map_joints(frame[None], self.layout, encoder.topology)[0]
        return frame

    def _recognise(self) -> tuple[str | None, float | None, bool | None]:
        """Best class, its probability, and whether it is rejected; nothing where nobody is seen most of the time."""
        window = np.roll(self._ring, -self.frames % self.width, axis=0)
        if present(window).any(1).mean() < SEEN:
            return None, None, None
        encoder = self.model.encoder
        frames = normalise(window, encoder.topology, encoder.normalisation)
        prediction = self.model.classifier.predict(embed_frames(encoder, [frames]), reject=self.reject)
        return (
            self.model.classifier.classes[prediction.best[0]],
            float(prediction.probability[0]),
            bool(prediction.rejected[0]) if self.model.classifier.can_reject(self.reject) else None,
        )

    @property
    def busy(self) -> float:
        """Seconds that recognition took so far."""
        return self._busy

    def summary(self, rate: float | None = None) -> str:
        """Frames and answers so far, latency, and how many frames per second it could keep up with (`rate`, where known)."""
        if not self.answers:
            return f"{self.frames} frames, no answer: a window of {self.window:g} s has {self.width} frames"
        median, high = np.quantile(self._latencies, [0.5, 0.95])
        return (
            f"{self.frames} frames, {self.answers} answers; latency {median:.1f} ms (median), {high:.1f} ms (95 %); "
            f"keeps up with {self.frames / max(self._busy, 1e-9) if rate is None else rate:.0f} frames per second"
        )


@dataclass
class FrameReader:
    """Frames of a stream of JSON lines: joints `(V, C)` or persons `(P, V, C)`, bare or as {"joints": …}.

    `null` is a missing joint or person; `null` or `[]` in place of a frame is nobody. A line that is not a frame counts as a
    frame in which nobody is seen, so that the clock goes on; `bad` counts them and `problem` says what the last one was.
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
                if self.bad == self.read and self.bad >= HOPELESS:
                    raise InputError(f"none of the first {HOPELESS} lines is a frame: {self.problem}")
                yield frame
        if self.read and self.bad == self.read:
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
                f"line {self.read} of standard input is not a frame ({words[0][:120]}) and counts as nobody; write a JSON "
                f"array of {len(self.topology)} joints with {self.topology.dimensions} coordinates per line"
            )
            return None


def parse_frame(line: bytes | str, topology: Topology) -> Frame | None:
    """The persons `(P, V, C)` of a line of JSON, None where nobody is seen; an error of Python where it is no frame."""
    joints, dimensions = len(topology), topology.dimensions
    data = json.loads(line)
    data = data["joints"] if isinstance(data, dict) else data
    if data is None or data == []:
        return None
    blank = [None] * dimensions
    first = next((item for item in data if item is not None), blank)
    persons = data if len(first) == joints else [data]
    if len(persons) > MOST_PERSONS:
        raise ValueError(f"{len(persons):,} persons, more than {MOST_PERSONS}")
    filled = [[blank if joint is None else joint for joint in person or [blank] * joints] for person in persons]
    frame = np.array(filled, dtype=np.float64)
    if frame.shape[1:] != (joints, dimensions):
        raise ValueError(f"shape {frame.shape}")
    seen = np.isfinite(frame).all(-1, keepdims=True)
    if np.abs(frame, where=seen, out=np.zeros_like(frame)).max() > LARGEST:
        raise ValueError(f"a coordinate beyond {LARGEST:g}")
    return np.where(seen, frame, 0).astype(np.float32) if seen.any() else None
