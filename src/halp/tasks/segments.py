"""Answers about spans of time, and how overlapping windows are merged into segments: one label per stretch of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.data.spans import ABSENT, NOBODY, Event, Events, person_of

Floats = npt.NDArray[np.float64]
SEEN = 0.5  # share of a window in which somebody has to be seen for an answer
COLUMNS = ("name", "start", "end", "label", "probability", "best", "rejected")


@dataclass(frozen=True)
class Answer:
    """What is seen in a span of a recording, in seconds: the most probable class with its probability, and whether it is
    rejected because it is unlike everything labelled. Where nobody is seen there is no class at all."""

    name: str
    start: float
    end: float
    best: str | None
    probability: float | None
    rejected: bool = False

    @property
    def label(self) -> str | None:
        """The class; None where it is rejected and where nobody is seen."""
        return None if self.rejected else self.best

    @property
    def state(self) -> str | None:
        """`nobody` where nobody is seen, `absent` where one of several people of a video is not; else None."""
        if self.best is not None:
            return None
        return NOBODY if self.person is None else ABSENT

    @property
    def person(self) -> int | None:
        """Number of the person in a video that shows several."""
        return person_of(self.name)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `state` is there where nobody is seen, `person` where a video shows several.

        Times are rounded to a millisecond.
        """
        digits = {"start": 3, "end": 3, "probability": 6}
        plain = {name: getattr(self, name) for name in COLUMNS}
        plain |= {name: round(plain[name], place) for name, place in digits.items() if plain[name] is not None}
        more = {"person": self.person, "state": self.state}
        return plain | {name: value for name, value in more.items() if value is not None}


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
) -> list[Answer]:
    """Segments of one recording from windows `(N,)` with probabilities `(N, C)` of the classes.

    Time is cut at every start and end of a window. Each piece takes the class of the largest mean probability of the windows
    over it, a window counting more towards its middle, and is rejected where most of them are. Pieces of one class are
    joined, and segments shorter than `shortest` go to the neighbour that is likelier there. In the spans `absent` nobody is
    seen. A gap between windows belongs to the piece before it.
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
        kind[(middles > start) & (middles < end)] = len(labels) + 1
    runs = _merge_short(kind, lengths, evidence, shortest, empty=len(labels) + 1)
    segments = []
    for first, last in runs:
        span = float(edges[first]), float(edges[last])
        if kind[first] > len(labels):
            segments.append(Answer(name, *span, None, None))
            continue
        means = np.average(classes[first:last], axis=0, weights=lengths[first:last])
        unlike = bool(kind[first] == len(labels))
        best = int(means.argmax()) if unlike else int(kind[first])
        segments.append(Answer(name, *span, labels[best], float(means[best]), unlike))
    return segments


def _merge_short(
    kind: npt.NDArray[np.int64], lengths: Floats, evidence: Floats, shortest: float, *, empty: int
) -> list[tuple[int, int]]:
    """Give runs shorter than `shortest` the kind of a neighbour, in place, shortest first; the runs that are left."""
    while True:
        runs = list(pairwise([0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(kind)]))
        spans = np.array([lengths[first:last].sum() for first, last in runs])
        for place in np.argsort(spans, kind="stable").tolist():
            first, last = runs[place]
            if spans[place] >= shortest:
                return runs
            sides = [kind[runs[side][0]] for side in (place - 1, place + 1) if 0 <= side < len(runs)]
            sides = [side for side in sides if side != empty]
            if sides and kind[first] != empty:
                scores = lengths[first:last] @ evidence[first:last]
                kind[first:last] = max(sides, key=lambda side: float(scores[side]))
                break
        else:
            return runs


def _mean_over_windows(middles: Floats, starts: Floats, ends: Floats, values: Floats) -> Floats:
    """Mean values `(K, L)` of the windows over each piece; a piece without any has those of the piece before."""
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


def answers_to_events(answers: Iterable[Answer], lengths: Mapping[str, float] | None = None) -> Events:
    """Answers of `segment`, `classify predict` or `motifs` as events; rejected ones have the empty label."""
    return Events(
        [
            Event(
                a.name,
                a.start,
                a.end,
                a.state or a.label or "",
                "",
                "model",
                a.probability,
                {} if a.person is None else {"person": str(a.person)},
            )
            for a in answers
        ],
        lengths or {},
    )
