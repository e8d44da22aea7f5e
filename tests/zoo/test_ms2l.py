"""MS2L: what is cut off and shuffled, and the three losses against loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import slow_predictions as slow
import torch

from halp.core.errors import InputError
from halp.encoders import EncoderSettings
from halp.losses import nt_xent_of_pairs
from halp.methods import METHODS, BuildContext, StepContext
from halp.skeleton import KINECT_V1
from halp.training import load_recipe
from halp.zoo.ms2l import Heads, MS2LMethod, MS2LSettings, cut_off, shuffle_segments


def method(**settings: object) -> MS2LMethod:
    torch.manual_seed(0)
    encoder = EncoderSettings("gru", hidden=3, layers=1, pooling="mean", input_norm=False)
    context = BuildContext(KINECT_V1, 1, 7, {"joint": encoder}, {}, torch.Generator())
    chosen = MS2LSettings(head=5, projection=4, **settings)  # type: ignore[arg-type]
    made: MS2LMethod = METHODS["ms2l"].build(chosen, context)
    return made


def test_the_last_frames_are_cut_off() -> None:
    clips = torch.ones(2, 10, 1, 1, 1)
    assert cut_off(clips, 0.3)[0].flatten().tolist() == [1.0] * 7 + [0.0] * 3
    assert int(cut_off(clips[:, :7], 0.3)[0].sum()) == 5  # frames 0 … 4 are before 4.9


def test_segments_stand_in_the_order_of_their_permutation_and_the_rest_stays() -> None:
    clips = torch.arange(7.0)[None, :, None, None, None].expand(6, -1, 1, 1, 1)
    found = shuffle_segments(clips, torch.arange(6), 3)[:, :, 0, 0, 0].tolist()
    for label, order in enumerate(itertools.permutations(range(3))):
        assert found[label] == [2.0 * segment + frame for segment in order for frame in range(2)] + [6.0]


@pytest.mark.parametrize("own", [-1.0, -math.inf])
def test_nt_xent_of_pairs_is_that_of_the_loops(own: float) -> None:
    first, second = torch.randn(2, 4, 3, dtype=torch.double)
    expected = slow.nt_xent_of_pairs(first.numpy(), second.numpy(), 0.9, own)
    assert float(nt_xent_of_pairs(first, second, 0.9, own=own)) == pytest.approx(expected)
    inputs = [first.requires_grad_(), second.requires_grad_()]
    assert torch.autograd.gradcheck(lambda x, y: nt_xent_of_pairs(x, y, 0.9, own=own), inputs)


def test_losses_are_those_of_the_loops_and_are_weighted_in_the_sum() -> None:
    made = method(motion_weight=0.5, contrast_weight=2.0)
    clips = torch.randn(4, 7, 1, 20, 3)
    output = made.training_step({"clip": clips}, StepContext(0, torch.Generator().manual_seed(3)))
    labels = torch.randint(6, (4,), generator=torch.Generator().manual_seed(3))
    encoder, heads = made.backbones["joint"], made.decoders["joint"]
    assert isinstance(heads, Heads)
    inputs = (clips, cut_off(clips, 0.3), shuffle_segments(clips, labels, 3))
    states = [encoder.sequence(part) for part in inputs]  # type: ignore[operator]
    decoded = heads.motion(states[1]).detach().double().numpy()
    every = np.ones(7, dtype=bool)
    flat = clips.flatten(2).double().numpy()
    motion = sum(slow.squared_error(decoded[i], flat[i], every) for i in range(4)) / 4
    guesses = heads.jigsaw(states[2].mean(1)).detach().double().numpy()
    jigsaw = sum(slow.cross_entropy(guesses[i], int(labels[i])) for i in range(4)) / 4
    projected = [heads.contrast(part.mean(1)).detach().double().numpy() for part in states]
    centre = (projected[0] + projected[1] + projected[2]) / 3
    contrast = sum(slow.nt_xent_of_pairs(part, centre, 0.9, -1.0) for part in projected) / 3
    expected = {"motion": motion, "jigsaw": jigsaw, "nt_xent": contrast}
    for name, value in expected.items():
        assert output.metrics[f"joint/loss_{name}"].item() == pytest.approx(value, rel=1e-4), name
    assert output.loss.item() == pytest.approx(0.5 * motion + jigsaw + 2 * contrast, rel=1e-4)
    right = float((torch.from_numpy(guesses).argmax(1) == labels).double().mean())
    assert output.metrics["joint/jigsaw_accuracy"].item() == pytest.approx(right)


def test_gradients_reach_all_parts() -> None:
    made = method()
    made.training_step(
        {"clip": torch.randn(4, 7, 1, 20, 3)}, StepContext(0, torch.Generator())
    ).loss.backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_published_settings_of_ms2l() -> None:
    recipe = load_recipe("ntu60-ms2l")
    encoder = recipe.encoder
    assert (encoder.hidden, encoder.layers, encoder.direction, encoder.pooling) == (
        300,
        2,
        "bidirectional",
        "mean",
    )
    assert (recipe.epochs, recipe.batch_size, recipe.optimiser.clip) == (60, 256, 10)
    assert (recipe.optimiser.rate(29), recipe.optimiser.rate(30)) == (1e-3, pytest.approx(1e-4))
    section = recipe.ms2l
    assert (section.mask, section.segments, section.temperature, section.head) == (0.3, 3, 0.9, 2048)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("ms2l.mask=0", "must be above 0 and below 1"),
        ("ms2l.segments=6", "segments = 6 must be from 2 to 5"),
        ("ms2l.own_similarity=zero", "unknown ms2l.own_similarity 'zero'"),
        ("ms2l.jigsaw_weight=-1", "cannot be negative"),
        ("ms2l.head=0", "must be at least 1"),
        ("views.frames=2", "cannot be cut into ms2l.segments = 3"),
        ("optimiser.encode_chunks=2", "encodes a batch at once"),
    ],
)
def test_wrong_settings_get_one_sentence(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("small-ms2l", [override])
    assert words in str(caught.value)
