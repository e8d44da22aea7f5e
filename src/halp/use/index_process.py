"""The process that holds an index of usearch: `build FOLDER SEED PROGRESS`, or `serve INDEX EXPANSION` over pipes."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from usearch.index import Index

from halp.files import atomic_path, sha256, write_json
from halp.progress import Bar
from halp.use.index import FACTS, INDEX, IndexFacts, Rows, Vectors, read_array, recall_of, write_array

WANTED = 0.95  # recall@10
_SAMPLE = 100  # queries that recall is measured with
_BLOCK = 16_384


def search(index: Any, queries: Vectors, k: int, *, exact: bool = False) -> tuple[Rows, Vectors]:
    """Rows and cosine similarities `(Q, k)`, nearest first."""
    matches = index.search(queries, k, exact=exact)
    rows = np.asarray(matches.keys, dtype=np.int64).reshape(len(queries), -1)
    return rows, (1 - np.asarray(matches.distances, dtype=np.float32)).reshape(len(queries), -1)


def build(folder: Path, seed: int, progress: bool) -> None:
    """Write the index of `vectors.npy` with what is known about it; the facts are written last."""
    began, vectors = time.monotonic(), np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
    index: Any = Index(ndim=vectors.shape[1], metric="cos", dtype="f16", connectivity=16, expansion_add=96)
    with Bar("indexing", len(vectors), shown=progress) as bar:
        for first in range(0, len(vectors), _BLOCK):
            block = np.ascontiguousarray(vectors[first : first + _BLOCK], dtype=np.float32)
            index.add(np.arange(first, first + len(block), dtype=np.uint64), block)
            bar.advance(len(block))
    rows = np.random.default_rng(seed).choice(len(vectors), min(_SAMPLE, len(vectors)), replace=False)
    queries = np.array(vectors[np.sort(rows)], dtype=np.float32)
    exact, _ = search(index, queries, 10, exact=True)
    for expansion in (64, 128, 256, 512, 1024):
        index.expansion_search = expansion
        recall = recall_of(search(index, queries, 10)[0], exact)
        if recall >= WANTED:
            break
    with atomic_path(folder / INDEX) as partial:
        index.save(str(partial))
    seconds = time.monotonic() - began
    size, width = vectors.shape
    facts = IndexFacts(size, width, expansion, recall, len(queries), seconds, sha256(folder / INDEX))
    write_json(folder / FACTS, asdict(facts))


def serve(path: Path, expansion: int) -> None:
    """Answer queries `(Q, F)` and k from standard input with rows and similarities, until it ends."""
    index: Any = Index.restore(str(path), view=True)
    if index is None:
        raise ValueError(f"'{path}' is not an index")
    index.expansion_search = expansion
    source: Any = sys.stdin.buffer
    while source.peek(1):
        queries, k = read_array(source), read_array(source)
        for array in search(index, queries, int(k[0])):
            write_array(sys.stdout.buffer, array)


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1")
    else:
        serve(Path(sys.argv[2]), int(sys.argv[3]))
