"""Soft invariance weighs down what views move; motion capture that looks like a Kinect is normalised as recordings are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from benchmarks.reweighting import KinectNoise, KinectNoiseSettings, spectra
from halp.augment.base import ViewShape
from halp.skeleton import get_topology


def test_what_views_move_is_weighed_down_and_nothing_is_dropped(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    clip, view = draws.normal(size=(500, 1, 4)), draws.normal(size=(500, 3, 4))
    features = (clip + view * [3.0, 0.1, 0.1, 0.1]).astype(np.float32)
    named = {spectrum.name: spectrum for spectrum in spectra({"as trained": features}, tmp_path)}
    assert list(named) == ["views, as trained", "views and total, as trained", "total, as trained"]
    spectrum = named["views, as trained"]
    matrix = (spectrum.axes * torch.from_numpy(spectrum.weights(0.1, 1.0))) @ spectrum.axes.T
    weights = matrix.diagonal()
    assert weights[0] < 0.3 * weights[1:].min()
    assert int(torch.linalg.matrix_rank(matrix)) == 4
    soft = spectrum.weights(1000.0, 1.0)
    assert soft.max() / soft.min() < 1.01


def test_noise_of_a_kinect_grows_outwards_and_is_normalised_again() -> None:
    topology = get_topology("body-16")
    noise = KinectNoise(KinectNoiseSettings(), topology)
    draws = torch.Generator().manual_seed(0)
    still = torch.randn(40, 1, 1, 16, 3, generator=draws).expand(40, 64, 1, 16, 3).clone()
    still[:, :, :, topology.index(topology.centre or "")] = 0
    seen = noise.apply(still, noise.draw(ViewShape(*still.shape), draws))
    assert (seen[:, :, :, topology.index("hip_center")] == 0).all()
    bones = torch.stack([seen[:, :, 0, a] - seen[:, :, 0, b] for a, b in topology.bones], dim=2).norm(dim=3)
    torch.testing.assert_close(bones.median(1).values.mean(1), torch.ones(40))
    moved = seen.std(1).mean((0, 1, 3))
    assert moved[topology.index("wrist_left")] > 1.2 * moved[topology.index("shoulder_left")]
    absent = torch.zeros(2, 64, 1, 16, 3)
    assert (noise.apply(absent, noise.draw(ViewShape(*absent.shape), draws)) == 0).all()
