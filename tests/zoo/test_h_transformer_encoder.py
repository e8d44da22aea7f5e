"""The encoder of H-Transformer: its blocks against torch's own layer, the joining of parts, and what it
reads.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from halp.core.errors import InputError
from halp.skeleton import KINECT_V1, Topology, get_topology
from halp.zoo.h_transformer import (
    HierarchicalEncoder,
    HierarchicalSettings,
    PostNormBlock,
    fit_to_unit_cube,
    join_limbs_with_trunk,
)

SETTINGS = HierarchicalSettings(width=16, layers=8, feed=6, frames=6)


def test_block_is_the_transformer_layer_of_torch() -> None:
    torch.manual_seed(0)
    block = PostNormBlock(8, 4, SETTINGS).eval()
    theirs = nn.TransformerEncoderLayer(8, 4, SETTINGS.feed, activation="gelu", batch_first=True).eval()
    copies = {
        "self_attn.in_proj_weight": block.mix.weight,
        "self_attn.in_proj_bias": block.mix.bias,
        "self_attn.out_proj.weight": block.out.weight,
        "self_attn.out_proj.bias": block.out.bias,
    }
    for name, layer in (("linear1", block.feed[0]), ("linear2", block.feed[2])):
        copies |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}  # type: ignore[dict-item]
    for name, norm in (("norm1", block.attention_norm), ("norm2", block.feed_norm)):
        copies |= {f"{name}.weight": norm.weight, f"{name}.bias": norm.bias}
    theirs.load_state_dict(copies)
    x = torch.randn(3, 5, 8)
    torch.testing.assert_close(block(x), theirs(x), atol=1e-5, rtol=1e-4)


def test_every_limb_is_joined_with_the_trunk() -> None:
    x = torch.arange(10.0)[None]  # five parts of two numbers, the trunk first
    assert join_limbs_with_trunk(x, 2)[0].tolist() == [0, 1, 2, 3, 0, 1, 4, 5, 0, 1, 6, 7, 0, 1, 8, 9]


def test_poses_fill_the_unit_cube_along_every_axis_that_has_an_extent() -> None:
    poses = torch.randn(2, 4, 5, 3)
    poses[1, :, :, 2] = 0.7
    found = fit_to_unit_cube(poses)
    for clip in range(2):
        for axis in range(3):
            values = poses[clip, :, :, axis]
            low, high = float(values.min()), float(values.max())
            expected = torch.zeros_like(values) if low == high else 2 * (values - low) / (high - low) - 1
            torch.testing.assert_close(found[clip, :, :, axis], expected)
    assert not fit_to_unit_cube(torch.zeros(1, 2, 3, 3)).any()


@pytest.mark.parametrize(
    "name", ["kinect-v1", "kinect-v2", "openpose-25", "smpl-22", "mediapipe-33", "coco-17"]
)
def test_every_joint_belongs_to_one_part_and_both_sides_have_the_same(name: str) -> None:
    topology = get_topology(name)
    parts = topology.body_parts
    assert sorted(joint for part in parts.values() for joint in part) == list(range(len(topology)))
    for limb in ("arm", "leg"):
        left, right = (
            [topology.joints[joint] for joint in parts[f"{limb}_{side}"]] for side in ("left", "right")
        )
        assert {joint.replace("_left", "") for joint in left} == {
            joint.replace("_right", "") for joint in right
        }
        assert len(left) >= 3


def test_features_come_from_the_first_person_and_hidden_frames_are_not_read() -> None:
    torch.manual_seed(0)
    encoder = HierarchicalEncoder(SETTINGS, KINECT_V1, 1).eval()
    clips = torch.randn(2, 6, 2, 20, 3)
    features = encoder(clips)
    assert features.shape == (2, 16)
    changed = clips.clone()
    changed[:, :, 1] += 1
    assert torch.equal(encoder(changed), features)
    hidden = torch.tensor([[False, True, False, False, False, False]] * 2)
    changed = clips.clone()
    # another pose inside the box that the clip fills: the stretching stays as it was
    changed[:, 1, 0] = clips[:, 1, 0].clamp(-0.1, 0.1)
    changed[:, 0, 0, 0], changed[:, 0, 0, 1] = 9.0, -9.0
    clips[:, 0, 0, 0], clips[:, 0, 0, 1] = 9.0, -9.0
    assert torch.equal(encoder.sequence(changed, hidden), encoder.sequence(clips, hidden))
    assert not torch.equal(encoder.sequence(changed), encoder.sequence(clips))


def test_learning_reaches_all_weights() -> None:
    torch.manual_seed(0)
    encoder = HierarchicalEncoder(SETTINGS, KINECT_V1, 1).eval()
    (encoder(torch.randn(3, 6, 1, 20, 3)) * torch.randn(16)).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_topologies_without_limbs_and_clips_that_are_too_long_are_refused() -> None:
    with pytest.raises(InputError, match="has none of 'arm_right'"):
        HierarchicalEncoder(SETTINGS, Topology("worm", ("head", "tail"), (0, 0)), 1)
    with pytest.raises(InputError, match="at most 6 frames, and clips have 7"):
        HierarchicalEncoder(SETTINGS, KINECT_V1, 1)(torch.zeros(1, 7, 1, 20, 3))
