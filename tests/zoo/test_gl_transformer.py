"""Displacement prediction: the loss of a step against loops, with both encoders, and refused settings."""

from __future__ import annotations

import pytest
import slow_predictions as slow
import torch

from halp.core.errors import InputError
from halp.encoders import EncoderSettings, centre_joint
from halp.methods import METHODS, BuildContext, StepContext
from halp.skeleton import KINECT_V1
from halp.training import load_recipe
from halp.zoo.gl_transformer import DisplacementMethod, DisplacementSettings

STILL = {"dropout": 0.0, "attention_dropout": 0.0, "path_dropout": 0.0}
ENCODERS = {
    "global-local": EncoderSettings("global-local", width=2, layers=1, heads=1, frames=6, **STILL),
    "gru": EncoderSettings("gru", hidden=3, layers=1, pooling="thirds", input_norm=False),
}


def method(encoder: str, settings: DisplacementSettings) -> DisplacementMethod:
    torch.manual_seed(0)
    context = BuildContext(KINECT_V1, 2, 6, {"joint": ENCODERS[encoder]}, {}, torch.Generator())
    made: DisplacementMethod = METHODS["displacement"].build(settings, context)
    return made


@pytest.mark.parametrize("centre", ["all", "first"])
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.heavy
def test_step_has_the_losses_of_the_loops(encoder: str, centre: str) -> None:
    chosen = DisplacementSettings(
        intervals=(1, 3), bin=0.1, bins=4, magnitude_weight=0.5, centre_intervals=centre
    )
    made = method(encoder, chosen)
    clips = 0.2 * torch.randn(2, 6, 2, 20, 3)
    clips[1, :, 1] = 0
    output = made.training_step({"clip": clips}, StepContext(0, torch.Generator()))
    middle = centre_joint(KINECT_V1)
    places = clips - clips[:, :, :, middle : middle + 1]
    places[:, :, :, middle] = clips[:, :, :, middle]
    logits = made.decoders["joint"](made.backbones["joint"].sequence(clips))  # type: ignore[operator]
    present = clips.abs().sum((1, 3, 4)) > 0
    expected = [0.0, 0.0]
    for clip in range(2):
        pairs = [
            slow.displacement_classes(places[clip].numpy(), interval, 0.1, 4, present[clip].numpy())
            for interval in chosen.intervals
        ]
        for task in range(2):
            classes = torch.stack([torch.from_numpy(pair[task]) for pair in pairs], dim=1).numpy()
            guess = logits[task][clip].detach().double().numpy()
            expected[task] += slow.displacement_loss(guess, classes, middle, 0.05, centre == "first") / 2
    for task, name in enumerate(("direction", "magnitude")):
        assert output.metrics[f"joint/loss_{name}"].item() == pytest.approx(expected[task], rel=1e-4)
        assert 0 <= output.metrics[f"joint/{name}_accuracy"].item() <= 1
    assert output.loss.item() == pytest.approx(expected[0] + 0.5 * expected[1], rel=1e-4)
    output.loss.backward()
    assert all(parameter.grad is not None for parameter in made.parameters())


def test_published_settings_of_gl_transformer() -> None:
    recipe = load_recipe("ntu60-gl-transformer")
    encoder = recipe.encoder
    assert (encoder.width, encoder.layers, encoder.heads, encoder.expansion) == (48, 4, 8, 2)
    assert (encoder.dropout, encoder.attention_dropout, encoder.path_dropout) == (0.1, 0.1, 0.1)
    assert (recipe.epochs, recipe.batch_size, recipe.optimiser.weight_decay) == (120, 128, 0.1)
    assert recipe.optimiser.rate(1.5) == pytest.approx(5e-5 * 0.99)
    section = recipe.displacement
    assert (section.intervals, section.bin, section.bins, section.centre_weight) == (
        (1, 5, 10),
        0.01,
        14,
        0.05,
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("encoder.frames=16", "must be the same number"),
        ("displacement.intervals=[]", "must be numbers of frames, each once"),
        ("displacement.intervals=[1, 32]", "do not fit in views.frames = 32"),
        ("displacement.bin=0", "must be above 0"),
        ("displacement.centre_weight=-1", "cannot be negative"),
        ("displacement.centre_intervals=last", "unknown displacement.centre_intervals 'last'"),
        ("encoder.heads=3", "multiple of heads = 3"),
        ("encoder.path_dropout=1", "must be from 0 and below 1"),
        ("optimiser.decay=0", "decay = 0.0 must be above 0 and at most 1"),
    ],
)
def test_wrong_settings_get_one_sentence(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("small-gl-transformer", [override])
    assert words in str(caught.value)
