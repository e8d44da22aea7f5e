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
    return _scaled(np.array(rows, dtype=np.float32))


def _scaled(rows: Floats) -> Floats:
    rows /= np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), np.float32(1e-12))[:, None]
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
    vectors = np.empty((len(rows), pieces[0].vectors.shape[1]), dtype=np.float32)
    first = 0
    for piece in pieces:
        vectors[first : first + len(piece.rows)] = piece.vectors
        first += len(piece.rows)
    return rows, _scaled(vectors)


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
        close, most = queries @ block.T, self.nearest.shape[1]
        _, itself, column = np.intersect1d(self.rows, rows, assume_unique=True, return_indices=True)
        close[itself, column] = -np.inf
        for place, (values, known) in enumerate(zip(close, self.similarity)):
            nearer = np.flatnonzero(values > known[-1])  # few, once the first block was compared
            if len(nearer) > most:
                nearer = nearer[np.argpartition(-values[nearer], most - 1)[:most]]
            both = np.concatenate([known, values[nearer]])
            best = np.argsort(-both, kind="stable")[:most]
            self.similarity[place] = both[best]
            self.nearest[place] = np.concatenate([self.nearest[place], rows[nearer]])[best]

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
