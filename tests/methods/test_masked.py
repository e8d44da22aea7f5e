"""Masked prediction: masks, targets and loss against loops; symmetry of tokens."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
import torch

from halp.core.errors import InputError
from halp.encoders import EncoderSettings
from halp.encoders.transformer import TransformerEncoder, TransformerSettings, persons_present
from halp.methods import BuildContext, StepContext
from halp.methods.masked import MaskedMethod, MaskedSettings, mask_scores, motion_of_patches, standardise
from halp.skeleton import KINECT_V1
from halp.training import load_recipe

SETTINGS = TransformerSettings(patch=4, width=16, layers=2, heads=2, frames=12)


def method(**settings: object) -> MaskedMethod:
    torch.manual_seed(0)
    encoder = EncoderSettings("transformer", **asdict(SETTINGS))
    context = BuildContext(KINECT_V1, 2, 12, {"joint": encoder}, {})
    return MaskedMethod(MaskedSettings(**settings), context)  # type: ignore[arg-type]


def clips(batch: int = 6, persons: int = 2) -> torch.Tensor:
    x = torch.randn(batch, 12, persons, 20, 3, generator=torch.Generator().manual_seed(1))
    x[2, :, 1:] = 0
    return x


def context(seed: int = 0) -> StepContext:
    return StepContext(0, torch.Generator().manual_seed(seed))


def test_patches_run_over_time_then_joints() -> None:
    x = clips()
    patches = TransformerEncoder(SETTINGS, KINECT_V1, 1).patches(x)
    assert patches.shape == (12, 60, 12)
    for b, p, t, v in ((0, 0, 0, 0), (3, 1, 2, 7), (5, 0, 1, 19)):
        expected = torch.stack([x[b, 4 * t + frame, p, v] for frame in range(4)]).flatten()
        assert torch.equal(patches[2 * b + p, 20 * t + v], expected)


def test_motion_of_a_token_is_the_mean_difference_to_the_patch_before() -> None:
    patches = torch.randn(3, 60, 12)
    moved = motion_of_patches(patches, 20)
    for n, t, v in ((0, 1, 3), (2, 2, 19)):
        expected = (patches[n, 20 * t + v] - patches[n, 20 * (t - 1) + v]).abs().mean()
        torch.testing.assert_close(moved[n, 20 * t + v], expected)
    assert torch.equal(moved[:, :20], moved[:, 20:40])  # the first like the second
    assert not motion_of_patches(patches[:, :20], 20).any()


def test_scores_are_log_softmax_of_motion_with_gumbel_noise() -> None:
    moved, noise = torch.rand(2, 8), torch.rand(2, 8)
    found = mask_scores(moved, noise, 0.8)
    for n in range(2):
        scaled = [float(m) / (0.8 * float(moved[n].max())) for m in moved[n]]
        total = math.log(sum(math.exp(value) for value in scaled))
        for k in range(8):
            gumbel = -math.log(-math.log(min(max(float(noise[n, k]), 1e-6), 1 - 1e-6)))
            assert float(found[n, k]) == pytest.approx(scaled[k] - total + gumbel, abs=1e-4)


def test_a_still_clip_is_masked_uniformly_and_what_moves_is_hidden_more_often() -> None:
    g = torch.Generator().manual_seed(0)
    noise = torch.rand(4000, 10, generator=g)
    still = mask_scores(torch.zeros(4000, 10), noise, 0.8).argsort(1)[:, :2]
    seen = torch.bincount(still.flatten(), minlength=10) / 4000
    assert (seen - 0.2).abs().max() < 0.03
    moving = torch.zeros(4000, 10)
    moving[:, 0] = 1.0
    seen = torch.bincount(mask_scores(moving, noise, 0.2).argsort(1)[:, :2].flatten(), minlength=10) / 4000
    assert seen[0] < 0.02


def test_targets_have_mean_zero_and_variance_one_and_a_still_joint_is_zero_and_finite() -> None:
    patches = torch.randn(3, 5, 12)
    made = standardise(patches)
    torch.testing.assert_close(made.mean(-1), torch.zeros(3, 5), atol=1e-5, rtol=0)
    torch.testing.assert_close(made.var(-1), torch.ones(3, 5), atol=1e-4, rtol=0)
    assert torch.equal(standardise(torch.full((1, 1, 12), 3.0)), torch.zeros(1, 1, 12))


@pytest.mark.parametrize("target", ["motion", "coordinates"])
def test_loss_is_the_squared_error_over_hidden_patches_of_persons_who_are_there(target: str) -> None:
    made, x = method(target=target, mask=0.75), clips()
    loss = made.training_step({"clip": x}, context()).loss
    encoder, decoder = made.backbones["joint"], made.decoders["joint"]
    noise = torch.rand(6, 2, 60, generator=torch.Generator().manual_seed(0)).flatten(0, 1)
    patches = encoder.patches(x)  # type: ignore[operator]
    motion = torch.zeros_like(x)
    motion[:, :-1] = x[:, 1:] - x[:, :-1]
    aim = patches if target == "coordinates" else standardise(encoder.patches(motion))  # type: ignore[operator]
    order = mask_scores(motion_of_patches(patches, 20), noise, 0.8).argsort(1)
    visible, hidden = order[:, :15], order[:, 15:]
    found = decoder(encoder.encode(patches, visible), visible, encoder.places(60))  # type: ignore[operator]
    per_clip = []
    for b in range(6):
        there = [p for p in range(2) if x[b, :, p].any()]
        errors = [
            ((found[2 * b + p, k] - aim[2 * b + p, k]) ** 2).mean() for p in there for k in hidden[2 * b + p]
        ]
        per_clip.append(torch.stack(errors).mean())
    torch.testing.assert_close(loss, torch.stack(per_clip).mean(), rtol=1e-5, atol=1e-6)


def test_visible_share_is_exact_and_gradients_reach_encoder_and_decoder() -> None:
    made = method(mask=0.8)
    output = made.training_step({"clip": clips()}, context())
    output.loss.backward()
    assert all(
        parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in made.parameters()
    )
    assert output.embeddings["joint"].shape == (6, 16)
    assert not output.embeddings["joint"].requires_grad


def test_permuting_tokens_with_their_places_changes_nothing() -> None:
    encoder = TransformerEncoder(SETTINGS, KINECT_V1, 1).eval()
    patches, order = torch.randn(2, 60, 12), torch.randperm(60)
    tokens = encoder.encode(patches, order[None].expand(2, -1))
    torch.testing.assert_close(tokens, encoder.encode(patches)[:, order], atol=1e-5, rtol=1e-4)


def test_an_absent_person_changes_no_feature() -> None:
    encoder, x = TransformerEncoder(SETTINGS, KINECT_V1, 1).eval(), clips(persons=1)
    alone = encoder(x)
    accompanied = encoder(torch.cat([x, torch.zeros_like(x)], dim=2))
    torch.testing.assert_close(alone, accompanied, atol=1e-6, rtol=1e-5)
    assert persons_present(clips()).tolist()[2] == [True, False]
    assert torch.isfinite(encoder(torch.zeros(1, 12, 1, 20, 3))).all()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("views.frames=24", "must be the same number"),
        ("masked.mask=1.0", "must be above 0 and below 1"),
        ('terms=["infonce"]', "is not composed of terms"),
        ("contrast.queue=8", "section [contrast] would be ignored by method 'masked'"),
        ("optimiser.momentum=0.9", "unknown setting 'optimiser.momentum'"),
        ("encoder.heads=3", "a multiple of heads = 3"),
    ],
)
def test_wrong_settings_get_one_sentence(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("small-masked", [override])
    assert words in str(caught.value)
