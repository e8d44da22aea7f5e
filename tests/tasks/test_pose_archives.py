"""Motion-BIDS and NWB: what is written is what was recorded, and the validators of both find no error."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from halp.core.errors import InputError
from halp.skeleton import topology_for
from halp.tasks.pose_files import write_poses
from halp.tasks.pose_tracks import PoseTrack

NAMES = ["hip_left", "hip_right", "knee_left", "knee_right"]


def person(
    recording: str = "visit 1/walk", subject: str = "P-01", number: int = 0, dimensions: int = 3
) -> PoseTrack:
    rng = np.random.default_rng(number)
    joints = rng.normal(size=(20, 4, dimensions))
    joints[5, 1] = np.nan
    return PoseTrack(recording, number, joints, topology_for(NAMES, dimensions), 25.0, 0.0, subject)


def test_bids_has_every_position_with_its_channel(tmp_path: Path) -> None:
    people = [person(), person(number=1), person("visit 2/walk")]
    paths = write_poses(people, tmp_path / "set", "bids")
    assert [path.name for path in paths] == [
        "sub-P01_task-visit1walk_tracksys-pose_run-01_motion.tsv",
        "sub-P01p2_task-visit1walk_tracksys-pose_run-01_motion.tsv",
        "sub-P01_task-visit2walk_tracksys-pose_run-01_motion.tsv",
    ]
    rows = [line.split("\t") for line in paths[0].read_text().splitlines()]
    found = np.array([[np.nan if cell == "n/a" else float(cell) for cell in row] for row in rows]).reshape(
        20, 4, 3
    )
    np.testing.assert_allclose(found, people[0].joints, atol=1e-6)
    with open(str(paths[0]).replace("_motion.tsv", "_channels.tsv")) as file:
        channels = list(csv.DictReader(file, delimiter="\t"))
    assert [(c["name"], c["component"], c["tracked_point"], c["units"]) for c in channels[:2]] == [
        ("hip_left_x", "x", "hip_left", "m"),
        ("hip_left_y", "y", "hip_left", "m"),
    ]
    facts = json.loads(Path(str(paths[0]).replace(".tsv", ".json")).read_text())
    assert facts["SamplingFrequency"] == 25
    assert facts["MotionChannelCount"] == len(channels) == 12
    scans = (tmp_path / "set" / "sub-P01" / "sub-P01_scans.tsv").read_text()
    assert "visit 1/walk" in scans  # the name as it was
    with pytest.raises(InputError, match="holds a data set of BIDS already"):
        write_poses(people, tmp_path / "set", "bids")


def test_the_validator_of_bids_finds_no_error(tmp_path: Path) -> None:
    validator = shutil.which(os.environ.get("BIDS_VALIDATOR", "bids-validator-deno"))
    if validator is None:
        pytest.skip("bids-validator-deno is not installed; name it with BIDS_VALIDATOR")
    write_poses([person(), person("visit 2/walk"), person("b", "", dimensions=2)], tmp_path / "set", "bids")
    done = subprocess.run(
        [validator, "--json", str(tmp_path / "set")], capture_output=True, text=True, check=False
    )
    issues = json.loads(done.stdout)["issues"]["issues"]
    assert [issue for issue in issues if issue["severity"] == "error"] == []


@pytest.mark.parametrize("dimensions", [2, 3])
def test_nwb_holds_the_poses_and_is_valid(tmp_path: Path, dimensions: int) -> None:
    pynwb = pytest.importorskip("pynwb")
    pytest.importorskip("ndx_pose")
    poses = person(dimensions=dimensions)
    (path,) = write_poses([poses], tmp_path, "nwb")
    assert pynwb.validate(path=str(path)) in ([], ([], 0), ([], 1))
    with pynwb.NWBHDF5IO(str(path), "r") as file:
        read = file.read()
        estimation = read.processing["behavior"]["PoseEstimation"]
        for place, joint in enumerate(NAMES):
            series = estimation.pose_estimation_series[joint]
            np.testing.assert_allclose(series.data[:], poses.joints[:, place])
            assert series.rate == 25.0
        assert estimation.pose_estimation_series["hip_right"].confidence[5] == 0
        assert list(estimation.skeleton.nodes) == NAMES
        assert read.subject.subject_id == "P-01"
