"""The encoder of GL-Transformer: its blocks against torch's own attention, frame by frame; places, centre and
dropout.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from halp.core.errors import InputError
from halp.encoders import centre_joint
from halp.skeleton import KINECT_V1, Topology
from halp.zoo.gl_transformer import (
    Attention,
    GlobalLocalBlock,
    GlobalLocalEncoder,
    GlobalLocalSettings,
    PathDropout,
    relative_to_centre,
)

SETTINGS = GlobalLocalSettings(width=4, layers=2, heads=2, frames=6)


def torch_attention(attention: Attention, x: Tensor) -> Tensor:
    """The same attention by torch's module, of one sequence `(tokens, width)`."""
    width = x.shape[1]
    theirs = nn.MultiheadAttention(width, attention.heads, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(attention.mix.weight)
        theirs.in_proj_bias.copy_(attention.mix.bias)
        theirs.out_proj.weight.copy_(attention.out.weight)
        theirs.out_proj.bias.copy_(attention.out.bias)
    normal = attention.norm(x)[None]
    return theirs(normal, normal, normal)[0][0]


def test_block_attends_within_frames_then_among_them_like_torch() -> None:
    torch.manual_seed(0)
    block = GlobalLocalBlock(3, 0.1, SETTINGS).eval()
    nn.init.normal_(block.places)
    x = torch.randn(2, 5, 3, 4)
    found = block(x)
    for clip in range(2):
        frames = []
        for t in range(5):
            frame = x[clip, t] + block.places[t]
            frames.append((frame + torch_attention(block.joints, frame) + block.places[t]).flatten())
        whole = torch.stack(frames)
        whole = whole + torch_attention(block.times, whole)
        expected = whole + block.feed(whole)
        torch.testing.assert_close(found[clip].flatten(1), expected, atol=1e-5, rtol=1e-4)


def test_joints_are_relative_to_the_centre_of_their_person_and_the_centre_stays() -> None:
    clips = torch.randn(2, 3, 2, 20, 3)
    centre = centre_joint(KINECT_V1)
    assert KINECT_V1.joints[centre] == KINECT_V1.centre
    found = relative_to_centre(clips, centre)
    for b, t, p, v in ((0, 0, 0, 0), (1, 2, 1, 7), (0, 1, 1, centre)):
        expected = clips[b, t, p, v] - (0 if v == centre else clips[b, t, p, centre])
        torch.testing.assert_close(found[b, t, p, v], expected)
    assert centre_joint(Topology("plain", ("a", "b"), (1, 1))) == 1  # the root, if there is no centre


def test_the_whole_body_in_another_place_changes_the_centre_token_alone() -> None:
    encoder, inputs = GlobalLocalEncoder(SETTINGS, KINECT_V1, 1).eval(), []
    encoder.blocks[0].register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    clips = torch.randn(1, 4, 1, 20, 3)
    for moved in (clips, clips + torch.tensor([1.0, 2.0, 3.0])):
        encoder(moved)
    changed = (inputs[0] - inputs[1]).abs().amax((0, 1, 3)) > 1e-4
    assert changed.nonzero().flatten().tolist() == [encoder.centre]


def test_features_are_the_mean_over_frames_and_learning_reaches_all_weights() -> None:
    torch.manual_seed(0)
    encoder = GlobalLocalEncoder(
        GlobalLocalSettings(width=4, heads=2, frames=6, path_dropout=0), KINECT_V1, 2
    ).eval()
    clips = torch.randn(3, 6, 2, 20, 3)
    assert encoder(clips).shape == (3, 2 * 20 * 4)
    torch.testing.assert_close(encoder(clips), encoder.sequence(clips).mean(1))
    encoder(clips).square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_path_dropout_leaves_out_whole_entries_and_keeps_the_mean() -> None:
    path, x = PathDropout(0.25), torch.ones(4000, 2, 3)
    found = path(x)
    assert found.flatten().unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert torch.equal(found.amax((1, 2)), found.amin((1, 2)))
    assert abs(float(found.mean()) - 1) < 0.05
    assert torch.equal(path.eval()(x), x)


@pytest.mark.parametrize(
    ("shape", "words"),
    [((1, 6, 2, 25, 3), "25 with 3"), ((1, 6, 1, 20, 3), "have 1 and 6"), ((1, 7, 2, 20, 3), "2 and 7")],
)
def test_clips_of_another_shape_are_refused(shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        GlobalLocalEncoder(SETTINGS, KINECT_V1, 2)(torch.zeros(shape))
