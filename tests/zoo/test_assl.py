"""ASSL: every loss against loops, which labels are used, which loss moves which part, and training from few
labels.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import halp
from halp.core.errors import InputError
from halp.data.store import Store
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation.protocol import ProtocolContext
from halp.methods import METHODS, BuildContext, StepContext
from halp.skeleton import KINECT_V1
from halp.zoo import assl
from halp.zoo.assl import (
    ASSLNetwork,
    ASSLSettings,
    RegionSettings,
    attend_to,
    consistency_loss,
    find_neighbours,
    hidden_region,
    region_error,
)

CLIPS = torch.randn(6, 8, 1, 20, 3, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([2, 0])
SMALL = ASSLSettings(width=5, discriminator=4, inpainting=0.5, consistency=0.3, adversarial=0.2)


def encoder() -> PretrainedEncoder:
    torch.manual_seed(0)
    inner = build_encoder(EncoderSettings("gru", hidden=3, layers=1, input_norm=False), KINECT_V1, 1)
    return PretrainedEncoder(inner, KINECT_V1, persons=1, frames=8).eval()


def drawn(settings: RegionSettings = SMALL) -> torch.Tensor:
    draw = torch.Generator().manual_seed(2)
    return hidden_region(torch.rand(6, generator=draw), torch.rand(6, 20, generator=draw), 8, settings)


def test_a_region_is_a_stretch_of_frames_and_a_share_of_the_joints() -> None:
    hidden = drawn(RegionSettings(frames=0.4, joints=0.25))
    assert hidden.shape == (6, 8, 20)
    for clip in hidden:
        frames, joints = clip.any(1), clip.any(0)
        assert int(joints.sum()) == 5
        assert torch.equal(clip, frames[:, None] & joints[None])
        first, last = frames.nonzero()[[0, -1], 0].tolist()
        assert last - first + 1 == int(frames.sum()) == 3
    starts = {int(clip.any(1).nonzero()[0]) for clip in drawn(RegionSettings(frames=0.2, joints=1.0))}
    assert len(starts) > 2


def test_losses_of_a_step_are_those_of_the_loops() -> None:
    network = ASSLNetwork(encoder(), 3, SMALL).double()
    clips, hidden = CLIPS.double(), drawn()
    around = torch.randn(6, 4, network.classifier.in_features, dtype=torch.double)
    found = network.losses(clips, LABELS, hidden, around)
    features = network.encoder(clips).detach()
    weight, bias = network.classifier.weight.detach(), network.classifier.bias.detach()
    classes = consistency = inpainting = adversarial = discriminator = 0.0
    for i in range(6):
        own = torch.softmax(features[i] @ weight.T + bias, 0).tolist()
        if i < 2:
            classes -= math.log(own[int(LABELS[i])]) / 2
        products = [float(features[i] @ near) / math.sqrt(len(features[i])) for near in around[i]]
        share = [math.exp(value) / sum(map(math.exp, products)) for value in products]
        joined = sum(part * near for part, near in zip(share, around[i]))
        other = torch.softmax(joined @ weight.T + bias, 0).tolist()
        consistency += sum(p * math.log(p / q) for p, q in zip(own, other)) / 6
        logit = float(network.discriminator(features[i : i + 1]))
        if i < 2:
            discriminator += math.log1p(math.exp(-logit)) / 2
        else:
            discriminator += math.log1p(math.exp(logit)) / 4
            adversarial += math.log1p(math.exp(-logit)) / 4
        seen = clips[i].clone()
        seen[hidden[i][:, None, :, None].expand_as(seen)] = 0
        filled = network.decoder(seen.flatten(1)[None], network.encoder(seen[None]))[0].view_as(seen)
        errors = [
            float((filled[t, 0, v] - clips[i, t, 0, v]).square().mean())
            for t in range(8)
            for v in range(20)
            if hidden[i, t, v]
        ]
        inpainting += sum(errors) / len(errors) / 6
    expected = {
        "classes": classes,
        "inpainting": inpainting,
        "consistency": consistency,
        "adversarial": adversarial,
        "discriminator": discriminator,
    }
    assert {name: float(loss) for name, loss in found.items()} == pytest.approx(expected, rel=1e-9)
    total = classes + 0.5 * inpainting + 0.3 * consistency + 0.2 * adversarial + discriminator
    assert float(network.total(found)) == pytest.approx(total, rel=1e-9)


def test_neighbours_are_of_the_class_where_it_is_known_and_the_nearest_elsewhere() -> None:
    features = torch.randn(30, 5, generator=torch.Generator().manual_seed(3))
    labels = torch.full((30,), -1)
    labels[:9] = torch.arange(9) % 3
    anchors = torch.tensor([0, 4, 20])
    near = find_neighbours(features, labels, anchors, 4)
    unit = (features / features.norm(dim=1, keepdim=True)).double().numpy()
    for anchor, found in zip(anchors.tolist(), near.tolist(), strict=True):
        others = sorted((i for i in range(30) if i != anchor), key=lambda i: -float(unit[anchor] @ unit[i]))
        same = [i for i in others if labels[anchor] >= 0 and labels[i] == labels[anchor]]
        assert found == [*same, *(i for i in others if i not in same)][:4]


def test_the_discriminator_moves_by_its_own_loss_alone_and_labels_by_cross_entropy() -> None:
    network = ASSLNetwork(encoder(), 3, SMALL)
    around = torch.randn(6, 4, network.classifier.in_features)
    losses = network.losses(CLIPS, LABELS, drawn(), around)
    own = torch.autograd.grad(
        losses["discriminator"], list(network.discriminator.parameters()), retain_graph=True
    )
    network.total(losses).backward()
    for parameter, expected in zip(network.discriminator.parameters(), own, strict=True):
        torch.testing.assert_close(parameter.grad, expected)
    fooled = torch.autograd.grad(
        network.losses(CLIPS, LABELS, drawn(), around)["adversarial"],
        list(network.encoder.parameters()),
        allow_unused=True,
    )
    assert any(gradient is not None and gradient.any() for gradient in fooled)


def test_only_the_labels_of_the_share_are_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels outside the drawn share may be anything: the answer stays the same."""
    asked = {"share": 0.3, "epochs": 1, "width": 8, "discriminator": 8, "batch_size": 16}
    first = halp.evaluate(untrained(store), store, "assl", progress=False, **asked)
    train, _ = store.split("xsub")
    context = ProtocolContext(untrained(store), store, "xsub", train, train)
    few = set(context.few_labels(0.3, stratified=True).tolist())
    assert len(few) == first.clips["train"] < len(train)
    seen: list[torch.Tensor] = []
    inner = assl.find_neighbours

    def spied(features: torch.Tensor, labels: torch.Tensor, *rest: object) -> torch.Tensor:
        seen.append(labels)
        return inner(features, labels, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(assl, "find_neighbours", spied)
    again = halp.evaluate(untrained(store), store, "assl", progress=False, **asked)
    assert again.accuracy == first.accuracy, "draws depend on the seed alone"
    assert seen
    assert all(int((labels >= 0).sum()) == len(few) for labels in seen)


def untrained(store: Store) -> PretrainedEncoder:
    torch.manual_seed(0)
    inner = build_encoder(EncoderSettings("gru", hidden=16, layers=1), store.topology, store.persons)
    steps = list(store.normalisation)
    return PretrainedEncoder(
        inner, store.topology, persons=store.persons, frames=16, normalisation=steps
    ).eval()


@pytest.mark.slow
def test_it_learns_the_few_labels_and_leaves_the_encoder_as_it_was(store: Store) -> None:
    given = untrained(store)
    before = {name: value.clone() for name, value in given.state_dict().items()}
    train, test = store.split("xsub")
    context = ProtocolContext(given, store, "xsub", train, test)
    few = context.few_labels(0.4, stratified=True)
    settings = ASSLSettings(epochs=40, width=16, learning_rate=1e-2, milestones=(30,), batch_size=16)
    network = assl.train_assl(context, torch.from_numpy(few), settings)
    scores = network.classifier(torch.from_numpy(context.encode_centres(network.encoder, few)))
    right = (scores.argmax(1).numpy() == store.labels[few]).mean()
    assert right > 10 / len(store.class_names)
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())


