"""Nearest vectors: exact by blockwise products, or by an approximate index whose recall is measured when it is built."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.errors import InputError
from halp.evaluation.protocols.knn import neighbours
from halp.files import atomic_path, read_json, write_json
from halp.progress import Bar, console

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

EXACT = 1_000_000  # up to so many vectors are searched exactly
INDEX, FACTS = "index.usearch", "index.json"
WANTED = 0.95  # recall@10
_SAMPLE = 100  # queries that recall is measured with
_BLOCK = 16_384
_REMEDY = "install it with `pip install 'halp[search]'`, or search exactly with --exact"


@dataclass(frozen=True)
class IndexFacts:
    """What is known about an index: its size, how widely it searches, and its measured recall@10."""

    vectors: int
    dimensions: int
    expansion: int
    recall: float
    queries: int
    build_seconds: float


def search_exactly(vectors: Vectors, queries: Vectors, k: int) -> tuple[Rows, Vectors]:
    """Rows and cosine similarities `(Q, k)` of the nearest vectors, nearest first, blockwise over a memory map."""
    return neighbours(vectors, queries, min(k, len(vectors)))


class ApproximateIndex:
    """A graph index (HNSW, by usearch) in a file that is mapped into memory; half-precision, cosine similarity."""

    def __init__(self, index: Any, facts: IndexFacts) -> None:
        self._index, self.facts = index, facts
        index.expansion_search = facts.expansion

    def search(self, queries: Vectors, k: int) -> tuple[Rows, Vectors]:
        """Rows and cosine similarities `(Q, k)`, nearest first."""
        found = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), k, exact=False)
        keys = np.asarray(found.keys, dtype=np.int64).reshape(len(queries), -1)
        return keys, (1 - np.asarray(found.distances, dtype=np.float32)).reshape(len(queries), -1)


def open_index(folder: Path) -> ApproximateIndex | None:
    """The index of a folder, or None where there is none or it is damaged."""
    if not (folder / FACTS).is_file():
        return None
    library = _usearch()
    try:
        facts = IndexFacts(**read_json(folder / FACTS))
        index = library.Index.restore(str(folder / INDEX), view=True)
        if index is None or len(index) != facts.vectors or index.ndim != facts.dimensions:
            return None
    except (InputError, TypeError, ValueError, RuntimeError, OSError):
        return None
    return ApproximateIndex(index, facts)


def build_index(vectors: Vectors, folder: Path, *, seed: int = 0, progress: bool = True) -> ApproximateIndex:
    """Build the index of vectors `(N, F)`, measure its recall, and keep both in a folder; the facts are written last.

    The search is widened until recall@10 over a sample of the vectors' own neighbourhoods reaches the goal.
    """
    library, began = _usearch(), time.monotonic()
    index = library.Index(ndim=vectors.shape[1], metric="cos", dtype="f16", connectivity=16, expansion_add=96)
    with Bar("indexing", len(vectors), shown=progress) as bar:
        for first in range(0, len(vectors), _BLOCK):
            block = np.ascontiguousarray(vectors[first : first + _BLOCK], dtype=np.float32)
            index.add(np.arange(first, first + len(block), dtype=np.uint64), block)
            bar.advance(len(block))
    rows = np.random.default_rng(seed).choice(len(vectors), min(_SAMPLE, len(vectors)), replace=False)
    queries = np.array(vectors[np.sort(rows)], dtype=np.float32)
    exact, _ = search_exactly(vectors, queries, 10)
    for expansion in (64, 128, 256, 512, 1024):
        facts = IndexFacts(len(vectors), vectors.shape[1], expansion, 0.0, len(queries), time.monotonic() - began)
        found, _ = ApproximateIndex(index, facts).search(queries, 10)
        recall = recall_of(found, exact)
        if recall >= WANTED:
            break
    facts = IndexFacts(**{**asdict(facts), "recall": recall})
    try:
        with atomic_path(folder / INDEX) as partial:
            index.save(str(partial))
        write_json(folder / FACTS, asdict(facts))
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"the index cannot be kept in '{folder}' ({error}); set HALP_CACHE to another folder"
        ) from error
    return ApproximateIndex(index, facts)


def recall_of(found: Rows, exact: Rows) -> float:
    """Share of the exact neighbours that were found.

    >>> recall_of(np.array([[1, 2]]), np.array([[2, 3]]))
    0.5
    """
    return float(
        np.mean([len(set(one) & set(other)) / len(other) for one, other in zip(found.tolist(), exact.tolist())])
    )


def _usearch() -> Any:
    try:
        from usearch import index as library
    except ImportError:
        raise InputError(
            f"more than {EXACT:,} vectors are searched by an index of usearch, which is missing; {_REMEDY}"
        ) from None
    return library


def say_index(facts: IndexFacts) -> None:
    """Tell on standard error that the answer is approximate, and how good it was measured to be."""
    console.print(
        f"approximate search over {facts.vectors} vectors: recall@10 {facts.recall:.3f}, measured with {facts.queries} queries"
    )
