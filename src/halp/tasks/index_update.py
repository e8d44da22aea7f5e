"""The index kept in a folder of vectors: opened, and updated shard by shard.

New shards make a new segment, which takes over segments that are no larger; what is gone is left out. The sample that
recall is measured with is compared with new vectors only.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from halp.core.errors import InputError
from halp.core.files import atomic_path, file_state, read_json, sha256, write_json
from halp.core.locks import CannotLock, locked
from halp.core.progress import Bar
from halp.tasks.index import (
    FACTS,
    WANTED,
    ApproximateIndex,
    Floats,
    IndexFacts,
    OpenedSegment,
    Rows,
    Segment,
    Vectors,
    faiss_module,
)
from halp.tasks.index_recall import BLOCK, Piece, Sample, blocks, pieces_of, unit

SEGMENT = 1 << 20  # vectors of a segment
_FORMAT = 2
_TRAINING = 40_000  # vectors that the lists are laid out with
_LISTS = 1024  # most lists of a segment
_OUTGROWN = 16  # lists are laid out again for this many times the vectors
_PATIENCE = 24 * 3600.0  # seconds to wait for another process that builds the index


def search_index(
    folder: Path,
    vectors: Vectors,
    queries: Floats,
    k: int,
    *,
    passing: Rows | None = None,
    progress: bool = True,
) -> tuple[Rows, Floats, IndexFacts]:
    """Nearest rows by the index in a folder, which is updated first."""
    index = update_index(folder, vectors, progress=progress)
    if passing is not None:
        return index.filtered(passing, queries, k)
    return *index.search(queries, k), index.facts


def update_index(folder: Path, vectors: Vectors, *, seed: int = 0, progress: bool = True) -> ApproximateIndex:
    """The index of a folder of vectors, updated by shards; recall@10 is measured on a sample."""
    index = open_index(folder, vectors)
    if index is not None:
        return index
    with ExitStack() as held:
        with suppress(CannotLock):
            held.enter_context(locked(folder / ".index.lock", f"the index in '{folder}'", wait=_PATIENCE))
        return open_index(folder, vectors) or _Builder(folder, vectors, seed, progress).built()


def open_index(folder: Path, vectors: Vectors) -> ApproximateIndex | None:
    """The index in a folder; None if it is missing, damaged, or not of exactly these vectors."""
    kept = _read(folder, vectors)
    if kept is None or kept.new or kept.alive != kept.facts.vectors:
        return None
    return ApproximateIndex(kept.parts, vectors, kept.facts, kept.sample, folder)


@dataclass(frozen=True)
class _Kept:
    """The cached part of an index in a folder, and its missing pieces."""

    facts: IndexFacts
    parts: list[OpenedSegment]
    sample: Sample
    new: list[Piece]

    @property
    def alive(self) -> int:
        return sum(int((part.rows >= 0).sum()) for part in self.parts)


def _read(folder: Path, vectors: Vectors) -> _Kept | None:
    faiss_module()
    with suppress(InputError, TypeError, KeyError, ValueError, AttributeError):
        told = read_json(folder / FACTS)
        facts = IndexFacts(**told["facts"])
        if told["format"] != _FORMAT or facts.dimensions != vectors.shape[1]:
            return None
        segments = [
            Segment(**{**one, "shards": [tuple(shard) for shard in one["shards"]]})
            for one in told["segments"]
        ]
        found = [_open_segment(folder, segment) for segment in segments]
        if any(index is not None and index.nlist != facts.lists for index in found):
            return None
        whole = [(segment, index) for segment, index in zip(segments, found) if index is not None]
        known = {key: size for segment, _ in whole for key, size in segment.shards}
        pieces = {piece.key: piece for piece in (each.indexed(known) for each in pieces_of(vectors))}
        parts = [OpenedSegment(segment, index, _rows_of(segment, pieces)) for segment, index in whole]
        sample = Sample(np.zeros(0, dtype=np.int64))
        if len(whole) == len(segments):
            sample = Sample(*(np.array(told["sample"][name]) for name in ("rows", "nearest", "similarity")))
            sample = sample.moved(np.concatenate([*(part.rows for part in parts), [-1]]).astype(np.int64))
        return _Kept(facts, parts, sample, [piece for key, piece in pieces.items() if key not in known])
    return None


def _open_segment(folder: Path, segment: Segment) -> Any:
    """The index of a segment, mapped; None if its bytes are not those that were written."""
    faiss, path = faiss_module(), folder / segment.file
    with suppress(OSError, RuntimeError):
        if segment.state == file_state(path) or sha256(path) == segment.sha256:
            return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    return None


def _rows_of(segment: Segment, pieces: dict[str, Piece]) -> Rows:
    """The table row of every vector of a segment."""
    rows, start = np.full(segment.size, -1), 0
    for key, size in segment.shards:
        if key in pieces:
            rows[start + pieces[key].numbers] = pieces[key].rows
        start += size
    return rows


class _Builder:
    """Updates the index of a folder."""

    def __init__(self, folder: Path, vectors: Vectors, seed: int, progress: bool) -> None:
        self.folder, self.vectors, self.seed = folder, vectors, seed
        self.size, self.width = vectors.shape
        self.writable, self.began, self.progress = True, time.monotonic(), progress
        kept = _read(folder, vectors)
        if kept is not None and self._worth_keeping(kept):
            self.parts, self.sample, self.new, self.lists = (
                kept.parts,
                kept.sample,
                kept.new,
                kept.facts.lists,
            )
        else:
            self.parts, self.sample = [], Sample(np.zeros(0, dtype=np.int64))
            self.new = [piece.indexed({}) for piece in pieces_of(vectors)]
        self.trained = self._emptied() if self.parts else self._lay_out()

    def _worth_keeping(self, kept: _Kept) -> bool:
        """Whether the lists are not outgrown and hold mostly present vectors."""
        held = sum(part.segment.size for part in kept.parts)
        return self.size <= _OUTGROWN * max(held, _LISTS * _LISTS) and 2 * kept.alive >= held > 0

    def _emptied(self) -> Any:
        """The lists of a segment without its vectors."""
        index = faiss_module().read_index(str(self.folder / self.parts[0].segment.file))
        index.reset()
        return index

    def _lay_out(self) -> Any:
        """Empty lists trained on these vectors."""
        faiss, draw = faiss_module(), np.random.default_rng(self.seed)
        self.lists = max(1, min(2 ** round(np.log2(max(1.0, self.size**0.5))), self.size // 39, _LISTS))
        index = faiss.index_factory(self.width, f"IVF{self.lists},SQ6", faiss.METRIC_INNER_PRODUCT)
        index.cp.niter, index.cp.seed = 8, self.seed
        rows = np.sort(draw.choice(self.size, min(_TRAINING, self.size), replace=False))
        index.train(unit(np.asarray(self.vectors[rows])))
        return index

    def built(self) -> ApproximateIndex:
        """The updated index."""
        again = self.sample.poor
        if again:
            self.sample = Sample.drawn(self.size, self.seed)
        self.queries = unit(np.asarray(self.vectors[self.sample.rows]))
        if again:
            for part in self.parts:
                for rows, block in _table_blocks(self.vectors, part.rows):
                    self.sample.compare(self.queries, rows, block)
        with Bar("indexing", sum(len(piece.rows) for piece in self.new), shown=self.progress) as bar:
            for group in _groups(self.new):
                self._add(group, bar)
        facts = IndexFacts(self.size, self.width, self.lists, 0, 0.0, len(self.sample.rows), 0.0)
        index = ApproximateIndex(self.parts, self.vectors, facts, self.sample, self.folder)
        probes, recall = index.widen(self.sample, WANTED)
        index.facts = replace(
            facts, probes=probes, recall=recall, build_seconds=time.monotonic() - self.began
        )
        if self.writable:
            self._keep(index)
        return index

    def _add(self, pieces: Sequence[Piece], bar: Bar) -> None:
        """Add a segment of pieces; it absorbs segments that are no larger, so that they stay few."""
        faiss = faiss_module()
        index, shards, rows = faiss.clone_index(self.trained), [], [np.zeros(0, dtype=np.int64)]
        count = sum(len(piece.rows) for piece in pieces)
        for part in sorted(self.parts, key=lambda part: part.segment.size):
            if part.segment.size <= count and count + part.segment.size <= SEGMENT and part.segment.file:
                index.merge_from(faiss.read_index(str(self.folder / part.segment.file)), index.ntotal)
                shards += part.segment.shards
                rows.append(part.rows)
                count += part.segment.size
                self.parts.remove(part)
        for table_rows, block in blocks(pieces):
            index.add(block)
            self.sample.compare(self.queries, table_rows, block)
            rows.append(table_rows)
            bar.advance(len(block))
        shards += [(piece.key, piece.size) for piece in pieces]
        segment = self._write(index, shards)
        mapped = _open_segment(self.folder, segment) if segment.file else None
        self.parts.append(OpenedSegment(segment, index if mapped is None else mapped, np.concatenate(rows)))

    def _write(self, index: Any, shards: list[tuple[str, int]]) -> Segment:
        name = f"index-{hashlib.sha256(json.dumps(shards).encode()).hexdigest()[:32]}.faiss"
        try:
            with atomic_path(self.folder / name) as partial:
                faiss_module().write_index(index, str(partial))
            return Segment(name, sha256(self.folder / name), file_state(self.folder / name), shards)
        except (OSError, RuntimeError) as error:
            if self.writable:
                warnings.warn(f"the index cannot be kept in '{self.folder}' ({error})", stacklevel=5)
            self.writable = False
            return Segment("", "", [], shards)

    def _keep(self, index: ApproximateIndex) -> None:
        """Write the parts of the index, and remove unused segments."""
        places = np.full(self.size, -1)
        rows = np.concatenate([part.rows for part in self.parts])
        places[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
        sample = self.sample.moved(places)
        told = {
            "format": _FORMAT,
            "facts": asdict(index.facts),
            "segments": [asdict(part.segment) for part in self.parts],
            "sample": {name: getattr(sample, name).tolist() for name in ("rows", "nearest", "similarity")},
        }
        with suppress(OSError):
            write_json(self.folder / FACTS, told)
            for path in self.folder.glob("index-*.faiss"):
                if path.name not in {part.segment.file for part in self.parts}:
                    path.unlink()


def _groups(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Pieces of up to a segment each."""
    held: list[Piece] = []
    for piece in pieces:
        if held and sum(len(one.rows) for one in held) + len(piece.rows) > SEGMENT:
            yield held
            held = []
        held.append(piece)
    if held:
        yield held


def _table_blocks(vectors: Vectors, rows: Rows) -> Iterator[tuple[Rows, Floats]]:
    there = np.sort(rows[rows >= 0])
    for first in range(0, len(there), BLOCK):
        block = there[first : first + BLOCK]
        yield block, unit(np.asarray(vectors[block]))
