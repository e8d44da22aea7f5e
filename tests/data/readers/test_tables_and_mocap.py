"""Long CSV of any skeleton, and BVH evaluated to positions against a slow evaluation joint by joint."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reader_samples import BVH, body, read_all, write_bvh, write_csv
from scipy.spatial.transform import Rotation

from halp.core.errors import InputError
from halp.data.readers import get_reader
from halp.data.readers.bvh import Bone, BvhReader, positions
from halp.data.readers.csv_long import CsvLongReader
from halp.skeleton import get_topology, map_joints


@pytest.mark.parametrize("name", ["coco-17", "kinect-v1", "mediapipe-33", "openpose-25"])
def test_a_table_of_known_joints_gives_their_topology_in_its_order(name: str, tmp_path: Path) -> None:
    topology = get_topology(name)
    path = write_csv(tmp_path, name)
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *rows[::-1]]))
    info = get_reader("csv").info(path)
    assert info.topology is topology
    assert info.class_names == ("run", "walk")
    clips = {clip.name: clip for clip in read_all("csv", path)}
    expected = body(2, len(topology), topology.dimensions)
    np.testing.assert_array_equal(clips["anna"].frames[:, 0], expected)
    assert (clips["anna"].label, clips["ben"].label) == (1, 0)
    assert (clips["anna"].subject, clips["anna"].camera) == (7, 1)


def _table(tmp_path: Path, *lines: str, header: str = "clip,frame,person,joint,x,y,z") -> Path:
    path = tmp_path / "table.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_joints_may_be_spelled_in_any_way_or_numbered(tmp_path: Path) -> None:
    path = _table(tmp_path, "a,0,0,LeftHip,1,2,3", "a,0,0,RHip,4,5,6", "a,0,0,left_knee,7,8,9")
    assert get_reader("csv").info(path).topology.joints == ("hip_left", "hip_right", "knee_left")
    lines = [f"a,0,0,{joint},{joint + 1},1,1" for joint in range(20)]
    path = _table(tmp_path, *lines)
    assert get_reader("csv").info(path).topology.name == "kinect-v1"
    assert read_all("csv", path)[0].frames[0, 0, :, 0].tolist() == list(range(1, 21))


def test_unknown_joints_make_a_topology_of_their_own(tmp_path: Path) -> None:
    path = _table(tmp_path, "a,0,0,hip_center,1,2,3", "a,0,0,tail,4,5,6", "a,0,0,spine,7,8,9")
    topology = get_reader("csv").info(path).topology
    assert (topology.joints, topology.parents) == (("hip_center", "tail", "spine"), (0, 1, 0))


def test_persons_frames_and_gaps_find_their_places(tmp_path: Path) -> None:
    path = _table(tmp_path, "a,9,anna,b,1,1,1", "a,3,ben,b,2,2,2", "a,9,ben,b,3,3,3", "a,9,anna,c,,,")
    (clip,) = read_all("csv", path)
    assert clip.shape == (2, 2, 2, 3)
    assert clip.frames[..., 0].tolist() == [[[0, 0], [2, 0]], [[1, 0], [3, 0]]]


def test_the_score_column_and_its_threshold_decide_what_is_missing(tmp_path: Path) -> None:
    header = "clip,frame,joint,x,y,score"
    path = _table(tmp_path, "a,0,b,1,1,0.2", "a,0,c,1,1,0.8", header=header)
    assert read_all("csv", path)[0].frames.all()
    reader = replace(CsvLongReader(), min_score=0.5)
    (clip,) = reader.read(next(iter(reader.items(path))))
    assert clip.frames[0, 0, :, 0].tolist() == [0, 1]
    assert clip.repairs == ("1 joints with a score below 0.5 made missing",)


def test_several_files_share_joints_classes_and_persons(tmp_path: Path) -> None:
    write_csv(tmp_path, name="one")
    second = write_csv(tmp_path, name="two")
    second.write_text(second.read_text().replace("anna", "carl").replace("ben", "dora").replace("run", "bow"))
    assert get_reader("csv").info(tmp_path).class_names == ("bow", "run", "walk")
    assert {clip.name: clip.label for clip in read_all("csv", tmp_path)} == {
        "anna": 2,
        "ben": 1,
        "carl": 2,
        "dora": 0,
    }
    second.write_text(second.read_text().replace("carl", "anna"))
    with pytest.raises(InputError, match="two clips are called 'anna'"):
        get_reader("csv").info(tmp_path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a,0,0,b,1,2"], "line 2: 6 cells instead of 7"),
        (["a,0,0,b,x,2,3"], "line 2, column 'x': 'x' is not a number"),
        (["a,0,0,b,1,2,3", "a,1,0,b,inf,2,3"], "line 3, column 'x': 'inf' is not a place"),
        (["a,0,0,b,nan,2,3"], "line 2, column 'x': 'nan' is not a place"),
        (["a,0.5,0,b,1,2,3"], "line 2, column 'frame': 0.5 is not a whole number"),
        (["a,x,0,b,1,2,3"], "line 2, column 'frame': 'x' is not a whole number"),
        (["a,0,0,b,1,2,3"] * 2, "line 3: clip 'a' has this joint of this person twice in frame 0"),
        (["a,0,0,,1,2,3"], "column 'joint': a joint has no usable name"),
        ([], "there is no row below the header"),
        ([f"a,0,{person},b,1,2,3" for person in range(30)], "column 'person': 30 different values"),
        (['a,0,0,"b,1,2,3'], "not CSV"),
        ([",0,0,b,1,2,3"], "cannot name a clip"),
    ],
)
def test_tables_with_mistakes_are_refused_with_line_and_column(
    lines: list[str], message: str, tmp_path: Path
) -> None:
    path = _table(tmp_path, *lines)
    with pytest.raises(InputError, match=message):
        read_all("csv", path)


def test_a_header_without_the_needed_columns_says_which(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no column joint, y"):
        read_all("csv", _table(tmp_path, "a,0,1", header="clip,frame,x"))
    with pytest.raises(InputError, match="column 'x' occurs twice"):
        read_all("csv", _table(tmp_path, "a,0,b,1,1", header="clip,frame,joint,x,x"))


def test_a_clip_has_one_label(tmp_path: Path) -> None:
    path = _table(tmp_path, "a,0,b,1,1,walk", "a,1,b,1,1,run", header="clip,frame,joint,x,y,label")
    with pytest.raises(InputError, match="column 'label': clip 'a' has several values: 'walk', 'run'"):
        read_all("csv", path)


def test_the_small_skeleton_stands_where_it_was_put_by_hand(tmp_path: Path) -> None:
    reader = get_reader("bvh")
    path = write_bvh(tmp_path)
    (clip,) = read_all("bvh", path)
    topology = reader.info(path).topology
    assert topology.joints == ("hip_center", "hip_left", "knee_left", "leg_end_left")
    assert topology.parents == (0, 0, 1, 2)
    first = [[0, 10, 0], [1, 10, 0], [1, 8, 0], [1, 6, 0]]
    # The root turns by 90° about z, the hip by another 90°: right becomes up, down becomes right and then up.
    second = [[5, 10, 0], [5, 11, 0], [5, 13, 0], [5, 15, 0]]
    np.testing.assert_allclose(clip.frames[:, 0], [first, second], atol=1e-5)


def test_positions_equal_a_slow_evaluation_with_other_rotations() -> None:
    rng = np.random.default_rng(0)
    bones = [Bone("root", 0, (0.0, 0.0, 0.0), (0, 1, 2, 5, 3, 4))]
    for index in range(1, 12):
        order = tuple(3 + rng.permutation(3))
        bones.append(
            Bone(
                f"j{index}", int(rng.integers(index)), tuple(rng.normal(size=3)), order if index % 4 else None
            )
        )
    motion = rng.uniform(-180, 180, (5, sum(len(bone.channels or ()) for bone in bones)))
    fast = positions(bones, motion)
    for t, values in enumerate(motion):
        remaining = list(values)
        turns: list[Rotation] = []
        places: list[np.ndarray] = []
        for index, bone in enumerate(bones):
            channels = [(channel, remaining.pop(0)) for channel in bone.channels or ()]
            place = np.array([dict(channels).get(axis, bone.offset[axis]) for axis in range(3)])
            letters = "".join("XYZ"[channel - 3] for channel, _ in channels if channel > 2)
            angles = [value for channel, value in channels if channel > 2]
            turn = Rotation.from_euler(letters, angles, degrees=True) if letters else Rotation.identity()
            places.append(place if index == 0 else places[bone.parent] + turns[bone.parent].apply(place))
            turns.append(turn if index == 0 else turns[bone.parent] * turn)
        np.testing.assert_allclose(fast[t], places, atol=1e-9)


def test_motion_capture_maps_onto_kinect_by_name(tmp_path: Path) -> None:
    names = {"Hips": None, "Head": "Hips"}
    for side in ("Left", "Right"):
        names |= {
            f"{side}UpLeg": "Hips",
            f"{side}Leg": f"{side}UpLeg",
            f"{side}Foot": f"{side}Leg",
            f"{side}ToeBase": f"{side}Foot",
        }
        names |= {f"{side}Shoulder": "Hips", f"{side}Arm": f"{side}Shoulder", f"{side}ForeArm": f"{side}Arm"}
        names |= {f"{side}Hand": f"{side}ForeArm"}

    def write(name: str, depth: int) -> list[str]:
        kind = "JOINT" if depth else "ROOT"
        inner = [
            line for child, parent in names.items() if parent == name for line in write(child, depth + 1)
        ]
        return [f"{kind} mixamorig:{name}", "{", "OFFSET 1 1 1", "CHANNELS 1 Xrotation", *inner, "}"]

    motion = ["MOTION", "Frames: 1", "Frame Time: 0.1", " ".join(["0"] * len(names))]
    (tmp_path / "a.bvh").write_text("\n".join(["HIERARCHY", *write("Hips", 0), *motion]))
    topology = get_reader("bvh").info(tmp_path).topology
    (clip,) = read_all("bvh", tmp_path)
    assert map_joints(clip.frames, topology, get_topology("kinect-v1")).shape == (1, 1, 20, 3)


def test_joints_in_another_order_are_put_in_the_order_of_the_first_file(tmp_path: Path) -> None:
    def joint(name: str, place: int) -> str:
        return f"JOINT {name}\n{{\nOFFSET {place} 0 0\nCHANNELS 1 Xrotation\n}}\n"

    start, end = (
        "HIERARCHY\nROOT Hips\n{\nOFFSET 0 0 0\nCHANNELS 1 Xrotation\n",
        "}\nMOTION\nFrames: 1\nFrame Time: 1\n0 0 0\n",
    )
    (tmp_path / "a.bvh").write_text(start + joint("Head", 1) + joint("Tail", 2) + end)
    (tmp_path / "b.bvh").write_text(start + joint("Tail", 2) + joint("Head", 1) + end)
    first, second = read_all("bvh", tmp_path)
    assert np.array_equal(first.frames, second.frames)
    (tmp_path / "b.bvh").write_text(start + joint("Tail", 2) + joint("Ear", 1) + end)
    with pytest.raises(InputError, match="it has no joint head, unlike the first file"):
        read_all("bvh", tmp_path)


def test_the_scale_turns_the_units_of_the_file_into_metres(tmp_path: Path) -> None:
    reader = replace(BvhReader(), scale=0.01)
    (clip,) = reader.read(next(iter(reader.items(write_bvh(tmp_path)))))
    assert clip.frames[0, 0, 0].tolist() == pytest.approx([0, 0.1, 0])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("HIERARCHY", "HIERARCHIE", "line 1: 'HIERARCHIE' instead of HIERARCHY"),
        ("ROOT Hips", "ROOT", "line 2: the joint has no usable name"),
        ("OFFSET 1 0 0", "OFFSET 1 0", "line 8: 'OFFSET 1 0' is not expected here"),
        ("OFFSET 1 0 0", "OFFSET 1 a 0", "line 8: 'a' is not a number"),
        ("    OFFSET 1 0 0\n", "", "joint 'LeftUpLeg' has no OFFSET"),
        ("CHANNELS 6", "CHANNELS 5", "is not a list of channels"),
        ("Xposition", "Wposition", "is not a list of channels"),
        ("JOINT LeftLeg", "JOINT LeftUpLeg", "occurs twice"),
        ("JOINT LeftUpLeg", "ROOT LeftUpLeg", "a second ROOT"),
        ("Frames: 2", "Frames: 3", "3 frames with 12 channels are declared, 2 lines"),
        ("Frames: 2", "Frames: two", "'two' is not a whole number"),
        ("Frame Time: 0.0333333\n", "", "'Frame Time:'|there are no frames"),
        ("5 10 0 90", "5 10 0 x", "line 25: 'x' is not a number"),
        ("5 10 0 90", "5 10 0 nan", "MOTION, frame 1: a coordinate is nan"),
        ("5 10 0 90", "5 10 90", "line 25: 11 numbers instead of 12"),
        ("MOTION", "", "is not expected here|no MOTION"),
    ],
)
def test_motion_capture_with_mistakes_is_refused_with_the_line(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.bvh").write_text(BVH.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        read_all("bvh", tmp_path)
