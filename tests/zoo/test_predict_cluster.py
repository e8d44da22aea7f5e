"""P&C: both decoders and the loss against loops; which weights are trained."""

from __future__ import annotations

import numpy as np
import pytest
import slow_predictions as slow
import torch
from torch import nn

from halp.core.errors import InputError
from halp.core.sampling import steps_in_epoch
from halp.encoders import EncoderSettings
from halp.methods import METHODS, BuildContext, StepContext
from halp.skeleton import KINECT_V1
from halp.training import load_recipe
from halp.zoo.predict_cluster import (
    FixedStateDecoder,
    FreeRunningDecoder,
    PredictClusterMethod,
    PredictClusterSettings,
)


def method(decoder: str, streams: tuple[str, ...] = ("joint",)) -> PredictClusterMethod:
    torch.manual_seed(0)
    encoder = EncoderSettings("gru", hidden=3, layers=1, direction="causal", input_norm=False)
    context = BuildContext(KINECT_V1, 1, 5, dict.fromkeys(streams, encoder), {}, torch.Generator())
    made: PredictClusterMethod = METHODS["predict-cluster"].build(PredictClusterSettings(decoder), context)
    return made


def numbers(tensor: torch.Tensor) -> slow.Array:
    return np.asarray(tensor.detach().double().numpy())


def weights_of(cell: nn.GRUCell | nn.GRU) -> dict[str, slow.Array]:
    end = "" if isinstance(cell, nn.GRUCell) else "_l0"
    names = {"ih": "weight_ih", "hh": "weight_hh", "b_ih": "bias_ih", "b_hh": "bias_hh"}
    return {key: numbers(getattr(cell, name + end)) for key, name in names.items()}


def test_fixed_state_decoder_adds_one_gru_step_from_the_same_state_to_every_frame() -> None:
    decoder, state, frames = (
        FixedStateDecoder(4, 3).double(),
        torch.randn(2, 3).double(),
        torch.randn(2, 6, 4).double(),
    )
    found = decoder(state, frames)
    for clip in range(2):
        out, bias = numbers(decoder.out.weight), numbers(decoder.out.bias)
        first, begin = numbers(frames[clip, 0]), numbers(state[clip])
        expected = slow.fixed_state_decoding(first, begin, 6, weights_of(decoder.cell), out, bias)
        np.testing.assert_allclose(numbers(found[clip]), expected, rtol=1e-9, atol=1e-12)
    # frames after the first are not looked at
    changed = frames.clone()
    changed[:, 1:] += 1
    assert torch.equal(decoder(state, changed), found)


def test_free_running_decoder_reads_nothing_but_the_state() -> None:
    decoder = FreeRunningDecoder(4, 3, fixed=True).double()
    state, frames = torch.randn(2, 3).double(), torch.randn(2, 6, 4).double()
    found = decoder(state, frames)
    out, bias = numbers(decoder.out.weight), numbers(decoder.out.bias)
    for clip in range(2):
        expected = slow.free_decoding(numbers(state[clip]), 6, weights_of(decoder.gru), out, bias)
        np.testing.assert_allclose(numbers(found[clip]), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("decoder", ["fixed-state", "fixed-weights", "free"])
def test_loss_is_the_distance_of_decoded_frames_and_reaches_what_is_trained(decoder: str) -> None:
    made = method(decoder, ("joint", "motion"))
    clips = torch.randn(3, 5, 1, 20, 3)
    output = made.training_step({"clip": clips}, StepContext(0, torch.Generator()))
    motion = torch.zeros_like(clips)
    motion[:, :-1] = clips[:, 1:] - clips[:, :-1]
    expected = 0.0
    for name, stream in (("joint", clips), ("motion", motion)):
        found = made.decoders[name](made.backbones[name](stream), stream.flatten(2))
        rows = zip(found, stream.flatten(2))
        expected += sum(slow.frame_distance(numbers(one), numbers(two)) for one, two in rows) / 3
    assert output.loss.item() == pytest.approx(expected, rel=1e-5)
    assert set(output.metrics) == {"loss", "joint/loss_frames", "motion/loss_frames"}
    output.loss.backward()
    for name, parameter in made.named_parameters():
        fixed = decoder == "fixed-weights" and ".gru." in name and name.startswith("decoders.")
        assert parameter.requires_grad != fixed, name
        unread = name.endswith("weight_ih_l0") and name.startswith("decoders.")  # this decoder reads zeros
        assert fixed or unread or (parameter.grad is not None and bool(parameter.grad.any())), name
    assert output.embeddings["joint"].shape == (3, 6)


def test_next_frames_of_the_first_person_are_predicted_where_the_recipe_says_so() -> None:
    torch.manual_seed(0)
    encoder = EncoderSettings("gru", hidden=3, layers=1, input_norm=False, persons=1)
    context = BuildContext(KINECT_V1, 2, 5, {"joint": encoder}, {}, torch.Generator())
    made = METHODS["predict-cluster"].build(PredictClusterSettings(target="next"), context)
    clips = torch.randn(3, 5, 2, 20, 3)
    loss = made.training_step({"clip": clips}, StepContext(0, torch.Generator())).loss
    expected, decoder = 0.0, made.decoders["joint"]
    for clip, state in zip(clips, made.backbones["joint"](clips)):
        frames = numbers(clip[:, 0].flatten(1))
        out, bias = numbers(decoder.out.weight), numbers(decoder.out.bias)
        decoded = slow.fixed_state_decoding(frames[0], numbers(state), 4, weights_of(decoder.cell), out, bias)
        expected += slow.frame_distance(decoded, frames[1:]) / 3
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_recipe_for_ntu_has_the_settings_of_the_authors_notebook() -> None:
    recipe = load_recipe("ntu60-predict-cluster")
    encoder, optimiser = recipe.encoder, recipe.optimiser
    assert (encoder.hidden, encoder.layers, encoder.direction, encoder.persons) == (
        1024,
        3,
        "bidirectional",
        1,
    )
    steps = steps_in_epoch(40_091, recipe.batch_size)
    assert abs(recipe.epochs * steps - 15_000) < steps
    assert (recipe.batch_size, recipe.views.frames, optimiser.clip) == (256, 50, 25)
    assert recipe.sections["predict-cluster"].target == "next"
    for step in (0, 998, 1002, 5001, 14_100):  # never exactly at a multiple of 1,000: an epoch is 156 steps
        assert optimiser.rate(step / steps) == pytest.approx(1e-4 * 0.95 ** (step // 1000))


def test_recipe_of_the_port_has_the_settings_of_the_public_pytorch_code() -> None:
    recipe = load_recipe("ntu60-predict-cluster-port")
    assert (recipe.encoder.hidden, recipe.encoder.layers, recipe.encoder.direction) == (1024, 3, "causal")
    assert (recipe.views.frames, recipe.epochs, recipe.batch_size, recipe.optimiser.clip) == (50, 500, 64, 25)
    assert (recipe.optimiser.name, recipe.optimiser.rate(0), recipe.optimiser.rate(499)) == (
        "adam",
        1e-3,
        1e-3,
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("predict-cluster.decoder=fixed", "unknown predict-cluster.decoder 'fixed'"),
        ("predict-cluster.weight=1", "unknown setting 'predict-cluster.weight'"),
        ("optimiser.encode_chunks=2", "method 'predict-cluster' encodes a batch at once"),
        ("optimiser.clip=-1", "clip = -1.0 cannot be negative"),
        ('terms=["infonce"]', "is not composed of terms"),
    ],
)
def test_wrong_settings_get_one_sentence(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("small-predict-cluster", [override])
    assert words in str(caught.value)
