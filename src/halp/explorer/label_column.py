"""Labels by row: which class people gave to at least half of a clip or window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from halp.data.spans import Event
from halp.explorer.label_facts import Labels

if TYPE_CHECKING:
    from halp.explorer.collection import Collection


@dataclass(frozen=True)
class LabelColumn:
    """Labels of a revision by row: the place of a class (−1: none), and names of classes by place."""

    labels: Labels
    values: npt.NDArray[np.int16]
    names: list[str]


def label_rows(
    collection: Collection, events: Sequence[Event], names: Sequence[str]
) -> npt.NDArray[np.int16]:
    """For each row, the index of the label of the events that cover at least half of it; later ones win."""
    values = np.full(len(collection), -1, dtype=np.int16)
    place = {name: number for number, name in enumerate(names)}
    recordings = {name: number for number, name in enumerate(collection.recordings)}
    by_recording: dict[int, list[Event]] = {}
    for event in events:
        if event.recording in recordings:
            by_recording.setdefault(recordings[event.recording], []).append(event)
    order = np.argsort(collection.recording, kind="stable")
    numbers = collection.recording[order]
    for recording, own in by_recording.items():
        rows = order[np.searchsorted(numbers, recording) : np.searchsorted(numbers, recording, "right")]
        starts, stops = collection.table.starts[rows], collection.table.stops[rows]
        for event in own:
            shared = np.minimum(stops, event.stop) - np.maximum(starts, event.start)
            values[rows[shared >= 0.5 * (stops - starts) - 1e-3]] = place[event.label]
    return values
