"""The lifting encoder and its training: what it reads, what is fitted, and what a target is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halp.core.errors import InputError
from halp.data.normalise import normalise
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.lifted import LiftedEncoder, own_frame
from halp.methods import METHODS, BuildContext, StepContext
from halp.methods.lift import mirrored, resized
from halp.skeleton import KINECT_V1, get_topology

SPACE, FLAT = get_topology("body-16"), get_topology("body-16-2d")


def small(topology: object = FLAT, **more: object) -> LiftedEncoder:
    torch.manual_seed(0)
    settings = EncoderSettings("lifted", width=12, blocks=2, **more)
    encoder = build_encoder(settings, topology, 1)  # type: ignore[arg-type]
    assert isinstance(encoder, LiftedEncoder)
    return encoder.eval()


def clips(count: int = 3, coordinates: int = 2) -> torch.Tensor:
    made = torch.randn(count, 16, 2, 16, coordinates, generator=torch.Generator().manual_seed(1))
    return made - made[:, :, :, :1]


@torch.no_grad()
def test_depth_does_not_count_and_an_absent_person_changes_nothing() -> None:
    flat, deep = small(FLAT), small(SPACE)
    points = clips()
    points[:, :, 1] = 0
    behind = torch.cat(
        [points, torch.randn(*points.shape[:4], 1) * (points != 0).any(-1, keepdim=True)], dim=-1
    )
    torch.testing.assert_close(flat(points), deep(behind))
    torch.testing.assert_close(flat(points), flat(points[:, :, :1]))
    assert not flat.lift(points)[:, :, 1].any()


@torch.no_grad()
def test_fitting_standardises_features_and_a_projection_makes_them_fewer() -> None:
    encoder = small()
    encoder.fit(clips(40))
    assert encoder.output_size == 3 * 2 * 504  # kernels on streams, distances and angles
    spread = encoder(clips(40)).std(0)
    assert float(spread.median()) == pytest.approx(1.0, abs=0.05)
    assert small(outputs=6)(clips()).shape == (3, 6)


@torch.no_grad()
def test_a_second_reader_sees_the_picture_itself() -> None:
    both, lifted = small(picture_gains=(1.0, 1.0, 1.0), invariant=5), small()
    assert both.output_size == lifted.output_size + 2 * 504
    both.fit(clips(40))
    lifted.fit(clips(40))
    points = clips()
    points[:, :, 1] = 0
    features = both(points)
    assert both.picture_reader is not None
    torch.testing.assert_close(features[:, lifted.output_size :], both.picture_reader(points))
    torch.testing.assert_close(features, both(points[:, :, :1]))
    spread = both(clips(40)).std(0)
    assert float(spread[lifted.output_size :].median()) == pytest.approx(1.0, abs=0.05)
    both.invariance.fit(
        torch.stack([both.read(clips(20)) for _ in range(2)]) + torch.randn(2, 20, both.output_size)
    )
    torch.testing.assert_close(both(points), both.invariance(both.read(points)))


def test_other_joints_are_refused() -> None:
    with pytest.raises(InputError, match="body-16"):
        small(KINECT_V1)


def test_the_target_is_the_body_turned_by_its_mean_axes() -> None:
    bodies = clips(2, 3)[:, :, :1]
    turned = own_frame(bodies[:, :, 0], SPACE)[:, :, None]
    for body, expected in zip(bodies.numpy(), turned.numpy(), strict=True):
        np.testing.assert_allclose(normalise(body, SPACE, ["rotate-mean"]), expected, atol=1e-4)


def test_a_mirrored_body_has_the_mirrored_target() -> None:
    bodies = clips(2, 3)[:, :, :1]
    target = own_frame(bodies[:, :, 0], SPACE)[:, :, None]
    torch.testing.assert_close(
        own_frame(mirrored(bodies, SPACE)[:, :, 0], SPACE)[:, :, None], mirrored(target, SPACE)
    )


def test_a_run_of_frames_is_resized_on_straight_lines() -> None:
    line = torch.arange(5.0).view(1, 5, 1, 1, 1).expand(1, 5, 1, 2, 3)
    torch.testing.assert_close(resized(line, 9)[0, :, 0, 0, 0], torch.arange(9) / 2)
    torch.testing.assert_close(resized(line, 3)[0, :, 0, 0, 0], torch.tensor([0.0, 2.0, 4.0]))


@torch.no_grad()
def test_lifted_bodies_stand_in_their_own_frame_and_skipped_frames_lie_half_way() -> None:
    encoder = small()
    points = clips(2)[:, :, :1]
    lifted = encoder.lift(points)[:, :, 0]
    torch.testing.assert_close(own_frame(lifted, SPACE), lifted, atol=1e-3, rtol=1e-3)
    every_other = encoder.lift(points[:, ::2])
    strided = encoder.lift(points[:, :15], stride=2)
    assert strided.shape[1] == 15
    torch.testing.assert_close(strided[:, ::2], every_other)
    torch.testing.assert_close(strided[:, 1], (every_other[:, 0] + every_other[:, 1]) / 2)


def test_a_training_step_reaches_the_lifting_network_alone() -> None:
    settings = EncoderSettings("lifted", hidden=8, layers=1, width=12, blocks=2)
    context = BuildContext(SPACE, 1, 16, {"joint": settings}, {}, torch.Generator())
    method = METHODS["lift"].build(METHODS["lift"].settings(frames=8, speeds=True, mirror=True), context)
    bodies = clips(4, 3)[:, :, :1]
    views = {"query": bodies * torch.tensor([1.0, 1.0, 0.0]), "body": bodies}
    method.training_step(views, StepContext(0, torch.Generator())).loss.backward()
    encoder = method.encoders()["joint"]
    lifter, reader = list(encoder.lifter.parameters()), list(encoder.reader.parameters())
    assert lifter
    assert reader
    assert all(weight.grad is not None for weight in lifter)
    assert all(weight.grad is None for weight in reader)
