"""A timeline of a recording: windows with classes of a model, or with groups found in the recordings, merged into segments."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from halp.clips.windows import Cutting
from halp.encoders.packaged import PackagedEncoder
from halp.training import load_encoder
from halp.use.calibration import Floats
from halp.use.classifier import Prediction
from halp.use.classify import predict_table
from halp.use.cluster import group_vectors
from halp.use.model_folder import Model, load_model
from halp.use.segments import Segment, merge_windows
from halp.use.sources import Source
from halp.use.vectors import VectorTable, embed_table

WINDOW, STRIDE = 2.0, 0.5  # seconds, where neither the user nor the model says


@dataclass(frozen=True)
class Timeline:
    """Segments of all recordings in their order, the windows they come from, and all labels that there are."""

    segments: list[Segment]
    table: VectorTable
    labels: list[str | None]
    cutting: Cutting


def segment(
    encoder: PackagedEncoder | str | os.PathLike[str] | None,
    source: Source,
    *,
    model: Model | str | os.PathLike[str] | None = None,
    window: float | None = None,
    stride: float | None = None,
    fps: float | None = None,
    groups: int | None = None,
    shortest: float | None = None,
    format: str = "auto",
    cache: bool = True,
    progress: bool = True,
) -> list[Segment]:
    """Segments of every recording of a source. With a model its classes (and its own encoder) are used, groups otherwise."""
    return find_segments(
        encoder,
        source,
        model=model,
        window=window,
        stride=stride,
        fps=fps,
        groups=groups,
        shortest=shortest,
        format=format,
        cache=cache,
        progress=progress,
    ).segments


def find_segments(
    encoder: PackagedEncoder | str | os.PathLike[str] | None,
    source: Source,
    *,
    model: Model | str | os.PathLike[str] | None = None,
    window: float | None = None,
    stride: float | None = None,
    fps: float | None = None,
    groups: int | None = None,
    shortest: float | None = None,
    format: str = "auto",
    cache: bool = True,
    progress: bool = True,
) -> Timeline:
    """What `segment` finds with everything that a page about it needs; `shortest` is half a window unless given."""
    loaded = load_model(model) if isinstance(model, (str, os.PathLike)) else model
    cutting = timeline_cutting(loaded, window, stride, fps)
    if loaded is not None:
        table, found = predict_table(loaded, source, cutting, format=format, cache=cache, progress=progress)
        labels: list[str | None] = [*loaded.classifier.classes, None]
        beliefs = class_beliefs(found)
    else:
        if encoder is None:
            raise ValueError("an encoder or a model is needed")
        used = encoder if isinstance(encoder, PackagedEncoder) else load_encoder(encoder)
        table = embed_table(used, source, cutting, format=format, cache=cache, progress=progress)
        grouped = group_vectors(table.vectors, groups)
        labels = [f"group {number + 1}" for number in range(len(grouped.typical))]
        beliefs = np.eye(len(labels))[grouped.group]
    shortest = (cutting.window or 0) / 2 if shortest is None else shortest
    segments: list[Segment] = []
    for number, name in enumerate(table.recordings):
        rows = np.flatnonzero(table.recording == number)
        segments += merge_windows(name, table.starts[rows], table.ends[rows], beliefs[rows], labels, shortest=shortest)
    return Timeline(segments, table, labels, cutting)


def timeline_cutting(model: Model | None, window: float | None, stride: float | None, fps: float | None) -> Cutting:
    """Windows as asked for, else as the model was fitted, else two seconds every half second."""
    own = model.cutting if model is not None else Cutting()
    width = window or own.window or WINDOW
    return Cutting(width, stride or (own.stride if window is None else None) or min(STRIDE, width / 4), fps or own.fps)


def class_beliefs(found: Prediction) -> Floats:
    """Probabilities `(N, C + 1)` with a last column for none of these, which wins where the classifier says so."""
    none = np.where(found.label < 0, 0.5 + 0.5 * found.probability, 0.0)
    return np.concatenate([found.probabilities * (1 - none)[:, None], none[:, None]], axis=1)


def segment_rows(segments: list[Segment]) -> list[dict[str, Any]]:
    """Segments as rows of a table; times and probabilities rounded."""
    return [
        {name: round(value, 6) if isinstance(value, float) else value for name, value in asdict(one).items()}
        for one in segments
    ]
