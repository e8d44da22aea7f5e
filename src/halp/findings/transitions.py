"""What follows what: transitions between bouts, and how often they would happen by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.findings.bouts import Bouts
from halp.findings.events import NOBODY

Floats = npt.NDArray[np.float64]


def transitions(
    tiers: Sequence[Bouts], labels: Sequence[str], *, resamples: int = 999, seed: int = 0
) -> list[dict[str, Any]]:
    """How often which label follows which, how likely that is, and how often it would by chance.

    Chance: bouts of every recording in another order, the same label twice in a row only where the recording has that. A
    time without anybody ends a sequence. `p` is two-sided, `p_corrected` after Benjamini and Hochberg over all pairs.
    """
    place = {label: number for number, label in enumerate(labels)}
    sequences = [part for tier in tiers for part in _sequences(tier, place) if len(part) > 1]
    if not sequences:
        return []
    size = len(labels)
    counts = _pairs(np.concatenate([_codes(part[None], size) for part in sequences], axis=1), size)[0]
    rng = np.random.default_rng(seed)
    chance = _pairs(np.concatenate([_codes(_shuffled(part, resamples, rng), size) for part in sequences], axis=1), size)
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
            "expected": float(expected[a, b]),
            "p": float(p[a, b]),
            "p_corrected": q,
        }
        for (a, b), q in zip(cells, corrected)
    ]


def _sequences(tier: Bouts, place: Mapping[str, int]) -> list[npt.NDArray[np.int64]]:
    parts: list[list[int]] = [[]]
    for event in sorted([*tier.bouts, *tier.absent], key=lambda e: (e.start, e.stop)):
        if event.label == NOBODY:
            parts.append([])
        else:
            parts[-1].append(place[event.label])
    return [np.array(part, dtype=np.int64) for part in parts]


def _codes(sequences: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    return sequences[:, :-1] * size + sequences[:, 1:]


def _pairs(codes: npt.NDArray[np.int64], size: int) -> Floats:
    """Counts `(R, size, size)` of pairs, from codes `(R, n)`."""
    rows = np.arange(len(codes))[:, None] * size * size
    return np.bincount((codes + rows).ravel(), minlength=len(codes) * size * size).reshape(-1, size, size).astype(float)


def _shuffled(part: npt.NDArray[np.int64], count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """`count` random orders of a sequence; without a label twice in a row where the sequence has none, by many swaps."""
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
            clash |= (padded[chain, at] == padded[chain, at - 1]) | (padded[chain, at] == padded[chain, at + 1])
        padded[chain[clash], i[clash]], padded[chain[clash], j[clash]] = one[clash], other[clash]
    return padded[:, 1:-1]


def false_discovery(p: Sequence[float]) -> list[float]:
    """p-values corrected after Benjamini and Hochberg."""
    from scipy.stats import false_discovery_control

    return [float(value) for value in false_discovery_control(np.clip(p, 0, 1))] if len(p) else []
