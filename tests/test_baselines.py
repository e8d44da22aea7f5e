"""The script of the raw baselines: resampling, time warping and its own table, on invented features."""

import numpy as np

from benchmarks.baselines import DTW_BAND, Measurement, _warp, resample


def test_resampling_keeps_the_ends_and_walks_straight_between() -> None:
    line = np.arange(5, dtype=np.float32)[:, None, None, None]
    assert resample(line, 9).ravel().tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]
    assert resample(line[:1], 3).ravel().tolist() == [0, 0, 0]


def test_time_warping_equals_a_slow_recursion() -> None:
    rng = np.random.default_rng(0)
    many, one = rng.normal(size=(4, 9, 3)), rng.normal(size=(9, 3))

    def slow(left: np.ndarray, right: np.ndarray) -> float:
        table = np.full((10, 10), np.inf)
        table[0, 0] = 0
        for i in range(1, 10):
            for j in range(1, 10):
                if abs(i - j) <= DTW_BAND:
                    step = min(table[i - 1, j - 1], table[i - 1, j], table[i, j - 1])
                    table[i, j] = np.linalg.norm(left[i - 1] - right[j - 1]) + step
        return float(table[9, 9])

    np.testing.assert_allclose(_warp(many, one), [slow(left, one) for left in many])


def test_a_baseline_is_met_within_one_point() -> None:
    assert Measurement("a", "b", (50.0, None, 60.0), (50.9, 1.0, None)).met
    assert not Measurement("a", "b", (50.0, None, 60.0), (51.5, 1.0, None)).met
