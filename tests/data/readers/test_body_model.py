"""Joints of a body model: against a loop over frames, joints and matrices, and the package smplx if it exists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from halp.core.errors import InputError
from halp.data.readers import get_reader, with_options
from halp.data.readers.body_model import model_joints

PARENTS = [-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21]  # those of SMPL


def write_model(path: Path, **changed: np.ndarray) -> Path:
    rng = np.random.default_rng(0)
    regressor = rng.uniform(size=(24, 40))
    arrays = {
        "v_template": rng.normal(size=(40, 3)),
        "shapedirs": rng.normal(size=(40, 3, 10)),
        "J_regressor": regressor / regressor.sum(1, keepdims=True),
        "kintree_table": np.array([[2**32 - 1, *PARENTS[1:]], range(24)], dtype=np.uint32),
        "weights": np.array([None]),  # other parts are not read
    }
    np.savez(path, **arrays | changed)
    return path


def parameters(frames: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    poses, trans = rng.normal(0, 0.8, (frames, 156)), rng.normal(size=(frames, 3))
    return {"poses": poses, "trans": trans, "betas": rng.normal(size=16), "mocap_framerate": np.array(60.0)}


def matrix(vector: np.ndarray) -> np.ndarray:
    """Rodrigues' formula."""
    angle = np.linalg.norm(vector)
    x, y, z = vector / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def slow_joints(model: Path, given: dict[str, np.ndarray]) -> np.ndarray:
    with np.load(model, allow_pickle=True) as parts:
        shaped = parts["v_template"] + parts["shapedirs"] @ given["betas"][:10]
        rest = parts["J_regressor"] @ shaped
    result = np.zeros((len(given["poses"]), 22, 3))
    for frame, pose in enumerate(given["poses"]):
        chain: list[np.ndarray] = []
        for joint in range(22):
            step = np.eye(4)
            step[:3, :3] = matrix(pose[3 * joint : 3 * joint + 3])
            step[:3, 3] = rest[joint] - (rest[PARENTS[joint]] if joint else 0)
            chain.append(chain[PARENTS[joint]] @ step if joint else step)
            result[frame, joint] = chain[-1][:3, 3] + given["trans"][frame]
    return result


def test_joints_are_those_of_chained_matrices(tmp_path: Path) -> None:
    model, given = write_model(tmp_path / "model.npz"), parameters()
    expected = slow_joints(model, given)
    np.testing.assert_allclose(model_joints(model, given, tmp_path), expected, atol=1e-10)
    apart = {"root_orient": given["poses"][:, :3], "pose_body": given["poses"][:, 3:66]}
    again = model_joints(model, apart | {name: given[name] for name in ("trans", "betas")}, tmp_path)
    np.testing.assert_allclose(again, expected, atol=1e-10)


def test_joints_are_those_of_smplx(tmp_path: Path) -> None:
    lbs = pytest.importorskip("smplx.lbs", reason="smplx is an oracle only and is not installed with halp")
    import torch

    model, given = write_model(tmp_path / "model.npz"), parameters()
    with np.load(model, allow_pickle=True) as parts:
        rest = parts["J_regressor"] @ (parts["v_template"] + parts["shapedirs"] @ given["betas"][:10])
    turns = lbs.batch_rodrigues(torch.from_numpy(given["poses"][:, :72].reshape(-1, 3))).view(-1, 24, 3, 3)
    start = torch.from_numpy(rest)[None].repeat(len(turns), 1, 1)
    posed, _ = lbs.batch_rigid_transform(turns, start, torch.tensor(PARENTS), dtype=torch.float64)
    expected = posed[:, :22].numpy() + given["trans"][:, None]
    np.testing.assert_allclose(model_joints(model, given, tmp_path), expected, atol=1e-6)


def test_a_file_of_parameters_is_read_with_the_model_of_the_user(tmp_path: Path) -> None:
    model, given = write_model(tmp_path / "model.npz"), parameters()
    np.savez(tmp_path / "walk_poses.npz", **given)
    reader = with_options(get_reader("amass"), {"body_model": str(model)})
    (clip,) = reader.read(next(iter(reader.items(tmp_path / "walk_poses.npz"))))
    x, y, z = slow_joints(model, given).transpose(2, 0, 1)
    np.testing.assert_allclose(clip.frames[:, 0], np.stack([x, z, -y], axis=-1), atol=1e-5)
    assert clip.fps == 60


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"J_regressor": np.zeros((24, 39))}, "lacks sound arrays"),
        ({"kintree_table": np.full((2, 24), 23)}, "lacks sound arrays"),
        ({"shapedirs": np.array([None])}, "Python objects"),
    ],
)
def test_a_file_that_is_not_a_body_model_is_refused(tmp_path: Path, changed, words: str) -> None:
    model = write_model(tmp_path / "model.npz", **changed)
    with pytest.raises(InputError, match=words):
        model_joints(model, parameters(), tmp_path)
    with pytest.raises(InputError, match=r"none\.npz"):
        model_joints(tmp_path / "none.npz", parameters(), tmp_path)
    with pytest.raises(InputError, match="poses are of shape"):
        model_joints(write_model(model), parameters() | {"poses": np.zeros((3, 9))}, tmp_path)
