"""The transfer benchmark: correctness clip by clip over overlapping splits, and intervals when clips are drawn again."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.transfer import Candidate, Task, bootstrap_interval, correctness, markdown


def test_correctness_is_averaged_over_the_parts_that_test_a_clip() -> None:
    labels = np.array([0, 1] * 6)
    features = np.stack([labels * 4.0 - 2.0, np.zeros(12)], 1)
    features[3, 0] = -2.0  # looks like the other class
    parts = [(np.arange(4, 12), np.arange(4)), (np.arange(6, 12), np.arange(2, 6))]
    task = Task("made up", {}, labels, np.arange(12), parts)
    found = correctness(task, Candidate("plain", lambda task, train: features))
    assert np.isnan(found[6:]).all()
    assert found[:6].tolist() == [1, 1, 1, 0, 1, 1]


@pytest.mark.heavy
def test_the_interval_covers_the_mean_and_shrinks_with_more_clips() -> None:
    draw = np.random.default_rng(1)
    few, many = (draw.choice([-1.0, 0.0, 1.0], size=size, p=[0.1, 0.7, 0.2]) for size in (50, 5000))
    mean, low, high = bootstrap_interval(few)
    assert low < mean < high
    assert mean == pytest.approx(100 * few.mean())
    _, narrow_low, narrow_high = bootstrap_interval(many)
    assert narrow_high - narrow_low < (high - low) / 5
    error = 100 * many.std() / np.sqrt(len(many))
    assert narrow_high - narrow_low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_the_table_has_differences_with_their_intervals() -> None:
    cell = {"ridge": {"mean": 50.0, "std": None}}
    sets = ("nw-ucla", "utd-mhad", "msr-action3d", "utkinect")
    found = {"raw": dict.fromkeys(sets, cell)}
    text = markdown(found, ["ridge"], "command", {"raw": {name: [1.0, -0.5, 2.5] for name in sets}})
    assert "| raw | 50.0 | 50.0 | 50.0 | 50.0 |" in text
    assert "+1.0 (−0.5 to +2.5)" in text
