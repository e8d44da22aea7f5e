"""The fusion encoder: a plain torch GRU as reference, missing joints and absent persons, and its fitted
projection.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from halp.core.errors import InputError
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.fusion import FusionEncoder
from halp.skeleton import get_topology

BODY = get_topology("body-16")


def made(name: str = "fusion", **settings: Any) -> FusionEncoder:
    torch.manual_seed(0)
    encoder = build_encoder(EncoderSettings(name, hidden=5, **settings), BODY, 2)
    encoder.train()
    with torch.no_grad():
        encoder(clips(64))  # statistics of the input
    return encoder.eval()


def clips(number: int, frames: int = 9, persons: int = 1, seed: int = 1) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    found = torch.randn(number, frames, persons, 16, 3, generator=draw) + 0.5
    found[:, :, :, BODY.index("hip_center")] = 0
    return found


def slowly(encoder: FusionEncoder, body: Tensor) -> Tensor:
    """Features of one body `(T, V, C)`, written out with torch's own GRU."""
    norm = encoder.input_norm
    frames = []
    for t in range(len(body)):
        bones = [body[t, v] - body[t, parent] for v, parent in enumerate(BODY.parents)]
        motion = body[t + 1] - body[t] if t + 1 < len(body) else torch.zeros_like(body[t])
        frames.append(torch.cat([body[t].flatten(), torch.cat(bones), motion.flatten()]))
    x = (torch.stack(frames) - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    features = []
    for forward, backward in encoder.layers:  # type: ignore[misc]
        x = torch.cat([forward(x[None])[0][0], backward(x.flip(0)[None])[0][0].flip(0)], 1)
        thirds = [x[len(x) * i // 3 : -(-len(x) * (i + 1) // 3)] for i in range(3)]
        features += [
            torch.cat([part.mean(0) for part in thirds]),
            torch.cat([part.max(0).values for part in thirds]),
        ]
    return torch.cat(features)


@torch.no_grad()
@pytest.mark.parametrize("frames", [3, 8, 9])
def test_features_are_those_of_a_plain_gru_on_joints_bones_and_motion(frames: int) -> None:
    encoder, batch = made(), clips(4, frames, seed=2)
    expected = torch.stack([slowly(encoder, one[:, 0]) for one in batch])
    assert torch.allclose(encoder(batch), expected, atol=1e-5)
    assert encoder.output_size == expected.shape[1] == 2 * 2 * 3 * 10


@torch.no_grad()
def test_gains_scale_the_streams() -> None:
    plain, batch = made(), clips(3, seed=3)[:, :, 0]
    torch.manual_seed(0)
    scaled = build_encoder(EncoderSettings("fusion", hidden=5, gains=[0.5, 0.0, 2.0]), BODY, 1).eval()
    scaled.load_state_dict(plain.state_dict())
    expected = plain.inputs(batch).view(3, 9, 3, -1) * torch.tensor([0.5, 0.0, 2.0])[:, None]
    assert torch.allclose(scaled.inputs(batch), expected.flatten(2))
    with pytest.raises(InputError, match="gains"):
        EncoderSettings("fusion", gains=[1.0, 1.0])


@torch.no_grad()
def test_a_missing_joint_has_the_mean_of_the_training_data_with_its_bones_and_motion() -> None:
    encoder, batch = made(), clips(3, seed=3)
    elbow = BODY.index("elbow_left")
    batch[:, :, :, elbow] = 0
    x = encoder.inputs(batch[:, :, 0]).view(3, 9, 3, 16, 3)
    assert not x[:, :, :, elbow].any()  # 0 is the mean after standardising
    assert not x[:, :, 1, BODY.index("wrist_left")].any()  # the bone that starts there
    assert x[:, :, 0, BODY.index("wrist_left")].any()
    assert x[:, :, 1, BODY.index("spine")].any()  # the hips lie at the origin and are there all the same


@torch.no_grad()
def test_an_absent_person_changes_nothing_and_two_persons_have_no_order() -> None:
    encoder, pair = made(), clips(3, persons=2, seed=4)
    alone = pair[:, :, :1]
    padded = torch.cat([alone, torch.zeros_like(alone)], 2)
    assert torch.allclose(encoder(padded), encoder(alone), atol=1e-6)
    assert torch.allclose(encoder(pair), encoder(pair.flip(2)), atol=1e-6)
    both = torch.maximum(encoder(pair[:, :, :1]), encoder(pair[:, :, 1:]))
    assert torch.allclose(encoder(pair), both, atol=1e-6)
    assert not encoder(torch.zeros(1, 9, 2, 16, 3)).any()


def test_gradients_reach_every_weight() -> None:
    encoder = made().train()
    encoder(clips(4)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in encoder.parameters())


@torch.no_grad()
def test_clips_of_another_layout_are_refused() -> None:
    with pytest.raises(InputError, match="reads 16 joints"):
        made()(torch.ones(1, 9, 1, 20, 3))


@torch.no_grad()
def test_an_encoder_with_a_projection_gives_its_number_of_features() -> None:
    encoder = made(outputs=7)
    plain = made()
    assert encoder.projection is not None
    encoder.load_state_dict(plain.state_dict(), strict=False)
    random = np.random.default_rng(0)
    shift, spread = random.normal(size=plain.output_size), 1 + random.random(plain.output_size)
    matrix = random.normal(size=(plain.output_size, 7)) / plain.output_size**0.5
    encoder.projection.shift.copy_(torch.from_numpy(shift))
    encoder.projection.spread.copy_(torch.from_numpy(spread))
    encoder.projection.matrix.copy_(torch.from_numpy(matrix))
    found = encoder(clips(5))
    assert found.shape == (5, encoder.output_size) == (5, 7)
    expected = ((plain(clips(5)).numpy() - shift) / spread) @ matrix
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.02)  # the matrix is in half precision


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="hidden = 0"):
        EncoderSettings("fusion", hidden=0)
    assert isinstance(build_encoder(EncoderSettings("fusion"), BODY, 1), nn.Module)


@torch.no_grad()
def test_geometry_is_distances_and_cosines_written_out_and_no_rotation_changes_it() -> None:
    encoder, body = made(gains=(1.0, 1.0, 1.0, 0.5, 2.0)), clips(1, frames=4, seed=6)[:, :, 0]
    streams, known = encoder.streams(body)
    width = 3 * 16 * 3
    expected = []
    for frame in body[0]:
        bones = [frame[v] - frame[p] for v, p in enumerate(BODY.parents) if v != p]
        distances = [
            (frame[i] - frame[j]).norm()
            for j in range(16)
            for i in range(j)
            if i != BODY.parents[j] and BODY.parents[i] != j
        ]
        cosines = [
            (bones[i] @ bones[j]) / (bones[i].norm() * bones[j].norm())
            for i in range(len(bones))
            for j in range(i + 1, len(bones))
        ]
        expected.append(torch.stack(distances + cosines))
    assert torch.allclose(streams[0, :, width:], torch.stack(expected), atol=1e-5)
    assert known.all()
    assert streams.shape[2] == sum(encoder.widths) == width + 105 + 105
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))[0]
    turned, _ = encoder.streams(body @ turn)
    assert torch.allclose(turned[:, :, width:], streams[:, :, width:], atol=1e-5)
    inputs = encoder.inputs(body)
    plain = (streams - encoder.input_norm.running_mean) / (encoder.input_norm.running_var + 1e-5).sqrt()
    assert torch.allclose(
        inputs[:, :, width : width + 105], 0.5 * plain[:, :, width : width + 105], atol=1e-4
    )
    assert torch.allclose(inputs[:, :, width + 105 :], 2 * plain[:, :, width + 105 :], atol=1e-4)


