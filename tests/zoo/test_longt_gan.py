"""LongT GAN: losses against loops, and which loss moves which part."""

from __future__ import annotations

import numpy as np
import pytest
import slow_predictions as slow
import torch
from torch import Tensor, nn

from halp.core.errors import InputError
from halp.encoders import EncoderSettings
from halp.methods import METHODS, BuildContext, StepContext
from halp.methods.predictive import hidden_frames
from halp.skeleton import KINECT_V1
from halp.training import load_recipe
from halp.zoo.longt_gan import (
    Inpainter,
    LongTGANMethod,
    LongTGANSettings,
    constant,
    discriminator_loss,
    fooling_loss,
)

CLIPS = torch.randn(4, 6, 1, 20, 3, generator=torch.Generator().manual_seed(1))


def method(**settings: object) -> LongTGANMethod:
    torch.manual_seed(0)
    encoder = EncoderSettings("gru", hidden=3, layers=1, input_norm=False)
    context = BuildContext(KINECT_V1, 1, 6, {"joint": encoder}, {}, torch.Generator())
    chosen = LongTGANSettings(width=5, discriminator=4, **settings)  # type: ignore[arg-type]
    made: LongTGANMethod = METHODS["longt-gan"].build(chosen, context)
    return made


def parts_of(made: LongTGANMethod) -> tuple[nn.Module, Inpainter, Tensor, Tensor]:
    """Encoder, decoder with discriminator, the frames hidden by the draws of seed 2, and the filled clips."""
    encoder, parts = made.backbones["joint"], made.decoders["joint"]
    assert isinstance(parts, Inpainter)
    noise = torch.rand(4, 6, generator=torch.Generator().manual_seed(2))
    hidden = hidden_frames(noise, made.settings.mask)
    masked = CLIPS.clone()
    masked[hidden] = 0
    code = encoder(CLIPS if made.settings.encoded == "whole" else masked)
    found = parts.decode(masked.flatten(2), code)
    filled = torch.where(hidden[:, :, None], found, CLIPS.flatten(2))
    return encoder, parts, hidden, filled


def test_losses_are_those_of_the_loops_and_have_finite_gradients_far_out() -> None:
    true, made = torch.randn(2, 5, dtype=torch.double)
    for i in range(5):
        expected = slow.discriminator_loss(float(true[i]), float(made[i]))
        assert float(discriminator_loss(true, made)[i]) == pytest.approx(expected)
        assert float(fooling_loss(made)[i]) == pytest.approx(slow.fooling_loss(float(made[i])))
    far = torch.tensor([-1000.0, 1000.0], requires_grad=True)
    (discriminator_loss(far, far) + fooling_loss(far)).sum().backward()
    assert far.grad is not None
    assert torch.isfinite(far.grad).all()


def test_the_share_of_hidden_frames_is_exact_and_every_frame_is_hidden_as_often() -> None:
    hidden = hidden_frames(torch.rand(4000, 6, generator=torch.Generator().manual_seed(0)), 0.5)
    assert (hidden.sum(1) == 3).all()
    assert (hidden.float().mean(0) - 0.5).abs().max() < 0.05
    assert (hidden_frames(torch.rand(3, 6), 0.01).sum(1) == 1).all()


@pytest.mark.parametrize("encoded", ["whole", "masked"])
def test_step_has_the_losses_of_the_loops(encoded: str) -> None:
    made = method(encoded=encoded, adversarial=0.3)
    output = made.training_step({"clip": CLIPS}, StepContext(0, torch.Generator().manual_seed(2)))
    _, parts, hidden, filled = parts_of(made)
    logits = [parts.discriminate(frames).tolist() for frames in (CLIPS.flatten(2), filled)]
    frames = fooling = discriminator = 0.0
    for clip in range(4):
        one, two = filled[clip].detach().double().numpy(), CLIPS[clip].flatten(1).double().numpy()
        frames += slow.squared_error(np.asarray(one), np.asarray(two), hidden[clip].numpy()) / 4
        fooling += slow.fooling_loss(logits[1][clip]) / 4
        discriminator += slow.discriminator_loss(logits[0][clip], logits[1][clip]) / 4
    assert output.metrics["joint/loss_frames"].item() == pytest.approx(frames, rel=1e-4)
    assert output.loss.item() == pytest.approx(frames + 0.3 * fooling + discriminator, rel=1e-4)


def test_each_side_moves_by_its_own_loss_alone() -> None:
    made = method(adversarial=0.3)
    made.training_step({"clip": CLIPS}, StepContext(0, torch.Generator().manual_seed(2))).loss.backward()
    encoder, parts, hidden, filled = parts_of(made)
    judges, makers = (
        list(parts.discriminator.parameters()),
        [*encoder.parameters(), *parts.decoder.parameters()],
    )
    judging = discriminator_loss(
        parts.discriminate(CLIPS.flatten(2)), parts.discriminate(filled.detach())
    ).mean()
    error = (filled - CLIPS.flatten(2)).square().mean(2).sum(1) / hidden.sum(1)
    making = error.mean() + 0.3 * fooling_loss(parts.discriminate(filled)).mean()
    for loss, side in ((judging, judges), (making, makers)):
        for parameter, expected in zip(side, torch.autograd.grad(loss, side, retain_graph=True), strict=True):
            assert expected.any()
            torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-6)


def test_weights_are_constant_inside_only_and_what_was_fixed_stays_so() -> None:
    linear = nn.Linear(2, 2)
    linear.bias.requires_grad_(False)
    with constant(linear):
        assert not any(parameter.requires_grad for parameter in linear.parameters())
    assert linear.weight.requires_grad
    assert not linear.bias.requires_grad


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("longt-gan.mask=1", "mask = 1.0 must be above 0 and below 1"),
        ("longt-gan.encoded=half", "unknown longt-gan.encoded 'half'"),
        ("longt-gan.width=0", "must be at least 1"),
        ("longt-gan.adversarial=-1", "cannot be negative"),
        ("optimiser.encode_chunks=2", "encodes a batch at once"),
    ],
)
def test_wrong_settings_get_one_sentence(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("small-longt-gan", [override])
    assert words in str(caught.value)
