"""NW-UCLA, UTD-MHAD, MSR-Action3D and UTKinect in their original formats, against the interchange arrays of
the real sets.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from reader_samples import body, read_all, shared, write_msr, write_nwucla, write_utdmhad, write_utkinect

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.readers import Dropped, Item, get_reader
from halp.data.readers.kinect_sets import MsrAction3DReader

WRITERS: dict[str, Callable[..., Path]] = {
    "nw-ucla": write_nwucla,
    "utd-mhad": write_utdmhad,
    "msr-action3d": write_msr,
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_first_real_clips_come_back_from_the_original_format(name: str, tmp_path: Path) -> None:
    path = shared("data", f"{name}.npz")
    info, expected = get_reader("interchange").info(path), read_all("interchange", path)[:15]
    for clip in expected:
        WRITERS[name](tmp_path, clip.name, clip.frames[:, 0])
    found = read_all(name, tmp_path)
    assert get_reader(name).info(tmp_path).class_names == info.class_names
    assert [clip.name for clip in found] == sorted(clip.name for clip in expected)
    assert len(found) == 15
    for clip in found:
        before = next(one for one in expected if one.name == clip.name)
        assert np.array_equal(clip.frames, before.frames)
        assert (clip.label, clip.subject, clip.camera) == (before.label, before.subject, before.camera)


def test_the_first_real_recordings_of_utkinect_come_back_cut_by_their_labels(tmp_path: Path) -> None:
    path = shared("data", "utkinect.npz")
    expected = [
        clip for clip in read_all("interchange", path) if clip.name.startswith(("s01_e01", "s02_e01"))
    ]
    for recording in ("s01_e01", "s02_e01"):
        clips = [clip for clip in expected if clip.name.startswith(recording)]
        ends = np.cumsum([0, *(len(clip.frames) for clip in clips)]) + 11
        lines = [f"{c.name.split('_')[2]}: {a} {b - 1}" for c, a, b in zip(clips, ends[:-1], ends[1:])]
        joints = np.concatenate([clip.frames[:, 0] for clip in clips])
        write_utkinect(tmp_path, recording, joints, "\n".join(lines) + "\n")
    found = read_all("utkinect", tmp_path)
    assert (
        get_reader("utkinect").info(tmp_path).class_names == get_reader("interchange").info(path).class_names
    )
    assert [clip.name for clip in found] == [clip.name for clip in expected]
    for before, after in zip(expected, found, strict=True):
        assert np.array_equal(before.frames, after.frames)
        assert (before.label, before.subject) == (after.label, after.subject)


def test_the_published_lists_of_nw_ucla_are_its_splits(tmp_path: Path) -> None:
    splits = {split.name: split for split in get_reader("nw-ucla").info(tmp_path).splits}
    assert splits["xview"].train == (1, 2)
    assert splits["xview"].test == (3,)


def test_a_clip_of_one_frame_is_a_clip(tmp_path: Path) -> None:
    write_nwucla(tmp_path, joints=body(1))
    assert read_all("nw-ucla", tmp_path)[0].shape == (1, 1, 20, 3)


def test_a_clip_without_any_body_is_dropped_with_the_reason(tmp_path: Path) -> None:
    write_msr(tmp_path, joints=np.zeros((2, 20, 3), np.float32))
    assert read_all("msr-action3d", tmp_path) == [
        Dropped("a01_s01_e01", "there is no body in any of its frames")
    ]


def test_joints_of_low_confidence_become_missing_when_asked_for(tmp_path: Path) -> None:
    write_msr(tmp_path, "a01_s01_e01", confidence=0.2)
    write_msr(tmp_path, "a01_s01_e02", confidence=0.9)
    reader = replace(MsrAction3DReader("msr-action3d", ""), min_score=0.5)
    low, high = (reader.read(item)[0] for item in reader.items(tmp_path))
    assert isinstance(low, Dropped)
    assert isinstance(high, Clip)


def test_matlab_files_may_be_compressed(tmp_path: Path) -> None:
    write_utdmhad(tmp_path, "a1_s1_t1", packed=False)
    write_utdmhad(tmp_path, "a1_s1_t2", packed=True)
    first, second = read_all("utd-mhad", tmp_path)
    assert np.array_equal(first.frames, second.frames)


@pytest.mark.heavy
def test_a_matlab_bomb_is_not_unpacked(tmp_path: Path) -> None:
    packed = zlib.compress(b"\0" * 200_000_000)
    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    (tmp_path / "a1_s1_t1_skeleton.mat").write_bytes(
        header + (15).to_bytes(4, "little") + len(packed).to_bytes(4, "little") + packed
    )
    with pytest.raises(InputError):
        read_all("utd-mhad", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"x": np.zeros(3)}, "it has no array 'd_skel'"),
        ({"d_skel": np.zeros((20, 3))}, "instead of numbers in"),
        ({"d_skel": np.zeros((20, 3, 0))}, "instead of numbers in"),
        ({"d_skel": np.array([["a"]], dtype=object)}, "does not hold real numbers"),
        ({"d_skel": "text"}, "does not hold real numbers"),
        ({"d_skel": np.full((20, 3, 2), np.inf)}, "array 'd_skel', frame 0: a coordinate is inf"),
        ({"d_skel": np.full((20, 3, 2), np.nan)}, "a coordinate is nan"),
        ({"d_skel": np.full((20, 3, 2), 1e30)}, "a coordinate is 1e"),
        ({"d_skel": np.ones((20, 3, 2)) * 1j}, "does not hold real numbers"),
        ({"d_skel": {"x": np.ones((20, 3, 2))}}, "does not hold real numbers"),
    ],
)
def test_matlab_files_with_other_contents_are_refused(content: dict, message: str, tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a1_s1_t1_skeleton.mat", content)
    with pytest.raises(InputError, match=message):
        read_all("utd-mhad", tmp_path)


@pytest.mark.parametrize(
    ("skeletons", "message"),
    [
        ([], "instead of any x 20 x 3"),
        ([[[0, 0, 0]] * 19], "instead of any x 20 x 3"),
        ([[[0, 0, 0]] * 20, [[0, 0, 0]] * 19], "evenly nested"),
        ([[["a", 0, 0]] * 20], "evenly nested lists of numbers"),
        ([[[10**400, 0, 0]] * 20], "evenly nested|cannot be read"),
        ([[[1e300, 0, 0]] * 20], "a coordinate is 1e"),
        ([[[None, 0, 0]] * 20], "a coordinate is nan"),
        (None, "instead of any x 20 x 3"),
        ({}, "evenly nested"),
    ],
)
def test_json_skeletons_of_another_shape_are_refused(skeletons: object, message: str, tmp_path: Path) -> None:
    (tmp_path / "a01_s01_e00_v01.json").write_text(json.dumps({"skeletons": skeletons}))
    with pytest.raises(InputError, match=message):
        read_all("nw-ucla", tmp_path)


@pytest.mark.parametrize(
    ("reader", "name", "message"),
    [
        ("nw-ucla", "a07_s01_e00_v01.json", "action 7 is not a class of NW-UCLA"),
        ("nw-ucla", "walk.json", "has no action"),
        ("utd-mhad", "a28_s1_t1_skeleton.mat", "action 28 is not a class of UTD-MHAD"),
        ("utd-mhad", "x.mat", "has no action"),
        ("msr-action3d", "a21_s01_e01_skeleton3D.txt", "action 21 is not a class of MSR-Action3D"),
        ("msr-action3d", "x.txt", "has no action"),
        ("utkinect", "joints.txt", "does not state subject"),
    ],
)
def test_unknown_classes_and_names_are_refused(reader: str, name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(InputError, match=message):
        get_reader(reader).read(Item(tmp_path / name))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3 4\n" * 19, "19 lines are not whole frames of 20 joints"),
        ("1 2 3\n" * 20, "line 1: 3 numbers instead of 4"),
        ("1 2 3 4\n" * 4 + "1 x 3 4\n" * 16, "line 5: 'x' is not a number"),
        ("1 nan 3 4\n" * 20, "a coordinate is nan"),
        ("1 inf 3 4\n" * 20, "a coordinate is inf"),
        ("", "not one line of numbers"),
    ],
)
def test_text_skeletons_with_wrong_numbers_are_refused_with_the_line(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "a01_s01_e01_skeleton3D.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read_all("msr-action3d", tmp_path)


def test_segments_without_frames_are_dropped_and_expected(tmp_path: Path) -> None:
    write_utkinect(tmp_path, segments="walk: 11 12\ncarry: NaN NaN\npush: 90 99\n")
    walk, carry, push = read_all("utkinect", tmp_path)
    assert walk.name == "s01_e01_walk"
    assert carry == Dropped("s01_e01_carry", "the label file gives no frames for it", expected=True)
    assert push == Dropped("s01_e01_push", "the recording has no frame from 90 to 99")


def test_repeated_frame_numbers_are_left_out_and_reported(tmp_path: Path) -> None:
    path = write_utkinect(tmp_path)
    path.write_text(path.read_text() + path.read_text())
    clip = read_all("utkinect", tmp_path)[0]
    assert clip.shape == (2, 1, 20, 3)
    assert clip.repairs == ("2 repeated frame numbers in the recording left out",)


def test_the_label_file_may_lie_beside_the_folder_of_joints(tmp_path: Path) -> None:
    (tmp_path / "joints").mkdir()
    write_utkinect(tmp_path / "joints")
    (tmp_path / "joints" / "actionLabel.txt").rename(tmp_path / "actionLabel.txt")
    assert len(read_all("utkinect", tmp_path)) == len(read_all("utkinect", tmp_path / "joints")) == 2


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "no actionLabel.txt in it or beside it"),
        ("", "holds no segments"),
        ("walk: 1 2\n", "line 1: 'walk: 1 2' is not a segment"),
        ("s01 e01\nfly: 1 2\n", "line 2: unknown class 'fly'"),
        ("s01 e01\nwalk: a b\n", "line 2: 'a' is not a whole number"),
        ("s01 e01\nwalk: 9 2\n", "line 2: the segment runs from 9 to 2"),
        ("s01 e01\nwalk: 1 2\nwalk: 3 4\n", "line 3: 'walk' occurs twice"),
        ("s01 e01\ns01 e01\n", "line 2: recording 's01 e01' occurs twice"),
        ("s02 e01\nwalk: 1 2\n", "has no segments for 'joints_s01_e01.txt'"),
    ],
)
def test_label_files_with_mistakes_are_refused_with_the_line(
    labels: str | None, message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    write_utkinect(folder)
    (folder / "actionLabel.txt").unlink()
    if labels is not None:
        (folder / "actionLabel.txt").write_text(labels)
    with pytest.raises(InputError, match=message):
        read_all("utkinect", folder)
