"""Recognition of what a camera or a video shows, as it comes: poses of every picture, and an event at every
stride.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from halp.core.errors import InputError
from halp.data.spans import Event
from halp.tasks.calibration import Reject
from halp.tasks.live import LiveRecognition
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
    fps: float = 15.0,
    reject: Reject = "auto",
    on_picture: Callable[[LivePicture, LiveRecognition], None] | None = None,
) -> Iterator[Event]:
    """Recognise what a camera or a video shows as it comes.

    Parameters
    ----------
    model : Model or path
        A model of `classify_fit` or `finetune`.
    source : str
        The number of a camera, or a video.
    pose_model : str
        A .task file of your own (default: that of `halp pose-model`).
    window : float, optional
        Seconds that an answer looks at (default: as the model was fitted, else 2).
    stride : float
        Seconds between two answers.
    fps : float
        Frames per second that are taken from a camera; videos have their own.
    reject : float, "auto" or "none"
        Share of known windows that may be rejected as unlike everything labelled.
    on_picture : callable, optional
        Called with every picture and the recognition, for a view of your own.

    Yields
    ------
    Event
        A prediction per stride; `more["stages"]` says how many milliseconds picture, pose and recognition
        took.
    """
    fitted = model if isinstance(model, Model) else load_model(model)
    rate = camera_rate(source) or fps
    if rate <= 0:
        raise InputError(f"fps = {fps:g}: frames per second must be above 0")
    dimensions = fitted.encoder.topology.dimensions
    layout = "mediapipe-33" if dimensions == 3 else "mediapipe-33-2d"
    recognition = LiveRecognition(fitted, rate, window, stride, layout, reject)
    for picture in watch(source, find_pose_model(pose_model), persons=fitted.encoder.persons):
        answer = None
        # frames are pushed by the clock: a late picture counts as often as its time asks for
        while recognition.frames <= picture.time * rate:
            answer = recognition.push(picture.joints(dimensions)) or answer
        if on_picture is not None:
            on_picture(picture, recognition)
        if answer is not None:
            stages = {"picture": round(picture.grab, 1), "pose": round(picture.pose, 1)}
            stages["recognition"] = round(answer.more["milliseconds"], 1)
            yield replace(answer, more={**answer.more, "stages": stages})
