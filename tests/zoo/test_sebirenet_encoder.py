"""The encoder of SeBiReNet: the tree of joints against loops, persons and frames, refused settings."""

from __future__ import annotations

import numpy as np
import pytest
import slow_predictions as slow
import torch
from torch import nn

from halp.core.errors import InputError
from halp.skeleton import KINECT_V1
from halp.zoo.sebirenet import JointTree, PoseDecoder, SeBiReNet, SeBiReNetSettings


def weights_of(cell: nn.Module) -> dict[str, slow.Array]:
    names = {"ih": "weight_ih", "hh": "weight_hh", "b_ih": "bias_ih", "b_hh": "bias_hh"}
    return {key: np.asarray(getattr(cell, name).detach().numpy()) for key, name in names.items()}


@pytest.mark.parametrize(
    "parents", [[0, 0, 1, 1, 0], [2, 2, 2, 1, 4, 4]]
)  # the second has two roots, neither first
def test_tree_goes_from_the_leaves_to_the_root_and_back_like_the_loops(parents: list[int]) -> None:
    torch.manual_seed(0)
    tree = JointTree(3, 2, parents).double()
    poses = torch.randn(2, len(parents), 3, dtype=torch.double)
    found = tree(poses)
    up, down = ([weights_of(cell) for cell in cells] for cells in (tree.up, tree.down))
    for pose in range(2):
        expected = slow.joint_tree(poses[pose].numpy(), parents, up, down)
        np.testing.assert_allclose(found[pose].detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_features_are_means_over_thirds_and_over_the_persons_who_are_there() -> None:
    torch.manual_seed(0)
    encoder = SeBiReNet(SeBiReNetSettings(units=4), KINECT_V1, 1).eval()
    clips = torch.randn(2, 6, 2, 20, 3)
    clips[1, :, 1] = 0
    found = encoder(clips).unflatten(1, (3, 20, 2))
    assert found.shape[0] == 2
    for clip, persons in ((0, (0, 1)), (1, (0,))):
        for third in range(3):
            codes = []
            for t in (2 * third, 2 * third + 1):
                for person in persons:
                    pose = clips[clip, t, person] - clips[clip, t, person, encoder.centre]
                    codes.append(encoder.codes(pose[None])[0][0])
            torch.testing.assert_close(found[clip, third], torch.stack(codes).mean(0), atol=1e-6, rtol=1e-4)


def test_place_of_the_body_does_not_count_and_an_empty_clip_is_finite() -> None:
    encoder = SeBiReNet(SeBiReNetSettings(units=4), KINECT_V1, 1).eval()
    clips = torch.randn(1, 3, 1, 20, 3)
    moved = clips + torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(encoder(moved), encoder(clips), atol=1e-5, rtol=1e-4)
    assert encoder(torch.zeros(1, 3, 2, 20, 3)).isfinite().all()


def test_decoder_makes_a_pose_of_the_codes() -> None:
    encoder = SeBiReNet(SeBiReNetSettings(units=4), KINECT_V1, 1)
    pose, view = encoder.codes(torch.randn(5, 20, 3))
    assert (pose.shape, view.shape) == ((5, 20, 2), (5, 2, 2))
    assert PoseDecoder(encoder)(pose @ view).shape == (5, 20, 3)


@pytest.mark.parametrize("settings", [{"units": 3}, {"units": 0}, {"parts": 0}])
def test_sizes_that_cannot_be_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InputError, match="must be"):
        SeBiReNetSettings(**settings)
