"""Live recognition from a camera, a video, or frames on standard input: an event at every stride."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

from halp.core.errors import InputError
from halp.data.spans import Event
from halp.tasks.calibration import Reject
from halp.tasks.live import FrameReader, LiveRecognition
from halp.tasks.model_folder import Model, load_model
from halp.video.live import LivePicture, camera_rate, watch
from halp.video.pose_model import find_pose_model


def live(
    model: Model | str | os.PathLike[str],
    source: str = "0",
    *,
    pose_model: str = "",
    window: float | None = None,
    stride: float = 0.5,
    fps: float | None = None,
    topology: str | None = None,
    reject: Reject = "auto",
    on_frame: Callable[[LivePicture | None, LiveRecognition], None] | None = None,
) -> Iterator[Event]:
    """Recognise actions live: from a camera, a video, or frames on standard input.

    Parameters
    ----------
    model : Model or path
        A model of `classify_fit` or `finetune`.
    source : str
        The number of a camera, a video, or - for standard input, with a frame per line: a JSON array of joints.
    pose_model : str
        A .task file of your own (default: that of `halp pose-model`).
    window : float, optional
        Seconds that an answer looks at (default: as the model was fitted, else 2).
    stride : float
        Seconds between two answers.
    fps : float, optional
        Frames per second of a camera (default: 15) or on standard input (default: as the model was fitted);
        videos have their own.
    topology : str, optional
        Joint layout on standard input (default: that of the encoder).
    reject : float, "auto" or "none"
        Share of known windows that may be rejected as unlike everything labelled.
    on_frame : callable, optional
        Called with every picture (None for standard input) and the recognition, for a view of your own.

    Yields
    ------
    Event
        A prediction per stride; of pictures, `more["stages"]` says how many milliseconds picture, pose and
        recognition took.
    """
    fitted = model if isinstance(model, Model) else load_model(model)
    if source == "-":
        recognition = LiveRecognition(fitted, fps, window, stride, topology, reject)
        for answer in _from_lines(recognition):
            if on_frame is not None:
                on_frame(None, recognition)
            if answer is not None:
                yield answer
        return
    if topology is not None:
        raise InputError(
            "a layout is given only for frames on standard input; videos and cameras have their own"
        )
    rate = camera_rate(source) or (15.0 if fps is None else fps)
    if not 0 < rate < math.inf:
        raise InputError(f"fps = {fps:g}: frames per second must be above 0")
    dimensions = fitted.encoder.topology.dimensions
    layout = "mediapipe-33" if dimensions == 3 else "mediapipe-33-2d"
    recognition = LiveRecognition(fitted, rate, window, stride, layout, reject)
    for picture in watch(source, find_pose_model(pose_model), persons=fitted.encoder.persons):
        answer = None
        # frames are pushed by the clock: a late picture counts as often as its time asks for
        while recognition.frames <= picture.time * rate:
            answer = recognition.push(picture.joints(dimensions)) or answer
        if on_frame is not None:
            on_frame(picture, recognition)
        if answer is not None:
            stages = {"picture": round(picture.grab, 1), "pose": round(picture.pose, 1)}
            stages["recognition"] = round(answer.more["milliseconds"], 1)
            yield replace(answer, more={**answer.more, "stages": stages})


def _from_lines(recognition: LiveRecognition) -> Iterator[Event | None]:
    """Answers to frames on standard input; lines that are not frames are warnings."""
    reader = FrameReader(sys.stdin.buffer, recognition.layout)
    told = 0
    for frame in reader:
        answer = recognition.push(frame)
        if reader.bad > told and told < 3:
            told = reader.bad
            warnings.warn(reader.problem, stacklevel=2)
        yield answer
    if reader.bad:
        warnings.warn(f"{reader.bad} of {reader.read} lines were not frames: {reader.problem}", stacklevel=2)
