"""Nearest vectors: exact by blockwise products, or by an approximate index whose recall is measured when it
is built.

The index (faiss, inverted lists of 8-bit vectors) proposes candidates, which are compared exactly. It is
widened until its recall on the user's own vectors is high enough.
"""

from __future__ import annotations

import os
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import atomic_path, read_json, sha256, write_json
from halp.core.progress import Bar
from halp.evaluation.protocols.knn import neighbours

Vectors = Any  # (N, F) float32: an array, a memory map, or `ShardedVectors`
Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

EXACT = 1_000_000  # up to this many vectors are searched exactly
INDEX, FACTS = "index.faiss", "index.json"
WANTED = 0.99  # recall@10
CANDIDATES = 5  # times the wanted neighbours, and at least 50, are compared exactly
_SAMPLE = 100  # queries that recall is measured with
_TRAINING = 40_000  # vectors that the lists are laid out with
_BLOCK = 65_536
_REMEDY = "install it with `pip install 'halp-motion[search]'`, or search exactly with --exact"


@dataclass(frozen=True)
class IndexFacts:
    """What is known about an index: its size, lists and how many are looked into, its measured recall@10, and
    its file.
    """

    vectors: int
    dimensions: int
    lists: int
    probes: int
    recall: float
    queries: int
    build_seconds: float
    sha256: str = ""
    state: tuple[int, ...] = ()


def search_exactly(vectors: Vectors, queries: Floats, k: int) -> tuple[Rows, Floats]:
    """Rows and cosine similarities `(Q, k)` of the nearest vectors, nearest first, blockwise over a memory
    map.
    """
    return neighbours(vectors, queries, min(k, len(vectors)))


@dataclass
class ApproximateIndex:
    """An index over vectors, which are needed to compare its candidates exactly."""

    index: Any
    vectors: Vectors
    facts: IndexFacts

    def search(self, queries: Floats, k: int) -> tuple[Rows, Floats]:
        """Rows and cosine similarities `(Q, k)`, nearest first."""
        k, wanted = min(k, len(self.vectors)), min(len(self.vectors), max(50, CANDIDATES * k))
        queries = _unit(queries)
        self.index.nprobe = self.facts.probes
        _, candidates = self.index.search(queries, wanted)
        rows, similarity = (
            np.empty((len(queries), k), dtype=np.int64),
            np.empty((len(queries), k), dtype=np.float32),
        )
        for place, found in enumerate(candidates):
            found = np.sort(found[found >= 0])
            if len(found) < k:  # the lists that were looked into hold too few
                rows[place], similarity[place] = (
                    part[0] for part in search_exactly(self.vectors, queries[[place]], k)
                )
                continue
            values = _unit(np.asarray(self.vectors[found])) @ queries[place]
            best = np.argsort(-values, kind="stable")[:k]
            rows[place], similarity[place] = found[best], values[best]
        return rows, similarity


def search_index(
    folder: Path, vectors: Vectors, queries: Floats, k: int, *, progress: bool = True
) -> tuple[Rows, Floats, IndexFacts]:
    """Nearest rows of vectors by the index that a folder keeps of them; it is built where it is missing or
    damaged.
    """
    index = open_index(folder, vectors)
    if index is None:
        index = build_index(folder, vectors, progress=progress)
    return *index.search(queries, k), index.facts


def open_index(folder: Path, vectors: Vectors) -> ApproximateIndex | None:
    """The index of a folder, or None if there is none or its bytes are not those that were written."""
    faiss = _faiss()
    with suppress(InputError, TypeError, OSError, RuntimeError):
        facts = IndexFacts(**read_json(folder / FACTS))
        whole = tuple(facts.state) == _state(folder / INDEX) or sha256(folder / INDEX) == facts.sha256
        if whole and (facts.vectors, facts.dimensions) == tuple(vectors.shape):
            return ApproximateIndex(
                faiss.read_index(str(folder / INDEX), faiss.IO_FLAG_MMAP_IFC), vectors, facts
            )
    return None


def build_index(folder: Path, vectors: Vectors, *, seed: int = 0, progress: bool = True) -> ApproximateIndex:
    """Build the index of vectors, measure its recall@10 on a sample of them, and keep both in a folder."""
    faiss, began = _faiss(), time.monotonic()
    size, width = vectors.shape
    lists = max(1, min(2 ** round(np.log2(max(1.0, size**0.5))), size // 39))
    draw = np.random.default_rng(seed)
    index = faiss.index_factory(width, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.cp.seed = 8, seed
    index.train(_unit(np.asarray(vectors[np.sort(draw.choice(size, min(_TRAINING, size), replace=False))])))
    with Bar("indexing", size, shown=progress) as bar:
        for first in range(0, size, _BLOCK):
            block = _unit(np.asarray(vectors[first : first + _BLOCK]))
            index.add(block)
            bar.advance(len(block))
    queries = np.array(
        vectors[np.sort(draw.choice(size, min(_SAMPLE, size), replace=False))], dtype=np.float32
    )
    exact = search_exactly(vectors, queries, 10)[0]
    built = ApproximateIndex(index, vectors, IndexFacts(size, width, lists, 0, 0.0, len(queries), 0.0))
    probes = min(16, lists)
    while True:
        built.facts = replace(built.facts, probes=probes)
        recall = recall_of(built.search(queries, 10)[0], exact)
        if recall >= WANTED or probes == lists:
            break
        probes = min(2 * probes, lists)
    built.facts = replace(built.facts, recall=recall, build_seconds=time.monotonic() - began)
    try:
        with atomic_path(folder / INDEX) as partial:
            faiss.write_index(index, str(partial))
        kept = replace(built.facts, sha256=sha256(folder / INDEX), state=_state(folder / INDEX))
        write_json(folder / FACTS, asdict(kept))
        return replace(built, facts=kept)
    except (OSError, RuntimeError) as error:
        warnings.warn(f"the index cannot be kept in '{folder}' ({error})", stacklevel=2)
        return built


def _state(path: Path) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _unit(rows: npt.NDArray[Any]) -> Floats:
    rows = np.array(rows, dtype=np.float32)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows


def recall_of(found: Rows, exact: Rows) -> float:
    """Share of the exact neighbours that were found.

    >>> recall_of(np.array([[1, 2]]), np.array([[2, 3]]))
    0.5
    """
    return float(
        np.mean(
            [len(set(row) & set(other)) / len(other) for row, other in zip(found.tolist(), exact.tolist())]
        )
    )


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError(
            f"more than {EXACT:,} vectors are searched by an index of faiss, which is missing; {_REMEDY}"
        ) from None
    return faiss
