"""Whether work grows as the arithmetic of docs/scaling.md takes for granted: processor time per clip embedded and
per vector indexed, at two sizes each.

`python -m benchmarks sizes --cpu-time`. A ratio of 1 is exact proportion.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import halp
from benchmarks.harness import Row
from halp.data.synthetic import make_synthetic_store
from halp.features.embed import embed_table

CLIPS, VECTORS = (500, 2000), (50_000, 400_000)


def rows() -> list[Row]:
    """Embedding from a store and building an index, the second several times as large."""
    encoder = halp.load_encoder("halp-base")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HALP_CACHE"] = ""
        stores = [
            make_synthetic_store(Path(folder) / str(count), count=count, repetitions=4) for count in CLIPS
        ]
        embed_table(encoder, stores[0], progress=False)
        embedded = [
            _seconds(partial(embed_table, encoder, store, workers=1, progress=False)) for store in stores
        ]
    return [_row("embedding a clip from a store", CLIPS, embedded), *_index_rows()]


def _index_rows() -> list[Row]:
    try:
        import faiss
    except ImportError:
        return []
    faiss.omp_set_num_threads(1)
    vectors = np.random.default_rng(0).standard_normal((VECTORS[1], 256)).astype(np.float32)
    index = faiss.index_factory(256, "IVF1024,SQ8")
    index.train(vectors[:40_000])
    return [
        _row(
            "adding a vector to IVF1024,SQ8",
            VECTORS,
            [_seconds(partial(index.add, vectors[:n])) for n in VECTORS],
        )
    ]


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _row(what: str, sizes: tuple[int, int], seconds: list[float]) -> Row:
    small, large = (1e6 * taken / size for taken, size in zip(seconds, sizes))
    name = f"{what}: CPU time at {sizes[1]:,} ÷ at {sizes[0]:,}"
    return Row(name, f"{large:.1f} µs", f"{small:.1f} µs", large / small, 1.1, at_most=True)
