"""The MiniRocket baseline against a loop."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.minirocket import KERNELS, MiniRocket, _responses


@pytest.mark.parametrize(("dilation", "kernel"), [(1, 0), (2, 41), (3, 83)])
def test_responses_of_minirocket_are_those_of_a_loop(dilation: int, kernel: int) -> None:
    series = np.random.default_rng(0).normal(size=(3, 4, 30)).astype(np.float32)
    channels = np.array([1, 3])
    weights = [2.0 if place in KERNELS[kernel] else -1.0 for place in range(9)]
    slow = np.zeros((3, 30))
    for clip in range(3):
        for t in range(30):
            for place in range(9):
                at = t + (place - 4) * dilation
                if 0 <= at < 30:
                    slow[clip, t] += weights[place] * sum(series[clip, channel, at] for channel in channels)
    np.testing.assert_allclose(_responses(series, dilation, kernel, channels), slow, atol=1e-4)


def test_minirocket_tells_series_apart_that_differ_in_tempo_only() -> None:
    draw, time = np.random.default_rng(0), np.arange(40)
    tempo = np.repeat([0.3, 0.9], 30)
    series = (
        np.sin(tempo[:, None] * time + draw.uniform(0, 6, (60, 1)))[:, None]
        + draw.normal(size=(60, 1, 40)) * 0.1
    )
    series = series.astype(np.float32)
    features = MiniRocket(count=840).fit(series).transform(series)
    assert features.shape[0] == 60
    assert features.min() >= 0
    assert features.max() <= 1
    centres = [features[::2][:15].mean(0), features[::2][15:].mean(0)]
    nearer = np.linalg.norm(features[1::2] - centres[1], axis=1) < np.linalg.norm(
        features[1::2] - centres[0], axis=1
    )
    assert (nearer == (tempo[1::2] > 0.5)).all()
