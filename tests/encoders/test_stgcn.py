"""The ST-GCN encoder: its graph, its shapes, and what must not matter to it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from halp.core.errors import InputError
from halp.encoders import EncoderSettings, build_encoder, list_architectures
from halp.encoders.stgcn import Block, STGCNEncoder, STGCNSettings, spatial_graph
from halp.skeleton import KINECT_V1, KINECT_V2, get_topology, list_topologies


@pytest.mark.parametrize("name", list_topologies())
def test_graph_parts_are_self_parent_and_children_and_weights_of_a_joint_sum_to_one(name: str) -> None:
    topology = get_topology(name)
    graph = spatial_graph(topology.parents)
    assert graph.shape == (3, len(topology), len(topology))
    assert torch.allclose(graph.sum((0, 1)), torch.ones(len(topology)))
    for joint, parent in enumerate(topology.parents):
        children = [child for child, its in enumerate(topology.parents) if its == joint != child]
        assert graph[0, :, joint].nonzero()[:, 0].tolist() == [joint]
        assert graph[1, :, joint].nonzero()[:, 0].tolist() == ([] if parent == joint else [parent])
        assert graph[2, :, joint].nonzero()[:, 0].tolist() == children
        weight = 1 / (1 + (parent != joint) + len(children))
        assert torch.allclose(graph[:, :, joint][graph[:, :, joint] > 0], torch.tensor(weight))


@pytest.mark.parametrize("name", list_topologies())
def test_one_hop_partition_is_what_hop_distances_cut_at_one_give(name: str) -> None:
    parents, joints = get_topology(name).parents, len(get_topology(name))
    near = np.eye(joints)
    for joint, parent in enumerate(parents):
        near[joint, parent] = near[parent, joint] = 1
    hops = np.where(np.eye(joints) > 0, 0, np.where(near > 0, 1, np.inf))
    expected = np.zeros((3, joints, joints))
    for w in range(joints):
        root = w
        while parents[root] != root:
            root = parents[root]
        for v in range(joints):
            if near[v, w]:
                part = 0 if v == w else 1 if hops[v, root] < hops[w, root] else 2
                expected[part, v, w] = 1 / near[:, w].sum()
    np.testing.assert_allclose(spatial_graph(parents, "one-hop").numpy(), expected, rtol=1e-6)
    if name == "kinect-v2":  # the sums of the parts that the public code has, up to their order
        assert [round(float(part.sum()), 2) for part in spatial_graph(parents, "one-hop")] == [
            8.95,
            2.75,
            13.3,
        ]
        differ = (spatial_graph(parents, "one-hop") != spatial_graph(parents)).any(0)
        assert int(differ.sum()) == 16


def test_network_has_the_published_quarter_width() -> None:
    encoder = build_encoder(EncoderSettings("stgcn", output=256), KINECT_V2, 2)
    widths = [block.time.out_channels for block in encoder.blocks]
    assert widths == [16, 16, 16, 16, 32, 32, 32, 64, 64, 256]
    assert [block.stride for block in encoder.blocks] == [1, 1, 1, 1, 2, 1, 1, 2, 1, 1]
    assert [block.residual for block in encoder.blocks] == [False] + [True] * 9
    assert "stgcn" in list_architectures()


@pytest.mark.parametrize("frames", [1, 2, 7, 16])
@pytest.mark.parametrize("persons", [1, 2])
def test_shapes_for_any_number_of_frames_and_persons(frames: int, persons: int) -> None:
    encoder = build_encoder(EncoderSettings("stgcn", output=32), KINECT_V1, persons).eval()
    clips = torch.randn(3, frames, persons, 20, 3)
    quarter = math.ceil(frames / 4)
    assert encoder.sequence(clips).shape == (3, persons, quarter, 20, 32)
    assert encoder(clips).shape == (3, 32)
    assert torch.allclose(encoder(clips), encoder.sequence(clips).mean((1, 2, 3)))


def test_training_on_one_frame_and_absent_persons_stays_finite() -> None:
    encoder = build_encoder(EncoderSettings("stgcn", output=16), KINECT_V2, 2)
    clips = torch.zeros(4, 1, 2, 25, 3)
    clips[:2, :, 0] = torch.randn(2, 1, 25, 3)
    features = encoder.train()(clips)
    features.square().sum().backward()
    assert torch.isfinite(features).all()
    assert all(torch.isfinite(p.grad).all() for p in encoder.parameters() if p.grad is not None)
    assert torch.isfinite(encoder.eval()(torch.zeros(1, 5, 2, 25, 3))).all()


def test_block_equals_a_sum_over_neighbours_joint_by_joint() -> None:
    torch.manual_seed(0)
    graph = spatial_graph(KINECT_V1.parents)
    block = Block(3, 5, graph, residual=False).eval()
    torch.nn.init.normal_(block.importance)
    x = torch.randn(2, 1, 20, 3)
    middle = block.time.weight[:, :, 4, 0]  # a single frame meets the middle tap only
    mixed = torch.zeros(2, 20, 5)
    for joint in range(20):
        for part in range(3):
            said = (
                x[:, 0] @ block.mix.weight[5 * part : 5 * part + 5].T
                + block.mix.bias[5 * part : 5 * part + 5]
            )
            for other in range(20):
                edge = graph[part, other, joint] * block.importance[part, other, joint]
                mixed[:, joint] += edge * said[:, other]
    scale = (1 + block.mix_norm.eps) ** -0.5
    mixed = (mixed * scale).relu()
    expected = ((mixed @ middle.T + block.time.bias) * scale).relu()
    assert torch.allclose(block(x, graph)[:, 0], expected, atol=1e-5)


def test_order_of_joints_does_not_matter() -> None:
    torch.manual_seed(0)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    place = order.argsort()
    parents = [int(place[KINECT_V1.parents[joint]]) for joint in order.tolist()]
    plain = STGCNEncoder(KINECT_V1.parents, 3, STGCNSettings(32)).eval()
    turned = STGCNEncoder(parents, 3, STGCNSettings(32)).eval()
    for block in plain.blocks:
        torch.nn.init.normal_(block.importance, 1, 0.3)  # type: ignore[arg-type]
    state = plain.state_dict()
    for name, value in state.items():
        if name.endswith("importance"):
            state[name] = value[:, order][:, :, order]
        elif name.startswith("input_norm") and value.ndim:
            state[name] = value.view(20, 3)[order].flatten()
    turned.load_state_dict(state)
    clips = torch.randn(3, 8, 1, 20, 3)
    assert torch.allclose(plain(clips), turned(clips[:, :, :, order]), atol=1e-5)
    assert torch.allclose(
        plain.sequence(clips)[:, :, :, order], turned.sequence(clips[:, :, :, order]), atol=1e-5
    )


def test_order_of_persons_does_not_matter() -> None:
    encoder = build_encoder(EncoderSettings("stgcn", output=32), KINECT_V1, 2).eval()
    clips = torch.randn(3, 8, 2, 20, 3)
    assert torch.allclose(encoder(clips), encoder(clips.flip(2)), atol=1e-5)


def test_clips_of_another_topology_and_wrong_sizes_are_refused_in_one_sentence() -> None:
    encoder = build_encoder(EncoderSettings("stgcn", output=16), KINECT_V1, 1)
    with pytest.raises(InputError, match="another topology"):
        encoder(torch.zeros(1, 2, 1, 25, 3))
    with pytest.raises(InputError, match="at least 1"):
        build_encoder(EncoderSettings("stgcn", output=16, stages=0), KINECT_V1, 1)
