"""Readers of tracking, motion capture and array formats give the numbers that stand in the files."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from reader_samples import (
    body,
    landmarks,
    read_all,
    write_amass,
    write_array,
    write_azure,
    write_c3d,
    write_c3d_segments,
    write_csv_wide,
    write_deeplabcut,
    write_freemocap,
    write_h36m,
    write_json_lines,
    write_mediapipe_names,
    write_mvnx,
    write_sleap_csv,
    write_trc,
    write_tutorial_csv,
    write_yolo,
)

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.ingest.prepare import prepare
from halp.data.readers import Dropped, get_reader, sniff_reader, with_options
from halp.data.store import open_store


def only(reader: str, source: Path) -> Clip:
    (clip,) = read_all(reader, source)
    assert isinstance(clip, Clip)
    return clip


def test_deeplabcut_tables_give_joints_and_drop_unsure_ones(tmp_path: Path) -> None:
    path = write_deeplabcut(tmp_path)
    clip = only("deeplabcut", path)
    np.testing.assert_allclose(clip.frames[:, 0], 100 * body(2, 3, 2), rtol=1e-5)
    assert get_reader("deeplabcut").info(path).topology.joints == ("nose", "hip_left", "hip_right")
    strict = with_options(get_reader("deeplabcut"), {"min_score": 0.95})
    assert isinstance(strict.read(next(iter(strict.items(path))))[0], Dropped)


def test_deeplabcut_individuals_are_persons(tmp_path: Path) -> None:
    clip = only("deeplabcut", write_deeplabcut(tmp_path, people=2))
    np.testing.assert_allclose(clip.frames.reshape(2, 6, 2), 100 * body(2, 6, 2), rtol=1e-5)


def test_deeplabcut_files_of_pandas_hold_the_same_as_its_tables(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    pytest.importorskip("h5py")
    columns = pandas.MultiIndex.from_product(
        [["DLC"], ["mouse", "rat"], ["nose", "left_hip"], ["x", "y", "likelihood"]],
        names=["scorer", "individuals", "bodyparts", "coords"],
    )
    values = np.random.default_rng(0).uniform(1, 99, (5, 12))
    values[2, 0] = np.nan
    frame = pandas.DataFrame(values, columns=columns)
    found = []
    for layout in ("csv", "table", "fixed"):
        (tmp_path / layout).mkdir()
        if layout == "csv":
            frame.to_csv(tmp_path / layout / "a.csv")
        else:
            frame.to_hdf(tmp_path / layout / "a.h5", key="df_with_missing", format=layout, mode="w")
        assert sniff_reader(tmp_path / layout).name == "deeplabcut"
        found.append(only("deeplabcut", tmp_path / layout).frames)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_array_equal(found[1], found[2])
    expected = values.reshape(5, 2, 2, 3)[..., :2].astype(np.float32)
    np.testing.assert_array_equal(found[1][3:], expected[3:])
    assert not found[1][2, 0, 0].any()


def test_where_a_video_has_both_files_one_is_read(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    write_deeplabcut(tmp_path)
    (tmp_path / "mouseDLC_resnet50.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert len(read_all("deeplabcut", tmp_path)) == 1


def test_sleap_rows_become_tracks(tmp_path: Path) -> None:
    clip = only("sleap", write_sleap_csv(tmp_path))
    assert clip.frames.shape == (2, 2, 2, 2)
    assert clip.frames[1, 0].tolist() == [[11, 21], [31, 41]]


def test_a_crash_of_the_hdf5_library_is_an_error_of_the_file(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    from halp.data import sandbox

    write_all = tmp_path / "a.h5"
    write_all.write_bytes(sandbox.SIGNATURE + os.urandom(2000))
    with pytest.raises(InputError, match="HDF5"):
        sandbox.read_hdf5(write_all, ("*",))
    assert sandbox._running is not None
    sandbox._running.child.kill()
    sandbox._running.child.wait()
    with pytest.raises(InputError, match="is not a whole HDF5 file"):
        sandbox.read_hdf5(write_all, ("*",))


def test_hdf5_arrays_in_other_files_are_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    from halp.data.sandbox import read_hdf5

    (tmp_path / "secret").write_bytes(bytes(800))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tracks", (10,), "f8", external=[(str(tmp_path / "secret"), 0, 80)])
    with pytest.raises(InputError, match="lies in another file"):
        read_hdf5(tmp_path / "a.h5", ("*",))


def test_trc_gives_metres_and_the_frame_rate(tmp_path: Path) -> None:
    path = write_trc(tmp_path)
    clip = only("trc", path)
    np.testing.assert_allclose(clip.frames[:, 0], body(2, 3), rtol=1e-4)
    assert clip.fps == 100
    text = path.read_text().splitlines()
    cells = text[6].split("\t")
    cells[5:8] = ["", "", ""]
    path.write_text("\n".join([*text[:6], "\t".join(cells)]) + "\n")
    assert not only("trc", path).frames[1, 0, 1].any()


def test_azure_kinect_gives_metres_with_y_up(tmp_path: Path) -> None:
    clip = only("azure-kinect", write_azure(tmp_path))
    np.testing.assert_allclose(clip.frames[:, 0], body(2, 32) * [-1, -1, 1], rtol=1e-4)
    assert clip.fps == 30
    assert only("azure-kinect", write_azure(tmp_path, people=2)).frames.shape[1] == 2


def test_mvnx_gives_segments_with_y_up(tmp_path: Path) -> None:
    path = write_mvnx(tmp_path)
    clip = only("mvnx", path)
    x, y, z = body(2, 3).transpose(2, 0, 1)
    np.testing.assert_allclose(clip.frames[:, 0], np.stack([x, z, -y], axis=-1), rtol=1e-4)
    assert clip.fps == 60
    assert get_reader("mvnx").info(path).topology.joints == ("hip_center", "head", "hip_right")


def test_mvnx_with_entities_is_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE mvnx [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;&a;">]>'
    path = write_mvnx(tmp_path)
    path.write_text(path.read_text().replace("<mvnx", bomb + "<mvnx", 1).replace('label="a"', 'label="&b;"'))
    with pytest.raises(InputError, match="declares a document type"):
        read_all("mvnx", path)


def test_yolo_files_of_a_folder_are_one_clip_and_gaps_stay(tmp_path: Path) -> None:
    write_yolo(tmp_path, frames=3)
    (tmp_path / "walk_2.txt").unlink()
    clip = only("yolo", tmp_path)
    assert clip.name == "walk"
    np.testing.assert_allclose(clip.frames[0, 0], body(3, 17, 2)[0], rtol=1e-5)
    assert not clip.frames[1].any()
    assert clip.frames[2].any()


def test_wide_tables_give_places_and_not_rotations(tmp_path: Path) -> None:
    path = write_csv_wide(tmp_path)
    clip = only("csv-wide", path)
    np.testing.assert_allclose(clip.frames[:, 0], body(4, 3), rtol=1e-5)
    assert clip.fps == 50
    assert get_reader("csv-wide").info(path).topology.joints == ("hip_center", "hip_left", "knee_left")


def test_wide_tables_may_be_xsens_sheets(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "Frame,Pelvis x,Pelvis y,Pelvis z,L5 x,L5 y,L5 z,Head x,Head y,Head z\n0,1,2,3,4,5,6,7,8,9\n"
    )
    assert sniff_reader(tmp_path).name == "csv-wide"
    assert only("csv-wide", tmp_path).frames[0, 0].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


@pytest.mark.parametrize("write", [write_array, write_json_lines])
def test_plain_arrays_need_a_topology_and_take_it(write, tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(
        InputError, match=r"topology=NAME or a TOML file \(those with 20 joints: kinect-v1, kinect-v1-2d\)"
    ):
        get_reader("arrays").info(path)
    np.testing.assert_array_equal(only("arrays", path).frames[:, 0], body(2, 20))
    prepare(
        "auto", path, tmp_path / "store", options={"topology": "kinect-v1"}, normalisation=(), progress=False
    )
    assert open_store(tmp_path / "store").topology.name == "kinect-v1"
    with pytest.raises(InputError, match="do not fit topology 'coco-17'"):
        with_options(get_reader("arrays"), {"topology": "coco-17"}).info(path)


def test_plain_arrays_may_have_persons_and_scores(tmp_path: Path) -> None:
    array = np.concatenate([body(6, 20).reshape(3, 2, 20, 3), np.ones((3, 2, 20, 1))], axis=-1)
    array[0, 1, 4, 3] = 0.0
    np.save(tmp_path / "a.npy", array)
    clip = only("arrays", tmp_path / "a.npy")
    assert clip.frames.shape == (3, 2, 20, 3)
    assert not clip.frames[0, 1, 4].any()


@pytest.mark.parametrize("integers", [False, True])
def test_c3d_gives_metres_with_y_up(integers: bool, tmp_path: Path) -> None:
    path = write_c3d(tmp_path, integers)
    clip = only("c3d", path)
    x, y, z = body(2, 3).transpose(2, 0, 1)
    np.testing.assert_allclose(clip.frames[:, 0], np.stack([x, z, -y], axis=-1), atol=1e-4)
    assert clip.fps == 120
    assert get_reader("c3d").info(path).topology.joints == ("knee_left", "knee_right", "head")


@pytest.mark.parametrize("integers", [False, True])
def test_c3d_of_dec_computers_has_the_values_of_the_intel_file(integers: bool, tmp_path: Path) -> None:
    path = write_c3d(tmp_path, integers)
    intel, data = only("c3d", path).frames, bytearray(path.read_bytes())

    def to_dec(place: int) -> None:  # four times the number, halves exchanged
        (value,) = struct.unpack_from("<f", data, place)
        low, high = struct.unpack("<2H", struct.pack("<f", 4 * value))
        struct.pack_into("<2H", data, place, high, low)

    data[512 + 3] = 85
    for place in (12, 20, data.index(b"SCALE") + 9, data.index(b"RATE") + 8):
        to_dec(place)
    if not integers:
        for place in range(1024, len(data), 4):
            to_dec(place)
    path.write_bytes(data)
    clip = only("c3d", path)
    np.testing.assert_array_equal(clip.frames, intel)
    assert clip.fps == 120


def test_c3d_with_more_parameters_than_it_declares_is_read(tmp_path: Path) -> None:
    path = write_c3d(tmp_path)
    whole, data = only("c3d", path).frames, bytearray(path.read_bytes())
    # two blocks of parameters, of which one is declared; the labels are in the second
    place = data.index(b"LABELS") - 2
    filler = (
        struct.pack("bb", 4, 1)
        + b"NOTE"
        + struct.pack("<h", 4 + 200)
        + bytes([255, 1, 200])
        + b"x" * 200
        + b"\0"
    )
    section = bytes(data[512:place]) + filler + filler + bytes(data[place:1024]).rstrip(b"\0") + b"\0"
    struct.pack_into("<H", data, 16, 4)
    path.write_bytes(bytes(data[:512]) + section.ljust(1024, b"\0") + bytes(data[1024:]))
    np.testing.assert_array_equal(only("c3d", path).frames, whole)


def test_c3d_of_a_markerless_system_gives_the_origins_of_its_segments(tmp_path: Path) -> None:
    path = write_c3d_segments(tmp_path)
    clip = only("c3d", path)
    assert (clip.fps, get_reader("c3d").info(path).topology.joints) == (85, ("hip_left", "knee_left"))
    x, y, z = body(2, 3)[:, 1:].transpose(2, 0, 1)
    wanted = np.stack([x, z, -y], axis=-1)
    wanted[1, 1] = 0  # missing
    np.testing.assert_allclose(clip.frames[:, 0], wanted, atol=1e-6)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InputError, match="2 frames of 3 segments are more than the file holds"):
        only("c3d", path)


def test_c3d_agrees_with_another_reader_and_writer(tmp_path: Path) -> None:
    c3d = pytest.importorskip("c3d")
    writer = c3d.Writer(point_rate=100.0, point_units="m  ")
    points = np.concatenate([body(6, 4), np.zeros((6, 4, 2))], axis=2).astype(np.float32)
    points[2, 1, 3] = -1
    writer.set_point_labels(["A", "B", "C", "D"])
    writer.add_frames([(frame, np.zeros((0, 0))) for frame in points])
    with open(tmp_path / "a.c3d", "wb") as file:
        writer.write(file)
    clip = only("c3d", tmp_path / "a.c3d")
    with open(tmp_path / "a.c3d", "rb") as file:
        theirs = np.array([frame[:, :4] for _, frame, _ in c3d.Reader(file).read_frames()])
    seen = theirs[..., 3] >= 0
    np.testing.assert_allclose(clip.frames[:, 0][seen], theirs[..., :3][seen], rtol=1e-5)
    assert not clip.frames[2, 0, 1].any()
    assert clip.fps == 100


def test_human36m_keeps_the_used_joints_and_its_subjects(tmp_path: Path) -> None:
    from halp.data.readers.npz_sets import USED

    path = write_h36m(tmp_path)
    prepare("auto", path, tmp_path / "store", normalisation=(), progress=False)
    store = open_store(tmp_path / "store")
    assert store.names.tolist() == ["S1/Walking 1", "S1/Walking 2", "S9/Sitting"]
    assert (store.class_names, store.labels.tolist()) == (["Sitting", "Walking"], [1, 1, 0])
    assert [part.tolist() for part in store.split("xsub")] == [[0, 1], [2]]
    x, y, z = body(2, 32)[:, list(USED)].transpose(2, 0, 1)
    np.testing.assert_allclose(store.clip(0)[:, 0], np.stack([x, z, -y], axis=-1), rtol=1e-6)
    assert store.columns["fps"].tolist() == [50, 50, 50]


class _Attack:
    def __reduce__(self) -> tuple:
        return (os.system, ("touch attacked",))


def test_a_pickle_in_an_array_file_can_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data_3d_h36m.npz", positions_3d=np.array({"S1": _Attack()}, dtype=object))
    with pytest.raises(InputError, match="is refused"):
        get_reader("h36m").info(tmp_path)
    assert not (tmp_path / "attacked").exists()


def test_amass_is_read_through_stored_joints_or_refused_with_the_remedy(tmp_path: Path) -> None:
    path = write_amass(tmp_path)
    clip = only("amass", path)
    x, y, z = body(2, 24)[:, :22].transpose(2, 0, 1)
    np.testing.assert_allclose(clip.frames[:, 0], np.stack([x, z, -y], axis=-1), rtol=1e-6)
    assert clip.fps == 120
    write_amass(tmp_path, joints=False)
    assert sniff_reader(path).name == "amass"
    with pytest.raises(InputError, match="no joints; give your"):
        get_reader("amass").info(path)


def test_freemocap_recordings_are_named_after_their_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_freemocap(tmp_path / "session" / name)
        (tmp_path / "session" / name / "recording_parameters.json").write_text(json.dumps({"landmarks": 33}))
    clips = read_all("freemocap", tmp_path / "session")
    assert [clip.name for clip in clips] == ["one", "two"]
    x, y, z = body(2, 33).transpose(2, 0, 1)
    np.testing.assert_allclose(clips[0].frames[:, 0], np.stack([x, z, -y], axis=-1), rtol=1e-5)
    assert sniff_reader(tmp_path / "session").name == "freemocap"


def test_mediapipe_may_be_keyed_by_frame_and_name(tmp_path: Path) -> None:
    clip = only("mediapipe", write_mediapipe_names(tmp_path))
    np.testing.assert_allclose(clip.frames[:, 0], body(2, 33) * [-1, -1, 1], rtol=1e-6)


def test_mediapipe_may_be_json_lines_and_have_nan(tmp_path: Path) -> None:
    frames = landmarks()
    frames[0][0][5]["x"] = float("nan")
    (tmp_path / "wave.jsonl").write_text("\n".join(json.dumps({"pose_landmarks": frame}) for frame in frames))
    assert sniff_reader(tmp_path).name == "mediapipe"
    clip = only("mediapipe", tmp_path)
    assert not clip.frames[0, 0, 5].any()
    assert clip.frames[1, 0, 5].any()


def test_a_table_with_two_classes_becomes_clips_of_both(tmp_path: Path) -> None:
    path = write_tutorial_csv(tmp_path)
    prepare("auto", path, tmp_path / "store", normalisation=(), progress=False)
    store = open_store(tmp_path / "store")
    assert store.class_names == ["happy", "sad"]
    assert (store.labels.tolist(), store.lengths.tolist()) == ([0, 1], [4, 4])
    assert store.columns["recording"].tolist() == ["coords", "coords"]
    assert store.columns["start"].tolist() == [0, 4]
    np.testing.assert_allclose(store.clip(1)[:, 0], body(4, 33, seed=1) * [-1, -1, 1], rtol=1e-4)


def test_a_table_whose_classes_alternate_is_refused(tmp_path: Path) -> None:
    path = write_tutorial_csv(tmp_path)
    head, *rows = path.read_text().splitlines()
    mixed = [row for pair in zip(rows[:4], rows[4:]) for row in pair] * 3
    path.write_text("\n".join([head, *mixed]) + "\n")
    with pytest.raises(InputError, match="the class changes 23 times in 24 rows"):
        read_all("mediapipe", path)


def test_a_wrong_format_by_name_points_to_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="prepare it with the format deeplabcut"):
        get_reader("csv").info(write_deeplabcut(tmp_path))
    (tmp_path / "bare.csv").write_text("0.5,0.5,1\n0.4,0.4,2\n")
    with pytest.raises(InputError, match="numbers and no names of columns"):
        get_reader("mediapipe").info(tmp_path / "bare.csv")
    with pytest.raises(InputError, match="prepare it with the format h36m"):
        get_reader("interchange").info(write_h36m(tmp_path))


def test_a_third_coordinate_is_not_taken_for_a_score(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).normal(size=(5, 17, 3))
    np.save(tmp_path / "walk.npy", frames)
    reader = with_options(get_reader("arrays"), {"topology": "coco-17"})
    (clip,) = [clip for item in reader.items(tmp_path) for clip in reader.read(item)]
    assert reader.info(tmp_path).topology.name == "coco-17-3d"
    np.testing.assert_allclose(clip.frames[:, 0], frames, rtol=1e-6)
    frames[..., 2] = 0.5
    np.save(tmp_path / "walk.npy", frames)
    assert reader.info(tmp_path).topology.name == "coco-17"


@pytest.mark.parametrize("front", ["", "7,", "wave,"], ids=["landmarks", "frame", "class"])
def test_landmark_tables_without_a_header_are_read_on_request(front: str, tmp_path: Path) -> None:
    values = body(4, 33, 4)
    text = "\n".join(front + ",".join(f"{value:g}" for value in frame.ravel()) for frame in values)
    (tmp_path / "walk.csv").write_text(text + "\n")
    with pytest.raises(InputError, match="header=false"):
        sniff_reader(tmp_path)
    reader = with_options(get_reader("mediapipe"), {"header": "false"})
    (clip,) = [clip for item in reader.items(tmp_path) for clip in reader.read(item)]
    np.testing.assert_allclose(clip.frames[:, 0], values[..., :3] * [-1, -1, 1], rtol=1e-6)
    assert reader.info(tmp_path).class_names == (("wave",) if front == "wave," else ())


def test_frames_without_rows_keep_their_place_in_time(tmp_path: Path) -> None:
    rows = [
        f"a,{frame},{joint},1,2,3" for frame in (0, 1, 2, 6, 7) for joint in ("head", "neck", "hip_center")
    ]
    (tmp_path / "gap.csv").write_text("\n".join(["clip,frame,joint,x,y,z", *rows]))
    (clip,) = [clip for item in get_reader("csv").items(tmp_path) for clip in get_reader("csv").read(item)]
    assert clip.present.tolist() == [True] * 3 + [False] * 3 + [True] * 2


def test_an_hdf5_file_of_no_known_layout_is_described(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "poses.h5", "w") as file:
        file["mine"] = np.ones(3)
    with pytest.raises(InputError, match=r"HDF5 with mine: export it from DeepLabCut"):
        sniff_reader(tmp_path)


def test_truth_values_and_lists_are_settings_of_a_reader_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from halp.data import readers

    @dataclass(frozen=True)
    class Settings:
        strict: bool = False
        joints: tuple[str, ...] = ()
        widths: tuple[int, ...] = ()
        scale: float = 1.0

    monkeypatch.setattr(readers, "_READERS", dict(readers._READERS))
    monkeypatch.setattr(readers, "_BUILDERS", dict(readers._BUILDERS))
    readers.register_reader("mine", Settings)(lambda settings: SimpleNamespace(description="mine"))
    # what a setting of this name may be in our readers does not hold for others
    options = {"strict": "true", "joints": "head,neck", "widths": "[1, 2]", "scale": "-1"}
    changed = with_options(get_reader("mine"), options)
    assert changed.settings == Settings(True, ("head", "neck"), (1, 2), -1.0)
    with pytest.raises(InputError, match="true or false"):
        with_options(get_reader("mine"), {"strict": "3"})
