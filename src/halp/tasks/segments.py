"""Predictions about spans, and merging of overlapping windows into segments with one label each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halp.core.listed import Listed
from halp.data.spans import ABSENT, NOBODY, UNSEEN, Event, Events, person_of

Floats = npt.NDArray[np.float64]
SEEN = 0.5  # share of a window in which somebody must be seen for an answer


class Answer(Protocol):
    """What every verb returns: it knows its spans and its JSON, and nothing about drawing."""

    def events(self) -> Events:
        """The spans of the answer, in order of recording and time."""
        ...

    def to_json(self) -> Any:
        """Plain data, the JSON document of the command."""
        ...


def predicted(
    recording: str,
    start: float,
    stop: float,
    best: str | None,
    probability: float | None = None,
    rejected: bool | None = None,
    **more: Any,
) -> Event:
    """The event of a prediction; `best` is the most probable class, None if the person is not seen.

    The label is empty if the class is rejected as unlike everything labelled; `rejected` is None if the model
    cannot reject.
    """
    unseen = NOBODY if person_of(recording) is None else ABSENT
    label = unseen if best is None else "" if rejected else best
    return Event(
        recording, start, stop, label, "", "model", probability, {"best": best, "rejected": rejected, **more}
    )


def prediction_json(event: Event) -> dict[str, Any]:
    """A prediction as plain data: fields of events plus name, end, probability, best and rejected.

    `label` is null if the class is rejected or nobody is seen; `state` says so there. Times are
    rounded to a millisecond.
    """
    start, stop = round(event.start, 3), round(event.stop, 3)
    score = None if event.score is None else round(event.score, 6)
    unseen = event.label in UNSEEN
    plain = {
        "name": event.recording,
        "start": start,
        "end": stop,
        "label": None if unseen else event.label or None,
        "probability": score,
        **event.more,
    }
    plain |= {
        "recording": event.recording,
        "stop": stop,
        "score": score,
        "subject": event.subject,
        "source": event.source,
    }
    return plain | ({"state": event.label} if unseen else {})


@dataclass(frozen=True)
class Predictions(Listed[Event]):
    """Predictions for clips, windows or segments, in the order of their source."""

    listed = "predictions"

    predictions: Sequence[Event]

    def events(self) -> Events:
        """The predictions as events; the label is empty if rejected, `nobody` if nobody is seen."""
        return Events(self.predictions)

    def to_json(self) -> list[dict[str, Any]]:
        """A row per prediction."""
        return [prediction_json(event) for event in self.predictions]


def merge_windows(
    name: str,
    starts: Floats,
    ends: Floats,
    probabilities: Floats,
    labels: Sequence[str],
    *,
    rejected: npt.NDArray[np.bool_] | None = None,
    absent: Sequence[tuple[float, float]] = (),
    shortest: float = 0.0,
) -> list[Event]:
    """Segments of one recording from windows `(N,)` with probabilities `(N, C)` of the classes.

    Time is cut at every start and end of a window. Each piece takes the class of the largest mean probability
    of the windows over it, a window counting more towards its middle, and is rejected where most of them are.
    Pieces of one class are joined, and segments shorter than `shortest` go to the neighbour that is likelier
    there. In the spans `absent` nobody is seen. A gap between windows belongs to the piece before it.
    """
    moments = np.unique(np.round(np.concatenate([starts, ends, np.ravel(absent)]), 6))
    if not len(moments):
        return []
    edges = moments if len(moments) > 1 else moments[0] + np.array([0, 1e-6])
    lengths, middles = np.diff(edges), (edges[:-1] + edges[1:]) / 2
    strange = np.zeros(len(starts)) if rejected is None else rejected.astype(float)
    means_here = _mean_over_windows(middles, starts, ends, np.column_stack([probabilities, strange]))
    classes, share = means_here[:, :-1], means_here[:, -1:]
    evidence = np.concatenate([classes * (1 - share), share], axis=1)
    # a piece is of a class, rejected (the number of classes) or empty (one more)
    kind = np.where(share[:, 0] > 0.5, len(labels), classes.argmax(1) if len(labels) else 0)
    for start, end in absent:
        kind[np.searchsorted(middles, start, "right") : np.searchsorted(middles, end)] = len(labels) + 1
    runs = _merge_short(kind, lengths, evidence, shortest, empty=len(labels) + 1)
    segments = []
    for first, last in runs:
        span = float(edges[first]), float(edges[last])
        if kind[first] > len(labels):
            segments.append(predicted(name, *span, None))
            continue
        means = np.average(classes[first:last], axis=0, weights=lengths[first:last])
        unlike = bool(kind[first] == len(labels))
        best = int(means.argmax()) if unlike else int(kind[first])
        off = None if rejected is None else unlike
        segments.append(predicted(name, *span, labels[best], float(means[best]), off))
    return segments


def _merge_short(
    kind: npt.NDArray[np.int64], lengths: Floats, evidence: Floats, shortest: float, *, empty: int
) -> list[tuple[int, int]]:
    """Merge runs shorter than `shortest` into a neighbour, in place, shortest first; returns the remaining
    runs.
    """
    edges = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(kind)]
    # of a run by its first piece; the run before a piece
    end, before = (dict(pairwise(edges)), dict(zip(edges[1:], edges)))
    waiting = [(lengths[first:last].sum(), first, last) for first, last in end.items()]
    heapify(waiting)
    while waiting:
        span, first, last = heappop(waiting)
        if end.get(first) != last:  # joined to another run since
            continue
        if span >= shortest:
            break
        sides = [kind[side] for side in (first - 1, last) if 0 <= side < len(kind)]
        sides = [side for side in sides if side != empty]
        if not sides or kind[first] == empty:
            continue
        scores = lengths[first:last] @ evidence[first:last]
        kind[first:last] = max(sides, key=lambda side: float(scores[side]))
        if last < len(kind) and kind[last] == kind[first]:
            last = end.pop(last)
        if first > 0 and kind[first - 1] == kind[first]:
            del end[first]
            first = before[first]
        end[first], before[last] = last, first
        heappush(waiting, (lengths[first:last].sum(), first, last))
    return sorted(end.items())


def _mean_over_windows(middles: Floats, starts: Floats, ends: Floats, values: Floats) -> Floats:
    """Mean values `(K, L)` of the windows over each piece; pieces without windows copy the piece before."""
    total, weight = np.zeros((len(middles), values.shape[1])), np.zeros(len(middles))
    for start, end, row in zip(starts, ends, values):
        first, last = np.searchsorted(middles, [start, end])
        # a triangle over the window, never zero at its ends
        share = 1.05 - np.abs(2 * (middles[first:last] - start) / max(end - start, 1e-9) - 1)
        total[first:last] += share[:, None] * row
        weight[first:last] += share
    covered = weight > 0
    if not covered.any():
        return total
    nearest = np.maximum.accumulate(np.where(covered, np.cumsum(covered) - 1, 0))
    return (total[covered] / weight[covered, None])[nearest]
