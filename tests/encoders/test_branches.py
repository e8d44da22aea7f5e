"""The two-branch encoder: plain loops as reference, joints known by name, missing joints, absent persons,
whole runs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jobs
import pytest
import torch
from torch import Tensor, nn

from halp.core.errors import InputError
from halp.data.store import Store
from halp.encoders import EncoderSettings, build_encoder
from halp.encoders.branches import NAMES, Branch, BranchesEncoder, name_rows, sinusoids
from halp.encoders.pretrained import PretrainedEncoder
from halp.encoders.transformer import TransformerBlock
from halp.features.loading import load_encoder
from halp.skeleton import KINECT_V1, KINECT_V2, Topology, get_topology, list_topologies, parents_by_name
from halp.tasks.export import export
from halp.training import load_recipe, pretrain

SIZES = {"width": 8, "heads": 2, "feed": 12, "layers": 2}
TINY = ("encoder.width=8", "encoder.feed=8", "encoder.frames=12")


def made(topology: Topology = KINECT_V1, frames: int = 8, seed: int = 0) -> BranchesEncoder:
    torch.manual_seed(seed)
    encoder = build_encoder(EncoderSettings("branches", frames=frames, **SIZES), topology, 1)
    encoder.train()
    with torch.no_grad():
        encoder(clips(32, frames, topology=topology))  # statistics of the input
    assert isinstance(encoder, BranchesEncoder)
    return encoder.eval()


def clips(
    number: int, frames: int = 8, persons: int = 1, seed: int = 1, topology: Topology = KINECT_V1
) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    found = torch.randn(number, frames, persons, len(topology), topology.dimensions, generator=draw) + 0.5
    found[:, :, :, topology.index(topology.centre)] = 0
    return found


def slow_attention(block: TransformerBlock, tokens: list[Tensor], visible: list[int]) -> list[Tensor]:
    """One block, token by token and head by head; tokens attend to the visible ones."""
    mixed = [block.mix(block.attention_norm(token)).view(3, block.heads, -1) for token in tokens]
    result = []
    for query, token in zip(mixed, tokens):
        heads = []
        for head in range(block.heads):
            key_size = query.shape[2]
            scores = [float(query[0, head] @ mixed[i][1, head]) / key_size**0.5 for i in visible]
            weights = torch.tensor(scores).exp() / torch.tensor(scores).exp().sum()
            heads.append(sum(weight * mixed[i][2, head] for weight, i in zip(weights, visible)))
        token = token + block.out(torch.cat(heads))
        result.append(token + block.feed(block.feed_norm(token)))
    return result


def slow_branch(
    branch: Branch, firsts: list[list[Tensor]], places: Tensor, visible: list[int]
) -> list[Tensor]:
    """A branch from what the first layer of each modality gave for every token."""
    tokens = []
    for number, place in enumerate(places):
        embedded = [
            nn.Sequential(*embed[1:])(first[number]) for embed, first in zip(branch.embeddings, firsts)
        ]
        tokens.append(branch.fuse(sum(embedded) / 3) + place)
    for block in branch.blocks:
        tokens = slow_attention(block, tokens, visible)
    return [branch.norm(token) for token in tokens]


def slowly(encoder: BranchesEncoder, body: Tensor, topology: Topology, missing: list[str]) -> Tensor:
    """Features of one body `(T, V, C)`, joint by joint and frame by frame."""
    norm, parents = encoder.input_norm, parents_by_name(topology.joints)
    there = [v for v, joint in enumerate(topology.joints) if joint not in missing]
    values = torch.zeros(3, *body.shape)
    for t in range(len(body)):
        for v in there:
            bone = body[t, v] - body[t, parents[v]]
            motion = body[t + 1, v] - body[t, v] if t + 1 < len(body) else torch.zeros(3)
            x = torch.cat([body[t, v], bone, motion])
            x = (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
            x = (x * norm.weight + norm.bias).view(3, 3)
            values[0, t, v], values[2, t, v] = x[0], x[2]
            if parents[v] in there:
                values[1, t, v] = x[1]
    frame_firsts, joint_firsts = [], []
    for modality, x in enumerate(values):
        named = encoder.frame_branch.embeddings[modality][0]
        rows = [NAMES.index(joint) for joint in topology.joints]
        frame_firsts.append(
            [named.bias + sum(x[t, v] @ named.weight[rows[v]] for v in there) for t in range(len(x))]
        )
        joint_firsts.append(
            [encoder.joint_branch.embeddings[modality][0](x[:, v].flatten()) for v in range(len(rows))]
        )
    frames = slow_branch(encoder.frame_branch, frame_firsts, encoder.times, list(range(len(body))))
    joints = slow_branch(encoder.joint_branch, joint_firsts, encoder.joint_names.weight[rows], there)
    thirds = [frames[len(body) * i // 3 : -(-len(body) * (i + 1) // 3)] for i in range(3)]
    parts = [[joints[v] for v in part if v in there] for part in topology.body_parts.values()]
    groups = [*thirds, frames, *parts, [joints[v] for v in there]]
    return torch.cat([torch.stack(group).max(0).values if group else torch.zeros(8) for group in groups])


@torch.no_grad()
@pytest.mark.parametrize("frames", [1, 3, 8])
@pytest.mark.parametrize(
    "missing", [[], ["elbow_left", "spine", "head"], ["hip_right", "knee_right", "ankle_right"]]
)
def test_features_are_those_of_plain_loops(frames: int, missing: list[str]) -> None:
    topology = get_topology("body-16")
    encoder, batch = made(topology, frames), clips(2, frames, seed=2, topology=topology)
    batch[:, :, :, [topology.index(joint) for joint in missing]] = 0
    expected = torch.stack([slowly(encoder, one[:, 0], topology, missing) for one in batch])
    assert torch.allclose(encoder(batch), expected, atol=1e-5)
    assert expected.shape[1] == encoder.output_size == 10 * 8


@torch.no_grad()
def test_joints_in_another_order_with_their_names_give_the_same_features() -> None:
    encoder, batch = made(), clips(3, seed=3)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(4)).tolist()
    parents = tuple(order.index(KINECT_V1.parents[joint]) for joint in order)
    other = replace(
        KINECT_V1, name="shuffled", joints=tuple(KINECT_V1.joints[v] for v in order), parents=parents
    )
    shuffled = made(other, seed=9)
    shuffled.load_state_dict(encoder.state_dict())
    assert torch.allclose(shuffled(batch[:, :, :, order]), encoder(batch), atol=1e-5)
    assert not torch.allclose(encoder(batch[:, :, :, order]), encoder(batch), atol=0.1)  # names do matter


@torch.no_grad()
def test_weights_of_20_joints_load_for_25_and_give_the_same_where_the_others_are_missing() -> None:
    encoder, batch = made(), clips(3, seed=5)
    larger = replace(KINECT_V2, name="kinect-v2-hips", centre="hip_center")
    other = made(larger, seed=9)
    other.load_state_dict(encoder.state_dict())
    wide = torch.zeros(3, 8, 1, 25, 3)
    wide[:, :, :, [larger.index(joint) for joint in KINECT_V1.joints]] = batch
    assert torch.allclose(other(wide), encoder(batch), atol=1e-5)
    wide[:, :, :, larger.index("neck")] = 1.0
    assert not torch.allclose(other(wide), encoder(batch), atol=1e-2)


def test_every_joint_of_every_topology_has_a_row_of_its_own_name() -> None:
    for name in list_topologies():
        topology = get_topology(name)
        rows = [NAMES[row] for row in name_rows(topology)]
        if name in ("mhr-70", "smplx-55"):  # fingers share the rows of other joints of their side
            assert all(
                row == joint or row.startswith("other")
                for row, joint in zip(rows, topology.joints, strict=True)
            ), name
        else:
            assert rows == list(topology.joints), name
    sizes = {name: {key: value.shape for key, value in made(get_topology(name)).state_dict().items()}
             for name in ("body-16", "h36m-17", "kinect-v1", "kinect-v2", "mediapipe-33")}  # fmt: skip
    assert len({str(shapes) for shapes in sizes.values()}) == 1


@torch.no_grad()
def test_an_absent_person_changes_nothing_and_the_largest_value_of_two_counts() -> None:
    encoder, pair = made(), clips(3, persons=2, seed=6)
    alone = pair[:, :, :1]
    assert torch.allclose(encoder(torch.cat([torch.zeros_like(alone), alone], 2)), encoder(alone), atol=1e-6)
    both = torch.maximum(encoder(alone), encoder(pair[:, :, 1:]))
    assert torch.allclose(encoder(pair), both, atol=1e-6)
    assert not encoder(torch.zeros(2, 8, 2, 20, 3)).any()


@torch.no_grad()
def test_a_part_that_one_person_lacks_is_read_from_the_other() -> None:
    encoder, pair = made(), clips(3, persons=2, seed=7)
    pair[:, :, 0, KINECT_V1.body_parts["arm_left"]] = 0
    arm = slice(
        (4 + list(KINECT_V1.body_parts).index("arm_left")) * 8,
        (5 + list(KINECT_V1.body_parts).index("arm_left")) * 8,
    )
    assert torch.allclose(encoder(pair)[:, arm], encoder(pair[:, :, 1:])[:, arm], atol=1e-6)
    assert not encoder(pair[:, :, :1])[:, arm].any()


def test_gradients_reach_every_weight_and_stay_finite_without_joints_and_persons() -> None:
    encoder, batch = made().train(), clips(4, persons=2, seed=8)
    batch[:2, :, 1], batch[3] = 0, 0
    batch[0, :, 0, KINECT_V1.body_parts["leg_left"]] = 0
    encoder(batch).square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name
        assert parameter.grad.isfinite().all(), name
    assert encoder.joint_names.weight.grad is not None
    used = encoder.joint_names.weight.grad.any(1).nonzero().flatten()
    assert set(used.tolist()) <= set(name_rows(KINECT_V1).tolist())


def test_sinusoids_tell_all_frames_apart() -> None:
    for width in (1, 8, 9):
        found = sinusoids(32, width)
        assert found.shape == (32, width)
        assert len({tuple(row) for row in found.tolist()}) == 32


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1, 8, 1, 25, 3), "25 with 3"),
        ((1, 8, 1, 20, 2), "20 with 2"),
        ((1, 9, 1, 20, 3), "8 frames, and these have 9"),
    ],
)
def test_clips_of_another_shape_are_refused(shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        made()(torch.zeros(shape))


@pytest.mark.parametrize(
    "settings", [{"width": 0}, {"width": 6}, {"layers": 0}, {"feed": 0}, {"frames": 0}, {"heads": 0}]
)
def test_sizes_that_cannot_be_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"must be (at least 1|a multiple of)"):
        EncoderSettings("branches", **settings)


def test_a_topology_whose_names_say_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="'points' has none that it knows"):
        build_encoder(EncoderSettings("branches"), Topology("points", ("a", "b"), (0, 0)), 1)


@torch.no_grad()
@pytest.mark.heavy
def test_a_package_and_its_onnx_file_give_the_same_features(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    architecture = EncoderSettings("branches", frames=8, **SIZES).to_plain()
    packaged = PretrainedEncoder(made(), KINECT_V1, persons=2, frames=8, architecture=architecture).eval()
    loaded = load_encoder(
        export(packaged, tmp_path / "package", onnx=True)
    )  # export compares ONNX with torch
    batch = clips(4, persons=2, seed=5)
    assert torch.equal(loaded(batch), packaged(batch))


@pytest.mark.parametrize("recipe", ["small-branches", "cpu-branches"])
def test_recipes_train_resume_exactly_and_load_again(
    recipe: str, tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    common = [
        one for one in tiny if not one.startswith("encoder.") and (recipe[0] == "s" or "halp." not in one)
    ]
    settings = load_recipe(recipe, (*common, *TINY, "saving.checkpoint_steps=2"))
    whole = pretrain(settings, store, tmp_path / "whole", progress=False)
    pretrain(settings, store, tmp_path / "parts", until=1, progress=False)
    parts = pretrain(settings, store, tmp_path / "parts", resume=True, progress=False)
    assert jobs.final_files(whole.path) == jobs.final_files(parts.path)
    assert load_encoder(whole.path)(torch.randn(2, 12, store.persons, 25, 3)).shape == (2, 80)
    with pytest.raises(InputError, match=r"views\.frames and encoder\.frames"):
        pretrain(
            load_recipe(recipe, (*common, *TINY, "views.frames=10")), store, tmp_path / "x", progress=False
        )


def test_lower_precision_trains_to_about_the_same_loss(tmp_path: Path, store: Store) -> None:
    small = ("epochs=1", "batch_size=48", "views.frames=12", "contrast.queue=32", "contrast.dimension=16")
    settings = load_recipe("cpu-branches", (*small, *TINY))
    whole, half = (
        pretrain(
            settings, store, tmp_path / precision, progress=False, accelerator="cpu", precision=precision
        )
        for precision in ("32-true", "bf16-mixed")
    )
    assert half.metrics()[0]["loss"] == pytest.approx(whole.metrics()[0]["loss"], rel=0.05)
