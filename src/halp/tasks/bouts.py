"""Bouts: merged events of one person in one recording, with observed time; measures and transitions."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.progress import Bar
from halp.data.spans import UNSEEN, Event, Events
from halp.tasks.intervals import share_interval

Floats = npt.NDArray[np.float64]
# bouts in all random orders together, and orders that are drawn at least
ORDERS, FEWEST_ORDERS = (40_000_000, 199)
HEADINGS = {
    "total": "total (s)", "mean": "mean (s)", "median": "median (s)", "latency": "latency (s)",
    "rate": "rate (per minute)", "observed": "observed (s)", "nobody": "nobody (s)", "labelled": "labelled (s)",
    "diversity": "diversity (bits)", "start": "start (s)", "stop": "stop (s)",
}  # fmt: skip
MOST_LABELS = 100  # of which every pair is compared with chance
BLOCK = 4_000_000  # bouts that are shuffled together


@dataclass(frozen=True)
class Bouts:
    """Bouts of one person in one recording, with the observed time in seconds."""

    recording: str
    subject: str
    bouts: list[Event]
    absent: list[Event]
    begin: float
    end: float

    @property
    def observed(self) -> float:
        return max(self.seen(self.begin, self.end), 0.0)

    @cached_property
    def by_label(self) -> dict[str, list[Event]]:
        """The bouts of every label that occurs."""
        parts: dict[str, list[Event]] = defaultdict(list)
        for bout in self.bouts:
            parts[bout.label].append(bout)
        return dict(parts)

    @property
    def person(self) -> str:
        return self.subject or self.recording

    def seen(self, start: float, stop: float) -> float:
        """Seconds of a span in which somebody was present."""
        return stop - start - sum(overlap(e, start, stop) for e in self.absent)


def observed_bouts(events: Events, start: float = 0.0, stop: float | None = None) -> list[Bouts]:
    """Bouts by recording and subject, cut to the analysed part."""
    tiers: list[Bouts] = []
    ends = events.ends
    for recording, rows in events.by_recording().items():
        end = ends.get(recording, 0.0)
        end = end if stop is None else min(end, stop)
        cut = [_cut(event, start, end) for event in rows if overlap(event, start, end) > 0]
        named = {e.subject for e in cut if e.label not in ("", *UNSEEN)} or {e.subject for e in cut} or {""}
        for subject in sorted(named):
            bouts = [e for e in cut if e.subject == subject and e.label not in ("", *UNSEEN)]
            absent = [e for e in cut if e.label in UNSEEN and e.subject in ("", subject)]
            tiers.append(
                Bouts(
                    recording, subject, sorted(bouts, key=lambda e: e.start), absent, start, max(end, start)
                )
            )
    return tiers


def _cut(event: Event, start: float, stop: float) -> Event:
    """The part of an event inside a span; usually all of it."""
    if start <= event.start and event.stop <= stop:
        return event
    return replace(event, start=max(event.start, start), stop=min(event.stop, stop))


def overlap(event: Event, start: float, stop: float) -> float:
    """Seconds of an event that lie in a span."""
    return max(0.0, min(event.stop, stop) - max(event.start, start))


def covered(spans: Sequence[tuple[float, float]], times: npt.ArrayLike) -> Floats:
    """Seconds of spans that lie before each time `(T,)`; spans that overlap count several times.

    >>> covered([(1.0, 3.0), (5.0, 6.0)], [0.0, 2.0, 10.0]).tolist()
    [0.0, 1.0, 3.0]
    """
    at = np.asarray(times, dtype=np.float64)
    total = np.zeros(len(at))
    for edges, sign in ((np.sort([s for s, _ in spans]), 1.0), (np.sort([s for _, s in spans]), -1.0)):
        before = np.searchsorted(edges, at)
        total += sign * (before * at - np.concatenate([[0.0], np.cumsum(edges)])[before])
    return total


def measures(
    durations: Sequence[float], starts: Sequence[float], observed: float, begin: float = 0.0
) -> dict[str, Any]:
    """Count, total, mean, median, latency, share of observed time, rate per minute; None if undefined.

    >>> measures([2.0, 4.0], [1.0, 6.0], observed=12.0)["share"]
    0.5
    """
    count, total = len(durations), float(sum(durations))
    return {
        "count": count,
        "total": total,
        "mean": total / count if count else None,
        "median": float(np.median(durations)) if count else None,
        "latency": min(starts) - begin if count else None,
        "share": total / observed if observed > 0 else None,
        "rate": 60 * count / observed if observed > 0 else None,
    }


def transitions(
    tiers: Sequence[Bouts],
    labels: Sequence[str],
    *,
    resamples: int = 999,
    seed: int = 0,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Transition counts between labels, their probabilities, and the counts expected by chance.

    Chance: bouts of every recording in another order, the same label twice in a row only where the recording
    has that. A time without anybody ends a sequence. `p` is two-sided, `p_corrected` after Benjamini and
    Hochberg over all pairs. Of many bouts fewer orders are drawn than `resamples`, never fewer than 199.
    """
    if len(labels) > MOST_LABELS:
        warnings.warn(
            f"there are {len(labels):,} labels: transitions are counted for at most {MOST_LABELS}",
            stacklevel=2,
        )
        return []
    place = {label: number for number, label in enumerate(labels)}
    sequences = [part for tier in tiers for part in _sequences(tier, place) if len(part) > 1]
    if not sequences:
        return []
    size = len(labels)
    counts = sum(_pairs(part[None], size)[0] for part in sequences)
    resamples = max(min(resamples, ORDERS // sum(map(len, sequences))), min(resamples, FEWEST_ORDERS))
    rng = np.random.default_rng(seed)
    chance = np.zeros((resamples, size, size))
    with Bar("random orders", len(sequences), shown=progress) as bar:
        for part in sequences:
            block = max(1, BLOCK // len(part))
            for first in range(0, resamples, block):
                rows = chance[first : first + block]
                rows += _pairs(_shuffled(part, len(rows), rng), size)
            bar.advance()
    expected = chance.mean(0)
    extreme = np.abs(chance - expected) >= np.abs(counts - expected) - 1e-9
    p = (1 + extreme.sum(0)) / (resamples + 1)
    sums = counts.sum(1, keepdims=True)
    cells = [(a, b) for a in range(size) for b in range(size) if counts[a, b] or expected[a, b] > 0]
    corrected = false_discovery([p[cell] for cell in cells])
    return [
        {
            "from": labels[a],
            "to": labels[b],
            "count": int(counts[a, b]),
            "probability": float(counts[a, b] / sums[a, 0]) if sums[a, 0] else None,
            "probability_interval": share_interval(int(counts[a, b]), int(sums[a, 0])),
            "expected": float(expected[a, b]),
            "p": float(p[a, b]),
            "p_corrected": q,
        }
        for (a, b), q in zip(cells, corrected)
    ]


def _sequences(tier: Bouts, place: Mapping[str, int]) -> list[npt.NDArray[np.int64]]:
    parts: list[list[int]] = [[]]
    for event in sorted([*tier.bouts, *tier.absent], key=lambda e: (e.start, e.stop)):
        if event.label in UNSEEN:
            parts.append([])
        else:
            parts[-1].append(place[event.label])
    return [np.array(part, dtype=np.int64) for part in parts]


def _pairs(sequences: npt.NDArray[np.int64], size: int) -> Floats:
    """Counts `(R, size, size)` of each label following each other in sequences `(R, n)`."""
    codes = sequences[:, :-1] * size + sequences[:, 1:]
    rows = np.arange(len(codes))[:, None] * size * size
    return (
        np.bincount((codes + rows).ravel(), minlength=len(codes) * size * size)
        .reshape(-1, size, size)
        .astype(float)
    )


def _shuffled(part: npt.NDArray[np.int64], count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """`count` random orders of a sequence; a sequence without repeats stays without them, by many swaps."""
    rows = np.tile(part, (count, 1))
    if (part[1:] == part[:-1]).any():
        return rng.permuted(rows, axis=1)
    length, chain = len(part), np.arange(count)
    padded = np.pad(rows, ((0, 0), (1, 1)), constant_values=-1)
    for _ in range(10 * length):
        i, j = rng.integers(1, length + 1, (2, count))
        one, other = padded[chain, i].copy(), padded[chain, j].copy()
        padded[chain, i], padded[chain, j] = other, one
        clash = np.zeros(count, dtype=bool)
        for at in (i, j):
            clash |= (padded[chain, at] == padded[chain, at - 1]) | (
                padded[chain, at] == padded[chain, at + 1]
            )
        padded[chain[clash], i[clash]], padded[chain[clash], j[clash]] = one[clash], other[clash]
    return padded[:, 1:-1]


def false_discovery(p: Sequence[float]) -> list[float]:
    """p-values corrected for the false discovery rate (Benjamini and Hochberg)."""
    from scipy.stats import false_discovery_control

    return [float(value) for value in false_discovery_control(np.clip(p, 0, 1))] if len(p) else []
