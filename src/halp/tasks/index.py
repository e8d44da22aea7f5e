"""Nearest vectors: exact by blockwise products, or by an approximate index whose recall is measured when it is built."""

from __future__ import annotations

import importlib.util
import io
import os
import stat
import subprocess
import sys
import time
import warnings
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import atomic_path, read_json, sha256, write_json
from halp.core.progress import Bar

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
    """What is known about an index: its size, how widely it searches, its measured recall@10, and the hash of its file."""

    vectors: int
    dimensions: int
    expansion: int
    recall: float
    queries: int
    build_seconds: float
    sha256: str = ""


def search_exactly(vectors: Vectors, queries: Vectors, k: int) -> tuple[Rows, Vectors]:
    """Rows and cosine similarities `(Q, k)` of the nearest vectors, nearest first, blockwise over a memory map."""
    from halp.evaluation.protocols.knn import neighbours  # not for the process of an index, which needs no torch

    return neighbours(vectors, queries, min(k, len(vectors)))


class IndexDied(Exception):
    """The process that holds an index is gone, or gave rows that cannot be."""


class ApproximateIndex:
    """A graph index (HNSW, by usearch) of half-precision vectors under cosine similarity, held by a process of its own.

    usearch believes what it reads, and a crash of it must not be one of ours: what goes wrong there is `IndexDied` here.
    """

    def __init__(self, folder: Path, facts: IndexFacts) -> None:
        self.facts = facts
        command = [sys.executable, "-m", "halp.tasks.index", "serve", str(folder / INDEX), str(facts.expansion)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)  # noqa: S603
        weakref.finalize(self, self._process.kill)

    def search(self, queries: Vectors, k: int) -> tuple[Rows, Vectors]:
        """Rows and cosine similarities `(Q, k)`, nearest first."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise IndexDied("it has no pipes")
        try:
            write_array(process.stdin, np.ascontiguousarray(queries, dtype=np.float32))
            write_array(process.stdin, np.array([k]))
            rows, similarity = read_array(process.stdout), read_array(process.stdout)
        except (OSError, ValueError, EOFError) as error:
            raise IndexDied(str(error)) from error
        wanted = (len(queries), min(k, self.facts.vectors))
        if rows.shape != wanted or similarity.shape != wanted or not np.isfinite(similarity).all():
            raise IndexDied(f"it gave {rows.shape} rows")
        if rows.size and not (rows.min() >= 0 and rows.max() < self.facts.vectors):
            raise IndexDied("it gave rows that there are not")
        return rows, similarity


def write_array(file: IO[bytes], array: npt.NDArray[Any]) -> None:
    """Send an array to the other process: its length in bytes, then what `np.save` writes."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    file.write(buffer.getbuffer().nbytes.to_bytes(8, "little") + buffer.getvalue())
    file.flush()


def read_array(file: IO[bytes]) -> npt.NDArray[Any]:
    """An array that the other process sent."""
    content = file.read(int.from_bytes(file.read(8), "little"))
    return np.load(io.BytesIO(content), allow_pickle=False)


def search_index(
    folder: Path, queries: Vectors, k: int, *, progress: bool = True
) -> tuple[Rows, Vectors, IndexFacts | None]:
    """Nearest rows of the vectors of a folder by its index, which is built where it is missing or damaged.

    Where that fails twice, all vectors are compared, and the facts are None.
    """
    for index in (lambda: open_index(folder), lambda: build_index(folder, progress=progress)):
        try:
            opened = index()
            if opened is not None:
                return *opened.search(queries, k), opened.facts
        except IndexDied as error:
            warnings.warn(f"the index in '{folder}' failed ({error}); it is made again or left out", stacklevel=2)
    vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
    return *search_exactly(vectors, queries, k), None


def open_index(folder: Path) -> ApproximateIndex | None:
    """The index of a folder, or None where there is none or its bytes are not those that were written."""
    check_usearch()
    try:
        facts = IndexFacts(**read_json(folder / FACTS))
        whole = stat.S_ISREG(os.stat(folder / INDEX).st_mode) and sha256(folder / INDEX) == facts.sha256
    except (InputError, TypeError, OSError):
        return None
    return ApproximateIndex(folder, facts) if whole else None


