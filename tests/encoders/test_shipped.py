"""The shipped encoder: whole, small, loaded without a network, and the same for any skeleton, unit, up-axis
and frame rate.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import halp
from halp.core.errors import InputError
from halp.core.packages import list_shipped
from halp.data.normalise import normalise
from halp.encoders.pretrained import PretrainedEncoder, compacted
from halp.skeleton import Topology, canonical_joints, get_topology, map_joints, topology_for
from halp.tasks.cluster import cluster
from halp.tasks.export import export
from halp.tasks.search import search

LIMBS = ("shoulder", "elbow", "hip", "knee")
FIFTEEN = [
    "head",
    "neck",
    "torso",
    *(f"{s}_{j}" for s in ("left", "right") for j in (*LIMBS, "hand", "foot")),
]
THIRTEEN = ["nose", *(f"{s}_{j}" for s in ("left", "right") for j in (*LIMBS, "wrist", "ankle"))]
SKELETONS = [
    topology_for(canonical_joints(THIRTEEN), 3),
    topology_for(canonical_joints(FIFTEEN), 3),
    get_topology("kinect-v1"),
    get_topology("kinect-v2"),
    get_topology("mediapipe-33"),
]


@pytest.fixture(scope="module")
def encoder() -> PretrainedEncoder:
    return halp.load_encoder("halp-base")


def walker(seconds: float = 2.0, fps: float = 30.0, seed: int = 0) -> np.ndarray:
    """A body of 16 joints that swings its limbs, in metres, y up: `(T, 1, 16, 3)`."""
    draw = np.random.default_rng(seed)
    rest = {
        "hip_center": (0, 1, 0), "spine": (0, 1.25, 0), "shoulder_center": (0, 1.5, 0), "head": (0, 1.7, 0),
        **{f"shoulder_{s}": (x, 1.45, 0) for s, x in (("left", 0.2), ("right", -0.2))},
        **{f"elbow_{s}": (x, 1.2, 0) for s, x in (("left", 0.25), ("right", -0.25))},
        **{f"wrist_{s}": (x, 0.95, 0.1) for s, x in (("left", 0.3), ("right", -0.3))},
        **{f"hip_{s}": (x, 0.95, 0) for s, x in (("left", 0.1), ("right", -0.1))},
        **{f"knee_{s}": (x, 0.5, 0.02) for s, x in (("left", 0.1), ("right", -0.1))},
        **{f"ankle_{s}": (x, 0.08, 0) for s, x in (("left", 0.1), ("right", -0.1))},
    }  # fmt: skip
    body = np.array([rest[joint] for joint in get_topology("body-16").joints], dtype=np.float64)
    time = np.arange(int(seconds * fps)) / fps
    speed, phase = draw.uniform(0.5, 2, (16, 3)), draw.uniform(0, 6, (16, 3))
    size = draw.uniform(0, 0.25, (16, 1)) * (body[:, 1:2] < 1.3)
    moves = size * np.sin(2 * np.pi * speed * time[:, None, None] + phase)
    return (body + moves)[:, None].astype(np.float32)


def test_a_shipped_encoder_opens_without_the_compiler_of_torch() -> None:
    count = (
        "import sys, halp; halp.load_encoder(sys.argv[1]); print(sum(n.startswith('torch._dynamo') for n in"
        " sys.modules))"
    )
    assert list_shipped().keys() >= {"halp-base", "halp-view"}
    for name in list_shipped():
        assert subprocess.run(
            [sys.executable, "-c", count, name], capture_output=True, check=True
        ).stdout.split() == [b"0"]


def features(encoder: PretrainedEncoder, clip: np.ndarray) -> np.ndarray:
    return halp.embed(encoder, [clip], progress=False)[0]


def likeness(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_the_package_is_whole_small_and_has_a_card(encoder: PretrainedEncoder) -> None:
    folder = list_shipped()["halp-base"]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 8e6
    config = json.loads((folder / "config.json").read_text())
    assert config["topology"]["name"] == "body-16"
    assert not any("/" in str(value) for value in config["provenance"].values())
    card = (folder / "README.md").read_text()
    assert all(word in card for word in ("CMU", "Recipe", "Metrics", "Limits"))
    assert encoder.output_size == config["features"]
    assert not encoder.training


@pytest.mark.parametrize("change", ["millimetres", "z up", "turned", "far away"])
def test_neither_unit_nor_axes_nor_place_matter(encoder: PretrainedEncoder, change: str) -> None:
    clip = walker()
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))
    changed = {
        "millimetres": clip * 1000,
        "z up": np.stack([clip[..., 0], -clip[..., 2], clip[..., 1]], -1),
        "turned": clip @ turn.T,
        "far away": clip + np.array([3.0, 0, -7]),
    }[change].astype(np.float32)
    np.testing.assert_allclose(features(encoder, changed), features(encoder, clip), atol=2e-3)


@pytest.mark.parametrize("fps", [10, 15, 60, 120])
def test_the_frame_rate_hardly_matters(encoder: PretrainedEncoder, fps: float) -> None:
    same = likeness(features(encoder, walker(fps=fps)), features(encoder, walker()))
    other = likeness(features(encoder, walker(seed=1)), features(encoder, walker()))
    assert same > 0.95
    assert same > other


@pytest.mark.parametrize("skeleton", SKELETONS, ids=[str(len(one)) for one in SKELETONS])
def test_any_body_skeleton_is_read_by_joint_names(encoder: PretrainedEncoder, skeleton: Topology) -> None:
    frames = np.random.default_rng(0).normal(size=(40, 1, len(skeleton), 3)).astype(np.float32)
    mapped = map_joints(frames, skeleton, encoder.topology)
    found = features(encoder, mapped)
    assert found.shape == (encoder.output_size,)
    assert np.isfinite(found).all()


def test_a_second_person_takes_part_and_an_absent_one_does_not(encoder: PretrainedEncoder) -> None:
    one, other = walker(), walker(seed=3)
    absent = np.concatenate([one, np.zeros_like(one)], 1)
    np.testing.assert_allclose(features(encoder, absent), features(encoder, one), atol=1e-5)
    both = np.concatenate([one, other + np.array([1, 0, 0], dtype=np.float32)], 1)
    assert likeness(features(encoder, both), features(encoder, one)) < 0.999


def test_a_hidden_joint_changes_features_less_than_another_movement(encoder: PretrainedEncoder) -> None:
    topology = encoder.topology
    ready = normalise(walker(), topology, encoder.normalisation)
    hidden = ready.copy()
    hidden[:, :, topology.index("wrist_left")] = 0
    other = normalise(walker(seed=1), topology, encoder.normalisation)
    with torch.no_grad():
        plain, less, far = (
            encoder(torch.from_numpy(x[:32])[None])[0].numpy() for x in (ready, hidden, other)
        )
    assert likeness(plain, less) > likeness(plain, far)


def test_search_and_groups_use_few_numbers_that_are_a_projection_of_the_vectors(
    encoder: PretrainedEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path))
    clips = [walker(seed=seed) for seed in range(4)]
    full = halp.embed_table(encoder, clips, progress=False)
    found = search(encoder, clips[1], clips, k=2, progress=False)
    assert full.vectors.shape[1] == encoder.output_size
    assert found.table.vectors.shape == (4, 256)
    assert found.table.folder != full.folder  # both are kept, each under its own key
    few = full.vectors @ encoder.projection["matrix"].float().numpy()
    np.testing.assert_allclose(found.table.vectors, few, atol=1e-3 * np.abs(few).max())
    assert found[0].recording == "clip-000001"
    assert cluster(encoder, clips, groups=2, progress=False).table.vectors.shape == (4, 256)


def test_an_exported_package_keeps_the_projection_and_refuses_one_that_is_damaged(
    encoder: PretrainedEncoder, tmp_path: Path
) -> None:
    package = export(encoder, tmp_path / "package")
    assert torch.equal(halp.load_encoder(package).projection["matrix"], encoder.projection["matrix"])
    projection = package / "compact.safetensors"
    projection.write_bytes(projection.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match=r"compact\.safetensors does not have the hash"):
        halp.load_encoder(package)
    config = json.loads((package / "config.json").read_text())
    del config["compact"]  # as packages of earlier versions are
    (package / "config.json").write_text(json.dumps(config))
    assert compacted(halp.load_encoder(package)).output_size == encoder.output_size
