"""Small files of every format, written to the formats' specifications; the tests of the readers share
them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from clip_samples import skeleton_text
from interchange_samples import write_interchange

from halp.data.clip import Clip
from halp.data.readers import Dropped, get_reader, with_options
from halp.data.readers.kinect_sets import MSR_JOINTS, UTD_JOINTS
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
    found = with_options(get_reader(reader), OPTIONS.get(reader, {}))
    return [clip for item in found.items(source) for clip in found.read(item)]


def rounded(array: np.ndarray) -> list:
    """Nested lists whose numbers are the shortest that give the same float32."""
    return [rounded(part) for part in array] if array.ndim else float(str(array))


def write_nwucla(folder: Path, name: str = "a01_s01_e00_v01", joints: np.ndarray | None = None) -> Path:
    skeletons = rounded(body() if joints is None else joints)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"file_name": name, "skeletons": skeletons, "label": 1}))
    return path


def write_utdmhad(
    folder: Path, name: str = "a1_s1_t1", joints: np.ndarray | None = None, packed: bool = False
) -> Path:
    """Joints `(T, 20, 3)` in the order of kinect-v1."""
    joints = body() if joints is None else joints
    order = [KINECT_V1.index(joint) for joint in UTD_JOINTS]
    path = folder / f"{name}_skeleton.mat"
    array = joints[:, order].transpose(1, 2, 0).astype(np.float64)
    scipy.io.savemat(path, {"d_skel": array}, do_compression=packed)
    return path


def write_msr(
    folder: Path, name: str = "a01_s01_e01", joints: np.ndarray | None = None, confidence: float = 1
) -> Path:
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
    lines = [
        " ".join([str(11 + t), *(str(value) for value in frame.ravel())]) for t, frame in enumerate(joints)
    ]
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
    """World landmarks of MediaPipe with visibility 0.9, as the Tasks API gives them: frames, persons,
    landmarks.
    """
    return [
        [[{**dict(zip("xyz", rounded(point))), "visibility": 0.9} for point in frame]]
        for frame in body(frames, 33)
    ]


def write_mediapipe(folder: Path, name: str = "wave") -> Path:
    frames = [
        {"pose_landmarks": [[{"x": 0.5, "y": 0.5, "z": 0.0}] * 33], "pose_world_landmarks": one}
        for one in landmarks()
    ]
    path = folder / f"{name}.json"
    path.write_text(json.dumps(frames, separators=(",", ":")))
    return path


def write_mediapipe_csv(folder: Path) -> Path:
    header = ["frame", *(f"{axis}{joint}" for joint in range(33) for axis in "xyzv")]
    rows = [
        [t, *(value for point in frame for value in (*map(str, point), 0.9))]
        for t, frame in enumerate(body(2, 33))
    ]
    path = folder / "wave.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n")
    return path


def write_openpose(
    folder: Path, frames: int = 2, joints: int = 25, people: int = 2, prefix: str = "walk_"
) -> Path:
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


def write_deeplabcut(folder: Path, people: int = 1) -> Path:
    """Three or four header lines, as pandas writes them."""
    parts = [(who, joint) for who in ("anna", "ben")[:people] for joint in ("nose", "left_hip", "right_hip")]
    cells = [(who, joint, axis) for who, joint in parts for axis in ("x", "y", "likelihood")]
    head = [["scorer", *("DLC_resnet50" for _ in cells)]]
    head += [["individuals", *(who for who, _, _ in cells)]] if people > 1 else []
    head += [["bodyparts", *(joint for _, joint, _ in cells)], ["coords", *(axis for *_, axis in cells)]]
    points = 100 * body(2, len(parts), 2)
    rows = [[str(t), *(f"{v:g}" for point in frame for v in (*point, 0.9))] for t, frame in enumerate(points)]
    path = folder / "mouseDLC_resnet50.csv"
    path.write_text("\n".join(",".join(row) for row in [*head, *rows]) + "\n")
    return path


def write_deeplabcut_h5(folder: Path) -> Path:
    """The table layout of pandas, written by hand: a compound table and the pickled names of its columns."""
    import h5py

    columns = [("DLC", joint, axis) for joint in ("nose", "left_hip") for axis in ("x", "y", "likelihood")]
    names = "(lp0\n" + "".join("(" + "".join(f"V{word}\np{9 * i + j + 1}\n" for j, word in enumerate(column)) + "ta"
                              for i, column in enumerate(columns)) + "."  # fmt: skip
    table = np.zeros(2, [("index", "<i8"), ("values_block_0", "<f8", (6,))])
    table["values_block_0"] = body(2, 6, 1)[..., 0] * 100
    path = folder / "mouse.h5"
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("df_with_missing/table", data=table)
        stored.attrs["values_block_0_kind"] = np.bytes_(names.encode())
    return path


def write_sleap_h5(folder: Path) -> Path:
    import h5py

    path = folder / "fly.analysis.h5"
    with h5py.File(path, "w") as file:
        file["tracks"] = 100 * body(2, 3, 2).transpose(2, 1, 0)[None].astype(np.float64)
        file["node_names"] = np.array([b"head", b"thorax", b"abdomen"])
        file["edge_inds"] = np.array([[1, 0], [1, 2]])
    return path


def write_sleap_csv(folder: Path) -> Path:
    lines = ["track,frame_idx,instance.score,head.x,head.y,head.score,tail.x,tail.y,tail.score"]
    lines += [
        f"{who},{t},0.9,{10 + t},{20 + t},0.8,{30 + t},{40 + t},0.7" for t in range(2) for who in ("a", "b")
    ]
    path = folder / "fly.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def write_movement(folder: Path) -> Path:
    import h5py

    path = folder / "mouse.nc"
    with h5py.File(path, "w") as file:
        file["position"] = 100 * body(2, 3, 2).transpose(0, 2, 1)[..., None].astype(np.float64)
        file["confidence"] = np.full((2, 3, 1), 0.9)
        file["keypoints"] = ["nose", "left_hip", "tail"]
        file["individuals"] = ["id_0"]
        file["space"] = ["x", "y"]
        file.attrs["fps"] = 25.0
    return path


def write_trc(folder: Path) -> Path:
    joints = ["Neck", "RKnee", "LKnee"]
    points = 1000 * body(2, 3)
    lines = [
        "PathFileType\t4\t(X/Y/Z)\twalk.trc",
        "DataRate\tCameraRate\tNumFrames\tNumMarkers\tUnits\tOrigDataRate\tOrigDataStartFrame\tOrigNumFrames",
        "100.00\t100.00\t2\t3\tmm\t100.00\t1\t2",
        "Frame#\tTime\t" + "\t\t\t".join(joints),
        "\t\t" + "\t".join(f"{axis}{number}" for number in (1, 2, 3) for axis in "XYZ"),
        *(
            "\t".join([str(t + 1), f"{t / 100:g}", *(f"{v:g}" for v in frame.ravel())])
            for t, frame in enumerate(points)
        ),
    ]
    path = folder / "walk.trc"
    path.write_text("\n".join(lines) + "\n")
    return path


def write_azure(folder: Path, people: int = 1) -> Path:
    points = 1000 * body(2, 32)
    frames = [
        {
            "bodies": [
                {"body_id": one, "joint_positions": rounded(frame + 5000 * one)} for one in range(people)
            ],
            "frame_id": t,
            "num_bodies": people,
            "timestamp_usec": 1_000_000 + 33_333 * t,
        }
        for t, frame in enumerate(points)
    ]
    path = folder / "walk.json"
    path.write_text(json.dumps({"bone_list": [], "frames": frames}))
    return path


def write_rokoko(folder: Path) -> Path:
    names = ["hip", "spine", "head", "leftUpperArm", "leftLowerArm", "leftHand"]
    frames = [
        {"fps": 60, "scene": {"timestamp": t / 60, "actors": [{"name": "anna", "body": {
            name: {"position": dict(zip("xyz", place)), "rotation": {"x": 0, "y": 0, "z": 0, "w": 1}}
            for name, place in zip(names, rounded(frame))
        }}]}}
        for t, frame in enumerate(body(3, len(names)))
    ]  # fmt: skip
    path = folder / "take.json"
    path.write_text(json.dumps(frames))
    return path


def write_skeleton(folder: Path) -> Path:
    path = folder / "wave_anna.skeleton"
    path.write_text(skeleton_text(body(3, 25)[:, None]))
    return path


def write_mvnx(folder: Path) -> Path:
    segments = ["Pelvis", "Head", "RightUpperLeg"]
    frames = "".join(
        f'<frame time="{t}" type="normal"><orientation>1 0 0 0</orientation><position>'
        + " ".join(f"{v:g}" for v in frame.ravel())
        + "</position></frame>"
        for t, frame in enumerate(body(2, 3))
    )
    names = "".join(f'<segment label="{name}" id="{number + 1}"/>' for number, name in enumerate(segments))
    path = folder / "walk.mvnx"
    path.write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<mvnx version="4"><subject label="a" frameRate="60"'
        f' segmentCount="3"><segments>{names}</segments>\n<frames><frame type="identity"><position>0 0'
        f" 0</position></frame>\n{frames}</frames></subject></mvnx>\n"
    )
    return path


def write_yolo(folder: Path, frames: int = 1) -> Path:
    for t, frame in enumerate(body(frames, 17, 2)):
        numbers = [0, 0.5, 0.5, 0.2, 0.8, *(v for point in frame for v in (*rounded(point), 0.9))]
        (folder / f"walk_{t + 1}.txt").write_text(" ".join(map(str, numbers)) + "\n")
    return folder


def write_csv_wide(folder: Path) -> Path:
    joints = ("Hips", "LeftUpLeg", "LeftLeg")
    header = [
        "Timestamp",
        *(f"{joint}_position_{axis}" for joint in joints for axis in "xyz"),
        "Hips_rotation_x",
    ]
    rows = [[f"{t / 50:g}", *(f"{v:g}" for v in frame.ravel()), "0.5"] for t, frame in enumerate(body(4, 3))]
    path = folder / "take.csv"
    path.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    return path


def write_array(folder: Path) -> Path:
    np.save(folder / "wave.npy", body(2, 20))
    return folder / "wave.npy"


def write_json_lines(folder: Path) -> Path:
    path = folder / "wave.jsonl"
    path.write_text("\n".join(json.dumps({"joints": rounded(frame)}) for frame in body(2, 20)) + "\n")
    return path


def c3d_parameter(
    group: int, name: str, kind: int, shape: list[int], data: bytes, last: bool = False
) -> bytes:
    """A parameter of a C3D file: link, type, axes and values."""
    content = struct.pack("bB", kind, len(shape)) + bytes(shape) + data + b"\0"
    link = struct.pack("<h", 0 if last else len(content) + 2)
    return struct.pack("bb", len(name), group) + name.encode() + link + content


def write_c3d(folder: Path, integers: bool = False, frames: int = 2) -> Path:
    """Header, parameters and points of a C3D file, three markers in millimetres with z up."""
    points = 1000 * body(frames, 3)

    labels = b"".join(label.ljust(4).encode() for label in ("LKNE", "RKNE", "HEAD"))
    scale = 0.1 if integers else -0.1
    section = b"".join(
        [
            struct.pack("bb", 5, -1) + b"POINT" + struct.pack("<h", 3) + b"\0",
            c3d_parameter(1, "USED", 2, [], struct.pack("<h", 3)),
            c3d_parameter(1, "SCALE", 4, [], struct.pack("<f", scale)),
            c3d_parameter(1, "RATE", 4, [], struct.pack("<f", 120.0)),
            c3d_parameter(1, "UNITS", -1, [2], b"mm"),
            c3d_parameter(1, "Y_SCREEN", -1, [2], b"+Z"),
            c3d_parameter(1, "LABELS", -1, [4, 3], labels, last=True),
        ]
    )
    section = (b"\1\x50" + bytes([1, 84]) + section).ljust(512, b"\0")
    header = struct.pack("<BBHHHHHfHHf", 2, 0x50, 3, 0, 1, frames, 0, scale, 3, 0, 120.0).ljust(512, b"\0")
    values = np.concatenate([points / (0.1 if integers else 1), np.zeros((frames, 3, 1))], axis=2)
    data = np.round(values).astype("<i2") if integers else values.astype("<f4")
    path = folder / "walk.c3d"
    path.write_bytes(header + section + data.tobytes())
    return path


def write_c3d_segments(folder: Path) -> Path:
    """A C3D file without points, with the matrices of three segments in two frames, z up."""
    matrices = np.zeros((2, 3, 17), dtype="<f4")
    matrices[..., [0, 5, 10, 15]] = 1
    matrices[..., 12:15] = 1000 * body(2, 3)
    matrices[1, 2, 16] = -1  # not seen
    labels = b"".join(label.ljust(13).encode() for label in ("worldbody_4X4", "l_thigh_4X4", "l_shank_4X4"))
    section = b"".join(
        [
            struct.pack("bb", 5, -1) + b"POINT" + struct.pack("<h", 3) + b"\0",
            struct.pack("bb", 8, -2) + b"ROTATION" + struct.pack("<h", 3) + b"\0",
            c3d_parameter(1, "USED", 2, [], struct.pack("<h", 0)),
            c3d_parameter(1, "SCALE", 4, [], struct.pack("<f", -1)),
            c3d_parameter(1, "UNITS", -1, [2], b"mm"),
            c3d_parameter(2, "USED", 2, [], struct.pack("<h", 3)),
            c3d_parameter(2, "RATE", 4, [], struct.pack("<f", 85.0)),
            c3d_parameter(2, "DATA_START", 2, [], struct.pack("<h", 3)),
            c3d_parameter(2, "LABELS", -1, [13, 3], labels, last=True),
        ]
    )
    section = (b"\1\x50" + bytes([1, 84]) + section).ljust(512, b"\0")
    header = struct.pack("<BBHHHHHfHHf", 2, 0x50, 0, 0, 1, 2, 0, -1.0, 3, 0, 85.0).ljust(512, b"\0")
    (folder / "theia.c3d").write_bytes(header + section + matrices.tobytes())
    return folder / "theia.c3d"


def write_h36m(folder: Path) -> Path:
    positions = {"S1": {"Walking 1": body(2, 32), "Walking 2": body(2, 32)}, "S9": {"Sitting": body(2, 32)}}
    np.savez(folder / "data_3d_h36m.npz", positions_3d=np.array(positions, dtype=object))
    return folder / "data_3d_h36m.npz"


def write_amass(folder: Path, joints: bool = True) -> Path:
    arrays = {
        "poses": np.zeros((2, 156)),
        "trans": np.zeros((2, 3)),
        "betas": np.zeros(16),
        "mocap_framerate": np.array(120.0),
    }
    np.savez(folder / "walk_poses.npz", **(arrays | ({"joints": body(2, 24)} if joints else {})))
    return folder / "walk_poses.npz"


def write_freemocap(folder: Path) -> Path:
    (folder / "output_data").mkdir(parents=True, exist_ok=True)
    np.save(folder / "output_data" / "mediapipe_body_3d_xyz.npy", 1000.0 * body(2, 33))
    return folder / "output_data" / "mediapipe_body_3d_xyz.npy"


def write_mediapipe_names(folder: Path) -> Path:
    """Frames by number, landmarks by name."""
    names = [joint.upper() for joint in get_topology("mediapipe-33").joints]
    names = [
        "_".join([name.split("_")[-1], *name.split("_")[:-1]]) if name.endswith(("LEFT", "RIGHT")) else name
        for name in names
    ]
    frames = {
        str(t): {
            name: {**dict(zip("xyz", rounded(point))), "visibility": 0.9} for name, point in zip(names, frame)
        }
        for t, frame in enumerate(body(2, 33))
    }
    path = folder / "wave.json"
    path.write_text(json.dumps(frames))
    return path


def write_tutorial_csv(folder: Path) -> Path:
    """The popular tutorial's table: a class in every row, then x, y, z and visibility of landmarks 1 to
    33.
    """
    header = ["class", *(f"{axis}{number}" for number in range(1, 34) for axis in "xyzv")]
    rows = [
        [label, *(f"{v:g}" for point in frame for v in (*point, 0.9))]
        for label, seed in (("happy", 0), ("sad", 1))
        for frame in body(4, 33, seed=seed)
    ]
    path = folder / "coords.csv"
    path.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    return path


# What `prepare` would be given, by the name of the sample: (reader, function that writes it and returns the
# source).
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
    "deeplabcut": ("deeplabcut", write_deeplabcut),
    "deeplabcut individuals": ("deeplabcut", lambda folder: write_deeplabcut(folder, people=2)),
    "sleap csv": ("sleap", write_sleap_csv),
    "trc": ("trc", write_trc),
    "azure-kinect": ("azure-kinect", write_azure),
    "mvnx": ("mvnx", write_mvnx),
    "rokoko": ("rokoko", write_rokoko),
    "skeleton": ("skeleton", write_skeleton),
    "yolo": ("yolo", write_yolo),
    "csv-wide": ("csv-wide", write_csv_wide),
    "arrays": ("arrays", write_array),
    "arrays json lines": ("arrays", write_json_lines),
    "c3d": ("c3d", write_c3d),
    "c3d integers": ("c3d", lambda folder: write_c3d(folder, integers=True)),
    "h36m": ("h36m", write_h36m),
    "amass": ("amass", write_amass),
    "freemocap": ("freemocap", write_freemocap),
    "mediapipe names": ("mediapipe", write_mediapipe_names),
    "mediapipe tutorial": ("mediapipe", write_tutorial_csv),
}
# Read through h5py, which is an extra.
if importlib.util.find_spec("h5py") is not None:
    SAMPLES |= {
        "deeplabcut h5": ("deeplabcut", write_deeplabcut_h5),
        "sleap h5": ("sleap", write_sleap_h5),
        "movement": ("movement", write_movement),
    }
# Settings without which a sample cannot be read.
OPTIONS: dict[str, dict[str, str]] = {"arrays": {"topology": "kinect-v1"}}


def files_of(folder: Path) -> Sequence[Path]:
    """The files of a sample; the first is the one that the tests damage."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "actionLabel.txt")
