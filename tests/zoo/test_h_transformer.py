"""Motion direction prediction: the loss of a step against loops, what is hidden, refused settings."""

from __future__ import annotations

import pytest
import slow_predictions as slow
import torch

from halp.core.errors import InputError
from halp.encoders import EncoderSettings
from halp.methods import METHODS, BuildContext, StepContext
from halp.methods.predictive import hidden_frames
from halp.skeleton import KINECT_V1
from halp.training import load_recipe
from halp.zoo.h_transformer import MotionDirectionMethod, MotionDirectionSettings

ENCODER = EncoderSettings("hierarchical", width=8, feed=6, frames=6, dropout=0.0, attention_dropout=0.0)


def method(hide: str) -> MotionDirectionMethod:
    torch.manual_seed(0)
    context = BuildContext(KINECT_V1, 1, 6, {"joint": ENCODER}, {}, torch.Generator())
    chosen = MotionDirectionSettings(share=0.4, hide=hide, units=3)
    made: MotionDirectionMethod = METHODS["motion-direction"].build(chosen, context)
    return made


@pytest.mark.parametrize("hide", ["zero", "none"])
def test_step_has_the_loss_of_the_loops(hide: str) -> None:
    made = method(hide)
    clips = torch.randn(3, 6, 1, 20, 3)
    clips[0, 2, 0, 4] = clips[0, 1, 0, 4]  # a joint that rests
    output = made.training_step({"clip": clips}, StepContext(0, torch.Generator().manual_seed(2)))
    asked = hidden_frames(torch.rand(3, 6, generator=torch.Generator().manual_seed(2)), 0.4)
    encoder, head = made.backbones["joint"], made.decoders["joint"]
    states = encoder.sequence(clips, asked if hide == "zero" else None)  # type: ignore[operator]
    errors, right = [], []
    for clip, t in asked.nonzero().tolist():
        logits = head(states[clip, t][None])[0].detach().double().numpy()
        for v in range(20):
            following = clips[clip, min(t + 1, 5), 0, v]
            grows = [float(following[c]) > float(clips[clip, t, 0, v, c]) for c in range(3)]
            label = 8 * v + sum(2**c for c in range(3) if grows[c])
            errors.append(slow.cross_entropy(logits[v], label))
            right.append(int(logits[v].argmax()) == label)
    assert len(errors) == 3 * 2 * 20
    assert output.loss.item() == pytest.approx(sum(errors) / len(errors), rel=1e-4)
    assert output.metrics["joint/direction_accuracy"].item() == pytest.approx(sum(right) / len(right))
    output.loss.backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in made.parameters())


def test_published_settings_of_h_transformer() -> None:
    recipe = load_recipe("ntu60-h-transformer")
    assert (recipe.encoder.width, recipe.encoder.layers, recipe.views.frames) == (2048, 4, 150)
    assert (recipe.batch_size, recipe.optimiser.clip, recipe.optimiser.weight_decay) == (32, 1, 0.01)
    rates = [recipe.optimiser.rate(epoch, recipe.epochs) for epoch in (4, 8, 44, 80)]
    assert rates == pytest.approx([5e-5, 1e-4, 5e-5, 0])
    assert recipe.flat()["motion-direction.share"] == 0.15


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("encoder.width=60", "must be a multiple of 8"),
        ("encoder.layers=6", "layers = 6 one of 4"),
        ("encoder.dropout=1", "from 0 and below 1"),
        ("encoder.frames=16", "must be the same number"),
        ("motion-direction.share=0", "must be above 0 and at most 1"),
        ("motion-direction.hide=all", "unknown motion-direction.hide 'all'"),
        ("optimiser.floor=2", "floor = 2.0 must be from 0 to 1"),
    ],
)
def test_wrong_settings_get_one_sentence(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("small-h-transformer", [override])
    assert words in str(caught.value)