def test_wrong_use_gets_one_sentence(store: Store) -> None:
    with pytest.raises(InputError, match="all clips have labels"):
        halp.evaluate(untrained(store), store, "assl", progress=False, share=1.0)
    with pytest.raises(InputError, match=r"assl\.share"):
        halp.evaluate(untrained(store), store, "assl", progress=False, share=0)


def test_inpainting_alone_is_the_error_of_the_hidden_region() -> None:
    torch.manual_seed(0)
    gru = EncoderSettings("gru", hidden=3, layers=1, input_norm=False)
    context = BuildContext(KINECT_V1, 1, 8, {"joint": gru}, {}, torch.Generator())
    method = METHODS["inpainting"].build(RegionSettings(width=5), context)
    output = method.training_step({"clip": CLIPS}, StepContext(0, torch.Generator().manual_seed(2)))
    draw = torch.Generator().manual_seed(2)
    place, noise = torch.rand(6, 1, generator=draw)[:, 0], torch.rand(6, 20, generator=draw)
    hidden = hidden_region(place, noise, 8, RegionSettings(width=5))
    error, _ = method.decoders["joint"].error(method.backbones["joint"], CLIPS, hidden)
    assert float(output.loss) == pytest.approx(float(error.mean()), rel=1e-5)
    assert torch.equal(region_error(CLIPS.flatten(2), CLIPS, hidden), torch.zeros(6))


def test_consistency_is_zero_for_equal_and_positive_for_other_classes() -> None:
    scores = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(consistency_loss(scores, scores + 3), 0, atol=1e-6)
    assert (consistency_loss(scores, scores.flip(1)) > 0).all()
    same = torch.ones(2, 3, 4)
    torch.testing.assert_close(attend_to(torch.randn(2, 4), same), same[:, 0])
