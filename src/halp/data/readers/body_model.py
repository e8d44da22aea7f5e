"""Joints of a body model of the SMPL family from its parameters; the file of the model is the user's own.

SMPL, SMPL-H and SMPL-X have the same first 22 joints. Their files (`.npz`) may not be shipped; of them the
template, the directions of shape, the joint regressor and the parents are read, and nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.data.readers.archives import load_npz
from halp.data.source_files import remembered
from halp.data.text_files import as_floats, problem

JOINTS = 22
_PARTS = ("v_template", "shapedirs", "J_regressor", "kintree_table")
Arrays = Mapping[str, npt.NDArray[Any]]


@remembered()
def _model(path: Path) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], list[int]]:
    """Joints of the mean shape `(22, 3)`, what a unit of each shape adds `(22, 3, B)`, and parents."""
    found = load_npz(path, *_PARTS)
    shapes = {name: found[name].shape for name in _PARTS if name in found}
    vertices = len(found["v_template"]) if "v_template" in found else 0
    sound = len(shapes) == len(_PARTS) and vertices and shapes["v_template"] == (vertices, 3)
    sound = sound and shapes["shapedirs"][:2] == (vertices, 3) and len(shapes["shapedirs"]) == 3
    sound = sound and len(shapes["J_regressor"]) == 2 and shapes["J_regressor"][1] == vertices
    sound = sound and min(shapes["J_regressor"][0], shapes["kintree_table"][-1]) >= JOINTS
    parents = found["kintree_table"][0, :JOINTS].astype(np.int64).tolist() if sound else []
    if not sound or any(not 0 <= parent < child for child, parent in enumerate(parents) if child):
        fault = f"it lacks sound arrays {', '.join(_PARTS)} (their shapes: {shapes})"
        raise problem(path, "", fault, "give the .npz file of SMPL, SMPL-H or SMPL-X")
    regressor = as_floats(found["J_regressor"][:JOINTS]).astype(np.float64)
    mean, directions = (as_floats(found[name]).astype(np.float64) for name in ("v_template", "shapedirs"))
    return regressor @ mean, np.einsum("jv,vcb->jcb", regressor, directions), parents


def model_joints(model: Path, arrays: Arrays, path: Path) -> npt.NDArray[np.float64]:
    """The first 22 joints `(T, 22, 3)` of a file of parameters (poses or root_orient and pose_body, betas,
    trans).
    """
    from scipy.spatial.transform import Rotation

    mean, directions, parents = _model(model)
    if "poses" in arrays:
        angles = arrays["poses"]
    elif {"root_orient", "pose_body"} <= arrays.keys():
        angles = np.concatenate([arrays["root_orient"], arrays["pose_body"]], axis=1)
    else:
        raise problem(path, "", "it has neither poses nor root_orient and pose_body", "fetch it again")
    betas = as_floats(arrays.get("betas", np.zeros(0))).astype(np.float64).ravel()
    trans = as_floats(arrays.get("trans", np.zeros((len(angles), 3))))
    if angles.ndim != 2 or angles.shape[1] < 3 * JOINTS or trans.shape != (len(angles), 3) or not len(angles):
        fault = f"poses are of shape {angles.shape} and trans of shape {trans.shape}"
        raise problem(path, "", fault, f"expected (frames, {3 * JOINTS} or more) and (frames, 3)")
    count = min(len(betas), directions.shape[2])
    rest = mean + directions[..., :count] @ betas[:count]
    vectors = as_floats(angles[:, : 3 * JOINTS]).astype(np.float64).reshape(-1, 3)
    turns = Rotation.from_rotvec(vectors).as_matrix().reshape(len(angles), JOINTS, 3, 3)
    joints = np.tile(rest, (len(angles), 1, 1))
    for child, parent in enumerate(parents[1:], start=1):
        joints[:, child] = joints[:, parent] + turns[:, parent] @ (rest[child] - rest[parent])
        turns[:, child] = turns[:, parent] @ turns[:, child]
    return joints + trans[:, None]
