"""A timeline of a recording: windows with classes of a model, or with groups found in the recordings, merged into segments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

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
from halp.use.sources import Reading, Source, split_reading
from halp.use.vectors import VectorTable, embed_table

if TYPE_CHECKING:
    from typing_extensions import Unpack

WINDOW, STRIDE = 2.0, 0.5  # seconds, where neither the user nor the model says


@dataclass(frozen=True)
class Timeline(Sequence[Segment]):
    """A sequence of the segments of all recordings in their order, with the windows they come from and all labels there are."""

    segments: list[Segment]
    table: VectorTable
    labels: list[str | None]
    cutting: Cutting

    def __len__(self) -> int:
        return len(self.segments)

    def __getitem__(self, place: Any) -> Any:
        return self.segments[place]


def segment(
    encoder: PackagedEncoder | str | os.PathLike[str] | None,
    source: Source,
    *,
    model: Model | str | os.PathLike[str] | None = None,
    groups: int | None = None,
    shortest: float | None = None,
    **reading: Unpack[Reading],
) -> Timeline:
    """Segments of every recording of a source: classes of a model (with its own encoder), or groups where there is none.

    Segments shorter than `shortest` seconds (half a window unless given) go to a neighbour.
    `reading`: window, stride, fps, format, cache, progress.
    """
    loaded = load_model(model) if isinstance(model, (str, os.PathLike)) else model
    spans, rest = split_reading(reading)
    cutting = timeline_cutting(loaded, **spans)
    if loaded is not None:
        table, found = predict_table(loaded, source, cutting, **rest)
        labels: list[str | None] = [*loaded.classifier.classes, None]
        beliefs = class_beliefs(found)
    else:
        if encoder is None:
            raise ValueError("an encoder or a model is needed")
        used = encoder if isinstance(encoder, PackagedEncoder) else load_encoder(encoder)
        table = embed_table(used, source, cutting, **rest)
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


def segment_rows(segments: Sequence[Segment]) -> list[dict[str, Any]]:
    """Segments as rows of a table; times and probabilities rounded."""
    return [
        {name: round(value, 6) if isinstance(value, float) else value for name, value in asdict(one).items()}
        for one in segments
    ]
