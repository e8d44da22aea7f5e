"""SeBiReNet's training: all losses of a step against loops, what is drawn, refused settings."""

from __future__ import annotations

import math

import numpy as np
import pytest
import slow_predictions as slow
import torch

from halp.core.errors import InputError
from halp.encoders import EncoderSettings
from halp.methods import METHODS, BuildContext, StepContext
from halp.methods.predictive import WholeBatch
from halp.skeleton import KINECT_V1
from halp.training import load_recipe
from halp.zoo.sebirenet import (
    DisentanglementMethod,
    DisentanglementSettings,
    PoseDecoder,
    SeBiReNet,
    bone_lengths,
    half_square,
    orthogonality,
)


def method(**settings: object) -> DisentanglementMethod:
    torch.manual_seed(0)
    encoder = EncoderSettings("sebirenet", units=4)
    context = BuildContext(KINECT_V1, 2, 6, {"joint": encoder}, {}, torch.Generator())
    made: DisentanglementMethod = METHODS["disentanglement"].build(
        DisentanglementSettings(**settings), context
    )  # type: ignore[arg-type]
    return made


def clips() -> torch.Tensor:
    x = torch.randn(3, 6, 2, 20, 3, generator=torch.Generator().manual_seed(1))
    x[1, :, 1] = 0
    return x


def test_losses_of_poses_are_those_of_the_loops() -> None:
    first, second = torch.randn(2, 3, 20, 3, dtype=torch.double)
    lengths = bone_lengths(first, KINECT_V1.bones)
    matrices = torch.randn(3, 2, 2, dtype=torch.double)
    for pose in range(3):
        one, two = first[pose].numpy(), second[pose].numpy()
        assert float(half_square(first - second)[pose]) == pytest.approx(slow.half_square(one, two))
        np.testing.assert_allclose(lengths[pose].numpy(), slow.bone_lengths(one, list(KINECT_V1.parents)))
        matrix = matrices[pose].numpy()
        assert float(orthogonality(matrices)[pose]) == pytest.approx(
            slow.half_square(matrix @ matrix.T, np.eye(2))
        )
    turn = torch.tensor([[[0.6, -0.8], [0.8, 0.6]]])
    assert float(orthogonality(turn)) < 1e-12


def test_what_is_drawn() -> None:
    made, x = method(frames=4, removed=5), clips()
    encoder = made.backbones["joint"]
    assert isinstance(encoder, SeBiReNet)
    poses, removed, rotation = made._draw(
        x, encoder, WholeBatch(3, slice(0, 3), torch.Generator().manual_seed(0))
    )
    assert poses.shape == (3, 4, 2, 20, 3)
    around = x - x[:, :, :, encoder.centre, None]
    for clip in range(3):
        chosen = [t for pose in poses[clip] for t in range(6) if torch.equal(pose, around[clip, t])]
        assert len(set(chosen)) == 4
    counts = removed.sum(3)
    assert (int(counts.min()), int(counts.max())) == (1, 5)
    assert rotation.shape == (3, 3, 3)
    for matrix in rotation:
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(3), atol=1e-5, rtol=0)
        assert torch.linalg.det(matrix).item() == pytest.approx(1, abs=1e-5)


def test_step_has_the_losses_of_the_loops() -> None:
    made, x = method(frames=2), clips()
    output = made.training_step({"clip": x}, StepContext(0, torch.Generator().manual_seed(4)))
    encoder, decoder = made.backbones["joint"], made.decoders["joint"]
    assert isinstance(encoder, SeBiReNet)
    assert isinstance(decoder, PoseDecoder)
    poses, removed, rotation = made._draw(
        x, encoder, WholeBatch(3, slice(0, 3), torch.Generator().manual_seed(4))
    )
    expected = dict.fromkeys(("pose", "bones", "crossed", "invariance", "orthogonality"), 0.0)
    parents = list(KINECT_V1.parents)
    for clip in range(3):
        persons = [person for person in range(2) if x[clip, :, person].any()]
        for frame in range(2):
            for person in persons:
                pose = poses[clip, frame, person]
                turned = pose @ rotation[clip]
                given = [part.clone() for part in (pose, turned)]
                for part in given:
                    part[removed[clip, frame, person]] = 0
                (code, view), (other, away) = (encoder.codes(part[None]) for part in given)
                made_of = {
                    "own": code @ view,
                    "turned": other @ away,
                    "back": other @ view,
                    "forth": code @ away,
                }
                decoded = {key: decoder(value)[0].detach().double().numpy() for key, value in made_of.items()}
                share = 1 / (3 * 2 * len(persons))
                for key, target in (("own", pose), ("turned", turned), ("back", pose), ("forth", turned)):
                    error = slow.half_square(decoded[key], target.double().numpy())
                    expected["pose" if key in ("own", "turned") else "crossed"] += share * error
                for key, target in (("own", pose), ("turned", turned)):
                    lengths = (
                        slow.bone_lengths(value, parents) for value in (decoded[key], target.double().numpy())
                    )
                    expected["bones"] += share * slow.half_square(*lengths)
                expected["invariance"] += share * slow.half_square(
                    code.detach().numpy(), other.detach().numpy()
                )
                for matrix in (view[0].detach().double().numpy(), away[0].detach().double().numpy()):
                    expected["orthogonality"] += share * slow.half_square(matrix @ matrix.T, np.eye(2))
    for name, value in expected.items():
        assert output.metrics[f"joint/loss_{name}"].item() == pytest.approx(value, rel=1e-3), name
    weights = {"crossed": 0.01, "orthogonality": 5.0}
    total = math.fsum(weights.get(name, 1.0) * value for name, value in expected.items())
    assert output.loss.item() == pytest.approx(total, rel=1e-3)
    output.loss.backward()
    assert all(
        parameter.grad is not None and parameter.grad.isfinite().all() for parameter in made.parameters()
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("disentanglement.frames=0", "must be at least 1"),
        ("disentanglement.frames=40", "is more than a view has: views.frames = 32"),
        ("disentanglement.crossed_weight=-1", "cannot be negative"),
    ],
)
def test_wrong_settings_get_one_sentence(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("small-sebirenet", [override])
    assert words in str(caught.value)


def test_removing_all_joints_is_refused() -> None:
    with pytest.raises(InputError, match="leave nothing of topology 'kinect-v1'"):
        method(removed=20)


def test_published_settings_of_sebirenet() -> None:
    recipe = load_recipe("ntu60-sebirenet")
    assert (recipe.encoder.units, recipe.epochs, recipe.disentanglement.removed) == (32, 250, 5)
    assert recipe.batch_size * recipe.disentanglement.frames == 64
    assert recipe.optimiser.rate(0) == pytest.approx(64 * 5e-5)
