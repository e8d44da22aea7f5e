"""Time warping against the recursion written out, and segments against a count of moments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from halp.errors import InputError
from halp.use.alignment import accumulate, align
from halp.use.segments import merge_windows

costs = arrays(np.float64, st.tuples(st.integers(1, 7), st.integers(1, 7)), elements=st.floats(0, 10, width=32))


def slowly(cost: np.ndarray) -> np.ndarray:
    """The recursion, entry by entry."""
    total = np.zeros_like(cost)
    for i, j in itertools.product(*map(range, cost.shape)):
        before = [(i - 1, j), (i, j - 1), (i - 1, j - 1)]
        total[i, j] = cost[i, j] + min((total[one] for one in before if min(one) >= 0), default=0.0)
    return total


@settings(max_examples=100, deadline=None)
@given(costs)
def test_accumulated_costs_equal_the_recursion(cost: np.ndarray) -> None:
    assert np.allclose(accumulate(cost), slowly(cost))


@settings(max_examples=100, deadline=None)
@given(costs)
def test_path_is_monotone_whole_and_costs_what_it_says(cost: np.ndarray) -> None:
    path, total = align(cost)
    assert path[0].tolist() == [0, 0]
    assert path[-1].tolist() == [cost.shape[0] - 1, cost.shape[1] - 1]
    steps = np.diff(path, axis=0)
    assert ((steps >= 0) & (steps <= 1)).all()
    assert (steps.sum(1) >= 1).all()
    assert cost[path[:, 0], path[:, 1]].sum() == pytest.approx(total) == pytest.approx(slowly(cost)[-1, -1])


@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (12, 12), (40, 2), (2, 40)])
def test_band_keeps_the_path_near_the_straight_line(shape: tuple[int, int]) -> None:
    cost = np.random.default_rng(0).uniform(size=shape)
    path, total = align(cost, band=3)
    line = path[:, 0] * (shape[1] - 1) / (shape[0] - 1)
    assert np.abs(line - path[:, 1]).max() <= max(3, (shape[1] - 1) / (shape[0] - 1))
    assert np.isfinite(total)
    assert total >= align(cost)[1] - 1e-9
    assert align(cost, band=100)[1] == pytest.approx(align(cost)[1])


def test_costs_without_sense_are_refused() -> None:
    for cost in (np.zeros((0, 3)), np.zeros(3), np.array([[np.nan]])):
        with pytest.raises(InputError, match="cost matrix"):
            align(cost)
    with pytest.raises(InputError, match="band of 0"):
        align(np.zeros((3, 3)), band=0)


windows = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8), st.integers(0, 2)), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None)
@given(windows, st.floats(0, 6))
def test_segments_cover_the_recording_once(given_windows: list[tuple[int, int, int]], shortest: float) -> None:
    starts = np.array([start for start, _, _ in given_windows], dtype=float)
    ends = starts + [length for _, length, _ in given_windows]
    chances = np.eye(3)[[label for _, _, label in given_windows]] * 0.8 + 0.2 / 3
    found = merge_windows("r", starts, ends, chances, ["a", "b", None], shortest=shortest)
    assert (found[0].start, found[-1].end) == (starts.min(), ends.max())
    for one, other in itertools.pairwise(found):
        assert one.end == other.start
        assert one.label != other.label
    assert all(0 <= one.probability <= 1 for one in found)
    if len(found) > 1:
        assert min(one.end - one.start for one in found) >= shortest


def test_every_moment_takes_the_likeliest_label_of_the_windows_over_it() -> None:
    draw = np.random.default_rng(0)
    starts = np.arange(0, 10, 0.5)
    ends, chances = starts + 2, draw.dirichlet([1, 1, 1], len(starts))
    found = merge_windows("r", starts, ends, chances, ["a", "b", "c"])
    for moment in np.arange(0.25, 11.5, 0.5):
        over = [
            (1.05 - abs(2 * (moment - start) / 2 - 1), one)
            for start, end, one in zip(starts, ends, chances)
            if start < moment < end
        ]
        belief = sum(weight * one for weight, one in over)
        here = next(one for one in found if one.start <= moment < one.end)
        assert here.label == "abc"[int(np.argmax(belief))]


def test_short_segments_go_to_a_neighbour_and_gaps_to_what_came_before() -> None:
    starts, labels = np.arange(6.0), [0, 0, 1, 0, 0, 0]
    chances = np.eye(2)[labels] * 0.8 + 0.1
    assert len(merge_windows("r", starts, starts + 1, chances, ["a", "b"])) == 3
    joined = merge_windows("r", starts, starts + 1, chances, ["a", "b"], shortest=1.5)
    assert [(one.start, one.end, one.label) for one in joined] == [(0, 6, "a")]
    gap = merge_windows("r", np.array([0.0, 5.0]), np.array([2.0, 6.0]), np.eye(2), ["a", "b"])
    assert [(one.start, one.end, one.label) for one in gap] == [(0, 5, "a"), (5, 6, "b")]
    assert merge_windows("r", np.zeros(0), np.zeros(0), np.zeros((0, 2)), ["a", "b"]) == []
