"""Nearest vectors: exact by blockwise products, or by an approximate index whose recall is measured when it is built."""

from __future__ import annotations

import importlib.util
import io
import os
import stat
import subprocess
import sys
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from halp.errors import InputError
from halp.files import read_json, sha256

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

EXACT = 1_000_000  # up to so many vectors are searched exactly
INDEX, FACTS = "index.usearch", "index.json"
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
        command = [sys.executable, "-m", "halp.use.index_process", "serve", str(folder / INDEX), str(facts.expansion)]
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
    command = [sys.executable, "-m", "halp.use.index_process", "build", str(folder), str(seed), str(int(progress))]
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
