"""The approximate index: measured against exact search, brought up to date shard by shard, filtered."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from halp.features.table import ChosenRows, ShardedVectors, ShardRows
from halp.tasks import index_update as indexing
from halp.tasks.index import recall_of, search_exactly
from halp.tasks.index_update import open_index, search_index, update_index

pytest.importorskip("faiss", reason="faiss is not installed")
pytestmark = pytest.mark.heavy
SIZE = 2000  # vectors of a shard


def clustered(count: int, seed: int = 0) -> npt.NDArray[np.float32]:
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(40, 24))
    return (centres[draw.integers(0, 40, count)] + 0.5 * draw.normal(size=(count, 24))).astype(np.float32)


def shards(numbers: Sequence[int], gone: Mapping[int, Sequence[int]] | None = None) -> ShardedVectors:
    """Vectors of some shards; of some of them, rows are gone."""
    kept = [np.setdiff1d(np.arange(SIZE), (gone or {}).get(number, ())) for number in numbers]
    parts = [clustered(SIZE, number)[rows].astype(np.float16) for number, rows in zip(numbers, kept)]
    named = [ShardRows(f"shard-{number}", rows, SIZE) for number, rows in zip(numbers, kept)]
    return ShardedVectors(parts, None, named)


def agrees(folder: Path, vectors: ShardedVectors) -> None:
    """The index finds what exact search finds, and no row that is gone."""
    queries = np.asarray(vectors[np.arange(0, len(vectors), 97)])
    found, close = update_index(folder, vectors, progress=False).search(queries, 10)
    exact, similarity = search_exactly(vectors, queries, 10)
    assert recall_of(found, exact) >= 0.98
    np.testing.assert_allclose(close[found == exact], similarity[found == exact], atol=1e-5)
    again = open_index(folder, vectors)
    assert again is not None
    np.testing.assert_array_equal(again.search(queries, 10)[0], found)


def test_index_is_measured_kept_and_reused(tmp_path: Path) -> None:
    vectors = clustered(4000)
    built = update_index(tmp_path, vectors, progress=False)
    assert built.facts.recall >= 0.99
    opened = open_index(tmp_path, vectors)
    assert opened is not None
    assert (opened.facts.recall, opened.facts.probes) == (built.facts.recall, built.facts.probes)
    queries = vectors[::400] + 0.1
    exact, similarity = search_exactly(vectors, queries, 10)
    found, approximate = opened.search(queries, 10)
    assert recall_of(found, exact) >= 0.99
    same = found == exact
    np.testing.assert_allclose(approximate[same], similarity[same], atol=1e-6)
    assert open_index(tmp_path, vectors[1:]) is None, "it is of other vectors"
    (file,) = tmp_path.glob("*.faiss")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert open_index(tmp_path, vectors) is None
    again, _, facts = search_index(tmp_path, vectors, queries, 10, progress=False)
    assert facts.recall >= 0.99
    assert recall_of(again, exact) >= 0.99


def test_an_index_is_widened_until_it_finds_what_exact_search_finds(tmp_path: Path) -> None:
    """Vectors without any clusters are the worst case for inverted lists."""
    vectors = np.random.default_rng(0).normal(size=(8000, 32)).astype(np.float32)
    index = update_index(tmp_path, vectors, progress=False)
    assert index.facts.probes > 16
    assert index.facts.recall >= 0.99
    everything, _ = index.search(vectors[:2], 8000)
    assert [sorted(rows) for rows in everything.tolist()] == [list(range(8000))] * 2


def test_the_stated_recall_is_that_of_brute_force(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(3000, 16)).astype(np.float32)
    index = update_index(tmp_path, vectors, progress=False)
    index.facts = indexing.replace(index.facts, probes=2)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    close = unit[index.sample.rows] @ unit.T
    close[np.arange(len(close)), index.sample.rows] = -2
    exact = np.argsort(-close, axis=1)[:, :10]
    found = index.search(vectors[index.sample.rows], 11)[0]
    assert index.sample.nearest[:, :10].tolist() == exact.tolist()
    slow = np.mean(
        [
            len((set(row[row != own][:10].tolist())) & set(true.tolist())) / 10
            for row, own, true in zip(found, index.sample.rows, exact)
        ]
    )
    assert 0 < slow < 0.99
    assert index.sample.recall(found) == pytest.approx(slow)


def test_shards_come_and_go_and_the_index_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "SEGMENT", 4 * SIZE)
    steps = [
        shards(range(6)),
        shards(range(7)),  # one more
        shards(range(1, 7)),  # one less
        shards(range(1, 8), {3: range(500)}),  # some rows of a shard are gone
        shards(range(1, 10), {3: range(500), 8: range(7)}),  # a shard that was never whole
        shards(range(1, 10)),  # all rows are there again
        shards([9, 4, 2]),  # most of it is gone
    ]
    for vectors in steps:
        agrees(tmp_path, vectors)


def test_rows_in_another_order_are_the_same_index(tmp_path: Path) -> None:
    vectors = shards(range(3))
    agrees(tmp_path, vectors)
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("*.faiss")}
    order = np.random.default_rng(0).permutation(len(vectors))
    named = [ShardRows(f"shard-{number}", np.arange(SIZE), SIZE) for number in range(3)]
    agrees(tmp_path, ShardedVectors(vectors.parts, order, named))
    assert {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("*.faiss")} == before


def test_a_new_shard_costs_that_shard_only(tmp_path: Path) -> None:
    update_index(tmp_path, shards(range(20)), progress=False)
    more = shards(range(21))
    encoded: list[int] = []
    real = indexing.blocks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            indexing,
            "blocks",
            lambda pieces: ((rows, block) for rows, block in real(pieces) if not encoded.append(len(rows))),
        )
        began = time.process_time()
        update_index(tmp_path, more, progress=False)
        added = time.process_time() - began
    began = time.process_time()
    update_index(tmp_path / "new", more, progress=False)
    whole = time.process_time() - began
    assert encoded == [SIZE]
    assert added < whole, (added, whole)


@pytest.mark.parametrize("share", [0.5, 0.02])
def test_filters_are_exact_at_first_and_widened_afterwards(share: float, tmp_path: Path) -> None:
    vectors = shards(range(8))
    passing = np.flatnonzero(np.random.default_rng(1).random(len(vectors)) < share)
    queries = np.asarray(vectors[np.arange(0, len(vectors), 199)])
    exact, similarity = search_exactly(ChosenRows(vectors, passing), queries, 10)
    first, close, facts = search_index(tmp_path, vectors, queries, 10, passing=passing, progress=False)
    np.testing.assert_array_equal(first, passing[exact])
    np.testing.assert_allclose(close, similarity, atol=1e-6)
    assert (facts.vectors, facts.recall >= 0.95) == (len(passing), True)
    again, _, later = search_index(tmp_path, vectors, queries, 10, passing=passing, progress=False)
    assert (later.recall, later.probes) == (facts.recall, facts.probes)
    assert set(again.ravel().tolist()) <= set(passing.tolist())
    assert recall_of(again, passing[exact]) >= 0.9
    assert open_index(tmp_path, vectors).facts.probes == update_index(tmp_path, vectors).facts.probes


def test_a_folder_that_cannot_be_written_is_reported_and_searched_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    vectors = clustered(2000)
    with pytest.warns(UserWarning, match="cannot be kept"):
        index = update_index(tmp_path / "file" / "below", vectors, progress=False)
    assert index.search(vectors[:1], 1)[0].tolist() == [[0]]
