"""PKU-MMD II, the authors' trio and PYSKL files: what they hold comes through, what is wrong is named."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from clip_samples import NAME, annotation, bodies, write_pku, write_pyskl, write_skeleton, write_trio
from reader_samples import read_all, shared

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.ingest.prepare import prepare
from halp.data.normalise import AUTHORS
from halp.data.readers import Dropped, sniff_reader
from halp.data.readers.pku import SPLITS, UNLISTED, _as_script, class_names, read_recording
from halp.data.store import open_store

NAMES = ("S001C001P001R001A001", "S001C002P003R001A002", "S002C003P008R002A060")


def test_pku_recordings_are_cut_by_their_labels(tmp_path: Path) -> None:
    joints = write_pku(tmp_path)
    first, second = read_all("pku-mmd", tmp_path)
    assert isinstance(first, Clip)
    assert isinstance(second, Clip)
    assert (first.name, first.label, first.subject, first.camera) == ("A01N02-L-001", 2, 2, 1)
    np.testing.assert_allclose(first.frames, joints[1:5], atol=1e-5)
    np.testing.assert_allclose(second.frames, joints[5:12], atol=1e-5)
    assert second.label == 50


@pytest.mark.parametrize(
    ("list_name", "split"), [("cross_subject_v2.txt", SPLITS[0]), ("cross_view_v2.txt", SPLITS[1])]
)
def test_pku_splits_and_left_out_recordings_equal_the_published_lists(list_name: str, split) -> None:
    lines = shared("data", "raw-samples", "pku", list_name).read_text().split("\n")
    train, test = ({name.strip() for name in lines[line].split(",") if name.strip()} for line in (1, 3))
    every = [f"A{a:02}N{n:02}-{camera}" for a in range(1, 27) for n in range(1, 14) for camera in "LMR"]
    every = [name for name in every if name not in UNLISTED]
    columns = {
        "subject": np.array([int(name[4:6]) for name in every]),
        "camera": np.array(["LMR".index(name[7]) + 1 for name in every]),
    }
    ours = [{every[index] for index in part} for part in split.indices(columns)]
    assert ours == [train, test]


def test_the_real_pku_recording_is_read_whole() -> None:
    recording = read_recording(shared("data", "raw-samples", "pku", "A10N08-L.txt"))
    assert recording.shape == (1040, 2, 25, 3)
    assert 0.65 < recording[:, 1].any(axis=(1, 2)).mean() < 0.75
    assert len(class_names()) == len(set(class_names())) == 51


def test_a_bad_pku_label_line_costs_only_its_own_clip(tmp_path: Path) -> None:
    write_pku(tmp_path, labels="3,2,5,2\n52,6,9,1\n4,nine,9,1\n5,11,40,1\n6,30,40,1\n7\n")
    kept, *others = read_all("pku-mmd", tmp_path)
    assert isinstance(kept, Clip)
    reasons = [one.reason for one in others if isinstance(one, Dropped)]
    assert [reason.split(", ")[1].split(":")[0] for reason in reasons] == [
        "line 2",
        "line 3",
        "line 5",
        "line 6",
    ]
    (cut,) = [one for one in others if isinstance(one, Clip)]
    assert len(cut.frames) == 2
    assert cut.repairs


def test_pku_without_labels_or_with_a_short_line_says_so(tmp_path: Path) -> None:
    write_pku(tmp_path, labels=None)
    with pytest.raises(InputError, match="no label file"):
        read_all("pku-mmd", tmp_path)
    write_pku(tmp_path)
    path = tmp_path / "skeleton" / "A01N02-L.txt"
    path.write_text(path.read_text().replace(" ", "", 1))
    with pytest.raises(InputError, match="line 1: "):
        read_all("pku-mmd", tmp_path)


def test_unlisted_pku_recordings_are_dropped_as_published(tmp_path: Path) -> None:
    write_pku(tmp_path, "A05N04-M")
    (dropped,) = read_all("pku-mmd", tmp_path)
    assert isinstance(dropped, Dropped)
    assert dropped.expected


def test_pku_is_cut_as_the_authors_script_cuts_it(tmp_path: Path) -> None:
    joints = write_pku(tmp_path)
    write_pku(tmp_path, "A05N04-M")
    write_pku(tmp_path, "A01N01-L")
    prepare(
        "pku-mmd", tmp_path, tmp_path / "store", normalisation=(), progress=False, options={"cut": "script"}
    )
    store = open_store(tmp_path / "store")
    frames = {str(name): store.clip(row) for row, name in enumerate(store.names)}
    np.testing.assert_allclose(frames["A01N02-L-001"], joints[2:5], atol=1e-5)  # the line says frames 2 to 5
    train, test = (sorted({str(store.names[row])[:8] for row in part}) for part in store.split("xsub"))
    assert train == ["A01N01-L"]
    assert test == ["A01N02-L", "A05N04-M"], "what is in no list is tested on, whoever performs"


def test_pku_clips_of_the_script_have_300_frames_at_most(tmp_path: Path) -> None:
    assert _as_script("1,10,500,2", 9, 500, 600) == (10, 310)
    assert _as_script("1,0,5,2", 0, 5, 600) == (0, 5)
    assert _as_script("1,590,700,2", 589, 600, 600) == (590, 600)
    assert _as_script("1,7,7,2", 6, 7, 600) == (6, 7)


def test_the_authors_trio_becomes_clips_of_their_true_length(tmp_path: Path) -> None:
    folder = tmp_path / "xsub"
    train = write_trio(folder, "train", NAMES[:2], [20, 7])
    write_trio(folder, "val", NAMES[2:], [11], seed=1)
    manifest = prepare("auto", folder, tmp_path / "store", progress=False)
    store = open_store(tmp_path / "store")
    assert manifest.format == "authors"
    assert store.names.tolist() == list(NAMES)
    assert store.lengths.tolist() == [20, 7, 11]
    np.testing.assert_array_equal(store.clip(1), train[1, :, :7].transpose(1, 3, 2, 0))
    assert store.normalisation == list(AUTHORS)
    assert store.labels.tolist() == [0, 1, 59]
    assert [part.tolist() for part in store.split("xsub-files")] == [[0, 1], [2]]
    assert (store.subjects[1], store.cameras[1]) == (3, 2)


def test_a_trio_that_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    write_trio(tmp_path, "train", NAMES, [20, 7, 0])
    outcomes = read_all("authors", tmp_path)
    assert isinstance(outcomes[2], Dropped)
    np.save(tmp_path / "train_num_frame.npy", np.array([20, 7]))
    with pytest.raises(InputError, match="2 lengths"):
        read_all("authors", tmp_path)
    (tmp_path / "train_num_frame.npy").unlink()
    with pytest.raises(InputError, match="num_frame"):
        read_all("authors", tmp_path)


def test_several_preparations_in_one_folder_are_told_apart(tmp_path: Path) -> None:
    write_trio(tmp_path / "xsub", "train", NAMES, [20, 7, 3])
    write_trio(tmp_path / "xview", "train", NAMES, [20, 7, 3])
    with pytest.raises(InputError, match="xsub, xview"):
        read_all("authors", tmp_path)


@pytest.mark.parametrize(("joints", "dimensions", "topology"), [(25, 3, "kinect-v2"), (17, 2, "coco-17")])
def test_pyskl_files_in_2d_and_3d_keep_joints_labels_and_splits(
    joints: int, dimensions: int, topology: str, tmp_path: Path
) -> None:
    entries = [annotation(name, number, joints, dimensions) for number, name in enumerate(NAMES)]
    split = {"xsub_train": list(NAMES[:2]), "xsub_val": [NAMES[2]]}
    source = write_pyskl(tmp_path / "ntu.pkl", entries, split)
    manifest = prepare("auto", source, tmp_path / "store", normalisation=(), progress=False)
    store = open_store(tmp_path / "store")
    assert manifest.format == "pyskl"
    assert (store.topology.name, store.persons, store.labels.tolist()) == (topology, 2, [0, 1, 2])
    np.testing.assert_array_equal(
        store.clip(0), entries[0]["keypoint"].transpose(1, 0, 2, 3).astype(np.float32)
    )
    assert [part.tolist() for part in store.split("xsub")] == [[0, 1], [2]]


def test_pyskl_joints_of_score_zero_become_missing(tmp_path: Path) -> None:
    score = np.ones((2, 4, 17), dtype=np.float16)
    score[1, 2, 5] = 0
    entry = annotation(joints=17, dimensions=2, keypoint_score=score)
    (clip,) = read_all("pyskl", write_pyskl(tmp_path / "a.pkl", [entry]))
    assert isinstance(clip, Clip)
    assert not clip.frames[2, 1, 5].any()
    assert clip.repairs


def test_bad_pyskl_annotations_are_named_one_by_one(tmp_path: Path) -> None:
    bad = [
        {
            **annotation("nan"),
            "keypoint": np.full((1, 2, 25, 3), np.nan, dtype=np.float32),
            "total_frames": 2,
        },
        {**annotation("short"), "total_frames": 10**9},
        {**annotation("axes"), "keypoint": np.zeros((3, 3))},
        {**annotation("label"), "label": "wave"},
        {**annotation("../../etc/passwd")},
        {**annotation("none"), "keypoint": None},
        {**annotation("zero"), "keypoint": np.zeros((1, 4, 25, 3))},
        "no dictionary",
    ]
    outcomes = read_all("pyskl", write_pyskl(tmp_path / "a.pkl", [annotation(), *bad]))
    assert isinstance(outcomes[0], Clip)
    assert all(isinstance(one, Dropped) for one in outcomes[1:])
    assert len(outcomes) == 1 + len(bad)


@pytest.mark.parametrize(
    "content",
    [[], {}, {"annotations": 3}, 7, {"annotations": [{}]}, {"annotations": [annotation(joints=19)]}],
)
def test_a_pickle_that_is_no_annotation_file_is_refused(content: object, tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=r"a\.pkl"):
        read_all("pyskl", path)


def test_every_large_set_is_recognised_and_none_is_taken_for_another(tmp_path: Path) -> None:
    write_skeleton(tmp_path / "ntu", NAME, bodies())
    write_pku(tmp_path / "pku-mmd")
    write_trio(tmp_path / "authors", "train", NAMES, [1, 2, 3])
    write_pyskl(tmp_path / "pyskl" / "a.pkl", [annotation()], {"train": []})
    for name in ("ntu", "pku-mmd", "authors", "pyskl"):
        assert sniff_reader(tmp_path / name).name == name
