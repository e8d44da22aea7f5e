"""Nearest vectors: exact, or by an approximate index with measured recall.

The index (faiss, inverted lists of 6-bit vectors) proposes candidates, which are compared exactly. It consists of
segments that share their lists: new shards make a new segment, which takes over smaller ones; what was removed is
left out at once. More lists are looked into until the recall is high enough, for every large filter on its own.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import read_json, write_json
from halp.evaluation.protocols.knn import neighbours
from halp.features.table import ChosenRows
from halp.tasks.index_recall import NEIGHBOURS, Sample, unit

Vectors = Any  # (N, F) float32: an array, a memory map, or `ShardedVectors`
Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

EXACT = 1_000_000  # up to this many vectors are searched exactly
FACTS = "index.json"
WANTED, WANTED_FILTERED = 0.99, 0.95  # recall@10
_CANDIDATES = 5  # times the wanted neighbours, and at least 50, are compared exactly
_FILTERS = 100  # whose number of lists is remembered
_REMEDY = "install it with `pip install 'halp-motion[search]'`, or search exactly with --exact"


@dataclass(frozen=True)
class IndexFacts:
    """Facts of an index: size, lists, probes per segment, recall@10; `filters`: probes of large filters."""

    vectors: int
    dimensions: int
    lists: int
    probes: int
    recall: float
    queries: int
    build_seconds: float
    filters: dict[str, tuple[int, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Segment:
    """Some shards in a file of faiss: their keys and sizes, in the order of its vectors."""

    file: str
    sha256: str
    state: list[int]
    shards: list[tuple[str, int]]

    @property
    def size(self) -> int:
        return sum(size for _, size in self.shards)


@dataclass(frozen=True)
class OpenedSegment:
    """A segment with its index and the table row of every vector in it, -1 if removed."""

    segment: Segment
    index: Any
    rows: Rows


def search_exactly(vectors: Vectors, queries: Floats, k: int) -> tuple[Rows, Floats]:
    """Rows and cosine similarities `(Q, k)` of the nearest vectors, nearest first, blockwise."""
    return neighbours(vectors, queries, min(k, len(vectors)))


@dataclass
class ApproximateIndex:
    """An approximate index; its candidates are compared exactly with the vectors."""

    segments: list[OpenedSegment]
    vectors: Vectors
    facts: IndexFacts
    sample: Sample
    folder: Path | None = None

    def search(
        self, queries: Floats, k: int, passing: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Rows, Floats]:
        """Rows and cosine similarities `(Q, k)`, nearest first; with a mask, only of rows that pass."""
        many = len(self.vectors) if passing is None else int(passing.sum())
        k, queries = min(k, many), unit(queries)
        candidates = self._candidates(queries, min(many, max(50, _CANDIDATES * k)), passing)
        rows, similarity = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        for place, found in enumerate(candidates):
            if len(found) < k:  # the lists that were looked into hold too few
                found = np.arange(len(self.vectors)) if passing is None else np.flatnonzero(passing)
                near, values = search_exactly(ChosenRows(self.vectors, found), queries[[place]], k)
                rows[place], similarity[place] = found[near[0]], values[0]
                continue
            values = unit(np.asarray(self.vectors[found])) @ queries[place]
            best = np.argsort(-values, kind="stable")[:k]
            rows[place], similarity[place] = found[best], values[best]
        return rows, similarity

    def _candidates(self, queries: Floats, most: int, passing: Any) -> list[Rows]:
        """Rows that the lists propose for every query, in ascending order."""
        faiss, rows, close = faiss_module(), [], []
        for part in self.segments:
            allowed = part.rows >= 0 if passing is None else (part.rows >= 0) & passing[part.rows]
            if not allowed.any():
                continue
            chosen = faiss.SearchParametersIVF(nprobe=min(self.facts.probes, self.facts.lists))
            if not allowed.all():
                bits = np.packbits(allowed, bitorder="little")
                chosen.sel = selector = faiss.IDSelectorBitmap(bits)  # noqa: F841  faiss does not keep it alive
            values, places = part.index.search(queries, most, params=chosen)
            rows.append(np.where(places < 0, -1, part.rows[places]))
            close.append(np.where(places < 0, -np.inf, values))
        if not rows:
            return [np.zeros(0, dtype=np.int64)] * len(queries)
        found, score = np.concatenate(rows, axis=1), np.concatenate(close, axis=1)
        order = np.argsort(-score, axis=1, kind="stable")[:, :most]
        best = np.take_along_axis(found, order, 1)
        return [np.sort(row[row >= 0]) for row in best]

    def widen(self, sample: Sample, wanted: float, passing: Any = None) -> tuple[int, float]:
        """Probe more lists until the recall of a sample suffices; returns their number and the recall."""
        queries, probes = np.asarray(self.vectors[sample.rows]), min(16, self.facts.lists)
        while True:
            self.facts = replace(self.facts, probes=probes)
            recall = sample.recall(self.search(queries, NEIGHBOURS + 1, passing)[0])
            if recall >= wanted or probes >= self.facts.lists:
                return probes, recall
            probes = min(2 * probes, self.facts.lists)

    def filtered(self, passing: Rows, queries: Floats, k: int) -> tuple[Rows, Floats, IndexFacts]:
        """Nearest of many rows that pass a filter; exact at first, which sets probes of later searches."""
        key, usual = hashlib.sha256(passing.astype("<i8").tobytes()).hexdigest()[:32], self.facts.probes
        mask = np.zeros(len(self.vectors), dtype=bool)
        mask[passing] = True
        if key in self.facts.filters:
            probes, recall = self.facts.filters[key]
            self.facts = replace(self.facts, probes=probes)
            found = self.search(queries, k, mask)
        else:
            own = Sample.drawn(len(passing), 0).rows
            both = np.concatenate([queries, np.asarray(self.vectors[passing[own]])])
            near, close = search_exactly(ChosenRows(self.vectors, passing), both, max(k, NEIGHBOURS + 1))
            found = passing[near[: len(queries), :k]], close[: len(queries), :k]
            probes, recall = self.widen(
                _excluding_self(passing[own], passing[near[len(queries) :]]), WANTED_FILTERED, mask
            )
            filters = {**self.facts.filters, key: (probes, recall)}
            self.facts = replace(self.facts, filters=filters)
            _keep_filters(self.folder, filters)
        said = replace(self.facts, vectors=len(passing), probes=probes, recall=recall)
        self.facts = replace(self.facts, probes=usual)
        return *found, said


def _excluding_self(rows: Rows, nearest: Rows) -> Sample:
    others = [row[row != own][:NEIGHBOURS] for row, own in zip(nearest, rows)]
    return Sample(rows, np.stack(others))


def _keep_filters(folder: Path | None, filters: dict[str, tuple[int, float]]) -> None:
    """Remember the number of lists that filters need; the last hundred."""
    with suppress(OSError, InputError, KeyError, TypeError):
        if folder is not None:
            told = read_json(folder / FACTS)
            told["facts"]["filters"] = dict(list(filters.items())[-_FILTERS:])
            write_json(folder / FACTS, told)


def recall_of(found: Rows, exact: Rows) -> float:
    """The share of exact neighbours that were found.

    >>> recall_of(np.array([[1, 2]]), np.array([[2, 3]]))
    0.5
    """
    return float(
        np.mean(
            [len(set(row) & set(other)) / len(other) for row, other in zip(found.tolist(), exact.tolist())]
        )
    )


def faiss_module() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError(
            f"more than {EXACT:,} vectors are searched by an index of faiss, which is missing; {_REMEDY}"
        ) from None
    return faiss
