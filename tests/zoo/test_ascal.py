"""The LSTM encoder against its equations gate by gate, and AS-CAL: the mean of the states, contrasted without
a head.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from benchmarks.compose import compose_moco
from halp.core.errors import InputError
from halp.encoders import EncoderSettings, build_encoder
from halp.methods import ContrastSettings
from halp.methods.momentum import ProjectedEncoder
from halp.skeleton import KINECT_V1
from halp.training import load_recipe
from halp.zoo.ascal import LSTMEncoder, LSTMSettings


def clips(batch: int = 3, frames: int = 5) -> Tensor:
    return torch.randn(batch, frames, 2, 20, 3, generator=torch.Generator().manual_seed(0))


def slow_states(encoder: LSTMEncoder, frames: Tensor) -> Tensor:
    """States `(T, H)` of one clip's frames `(T, inputs)` by the equations of an LSTM."""
    weights = encoder.lstm
    h, c, states = torch.zeros(weights.hidden_size), torch.zeros(weights.hidden_size), []
    for x in frames:
        gates = weights.weight_ih_l0 @ x + weights.bias_ih_l0 + weights.weight_hh_l0 @ h + weights.bias_hh_l0
        i, f, g, o = gates.chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return torch.stack(states)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_feature_is_the_mean_or_the_last_of_the_states(pooling: str) -> None:
    torch.manual_seed(0)
    encoder = LSTMEncoder(LSTMSettings(hidden=4, pooling=pooling), KINECT_V1, 2)
    x = clips()
    found = encoder(x)
    for b in range(3):
        # joints, coordinates, persons
        frames = torch.stack([x[b, t].permute(1, 2, 0).flatten() for t in range(5)])
        states = slow_states(encoder, frames)
        torch.testing.assert_close(found[b], states.mean(0) if pooling == "mean" else states[-1])


def test_bidirectional_doubles_the_features_and_layers_stack() -> None:
    made = build_encoder(EncoderSettings("lstm", hidden=4, layers=2, direction="bidirectional"), KINECT_V1, 2)
    assert made(clips()).shape == (3, 8)
    assert made.output_size == 8
    assert made.sequence(clips()).shape == (3, 5, 8)


def test_other_clips_and_settings_are_refused() -> None:
    with pytest.raises(InputError, match="reads 120 numbers per frame"):
        LSTMEncoder(LSTMSettings(4), KINECT_V1, 2)(clips()[:, :, :1])
    with pytest.raises(InputError, match="direction 'causal'"):
        EncoderSettings("lstm", direction="causal")
    with pytest.raises(InputError, match="hidden = 0"):
        EncoderSettings("lstm", hidden=0)


def test_without_a_head_unit_features_are_the_embeddings() -> None:
    encoder = LSTMEncoder(LSTMSettings(hidden=4), KINECT_V1, 2)
    branch = ProjectedEncoder(encoder, 4, "none")
    torch.testing.assert_close(branch(clips()), torch.nn.functional.normalize(encoder(clips()), dim=1))
    assert len(list(branch.parameters())) == len(list(encoder.parameters()))
    with pytest.raises(InputError, match=r"set contrast\.dimension to 4"):
        compose_moco(
            KINECT_V1,
            2,
            encoder=EncoderSettings("lstm", hidden=4),
            contrast=ContrastSettings(head="none"),
            terms=("infonce",),
        )


def test_published_recipe_has_the_settings_of_as_cal() -> None:
    for name, queue, frames in (
        ("ntu60-ascal", 16384, 150),
        ("ntu120-ascal", 16384, 150),
        ("small-ascal", 500, 60),
    ):
        recipe = load_recipe(name)
        assert (recipe.epochs, recipe.batch_size, recipe.views.frames) == (60, 32, frames)
        contrast = recipe.contrast
        assert (contrast.queue, contrast.temperature, contrast.momentum, contrast.head) == (
            queue,
            0.06,
            0.999,
            "none",
        )
        assert (recipe.encoder.name, recipe.encoder.hidden, recipe.encoder.layers) == ("lstm", 256, 1)
        assert [step.name for step in recipe.views.augmentations] == ["subtract-joint", "time-flip", "shear"]
        optimiser = recipe.optimiser
        assert (optimiser.rate(29), optimiser.weight_decay) == (0.01, 1e-4)
        assert optimiser.rate(30) == pytest.approx(0.001)
