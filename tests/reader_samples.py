"""Small files of every format, written to the formats' specifications; the tests of the readers share them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, get_reader
from halp.clips.readers.interchange import write_interchange
from halp.clips.readers.msraction3d import JOINTS as MSR_JOINTS
from halp.clips.readers.utdmhad import JOINTS as UTD_JOINTS
from halp.skeleton import KINECT_V1, get_topology

ROOT = Path(__file__).resolve().parent.parent
SETS = ("nw-ucla", "utd-mhad", "msr-action3d", "utkinect")


def body(frames: int = 2, joints: int = 20, dimensions: int = 3, seed: int = 0) -> np.ndarray:
    """Joints `(T, V, C)` with two decimals, none of them zero."""
    draw = np.random.default_rng(seed).integers(10, 99, (frames, joints, dimensions))
    return (draw / 100).astype(np.float32)


def shared(*parts: str) -> Path:
    """A file of the shared data, or the test is skipped with the reason."""
    path = Path(os.environ.get("HALP_SHARED", ROOT.parent / "shared"), *parts)
    if not path.exists():
        pytest.skip(f"shared data is not there ({'/'.join(parts)}); set HALP_SHARED to its folder")
    return path


def read_all(reader: str, source: Path) -> list[Clip | Dropped]:
    """Everything a reader finds in a source."""
    found = get_reader(reader)
    return [clip for item in found.items(source) for clip in found.read(item)]


def rounded(array: np.ndarray) -> list:
    """Nested lists whose numbers are the shortest that give the same float32."""
    return [rounded(part) for part in array] if array.ndim else float(str(array))


def write_nwucla(folder: Path, name: str = "a01_s01_e00_v01", joints: np.ndarray | None = None) -> Path:
    skeletons = rounded(body() if joints is None else joints)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"file_name": name, "skeletons": skeletons, "label": 1}))
    return path


def write_utdmhad(folder: Path, name: str = "a1_s1_t1", joints: np.ndarray | None = None, packed: bool = False) -> Path:
    """Joints `(T, 20, 3)` in the order of kinect-v1."""
    joints = body() if joints is None else joints
    order = [KINECT_V1.index(joint) for joint in UTD_JOINTS]
    path = folder / f"{name}_skeleton.mat"
    array = joints[:, order].transpose(1, 2, 0).astype(np.float64)
    scipy.io.savemat(path, {"d_skel": array}, do_compression=packed)
    return path


def write_msr(folder: Path, name: str = "a01_s01_e01", joints: np.ndarray | None = None, confidence: float = 1) -> Path:
    joints = body() if joints is None else joints
    order = [KINECT_V1.index(joint) for joint in MSR_JOINTS]
    lines = [f"{x} {y} {z} {confidence}" for frame in joints[:, order] for x, y, z in frame]
    path = folder / f"{name}_skeleton3D.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def write_utkinect(
    folder: Path,
    name: str = "s01_e01",
    joints: np.ndarray | None = None,
    segments: str = "walk: 11 12\ncarry: NaN NaN\n",
) -> Path:
    """Frames are numbered from 11; the label file lies beside the recording."""
    joints = body() if joints is None else joints
    lines = [" ".join([str(11 + t), *(str(value) for value in frame.ravel())]) for t, frame in enumerate(joints)]
    path = folder / f"joints_{name}.txt"
    path.write_text("\n".join(lines) + "\n")
    with open(folder / "actionLabel.txt", "a") as file:
        file.write(f"{name.replace('_', ' ')}\n{segments}")
    return path


def write_npz(folder: Path) -> Path:
    clips = [Clip(body(2, seed=i)[:, None], f"clip{i}", i, i + 1, 1, {"setup": 3}) for i in range(2)]
    write_interchange(clips, folder / "set.npz", topology=KINECT_V1, class_names=["walk", "run"])
    return folder / "set.npz"


def landmarks(frames: int = 2) -> list:
    """World landmarks of MediaPipe with visibility 0.9, as the Tasks API gives them: frames, persons, landmarks."""
    return [
        [[{**dict(zip("xyz", rounded(point))), "visibility": 0.9} for point in frame]] for frame in body(frames, 33)
    ]


def write_mediapipe(folder: Path, name: str = "wave") -> Path:
    frames = [
        {"pose_landmarks": [[{"x": 0.5, "y": 0.5, "z": 0.0}] * 33], "pose_world_landmarks": one} for one in landmarks()
    ]
    path = folder / f"{name}.json"
    path.write_text(json.dumps(frames, separators=(",", ":")))
    return path


def write_mediapipe_csv(folder: Path) -> Path:
    header = ["frame", *(f"{axis}{joint}" for joint in range(33) for axis in "xyzv")]
    rows = [
        [t, *(value for point in frame for value in (*map(str, point), 0.9))] for t, frame in enumerate(body(2, 33))
    ]
    path = folder / "wave.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n")
    return path


def write_openpose(folder: Path, frames: int = 2, joints: int = 25, people: int = 2, prefix: str = "walk_") -> Path:
    for t in range(frames):
        persons = []
        for one in range(people):
            points = 100 * body(1, joints, 2, seed=one)[0] + 1000 * one + 2 * t
            triples = [value for point in points for value in (*rounded(point), 0.8)]
            persons.append({"person_id": [-1], "pose_keypoints_2d": triples, "face_keypoints_2d": []})
        # Detectors give people in any order.
        text = json.dumps({"version": 1.3, "people": persons[:: 1 if t % 2 else -1]})
        (folder / f"{prefix}{t:012}_keypoints.json").write_text(text)
    return folder


def write_coco17(folder: Path, name: str = "walk") -> Path:
    """The video form of MMPose."""
    frames = [
        {"frame_id": t + 1, "instances": [{"keypoints": rounded(100 * frame), "keypoint_scores": [0.9] * 17}]}
        for t, frame in enumerate(body(2, 17, 2))
    ]
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"meta_info": {"dataset_name": "coco"}, "instance_info": frames}))
    return path


BVH = """HIERARCHY
ROOT Hips
{
  OFFSET 0 0 0
  CHANNELS 6 Xposition Yposition Zposition Zrotation Xrotation Yrotation
  JOINT LeftUpLeg
  {
    OFFSET 1 0 0
    CHANNELS 3 Zrotation Xrotation Yrotation
    JOINT LeftLeg
    {
      OFFSET 0 -2 0
      CHANNELS 3 Zrotation Xrotation Yrotation
      End Site
      {
        OFFSET 0 -2 0
      }
    }
  }
}
MOTION
Frames: 2
Frame Time: 0.0333333
0 10 0 0 0 0 0 0 0 0 0 0
5 10 0 90 0 0 90 0 0 0 0 0
"""


def write_bvh(folder: Path, name: str = "step") -> Path:
    path = folder / f"{name}.bvh"
    path.write_text(BVH)
    return path


def write_csv(folder: Path, topology: str = "coco-17", name: str = "table") -> Path:
    joints = get_topology(topology)
    axes = "xyz"[: joints.dimensions]
    lines = [f"clip,frame,person,joint,{','.join(axes)},score,label,subject,camera"]
    for clip, label in (("anna", "walk"), ("ben", "run")):
        for t, frame in enumerate(body(2, len(joints), joints.dimensions)):
            lines += [
                f"{clip},{t},0,{joint},{','.join(map(str, point))},0.9,{label},{7},{1}"
                for joint, point in zip(joints.joints, frame)
            ]
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


# What `prepare` would be given, by the name of the sample: (reader, function that writes it and returns the source).
SAMPLES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "nw-ucla": ("nw-ucla", write_nwucla),
    "utd-mhad": ("utd-mhad", write_utdmhad),
    "utd-mhad packed": ("utd-mhad", lambda folder: write_utdmhad(folder, packed=True)),
    "msr-action3d": ("msr-action3d", write_msr),
    "utkinect": ("utkinect", write_utkinect),
    "interchange": ("interchange", write_npz),
    "mediapipe": ("mediapipe", write_mediapipe),
    "mediapipe csv": ("mediapipe", write_mediapipe_csv),
    "openpose": ("openpose", lambda folder: write_openpose(folder, frames=1)),
    "coco17": ("coco17", write_coco17),
    "bvh": ("bvh", write_bvh),
    "csv": ("csv", write_csv),
}


def files_of(folder: Path) -> Sequence[Path]:
    """The files of a sample; the first is the one that the tests damage."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "actionLabel.txt")
