"""Vectors of an index in pieces, and exact neighbours of a sample, by which recall is measured.

A piece is what a shard has of a source. Exact neighbours are kept, so that a new piece is compared with the sample
alone, and one that is gone is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

BLOCK = 65_536  # vectors that are looked at together
SAMPLE = 100  # vectors that recall is measured with
NEIGHBOURS = 10
_SPARE = 10  # further neighbours that are kept, since some will be removed


@dataclass(frozen=True)
class Piece:
    """Vectors of a shard: numbers `(n,)` in it, rows `(n,)` in the table; `size` is the shard's."""

    key: str
    vectors: Any
    numbers: Rows
    rows: Rows
    size: int

    def indexed(self, known: Mapping[str, int]) -> Piece:
        """A piece by its name in the index: that of its shard, or its own if rows were removed."""
        if known.get(self.key) == self.size or len(self.numbers) == self.size:
            return self
        own = hashlib.sha256(self.numbers.astype("<i8").tobytes()).hexdigest()[:12]
        return Piece(f"{self.key}-{own}", self.vectors, np.arange(len(self.rows)), self.rows, len(self.rows))


def pieces_of(vectors: Any) -> list[Piece]:
    """The pieces of sharded vectors; an array is cut into blocks."""
    if hasattr(vectors, "pieces"):
        return [Piece(*piece) for piece in vectors.pieces()]
    size, found = len(vectors), []
    for first in range(0, size, BLOCK):
        rows = np.arange(first, min(first + BLOCK, size))
        block = vectors[first : first + BLOCK]
        found.append(Piece(f"rows-{first}-{size}", block, rows - first, rows, len(rows)))
    return found


def unit(rows: npt.NDArray[Any]) -> Floats:
    """Rows of length one, as float32."""
    rows = np.array(rows, dtype=np.float32)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows


def blocks(pieces: Sequence[Piece]) -> Iterator[tuple[Rows, Floats]]:
    """Table rows and unit vectors of pieces, many pieces at a time."""
    held: list[Piece] = []
    for piece in pieces:
        held.append(piece)
        if sum(len(one.rows) for one in held) >= BLOCK:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(pieces: Sequence[Piece]) -> tuple[Rows, Floats]:
    rows = np.concatenate([piece.rows for piece in pieces])
    return rows, unit(np.concatenate([np.asarray(piece.vectors, dtype=np.float32) for piece in pieces]))


class Sample:
    """Some vectors of a table, by row, with rows and similarities of their nearest others."""

    def __init__(self, rows: Rows, nearest: Rows | None = None, similarity: Floats | None = None) -> None:
        shape = (len(rows), NEIGHBOURS + _SPARE)
        self.rows = rows
        self.nearest = np.full(shape, -1) if nearest is None else nearest
        self.similarity = np.full(shape, -np.inf, dtype=np.float32) if similarity is None else similarity

    @classmethod
    def drawn(cls, size: int, seed: int) -> Sample:
        """A sample of a table with this many rows."""
        draw = np.random.default_rng(seed)
        return cls(np.sort(draw.choice(size, min(SAMPLE, size), replace=False)))

    def compare(self, queries: Floats, rows: Rows, block: Floats) -> None:
        """Update the neighbours with further vectors of the table."""
        close = queries @ block.T
        close[rows[None, :] == self.rows[:, None]] = -np.inf
        most = min(self.nearest.shape[1], len(rows))
        place = np.argpartition(-close, most - 1, axis=1)[:, :most]
        both = np.concatenate([self.similarity, np.take_along_axis(close, place, 1)], axis=1)
        names = np.concatenate([self.nearest, rows[place]], axis=1)
        best = np.argsort(-both, axis=1, kind="stable")[:, : self.nearest.shape[1]]
        self.similarity, self.nearest = (np.take_along_axis(all_of, best, 1) for all_of in (both, names))

    def moved(self, new_rows: Rows) -> Sample:
        """The sample after rows were renumbered (−1: removed)."""
        kept = np.flatnonzero(new_rows[self.rows] >= 0)
        nearest = np.where(self.nearest[kept] < 0, -1, new_rows[self.nearest[kept]])
        order = np.argsort(nearest < 0, axis=1, kind="stable")
        similarity = np.where(nearest < 0, -np.inf, self.similarity[kept]).astype(np.float32)
        moved = (np.take_along_axis(values, order, 1) for values in (nearest, similarity))
        return Sample(new_rows[self.rows[kept]], *moved)

    @property
    def poor(self) -> bool:
        """Whether too few rows are left to measure recall."""
        return len(self.rows) < SAMPLE // 2 or bool((self.nearest[:, NEIGHBOURS - 1] < 0).any())

    def recall(self, found: Rows) -> float:
        """Share of the ten nearest others of each sampled row that were found."""
        wanted = self.nearest[:, :NEIGHBOURS]
        shares = [
            len(set(row[row != own][:NEIGHBOURS].tolist()) & set(exact[exact >= 0].tolist()))
            / max(1, int((exact >= 0).sum()))
            for row, exact, own in zip(found, wanted, self.rows)
        ]
        return float(np.mean(shares)) if shares else 1.0
