"""Time warping against the recursion written out, and segments against a count of moments."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from halp.core.errors import InputError
from halp.tasks.compare import align
from halp.tasks.segments import _merge_short, merge_windows

costs = arrays(
    np.float64, st.tuples(st.integers(1, 7), st.integers(1, 7)), elements=st.floats(0, 10, width=32)
)


def slowly(cost: np.ndarray) -> float:
    """The cheapest path over all beginnings, ends and steps, by recursion."""

    @cache
    def cheapest(i: int, j: int) -> float:
        ways = []
        for down, right in ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1)):
            if i - down < -1 or j - right < -1 or (j - right < 0 and i - down >= 0):
                continue
            matched = cost[i - down + 1 : i + 1, j - right + 1 : j + 1]
            ways.append(matched.sum() / right + (cheapest(i - down, j - right) if i - down >= 0 else 0.0))
        return min(ways, default=np.inf)

    return min(cheapest(cost.shape[0] - 1, j) for j in range(cost.shape[1])) / cost.shape[0]


@settings(max_examples=100, deadline=None)
@given(costs)
def test_path_is_the_cheapest_and_within_the_slope_limit(cost: np.ndarray) -> None:
    path, total = align(cost)
    short, long = (0, 1) if cost.shape[0] <= cost.shape[1] else (1, 0)
    assert total == pytest.approx(slowly(cost if short == 0 else cost.T), abs=1e-6)
    assert (path[0, short], path[-1, short]) == (0, cost.shape[short] - 1)
    steps = np.diff(path, axis=0)
    assert ((steps >= 0) & (steps <= 1)).all()
    assert (steps.sum(1) >= 1).all()
    for side in (short, long):
        assert np.unique(path[:, side], return_counts=True)[1].max() <= 3


def test_a_walk_is_matched_with_the_same_phase_of_a_longer_walk() -> None:
    phase = 0.4 * np.arange(120)
    walk = np.column_stack([np.cos(phase), np.sin(phase)])
    path, total = align(1 - walk[17:80] @ walk.T)
    assert total < 1e-6
    assert (path[:, 1] - path[:, 0] == path[0, 1]).all()
    assert np.cos(phase[17] - phase[path[0, 1]]) == pytest.approx(1, abs=0.02)


def test_costs_without_sense_are_refused() -> None:
    for cost in (np.zeros((0, 3)), np.zeros(3), np.array([[np.nan]])):
        with pytest.raises(InputError, match="cost matrix"):
            align(cost)


windows = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 8), st.integers(0, 2)), min_size=1, max_size=20
)


@settings(max_examples=100, deadline=None)
@given(windows, st.floats(0, 6))
def test_segments_cover_the_recording_once(
    given_windows: list[tuple[int, int, int]], shortest: float
) -> None:
    starts = np.array([start for start, _, _ in given_windows], dtype=float)
    ends = starts + [length for _, length, _ in given_windows]
    kinds = np.array([label for _, _, label in given_windows])
    chances = np.eye(2)[kinds % 2] * 0.8 + 0.1
    found = merge_windows("r", starts, ends, chances, ["a", "b"], rejected=kinds == 2, shortest=shortest)
    assert (found[0].start, found[-1].stop) == (starts.min(), ends.max())
    for one, other in itertools.pairwise(found):
        assert one.stop == other.start
        assert one.label != other.label
    assert all(0 <= one.score <= 1 and one.more["best"] in ("a", "b") for one in found)
    if len(found) > 1:
        assert min(one.stop - one.start for one in found) >= shortest


def merge_short_slowly(
    kind: np.ndarray, lengths: np.ndarray, evidence: np.ndarray, shortest: float, empty: int
) -> list[tuple[int, int]]:
    """Look at all runs again after every merge."""
    while True:
        runs = list(itertools.pairwise([0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(kind)]))
        spans = [lengths[first:last].sum() for first, last in runs]
        for place in np.argsort(spans, kind="stable").tolist():
            first, last = runs[place]
            if spans[place] >= shortest:
                return runs
            sides = [kind[runs[side][0]] for side in (place - 1, place + 1) if 0 <= side < len(runs)]
            sides = [side for side in sides if side != empty]
            if sides and kind[first] != empty:
                scores = lengths[first:last] @ evidence[first:last]
                kind[first:last] = max(sides, key=lambda side, scores=scores: float(scores[side]))
                break
        else:
            return runs


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 12), st.integers(0, 1000))
def test_short_segments_are_merged_as_if_all_were_looked_at_each_time(
    kinds: list[int], shortest: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    kind, lengths, evidence = (
        np.array(kinds),
        draw.integers(1, 5, len(kinds)) / 2.0,
        draw.random((len(kinds), 3)),
    )
    other = kind.copy()
    found = _merge_short(kind, lengths, evidence, shortest / 2, empty=3)
    assert found == merge_short_slowly(other, lengths, evidence, shortest / 2, 3)
    assert np.array_equal(kind, other)


def test_nobody_is_a_segment_of_its_own() -> None:
    starts = np.array([0.0, 1.0, 6.0])
    chances = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])
    found = merge_windows("r", starts, starts + 2, chances, ["a", "b"], absent=[(3.0, 6.0)], shortest=4.0)
    assert [(one.start, one.stop, one.label) for one in found] == [
        (0.0, 3.0, "a"),
        (3.0, 6.0, "nobody"),
        (6.0, 8.0, "b"),
    ]
    assert (
        merge_windows("r", np.zeros(0), np.zeros(0), np.zeros((0, 1)), ["a"], absent=[(0, 2)])[0].label
        == "nobody"
    )


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
        here = next(one for one in found if one.start <= moment < one.stop)
        assert here.label == "abc"[int(np.argmax(belief))]


def test_short_segments_go_to_a_neighbour_and_gaps_to_what_came_before() -> None:
    starts, labels = np.arange(6.0), [0, 0, 1, 0, 0, 0]
    chances = np.eye(2)[labels] * 0.8 + 0.1
    assert len(merge_windows("r", starts, starts + 1, chances, ["a", "b"])) == 3
    joined = merge_windows("r", starts, starts + 1, chances, ["a", "b"], shortest=1.5)
    assert [(one.start, one.stop, one.label) for one in joined] == [(0, 6, "a")]
    gap = merge_windows("r", np.array([0.0, 5.0]), np.array([2.0, 6.0]), np.eye(2), ["a", "b"])
    assert [(one.start, one.stop, one.label) for one in gap] == [(0, 5, "a"), (5, 6, "b")]
    assert merge_windows("r", np.zeros(0), np.zeros(0), np.zeros((0, 2)), ["a", "b"]) == []
