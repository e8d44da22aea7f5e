"""HiCLR: its chain of distributions against loops, where gradients stop, and what it shares with AimCLR."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from benchmarks.compose import compose_moco
from halp.core.errors import InputError
from halp.encoders import EncoderSettings
from halp.losses.infonce import info_nce
from halp.methods import ContrastSettings, StepContext, StreamBatch
from halp.methods.queue import KeyQueue
from halp.skeleton import KINECT_V1
from halp.sphere import unit
from halp.training import load_recipe
from halp.zoo.aimclr import nearest_positives_loss, union_of_nearest
from halp.zoo.hiclr import HiClrSettings, HiClrTerm

T = 0.2


def batch(seed: int = 0) -> tuple[StreamBatch, KeyQueue]:
    g = torch.Generator().manual_seed(seed)
    query, key, strong, masked = (unit(torch.randn(4, 6, generator=g)).requires_grad_() for _ in range(4))
    queue = KeyQueue(["joint"], 9, 6, g)
    queue.push({"joint": unit(torch.randn(9, 6, generator=g))})
    return StreamBatch(query, key.detach(), {"strong": strong, "masked": masked}), queue


def probabilities(x: Tensor, key: Tensor, keys: Tensor) -> list[float]:
    weights = [math.exp(float(x @ column) / T) for column in (key, *keys)]
    return [weight / sum(weights) for weight in weights]


def test_loss_is_info_nce_and_half_the_chain_of_cross_entropies() -> None:
    made, queue = batch()
    loss, metrics = HiClrTerm(HiClrSettings(weight=0.7), ["joint"], T)(
        {"joint": made}, queue, StepContext(0, torch.Generator())
    )
    keys, chain = queue.keys("joint"), [made.query, made.extra["strong"], made.extra["masked"]]
    total = 0.0
    for milder, stronger in itertools.pairwise(chain):
        for b in range(4):
            target = probabilities(milder[b].detach(), made.key[b], keys)
            found = probabilities(stronger[b].detach(), made.key[b], keys)
            total -= sum(p * math.log(q) for p, q in zip(target, found)) / 4
    assert float(metrics["joint/loss_d3m"]) == pytest.approx(total / 2, rel=1e-5)
    expected = float(info_nce(made.query, made.key, keys, T).detach()) + 0.7 * total / 2
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)


def test_a_view_teaches_the_next_one_and_learns_nothing_from_it() -> None:
    made, queue = batch()
    term = HiClrTerm(HiClrSettings(), ["joint"], T)
    term._match(made, queue.keys("joint")).backward()
    assert made.query.grad is None, "the query is a target only"
    gradients = [made.extra[name].grad for name in ("strong", "masked")]
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)
    assert gradients[0] is not None
    # the strong view learns from the query alone: another masked view changes nothing for it
    other, _ = batch()
    changed = StreamBatch(other.query, other.key, {**other.extra, "masked": unit(torch.randn(4, 6))})
    term._match(changed, queue.keys("joint")).backward()
    assert other.extra["strong"].grad is not None
    torch.testing.assert_close(gradients[0], other.extra["strong"].grad)


def test_from_its_epoch_on_neighbours_of_all_three_queries_are_positives() -> None:
    made, queue = batch()
    settings = HiClrSettings(weight=0.0, mining_epoch=3)
    term, keys = HiClrTerm(settings, ["joint"], T), queue.keys("joint")
    early, late = (term({"joint": made}, queue, StepContext(epoch, torch.Generator()))[0] for epoch in (2, 3))
    torch.testing.assert_close(early, info_nce(made.query, made.key, keys, T))
    near = union_of_nearest([made.query, made.extra["strong"], made.extra["masked"]], keys)
    torch.testing.assert_close(late, nearest_positives_loss(made.query, made.key, keys, near, T))


def test_the_masked_view_is_a_strong_one_with_hidden_joints() -> None:
    made = compose_moco(
        KINECT_V1,
        1,
        terms=("hiclr",),
        encoder=EncoderSettings(hidden=4, layers=1),
        contrast=ContrastSettings(dimension=8, queue=16),
        hiclr=HiClrSettings(masked=0.3),
    )
    assert list(made.views) == ["query", "key", "strong", "masked"]
    strong, masked = made.views["strong"], made.views["masked"]
    assert strong is not None
    assert masked is not None
    assert masked[:-1] == strong
    assert (masked[-1].name, masked[-1].settings.joints, masked[-1].settings.every_frame) == (
        "joint-mask",
        0.3,
        True,
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("hiclr.masked=1.5", "hiclr.masked = 1.5 must be from 0 to 1"),
        ("hiclr.top=0", "hiclr.top = 0 must be at least 1"),
        ("hiclr.reading=max", "unknown hiclr.reading"),
        ("hiclr.top=5000", "'hiclr' needs 5000 keys"),
        ("hiclr.threshold=0.7", "unknown setting 'hiclr.threshold'"),
        ('terms=["infonce", "hiclr"]', "leave 'infonce' out"),
    ],
)
def test_wrong_settings_get_one_sentence(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("small-hiclr", [override])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
