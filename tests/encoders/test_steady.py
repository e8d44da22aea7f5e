"""Jitter is estimated from a clip alone and smoothed where there is some; clean clips stay as they are, to
the bit.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import halp
from halp.encoders.steady import noise, steady


def movement(clips: int = 4, frames: int = 64) -> torch.Tensor:
    """Joints on smooth curves `(B, T, 1, 6, 3)`."""
    draw = torch.Generator().manual_seed(0)
    speed, phase = (
        0.5 + torch.rand(clips, 1, 1, 6, 3, generator=draw),
        torch.rand(clips, 1, 1, 6, 3, generator=draw),
    )
    time = torch.linspace(0, 1, frames)[None, :, None, None, None]
    return 2 + torch.sin(2 * torch.pi * (speed * time + phase))


@pytest.mark.parametrize("size", [0.05, 0.1, 0.3])
def test_noise_is_found_beneath_a_movement(size: float) -> None:
    clips = movement(64)
    rough = clips + size * torch.randn(clips.shape, generator=torch.Generator().manual_seed(1))
    assert noise(rough).mean().item() == pytest.approx(size, rel=0.2)


def test_fast_clean_movements_have_no_noise_and_stay_as_they_are() -> None:
    clips = movement()
    fast = torch.cat([clips, clips.flip(1)], dim=1)[:, ::2]  # and four times as fast
    for one in (clips, fast):
        assert noise(one).max() == 0
        assert torch.equal(steady(one, 0.05), one)


def test_jitter_is_averaged_away_and_missing_joints_stay_missing() -> None:
    clips = movement()
    rough = clips + 0.2 * torch.randn(clips.shape, generator=torch.Generator().manual_seed(1))
    rough[:, :, :, 0] = 0  # never seen
    rough[:, 3, :, 1] = 0  # lost in one frame
    found = steady(rough, 0.05)
    assert torch.equal(found[:, :, :, :2], rough[:, :, :, :2])
    assert (found - clips)[:, :, :, 2:].square().mean() < 0.3 * (rough - clips)[:, :, :, 2:].square().mean()
    assert torch.equal(steady(rough, 0.0), rough)


@pytest.mark.parametrize("name", ["halp-base", "halp-view"])
def test_shipped_encoders_keep_the_vectors_of_clean_clips(name: str) -> None:
    encoder, rough = halp.load_encoder(name), halp.load_encoder(name)
    assert encoder.encoder.steady > 0
    rough.encoder.steady = 0.0
    shape = (3, 64, 1, len(encoder.topology), encoder.topology.dimensions)
    time = torch.linspace(0, 1, 64)[None, :, None, None, None]
    clips = torch.rand(shape[0], 1, *shape[2:], generator=torch.Generator().manual_seed(0)) + 0.3 * torch.sin(
        6 * time
    )
    with torch.inference_mode():
        np.testing.assert_array_equal(encoder(clips).numpy(), rough(clips).numpy())
        noisy = clips + 0.2 * torch.randn(clips.shape, generator=torch.Generator().manual_seed(1))
        assert not np.allclose(encoder(noisy).numpy(), rough(noisy).numpy())
