"""Segments and motifs of many recordings: time and memory grow with the windows, not with windows times
recordings.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from halp.features.content import ROW
from halp.features.table import FeatureTable
from halp.tasks import cluster
from halp.tasks.cluster import group_vectors
from halp.tasks.find_motifs import sequences


def table_of(recordings: int, windows: int = 17) -> FeatureTable:
    rows = np.zeros(recordings * windows, dtype=ROW)
    rows["recording"] = np.repeat(np.arange(recordings), windows)
    rows["start"] = np.tile(np.arange(windows) * 0.5, recordings)
    rows["stop"], rows["seen"] = rows["start"] + 2, 1
    absences = [(place, 3.0, 4.0) for place in range(recordings)]
    return FeatureTable(
        np.zeros((len(rows), 2), np.float32), rows, [str(n) for n in range(recordings)], (), absences
    )


def test_rows_of_a_recording_are_found_in_any_order() -> None:
    table = table_of(5, 3)
    mixed = np.random.default_rng(0).permutation(15)
    shuffled = FeatureTable(
        table.vectors, table.rows[mixed], [*table.recordings, "nothing in it"], (), table.absences
    )
    for number, rows in enumerate(shuffled.rows_by_recording()):
        np.testing.assert_array_equal(rows, np.flatnonzero(shuffled.recording == number))
    assert (shuffled.absent(2), shuffled.absent(5)) == ([(3.0, 4.0)], [])


def test_sequences_of_ten_times_the_recordings_take_about_ten_times_as_long() -> None:
    def seconds(recordings: int) -> float:
        table = table_of(recordings)
        began = time.process_time()
        found = sequences(table)
        assert len(found) == recordings
        assert [table.absent(place) for place in range(recordings)][-1] == [(3.0, 4.0)]
        return time.process_time() - began

    few, many = min(seconds(1_000) for _ in range(3)), min(seconds(10_000) for _ in range(2))
    assert many < 25 * few, (few, many)  # 10 ** 1.9 is 79, as comparing all rows with every recording took


def test_groups_of_a_sample_serve_all_rows_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    kinds = draw.integers(0, 3, 2000)
    vectors = (np.eye(8)[kinds] * 4 + 0.2 * draw.normal(size=(2000, 8))).astype(np.float32)
    whole = group_vectors(vectors, 3)
    monkeypatch.setattr(cluster, "FITTED", 300)
    monkeypatch.setattr(cluster, "BLOCK", 250)
    blocks = SimpleNamespace(largest=0)
    directions = cluster.directions

    def counted(block: np.ndarray, *mean: np.ndarray) -> np.ndarray:
        blocks.largest = max(blocks.largest, len(block))
        return directions(block, *mean)

    monkeypatch.setattr(cluster, "directions", counted)
    sampled = group_vectors(vectors, 3)
    assert blocks.largest == 300
    for found in (whole, sampled):
        assert len(set(zip(found.group.tolist(), kinds.tolist()))) == 3, "groups are the kinds"
    np.testing.assert_array_equal(whole.sizes, sampled.sizes)
