"""A topology of one's own is a small TOML file, and what is wrong in it is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reader_samples import write_deeplabcut

from halp.core.errors import InputError
from halp.data.ingest.prepare import prepare
from halp.data.store import open_store
from halp.data.topology_file import find_topology, read_topology
from halp.skeleton import KINECT_V1

RAT = """
name = "rat"
dimensions = 2
joints = ["nose", "left hip", "right hip"]
bones = [["nose", "left hip"], ["right hip", "left hip"]]
centre = "left hip"
"""


def test_a_file_describes_joints_bones_and_centre(tmp_path: Path) -> None:
    (tmp_path / "rat.toml").write_text(RAT)
    rat = find_topology(str(tmp_path / "rat.toml"))
    assert (rat.name, rat.joints, rat.parents) == ("rat", ("nose", "hip_left", "hip_right"), (1, 1, 1))
    assert (rat.centre, rat.dimensions, rat.up) == ("hip_left", 2, None)
    assert find_topology("kinect-v1") == find_topology(KINECT_V1) == KINECT_V1


def test_clips_are_mapped_onto_it_and_arrays_take_it(tmp_path: Path) -> None:
    (tmp_path / "rat.toml").write_text(RAT)
    (tmp_path / "own").mkdir()
    write_deeplabcut(tmp_path / "own")
    prepare("auto", tmp_path / "own", tmp_path / "store", topology=str(tmp_path / "rat.toml"), progress=False)
    store = open_store(tmp_path / "store")
    assert store.topology.name == "rat"
    assert not store.clip(0)[:, 0, 1].any()
    np.save(tmp_path / "a.npy", np.ones((4, 3, 2)))
    options = {"topology": str(tmp_path / "rat.toml")}
    prepare(
        "auto", tmp_path / "a.npy", tmp_path / "arrays", options=options, normalisation=(), progress=False
    )
    assert open_store(tmp_path / "arrays").topology.joints == ("nose", "hip_left", "hip_right")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("dimensions = 2", "dimensions = 4"), "2 or 3"),
        (('"nose", "left hip"', '"nose", "nose"'), "different joint names"),
        (('["nose", "left hip"]', '["nose", "tail"]'), "unknown joint in 'bones'"),
        (('["right hip", "left hip"]', '["nose", "right hip"]'), "two parents"),
        (('["right hip", "left hip"]', '["left hip", "nose"]'), "loop"),
        (("centre", "center"), "did you mean 'centre'"),
        (("bones = [[", "bones = [[["), "not TOML"),
        (('name = "rat"', 'up = ["nose"]'), "pair of joints"),
        (('joints = ["nose", "left hip", "right hip"]', "joints = []"), "list of different joint names"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "rat.toml").write_text(RAT.replace(*change, 1))
    with pytest.raises(InputError, match=message):
        read_topology(tmp_path / "rat.toml")


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        find_topology(str(tmp_path / "none.toml"))


def test_a_file_of_far_too_many_joints_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "many.toml").write_text(
        "joints = [" + ", ".join(f'"j{number}"' for number in range(90_000)) + "]"
    )
    with pytest.raises(InputError, match="names more than 500 joints"):
        read_topology(tmp_path / "many.toml")
