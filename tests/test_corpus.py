"""The CMU corpus from a small raw folder, and the MiniRocket baseline against a loop."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.minirocket import KERNELS, MiniRocket, _responses
from halp.core.errors import InputError
from halp.data.store import open_store

JOINTS = [
    ("Hips", ""), ("LeftUpLeg", "Hips"), ("LeftLeg", "LeftUpLeg"), ("LeftFoot", "LeftLeg"), ("RightUpLeg", "Hips"),
    ("RightLeg", "RightUpLeg"), ("RightFoot", "RightLeg"), ("Spine", "Hips"), ("Head", "Spine"), ("LeftArm", "Spine"),
    ("LeftForeArm", "LeftArm"), ("LeftHand", "LeftForeArm"), ("RightArm", "Spine"), ("RightForeArm", "RightArm"),
    ("RightHand", "RightForeArm"),
]  # fmt: skip


def _bones(parent: str, draw: np.random.Generator) -> list[str]:
    lines = []
    for name, above in JOINTS:
        if above == parent:
            offset = " ".join(f"{value:.3f}" for value in draw.uniform(1, 5, 3))
            kind = "JOINT" if parent else "ROOT"
            channels = "CHANNELS 3 Zrotation Yrotation Xrotation"
            lines += [f"{kind} {name}", "{", f"OFFSET {offset}", channels, *_bones(name, draw), "}"]
    return lines


def recording(path: Path, frames: int) -> None:
    draw = np.random.default_rng(0)
    values = draw.uniform(-20, 20, (frames, 3 * len(JOINTS)))
    head = ["HIERARCHY", *_bones("", draw), "MOTION", f"Frames: {frames}", "Frame Time: .0083333"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*head, *(" ".join(f"{value:.4f}" for value in row) for row in values)]) + "\n")


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    recording(folder / "data" / "002" / "02_01.bvh", 600)  # 5 s
    recording(folder / "data" / "002" / "02_02.bvh", 40)  # a third of a second
    recording(folder / "data" / "010" / "10_01.bvh", 300)
    (folder / "cmu-mocap-index-text.txt").write_text("Subject #2\n\n02_01\twalk\n02_02\trun/jog\n10_01\twalk, jump\n")
    return folder


def test_the_store_has_windows_with_labels_subjects_and_a_split(raw: Path, tmp_path: Path) -> None:
    found = corpus.build(raw, tmp_path / "store", seconds=2.0, stride=1.0, progress=False)
    store = open_store(tmp_path / "store")
    assert store.names.tolist() == ["02_01@0.00", "02_01@1.00", "02_01@2.00", "02_01@3.00", "10_01@0.00"]
    assert store.lengths.tolist() == [60] * 5
    assert store.topology.name == "body-16"
    classes = [store.class_names[label] if label >= 0 else None for label in store.labels]
    assert classes == ["walk"] * 4 + [None]
    assert store.subjects.tolist() == [2] * 4 + [10]
    assert (found["recordings"], found["windows"], found["too_short"], found["problems"]) == (3, 5, 1, [])
    # centred on the hips, and bones of mean length 1
    frames = store.clip(0)
    assert np.abs(frames[:, 0, store.topology.index("hip_center")]).max() < 1e-5
    bones = [
        np.median(np.linalg.norm(frames[:, 0, child] - frames[:, 0, parent], axis=1))
        for child, parent in store.topology.bones
    ]
    assert np.mean(bones) == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_training_parts_of_the_kinect_sets_are_added_and_never_tested_on(
    raw: Path, tmp_path: Path, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert corpus.main([str(raw), str(tmp_path / "store"), "--window", "2", "--kinect"]) == 0
    found, store = json.loads(capsys.readouterr().out), open_store(tmp_path / "store")
    added = np.array(["/" in name for name in store.names])
    assert found["kinect_clips"] == added.sum() > 1000
    assert (store.labels[added] == -1).all()
    train, test = store.split("xsub")
    assert added[train].sum() == added.sum()
    assert not added[test].any()
    sets = {name.split("/")[0] for name in store.names[added]}
    assert sets == {"nw-ucla", "utd-mhad", "msr-action3d", "utkinect"}
    odd = [subject for subject in store.subjects[added] if 2000 < subject < 4000]  # UTD-MHAD and MSR-Action3D
    assert all(subject % 2 for subject in odd)
    assert json.loads((corpus.RESULTS / "corpus.json").read_text())["windows"] > 10_000  # the record is of CMU alone


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "raw").mkdir()
    assert corpus.main([str(tmp_path / "raw"), str(tmp_path / "store")]) == 2
    assert "index" in capsys.readouterr().err


def test_a_file_without_a_subject_in_its_name_is_refused(raw: Path, tmp_path: Path) -> None:
    recording(raw / "data" / "walk.bvh", 100)
    with pytest.raises(InputError, match="its subject is not known"):
        corpus.build(raw, tmp_path / "store", seconds=2.0, stride=2.0, progress=False)


@pytest.mark.parametrize(("dilation", "kernel"), [(1, 0), (2, 41), (3, 83)])
def test_responses_of_minirocket_are_those_of_a_loop(dilation: int, kernel: int) -> None:
    series = np.random.default_rng(0).normal(size=(3, 4, 30)).astype(np.float32)
    channels = np.array([1, 3])
    weights = [2.0 if place in KERNELS[kernel] else -1.0 for place in range(9)]
    slow = np.zeros((3, 30))
    for clip in range(3):
        for t in range(30):
            for place in range(9):
                at = t + (place - 4) * dilation
                if 0 <= at < 30:
                    slow[clip, t] += weights[place] * sum(series[clip, channel, at] for channel in channels)
    np.testing.assert_allclose(_responses(series, dilation, kernel, channels), slow, atol=1e-4)


def test_minirocket_tells_series_apart_that_differ_in_tempo_only() -> None:
    draw, time = np.random.default_rng(0), np.arange(40)
    tempo = np.repeat([0.3, 0.9], 30)
    series = np.sin(tempo[:, None] * time + draw.uniform(0, 6, (60, 1)))[:, None] + draw.normal(size=(60, 1, 40)) * 0.1
    series = series.astype(np.float32)
    features = MiniRocket(count=840).fit(series).transform(series)
    assert features.shape[0] == 60
    assert features.min() >= 0
    assert features.max() <= 1
    centres = [features[::2][:15].mean(0), features[::2][15:].mean(0)]
    nearer = np.linalg.norm(features[1::2] - centres[1], axis=1) < np.linalg.norm(features[1::2] - centres[0], axis=1)
    assert (nearer == (tempo[1::2] > 0.5)).all()
