"""A timeline of a recording: classified or grouped windows, merged into segments."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import Unpack

from halp.core.errors import InputError, check_seconds
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.spans import Event
from halp.data.windows import STRIDE, WINDOW, WindowSettings
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.embed import embed_table
from halp.features.loading import AnyEncoder, open_for
from halp.features.source import AnySource, Source
from halp.features.table import FeatureTable
from halp.tasks.calibration import Reject
from halp.tasks.classify import predict_table, warn_about
from halp.tasks.cluster import group_vectors
from halp.tasks.model_folder import Model, load_model
from halp.tasks.segments import SEEN, Predictions, merge_windows


@dataclass(frozen=True)
class Timeline(Predictions):
    """The segments of all recordings, with the encoder, source and windows they come from and all labels."""

    table: FeatureTable = field(repr=False)
    labels: list[str]
    cutting: WindowSettings
    encoder: PretrainedEncoder = field(repr=False)
    source: Source


def segment(
    encoder: AnyEncoder | None,
    source: AnySource,
    *,
    model: Model | str | os.PathLike[str] | None = None,
    groups: int | None = None,
    shortest: float | None = None,
    reject: Reject = "auto",
    cache: bool = True,
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Timeline:
    """Segments of every recording of a source: classes of a model, or groups without one.

    Parameters
    ----------
    encoder
        An encoder, or the path or name of one; None if a model is given.
    source
        A store, recordings of any format, or arrays.
    model
        A model or its folder.
    groups
        How many groups, without a model.
    shortest
        Segments of fewer seconds go to a neighbour; half a window unless given.
    reject
        "auto" for the rate of the model, "none" for never, or the share of known windows that may be
        rejected.
    cache, progress
        See `halp.embed_table`.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields (window, stride, fps, topology, format,
        options, labels, pattern).

    Returns
    -------
    Timeline
        A sequence of events with the best class in `more` and its probability as score.

    Examples
    --------
    >>> import numpy as np, halp
    >>> clip = np.random.default_rng(0).normal(size=(160, 25, 3))
    >>> timeline = halp.segment("halp-base", clip, groups=1, fps=20, topology="kinect-v2", cache=False, progress=False)
    >>> [(segment.start, segment.stop, segment.label) for segment in timeline]
    [(0.0, 8.0, 'group 1')]
    """
    check_seconds(shortest=shortest)
    loaded = load_model(model) if isinstance(model, (str, os.PathLike)) else model
    reading = combine(reading, keywords)
    cutting = timeline_cutting(loaded, reading.windows)
    reading = reading.cut_by(cutting)
    if loaded is None and encoder is None:
        raise InputError("segments need an encoder, or a model, which brings its own")
    used, opened = open_for(encoder if loaded is None else loaded.encoder, source, reading)
    if loaded is not None:
        warn_about(loaded, cutting, reject)
        table, prediction = predict_table(
            loaded, opened, reading, reject=reject, cache=cache, progress=progress
        )
        labels, label_scores = list(loaded.classifier.classes), prediction.probabilities
        rejected = prediction.rejected if loaded.classifier.can_reject(reject) else None
    else:
        table = embed_table(used, opened, compact=True, cache=cache, progress=progress)
        grouped = group_vectors(table.vectors, groups)
        labels = [f"group {number + 1}" for number in range(len(grouped.typical))]
        label_scores, rejected = np.eye(len(labels))[grouped.group], None
    shortest = (cutting.window or 0) / 2 if shortest is None else shortest
    segments: list[Event] = []
    for number, (name, rows) in enumerate(zip(table.recordings, table.rows_by_recording())):
        absent = [
            (start, stop) for start, stop in table.absent(number) if stop - start >= max(shortest, 1e-6)
        ]
        rows = rows[table.seen[rows] >= SEEN] if absent else rows
        segments += merge_windows(
            name,
            table.starts[rows],
            table.stops[rows],
            label_scores[rows],
            labels,
            rejected=None if rejected is None else rejected[rows],
            absent=absent,
            shortest=shortest,
        )
    return Timeline(segments, table, labels, cutting, used, opened)


def timeline_cutting(model: Model | None, asked: WindowSettings) -> WindowSettings:
    """Windows as given, else as the model was fitted, else two seconds every half second."""
    fitted = model.cutting if model is not None else WindowSettings()
    width = asked.window if asked.window is not None else fitted.window or WINDOW
    stride = asked.stride
    if stride is None:
        stride = (fitted.stride if asked.window is None else None) or min(STRIDE, width / 4)
    check_stride(width, stride)
    return WindowSettings(width, stride, fitted.fps if asked.fps is None else asked.fps)


def check_stride(window: float, stride: float) -> None:
    """Refuse strides longer than the window: a timeline would claim time that was not seen."""
    if stride > window:
        raise InputError(
            f"a stride of {stride:g} s is longer than the window of {window:g} s, so {stride - window:g} of"
            f" every {stride:g} s would not be seen; give a stride of up to {window:g} s"
        )