@torch.no_grad()
def test_a_missing_joint_takes_its_distances_and_angles_with_it_and_nothing_else() -> None:
    encoder, body = made(gains=(1.0, 1.0, 1.0, 1.0, 1.0)), clips(2, frames=4, seed=7)[:, :, 0]
    missing = body.clone()
    elbow = BODY.index("elbow_left")
    missing[:, :, elbow] = 0
    width = 3 * 16 * 3
    before, after = encoder.inputs(body)[:, :, width:], encoder.inputs(missing)[:, :, width:]
    pairs, angles, bones = encoder.geometry.pairs, encoder.geometry.angles, encoder.geometry.bones
    gone = (pairs == elbow).any(0)
    ends = torch.tensor([joint == elbow or BODY.parents[joint] == elbow for joint in bones.tolist()])
    gone = torch.cat([gone, ends[angles].any(0)])
    assert 0 < gone.sum() < len(gone)
    assert not after[:, :, gone].any()
    assert torch.allclose(after[:, :, ~gone], before[:, :, ~gone], atol=1e-5)


def test_gradients_through_geometry_are_finite_where_joints_coincide() -> None:
    encoder = made(gains=(1.0, 1.0, 1.0, 1.0, 1.0))
    body = clips(2, frames=4, seed=8)
    body[:, :, :, 5] = body[:, :, :, 4]  # a bone of length 0
    body[:, :, :, 6] = body[:, :, :, 9]  # hands that touch
    body.requires_grad_(True)
    encoder(body).sum().backward()
    assert torch.isfinite(body.grad).all()
