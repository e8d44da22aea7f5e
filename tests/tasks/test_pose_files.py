"""Poses written as TRC, BVH and netCDF are read back by the readers of these formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from halp.core.errors import InputError
from halp.features.opening import open_source
from halp.skeleton import KINECT_V2, get_topology
from halp.tasks.pose_files import write_poses
from halp.tasks.pose_tracks import PoseTrack


def moving_body(frames: int = 40) -> PoseTrack:
    """A tree of rigid bones that turn smoothly about their joints."""
    rng = np.random.default_rng(0)
    offsets = 0.3 * rng.normal(size=(25, 3))
    time = np.linspace(0, 2 * np.pi, frames)
    joints, turns = np.zeros((frames, 25, 3)), np.zeros((25, frames, 3, 3))
    order = [joint for joint, parent in enumerate(KINECT_V2.parents) if joint == parent]
    for joint in order:
        order += [child for child, parent in KINECT_V2.bones if parent == joint]
        parent, swing = KINECT_V2.parents[joint], rng.normal(size=3)
        own = Rotation.from_rotvec(0.6 * np.sin(time + rng.uniform(0, 6))[:, None] * swing).as_matrix()
        turns[joint] = own if joint == parent else turns[parent] @ own
        if joint == parent:
            joints[:, joint] = np.stack([0.2 * np.sin(time), 1 + 0 * time, 3 + 0.1 * np.cos(time)], axis=1)
        else:
            joints[:, joint] = joints[:, parent] + turns[parent] @ offsets[joint]
    return PoseTrack("kick", 0, joints, KINECT_V2, 30.0)


@pytest.mark.parametrize("format", ["trc", "bvh", "nc"])
def test_written_poses_are_read_back(format: str, tmp_path: Path) -> None:
    poses = moving_body()
    (path,) = write_poses([poses], tmp_path, format)
    assert path.name == f"kick.{format}"
    ((clip, _),) = list(open_source(path).read())
    assert clip.fps == pytest.approx(30.0, rel=1e-4)
    topology = open_source(path).topology
    order = [topology.joints.index(joint) for joint in KINECT_V2.joints]
    np.testing.assert_allclose(clip.frames[:, 0, order], poses.joints, atol=1e-3)


def test_missing_markers_stay_missing_in_trc(tmp_path: Path) -> None:
    poses = moving_body()
    poses.joints[5, 3] = np.nan
    (path,) = write_poses([poses], tmp_path, "trc")
    ((clip, _),) = list(open_source(path).read())
    assert (clip.frames[5, 0, open_source(path).topology.index("head")] == 0).all()


def test_poses_that_a_format_cannot_hold_are_refused(tmp_path: Path) -> None:
    flat = PoseTrack("a", 0, np.ones((3, 17, 2)), get_topology("coco-17"), 30.0)
    with pytest.raises(InputError, match="has poses of two dimensions; bvh needs three"):
        write_poses([flat], tmp_path, "bvh")
    with pytest.raises(InputError, match="unknown format of poses 'fbx'"):
        write_poses([moving_body()], tmp_path, "fbx")
    with pytest.raises(InputError, match=r"two recordings would be called 'kick.trc'"):
        write_poses([moving_body(), moving_body()], tmp_path, "trc")


def test_movement_gets_a_data_set_with_its_own_names(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    flat = PoseTrack("walk", 1, np.arange(102.0).reshape(3, 17, 2), get_topology("coco-17"), 25.0, start=2.0)
    flat.joints[1, 4] = np.nan
    (path,) = write_poses([flat], tmp_path, "nc")
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        assert data.position.dims == ("time", "space", "keypoints", "individuals")
        assert data.attrs["ds_type"] == "poses"
        assert data.attrs["fps"] == 25.0
        person = data.position.sel(individuals="person2")
        np.testing.assert_allclose(data.time, [2.0, 2.04, 2.08])
        np.testing.assert_array_equal(person.transpose("time", "keypoints", "space"), flat.joints)
        assert float(person.sel(keypoints="nose", space="y")[2]) == 69.0
