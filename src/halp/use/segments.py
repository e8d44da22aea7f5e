"""From overlapping windows with probabilities to segments: one label per stretch of time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Segment:
    """A stretch of a recording with one label (None: none of these) and the mean probability of it, in seconds."""

    name: str
    start: float
    end: float
    label: str | None
    probability: float


def merge_windows(
    name: str,
    starts: Floats,
    ends: Floats,
    probabilities: Floats,
    labels: list[str | None],
    *,
    shortest: float = 0.0,
) -> list[Segment]:
    """Segments of one recording from windows `(N,)` with probabilities `(N, L)` of the labels (None may be one of them).

    Time is cut at every start and end of a window. Each piece takes the label of the largest mean probability of the windows
    over it; a window counts more towards its middle. Pieces of one label are joined, and segments shorter than `shortest`
    go to the neighbour that is likelier there.
    """
    if not len(starts):
        return []
    edges, belief = _beliefs(starts, ends, probabilities)
    runs = _runs(belief.argmax(1))
    while len(runs) > 1:
        lengths = [edges[last] - edges[first] for first, last, _ in runs]
        place = int(np.argmin(lengths))
        if lengths[place] >= shortest:
            break
        first, last, _ = runs[place]
        sides = [runs[side] for side in (place - 1, place + 1) if 0 <= side < len(runs)]
        weight = np.diff(edges)[first:last]
        label = max(sides, key=lambda run: float(weight @ belief[first:last, run[2]]))[2]
        runs[place] = first, last, label
        runs = _joined(runs)
    weights = np.diff(edges)
    return [
        Segment(
            name,
            float(edges[first]),
            float(edges[last]),
            labels[label],
            float(np.average(belief[first:last, label], weights=weights[first:last])),
        )
        for first, last, label in runs
    ]


def _beliefs(starts: Floats, ends: Floats, probabilities: Floats) -> tuple[Floats, Floats]:
    """Edges `(K + 1,)` of the pieces and the mean probabilities `(K, L)` of the windows over each."""
    edges = np.unique(np.round(np.concatenate([starts, ends]), 6))
    if len(edges) < 2:
        edges = np.array([starts[0], starts[0] + 1e-6])
    middles = (edges[:-1] + edges[1:]) / 2
    total = np.zeros((len(middles), probabilities.shape[1]))
    weight = np.zeros(len(middles))
    for start, end, one in zip(starts, ends, probabilities):
        first, last = np.searchsorted(middles, [start, end])
        # a triangle over the window, never zero at its ends
        reach = max(end - start, 1e-9)
        share = 1.05 - np.abs(2 * (middles[first:last] - start) / reach - 1)
        total[first:last] += share[:, None] * one
        weight[first:last] += share
    covered = weight > 0
    kept = total[covered] / weight[covered, None]
    if covered.all():
        return edges, kept
    # a gap between windows belongs to the piece before it
    nearest = np.maximum.accumulate(np.where(covered, np.cumsum(covered) - 1, 0))
    return edges, kept[nearest]


def _runs(labels: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    cuts = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    return [(first, last, int(labels[first])) for first, last in pairwise(cuts)]


def _joined(runs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    joined = [runs[0]]
    for first, last, label in runs[1:]:
        if label == joined[-1][2]:
            joined[-1] = joined[-1][0], last, label
        else:
            joined.append((first, last, label))
    return joined