def build_index(folder: Path, *, seed: int = 0, progress: bool = True) -> ApproximateIndex:
    """Build the index of the vectors of a folder in a process of its own, measure its recall, and keep both there.

    The search is widened until recall@10 over a sample of the vectors' own neighbourhoods reaches the goal.
    """
    check_usearch()
    (folder / FACTS).unlink(missing_ok=True)
    command = [sys.executable, "-m", "halp.tasks.index", "build", str(folder), str(seed), str(int(progress))]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603
    if answer.returncode:
        raise IndexDied(f"building it ended with code {answer.returncode}")
    index = open_index(folder)
    if index is None:
        raise IndexDied("what was built cannot be read back")
    return index


def recall_of(found: Rows, exact: Rows) -> float:
    """Share of the exact neighbours that were found.

    >>> recall_of(np.array([[1, 2]]), np.array([[2, 3]]))
    0.5
    """
    return float(
        np.mean([len(set(row) & set(other)) / len(other) for row, other in zip(found.tolist(), exact.tolist())])
    )


def check_usearch() -> None:
    """Refuse to go on where the library is missing."""
    if importlib.util.find_spec("usearch") is None:
        raise InputError(
            f"more than {EXACT:,} vectors are searched by an index of usearch, which is missing; {_REMEDY}"
        )


def _search(index: Any, queries: Vectors, k: int, *, exact: bool = False) -> tuple[Rows, Vectors]:
    """Rows and cosine similarities `(Q, k)`, nearest first."""
    matches = index.search(queries, k, exact=exact)
    rows = np.asarray(matches.keys, dtype=np.int64).reshape(len(queries), -1)
    return rows, (1 - np.asarray(matches.distances, dtype=np.float32)).reshape(len(queries), -1)


def _build(folder: Path, seed: int, progress: bool) -> None:
    """Write the index of `vectors.npy` with what is known about it; the facts are written last."""
    from usearch.index import Index

    began, vectors = time.monotonic(), np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
    index: Any = Index(ndim=vectors.shape[1], metric="cos", dtype="f16", connectivity=16, expansion_add=96)
    with Bar("indexing", len(vectors), shown=progress) as bar:
        for first in range(0, len(vectors), _BLOCK):
            block = np.ascontiguousarray(vectors[first : first + _BLOCK], dtype=np.float32)
            index.add(np.arange(first, first + len(block), dtype=np.uint64), block)
            bar.advance(len(block))
    rows = np.random.default_rng(seed).choice(len(vectors), min(_SAMPLE, len(vectors)), replace=False)
    queries = np.array(vectors[np.sort(rows)], dtype=np.float32)
    exact, _ = _search(index, queries, 10, exact=True)
    for expansion in (64, 128, 256, 512, 1024):
        index.expansion_search = expansion
        recall = recall_of(_search(index, queries, 10)[0], exact)
        if recall >= WANTED:
            break
    with atomic_path(folder / INDEX) as partial:
        index.save(str(partial))
    seconds = time.monotonic() - began
    size, width = vectors.shape
    facts = IndexFacts(size, width, expansion, recall, len(queries), seconds, sha256(folder / INDEX))
    write_json(folder / FACTS, asdict(facts))


def _serve(path: Path, expansion: int) -> None:
    """Answer queries `(Q, F)` and k from standard input with rows and similarities, until it ends."""
    from usearch.index import Index

    index: Any = Index.restore(str(path), view=True)
    if index is None:
        raise ValueError(f"'{path}' is not an index")
    index.expansion_search = expansion
    source: Any = sys.stdin.buffer
    while source.peek(1):
        queries, k = read_array(source), read_array(source)
        for array in _search(index, queries, int(k[0])):
            write_array(sys.stdout.buffer, array)


# the process that holds an index: `build FOLDER SEED PROGRESS`, or `serve INDEX EXPANSION` over pipes
if __name__ == "__main__":
    if sys.argv[1] == "build":
        _build(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1")
    else:
        _serve(Path(sys.argv[2]), int(sys.argv[3]))
