"""The interchange file: the four real sets load, and what halp writes it reads back the same."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from interchange_samples import write_interchange
from reader_samples import SETS, body, read_all, shared, write_npz

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.readers import Dropped, get_reader
from halp.data.splits import Split
from halp.data.store import open_store
from halp.data.store_writer import StoreWriter
from halp.skeleton import KINECT_V1, Topology

COUNTS = {"nw-ucla": (1484, 10), "utd-mhad": (861, 27), "msr-action3d": (567, 20), "utkinect": (199, 10)}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.heavy
def test_the_real_sets_load_whole_and_in_the_order_of_kinect_v1(name: str) -> None:
    path = shared("data", f"{name}.npz")
    info = get_reader("interchange").info(path)
    clips = read_all("interchange", path)
    arrays = np.load(path)
    order = [arrays["joint_names"].tolist().index(joint) for joint in KINECT_V1.joints]
    assert info.topology is KINECT_V1
    assert (len(clips), len(info.class_names)) == COUNTS[name]
    assert [clip.name for clip in clips] == arrays["names"].tolist()
    dropped = [clip.name for clip in clips if isinstance(clip, Dropped)]
    assert dropped == (["a13_s09_e02"] if name == "msr-action3d" else [])
    for row in (0, len(clips) // 2, len(clips) - 1):
        start, end = arrays["offsets"][row : row + 2]
        assert np.array_equal(clips[row].frames, arrays["joints"][start:end][:, :, order])
        assert (clips[row].label, clips[row].subject) == (arrays["labels"][row], arrays["subjects"][row])


@pytest.mark.heavy
def test_splits_of_the_real_sets_have_the_published_sizes() -> None:
    for name, split, expected in (("nw-ucla", "xview", (1020, 464)), ("utd-mhad", "xsub", (431, 430))):
        path = shared("data", f"{name}.npz")
        clips = [clip for clip in read_all("interchange", path) if isinstance(clip, Clip)]
        columns = {key: np.array([getattr(clip, key) for clip in clips]) for key in ("subject", "camera")}
        rule = next(rule for rule in get_reader("interchange").info(path).splits if rule.name == split)
        assert tuple(map(len, rule.indices(columns))) == expected


def test_written_clips_are_read_back_bit_by_bit(tmp_path: Path) -> None:
    clips = [Clip(body(3 + i, seed=i)[:, None], f"c{i}", i, i, 2, {"setup": i}) for i in range(3)]
    write_interchange(clips, tmp_path / "a.npz", topology=KINECT_V1, class_names=["x", "y", "z"])
    again = read_all("interchange", tmp_path / "a.npz")
    for before, after in zip(clips, again, strict=True):
        assert np.array_equal(before.frames, after.frames)
        assert vars(before).keys() == vars(after).keys()
        assert all(vars(before)[key] == vars(after)[key] for key in vars(before) if key != "frames")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz"]


def test_a_store_survives_the_way_through_the_file_with_topology_and_splits(tmp_path: Path) -> None:
    topology = Topology("stick", ("low", "high"), (0, 0), centre="low", dimensions=2)
    split = Split("xsub", "subject", (1,), (2,))
    with StoreWriter(tmp_path / "store", topology, persons=2, class_names=["go"], splits=[split]) as writer:
        for subject in (1, 2):
            writer.add(Clip(body(2, 2, 2)[:, None], f"s{subject}", 0, subject))
    write_interchange(open_store(tmp_path / "store"), tmp_path / "a.npz")
    info = get_reader("interchange").info(tmp_path / "a.npz")
    assert (info.topology, info.splits, info.persons, info.class_names) == (topology, (split,), 2, ("go",))
    assert [clip.frames.shape for clip in read_all("interchange", tmp_path / "a.npz")] == [(2, 2, 2, 2)] * 2


def _arrays(tmp_path: Path, **changes: object) -> Path:
    arrays = dict(np.load(write_npz(tmp_path)))
    arrays.pop("halp")
    for key, value in changes.items():
        if value is None:
            arrays.pop(key)
        else:
            arrays[key] = np.array(value)
    np.savez(tmp_path / "set.npz", **arrays)
    return tmp_path / "set.npz"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"joints": None}, "it has no array 'joints'"),
        ({"joint_names": None}, "it has no array 'joint_names'"),
        ({"joints": np.zeros((4, 20, 3))}, "array 'joints': it is float64 in shape"),
        ({"joints": np.zeros((4, 1, 20, 4))}, "its shape is"),
        ({"offsets": [0, 2]}, "does not cut the 4 frames"),
        ({"offsets": [0, 3, 2, 4]}, "does not cut the 4 frames"),
        ({"offsets": [0.0, 2.0, 4.0]}, "array 'offsets': it is float64"),
        ({"labels": [0]}, "array 'labels'"),
        ({"labels": ["a", "b"]}, "array 'labels'"),
        ({"names": ["x", "x"]}, "two clips are called 'x'"),
        ({"names": ["../x", "y"]}, "cannot name a clip"),
        ({"names": ["/etc/passwd", "y"]}, "cannot name a clip"),
        ({"joint_names": ["a"] * 20}, "a name is empty or occurs twice"),
        ({"joint_names": [f"j{i}" for i in range(20)], "bones": [[0, 99]]}, "there is no bone 0, 99"),
        ({"joint_names": [f"j{i}" for i in range(20)], "bones": [[0, 1], [1, 0]]}, "form a loop"),
        ({"halp": "{"}, "array 'halp': it is damaged"),
        (
            {"halp": json.dumps({"splits": {}, "normalisation": [], "topology": 3})},
            "array 'halp': it is damaged",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_named(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    path = _arrays(tmp_path, **changes)
    reader = get_reader("interchange")
    with pytest.raises(InputError, match=message):
        (reader.info(path), read_all("interchange", path))


def test_one_bad_clip_is_dropped_with_the_reason_and_the_others_stay(tmp_path: Path) -> None:
    joints = np.ones((4, 1, 20, 3))
    joints[0, 0, 3, 1] = np.nan
    bad, good = read_all("interchange", _arrays(tmp_path, joints=joints))
    assert isinstance(bad, Dropped)
    assert "clip 'clip0', frame 0: a coordinate is nan" in bad.reason
    assert isinstance(good, Clip)
    unknown, _ = read_all("interchange", _arrays(tmp_path, labels=[5, 0]))
    assert unknown == Dropped("clip0", "there is no class 5, only 2 classes")


def test_labels_names_and_bones_may_be_left_out(tmp_path: Path) -> None:
    path = _arrays(tmp_path, labels=None, subjects=None, views=None, names=None, class_names=None, bones=None)
    clip = read_all("interchange", path)[0]
    assert (clip.name, clip.label, clip.subject, clip.camera) == ("set_000000", -1, -1, -1)


@pytest.mark.heavy
def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("joints.npy", "offsets.npy"):
            archive.writestr(name, b"\0" * 100_000_000)
    with pytest.raises(InputError, match="would expand beyond"):
        get_reader("interchange").info(tmp_path / "bomb.npz")


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    path = _arrays(tmp_path, names=np.array([{}, {}], dtype=object))
    with pytest.raises(InputError, match="holds Python objects, which are not read"):
        get_reader("interchange").info(path)


def test_several_files_are_to_be_merged_as_stores(tmp_path: Path) -> None:
    write_npz(tmp_path).rename(tmp_path / "other.npz")
    write_npz(tmp_path)
    with pytest.raises(InputError, match=r"holds 2 \.npz files; prepare them one by one"):
        get_reader("interchange").info(tmp_path)


def test_joint_names_go_through_the_aliases_of_other_readers(tmp_path: Path) -> None:
    spelling = (
        "SpineBase SpineMid Neck Head ShoulderLeft ElbowLeft WristLeft HandLeft ShoulderRight ElbowRight"
        " WristRight HandRight HipLeft KneeLeft AnkleLeft FootLeft HipRight KneeRight AnkleRight FootRight"
        " SpineShoulder HandTipLeft ThumbLeft HandTipRight ThumbRight".split()
    )
    np.savez(
        tmp_path / "own.npz",
        joints=np.ones((4, 1, 25, 3), np.float32),
        offsets=[0, 4],
        joint_names=np.array(spelling),
    )
    assert get_reader("interchange").info(tmp_path / "own.npz").topology.name == "kinect-v2"
