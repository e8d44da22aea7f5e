"""Compact vectors of a large collection: written as shards of float16, indexed, searched with and without a filter.

`python -m benchmarks.scale_vectors FOLDER COUNT [GIB]` prints JSON: CPU seconds, megabytes, recall. GIB bounds the
memory that the process may hold (RLIMIT_DATA); pages of mapped files do not count, since the system takes them back.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from halp.features.table import ChosenRows, ShardedVectors, ShardRows
from halp.tasks.index import recall_of, search_exactly
from halp.tasks.index_update import open_index, search_index, update_index

SHARD, WIDTH, QUERIES = 100_000, 256, 100


def write_shards(folder: Path, count: int, first: int = 0) -> None:
    """Vectors of windows of many recordings, as files of float16: windows of one movement are alike."""
    fixed = np.random.default_rng(0)
    movements = fixed.normal(size=(500, 24)).astype(np.float32)
    spread = fixed.normal(size=(24, WIDTH)).astype(np.float32)
    noise = 0.3 * fixed.normal(size=(8192, WIDTH)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, count // SHARD):
        draw = np.random.default_rng(number + 1)
        inner = movements[draw.integers(0, 500, SHARD)]
        inner = inner + 0.5 * draw.standard_normal((SHARD, 24), dtype=np.float32)
        block = inner @ spread + noise[draw.integers(0, len(noise), SHARD)]
        np.save(folder / f"{number:05}.npy", block.astype(np.float16))


def shards_of(folder: Path) -> ShardedVectors:
    """The vectors as the library has those of a collection."""
    files = sorted(folder.glob("*.npy"))
    parts = [np.load(file, mmap_mode="r") for file in files]
    named = [ShardRows(file.stem, np.arange(len(part)), len(part)) for file, part in zip(files, parts)]
    return ShardedVectors(parts, None, named, folder / "index")


def measure(folder: Path, count: int) -> dict[str, Any]:
    """Build, search, filter, add a shard; in CPU seconds of this process."""
    vectors, home = shards_of(folder), folder / "index"
    found: dict[str, Any] = {}
    draw = np.random.default_rng(9)
    queries = np.asarray(vectors[np.sort(draw.choice(len(vectors), QUERIES, replace=False))]) + np.float32(
        0.05
    )
    clock = _Clock(found)
    index = update_index(home, vectors, progress=False)
    clock("build")
    found["recall"], found["probes"], found["lists"] = (
        index.facts.recall,
        index.facts.probes,
        index.facts.lists,
    )
    found["disk_mb"] = sum(file.stat().st_size for file in home.glob("*.faiss")) / 1e6
    index = open_index(home, vectors) or index
    clock("open")
    rows, _ = index.search(queries, 10)
    clock("search")
    exact, _ = search_exactly(vectors, queries, 10)
    clock("exact")
    found["recall_queries"] = recall_of(rows, exact)
    for share in (0.01, 0.001):
        few = np.flatnonzero(draw.random(len(vectors)) < share)
        clock("")
        search_exactly(ChosenRows(vectors, few), queries[:1], 10)
        clock(f"filter_{100 * share:g}_percent")
    half = np.arange(len(vectors))[: len(vectors) // 2]
    first = search_index(home, vectors, queries, 10, passing=half, progress=False)
    clock("filter_half_first")
    again = search_index(home, vectors, queries, 10, passing=half, progress=False)
    clock("filter_half_again")
    found["filter_recall"], found["filter_recall_queries"] = again[2].recall, recall_of(again[0], first[0])
    del index, vectors, again  # the files are mapped once at a time
    write_shards(folder, count + SHARD, count // SHARD)
    more = shards_of(folder)
    clock("")
    update_index(home, more, progress=False)
    clock("add_a_shard")
    return {**found, "vectors": count, **_memory()}


class _Clock:
    def __init__(self, found: dict[str, Any]) -> None:
        self.found, self.began = found, time.process_time()

    def __call__(self, name: str) -> None:
        now = time.process_time()
        if name:
            self.found[f"{name}_s"] = round(now - self.began, 3)
        print(name, round(now - self.began, 2), file=sys.stderr, flush=True)
        self.began = now


def _memory() -> dict[str, float]:
    """Most memory that the process held, with mapped files and without, in MB."""
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    return {
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "anonymous_at_end_mb": int(status["RssAnon"].split()[0]) / 1024,
    }


def main(folder: str, count: str, limit: str = "0") -> None:
    if float(limit):
        most = int(float(limit) * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    began = time.process_time()
    write_shards(Path(folder), int(count), len(list(Path(folder).glob("*.npy"))))
    print("written", round(time.process_time() - began, 1), file=sys.stderr, flush=True)
    print(json.dumps({**measure(Path(folder), int(count)), "queries": QUERIES, "limit_gib": float(limit)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
