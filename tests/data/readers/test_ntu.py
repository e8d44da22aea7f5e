"""Raw NTU RGB+D: what the names say, what the bodies are, the published counts, and every way a file can be
wrong.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from clip_samples import NAME, bodies, skeleton_text, write_skeleton
from reader_samples import shared

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.ingest.prepare import prepare
from halp.data.normalise import AUTHORS, normalise
from halp.data.readers import Dropped, Item, get_reader
from halp.data.readers.ntu import (
    SPLITS_60,
    SPLITS_120,
    class_names,
    missing_samples,
    parse_name,
    parse_skeleton,
)
from halp.skeleton import KINECT_V2

COUNTS_60 = {"xsub": (40_091, 16_487), "xview": (37_646, 18_932)}
COUNTS_120 = {"xsub": (63_026, 50_919), "xset": (54_468, 59_477)}


def published_names(which: int) -> list[str]:
    with gzip.open(shared("data", "raw-samples", "ntu", f"names-{which}.txt.gz"), "rt") as file:
        return file.read().split()


def missing_names() -> list[str]:
    return [
        f"S{one.setup:03}C{one.camera:03}P{one.performer:03}R{one.repetition:03}A{one.action:03}"
        for one in missing_samples()
    ]


def read(path: Path) -> Clip | Dropped:
    (outcome,) = get_reader("ntu").read(Item(path))
    return outcome


def test_the_name_states_class_subject_camera_setup_and_repetition(tmp_path: Path) -> None:
    clip = read(write_skeleton(tmp_path))
    assert isinstance(clip, Clip)
    assert (clip.name, clip.label, clip.subject, clip.camera) == (NAME, 12, 3, 2)
    assert clip.extra == {"setup": 1, "repetition": 2}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_joints_come_through_unchanged_with_either_line_end(tmp_path: Path, end: str) -> None:
    joints = bodies(4, 2)
    path = write_skeleton(tmp_path, joints=joints, end=end)
    np.testing.assert_array_equal(parse_skeleton(path.read_bytes(), path), joints)


def test_odd_spacing_is_read_the_slow_way_with_the_same_result(tmp_path: Path) -> None:
    joints = bodies(2, 2)
    text = skeleton_text(joints).replace(" 277.4", "  277.4").replace(" 2\n", " 2 \n")
    np.testing.assert_array_equal(parse_skeleton(text.encode(), tmp_path), joints)


def test_of_four_bodies_the_two_that_move_most_are_kept_and_the_rest_is_reported(tmp_path: Path) -> None:
    joints = np.repeat(bodies(1, 4), 6, axis=0)
    for person, scale in enumerate((0.1, 3.0, 0.2, 5.0)):
        joints[:, person] *= scale
    clip = read(write_skeleton(tmp_path, joints=np.round(joints, 4)))
    assert isinstance(clip, Clip)
    np.testing.assert_allclose(clip.frames, joints[:, [3, 1]], rtol=1e-3)
    assert clip.repairs == ("the 2 of 4 bodies that move most kept",)


def test_frames_without_a_body_are_kept_reported_and_filled_by_the_authors_steps(tmp_path: Path) -> None:
    joints, there = bodies(5, 1), np.ones((5, 1), dtype=bool)
    there[3:] = False
    clip = read(write_skeleton(tmp_path, joints=joints, there=there))
    assert isinstance(clip, Clip)
    assert clip.repairs == ("2 of 5 frames have no body",)
    filled = normalise(clip.frames, KINECT_V2, ("fill",))
    np.testing.assert_array_equal(filled[:, 0], joints[[0, 1, 2, 0, 1], 0])


def test_bodies_and_normalised_clips_equal_the_authors_on_the_six_real_files() -> None:
    reference = np.load(shared("fixtures", "ntu_reference.npz"))
    raw, normalised = reference["raw"], reference["normalised"]
    ends = np.cumsum(reference["frames"])
    for name, length, end in zip(reference["names"], reference["frames"], ends, strict=True):
        clip = read(shared("data", "raw-samples", "ntu", str(name)))
        assert isinstance(clip, Clip)
        frames = np.zeros((length, 2, 25, 3), dtype=np.float32)
        frames[:, : clip.shape[1]] = clip.frames
        np.testing.assert_array_equal(frames, raw[:, end - length : end].transpose(1, 3, 2, 0))
        ours = normalise(frames, KINECT_V2, AUTHORS)
        np.testing.assert_allclose(ours, normalised[:, end - length : end].transpose(1, 3, 2, 0), atol=1e-5)


def test_both_lists_of_missing_samples_are_built_in() -> None:
    assert (len(missing_samples()), sum(one.of_60 for one in missing_samples())) == (535, 302)
    assert (len(class_names()), len(set(class_names()))) == (120, 120)


def test_a_listed_sample_is_dropped_without_being_opened(tmp_path: Path) -> None:
    path = tmp_path / f"{missing_names()[0]}.skeleton"
    path.write_text("no skeleton")
    outcome = read(path)
    assert isinstance(outcome, Dropped)
    assert outcome.expected


def columns_of(names: list[str]) -> dict[str, np.ndarray]:
    samples = [parse_name(name) for name in names]
    fields = {"subject": "performer", "camera": "camera", "setup": "setup"}
    return {
        column: np.array([getattr(sample, field) for sample in samples]) for column, field in fields.items()
    }


@pytest.mark.parametrize(
    ("which", "splits", "counts"), [(60, SPLITS_60, COUNTS_60), (120, SPLITS_120, COUNTS_120)]
)
@pytest.mark.heavy
def test_the_splits_give_the_published_counts_on_the_published_names(which: int, splits, counts) -> None:
    columns = columns_of(published_names(which))
    assert {split.name for split in splits} == counts.keys()
    for split in splits:
        assert tuple(map(len, split.indices(columns))) == counts[split.name]


@pytest.mark.heavy
def test_an_invented_tree_of_real_names_is_split_as_its_names_are_and_names_what_is_dropped(
    tmp_path: Path,
) -> None:
    original = tmp_path / "original"
    original.write_text(skeleton_text(bodies(1, 1)))
    # every fortieth clip: the published counts are those of all names, which the test above takes
    names = {"ntu-60": published_names(60)[::40], "auto": published_names(120)[::40]}
    for format_name, dropped in (("ntu-60", 302), ("auto", 535)):
        tree = tmp_path / f"tree-{format_name}"
        tree.mkdir()
        for name in [*names[format_name], *missing_names()]:
            os.link(original, tree / f"{name}.skeleton")
        manifest = prepare(format_name, tree, tmp_path / format_name, normalisation=(), progress=False)
        sizes = {name: tuple(split.values()) for name, split in manifest.splits.items()}
        columns = columns_of(names[format_name])
        splits = SPLITS_60 if format_name == "ntu-60" else SPLITS_120
        assert sizes == {split.name: tuple(map(len, split.indices(columns))) for split in splits}
        assert manifest.clips == len(names[format_name])
        expected = {name for name in missing_names() if format_name == "auto" or parse_name(name).of_60}
        assert {one["name"] for one in manifest.dropped} == expected
        assert manifest.expected == len(manifest.dropped) == dropped


def test_truncation_at_every_byte_gives_the_sentence_or_loses_only_the_line_end(tmp_path: Path) -> None:
    joints = bodies(1, 1)
    whole = skeleton_text(joints).encode()
    path = tmp_path / f"{NAME}.skeleton"
    for length in range(len(whole)):
        if length == len(whole) - 1:
            np.testing.assert_array_equal(parse_skeleton(whole[:length], path), joints)
        else:
            with pytest.raises(InputError, match=r"line|body"):
                parse_skeleton(whole[:length], path)


def changed(number: int, line: str) -> bytes:
    lines = skeleton_text(bodies(2, 1)).split("\n")
    lines[number] = line
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", "line 1"),
        (b"0\n", "line 1"),
        (b"-3\n", "line 1"),
        (b"1000000000\n1\n", "line 1"),
        (b"9" * 6000, "line 1"),
        (b"\xff\xfe\x00", "byte 0"),
        (b"1\n0\n", "has a body"),
        (changed(0, "1000000000"), "line 1"),
        (changed(0, "1"), "line 29"),
        (changed(0, "3"), "line 58"),
        (changed(0, "two"), "line 1"),
        (changed(1, "1000000000"), "line 2"),
        (changed(1, "2"), "line"),
        (changed(3, "24"), "line 4"),
        (changed(3, "1e1"), "line 4"),
        (changed(7, "1 2 three 4 5 6 7 8 9 10 11 12"), "line 8"),
        (changed(7, "1 2 3"), "line 8"),
        (changed(7, "1 nan 3 4 5 6 7 8 9 10 11 12"), "line 8"),
        (changed(7, "1 2 inf 4 5 6 7 8 9 10 11 12"), "line 8"),
        (changed(7, "1 2 1e300 4 5 6 7 8 9 10 11 12"), "line 8"),
        (changed(7, ""), "line 8"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place(data: bytes, where: str, tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.skeleton"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert where in str(caught.value)
    assert "; " in str(caught.value)


def test_an_unknown_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no action 121"):
        read(write_skeleton(tmp_path, "S001C002P003R002A121"))


def test_a_tree_with_one_sample_of_120_has_the_splits_of_120(tmp_path: Path) -> None:
    write_skeleton(tmp_path)
    assert {split.name for split in get_reader("ntu").info(tmp_path).splits} == {"xsub", "xview"}
    write_skeleton(tmp_path, "S018C001P008R001A061")
    assert {split.name for split in get_reader("ntu").info(tmp_path).splits} == {"xsub", "xset"}
    assert len(list(get_reader("ntu-60").items(tmp_path))) == 1


def converted(folder: Path, content: object, name: str = NAME) -> Path:
    path = folder / f"{name}.skeleton.npy"
    np.save(path, np.array(content, dtype=object), allow_pickle=True)
    return path


def body_keys(joints: np.ndarray) -> dict[str, np.ndarray]:
    return {f"skel_body{body}": joints[:, body].astype(float) for body in range(joints.shape[1])}


def test_the_converted_form_gives_the_clip_of_the_raw_form(tmp_path: Path) -> None:
    joints, there = bodies(4, 2), np.ones((4, 2), dtype=bool)
    there[2] = False
    raw = read(write_skeleton(tmp_path, joints=joints, there=there))
    path = converted(
        tmp_path, {"file_name": NAME, "nbodys": [2, 2, 2], **body_keys(joints * there[..., None, None])}
    )
    clip = read(path)
    assert isinstance(raw, Clip)
    assert isinstance(clip, Clip)
    np.testing.assert_array_equal(clip.frames, raw.frames)
    assert clip.shape[1] == 2
    assert (clip.name, clip.label, clip.subject, clip.camera, clip.extra, clip.repairs) == (
        (raw.name, raw.label, raw.subject, raw.camera, raw.extra, raw.repairs)
    )  # fmt: skip


def test_a_folder_of_converted_files_is_recognised_and_prepared(tmp_path: Path) -> None:
    folder = tmp_path / "converted"
    folder.mkdir()
    for name in ("S001C001P001R001A001", "S001C002P003R001A010"):
        converted(folder, body_keys(bodies(3, 1)), name)
    assert prepare("auto", folder, tmp_path / "store", normalisation=(), progress=False).splits == {
        "xsub": {"train": 1, "test": 1},
        "xview": {"train": 1, "test": 1},
    }


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ({"nbodys": [1]}, "no 'skel_body0'"),
        ([1, 2], "no 'skel_body0'"),
        ({"skel_body0": [1.0]}, "not \\(frames, 25, 3\\)"),
        ({**body_keys(bodies(3, 1)), "skel_body1": np.ones((2, 25, 3))}, "'skel_body1'"),
        (body_keys(np.full((2, 1, 25, 3), np.nan)), "joint position is invalid"),
        (body_keys(np.zeros((2, 1, 25, 3))), "has a body"),
        ({"skel_body0": Path("x")}, "refused"),
    ],
)
def test_a_malformed_converted_file_is_refused(content: object, what: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=what):
        read(converted(tmp_path, content))


def test_a_truncated_or_plain_array_is_not_a_converted_file(tmp_path: Path) -> None:
    path = converted(tmp_path, body_keys(bodies(1, 1)))
    whole = path.read_bytes()
    for length in (0, 5, 9, 60, 128, 300, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"converted|pickle"):
            read(path)
    np.save(path, np.zeros((3, 25, 3)))
    with pytest.raises(InputError, match="plain numbers"):
        read(path)


def ten_classes() -> Path:
    """The folder of the converted classes A001 to A010, `HALP_NTU10` or of the shared data, or the test is
    skipped.
    """
    return Path(os.environ["HALP_NTU10"]) if "HALP_NTU10" in os.environ else shared("data", "ntu10")


def test_both_forms_of_the_real_sample_are_equal() -> None:
    npy = read(ten_classes() / "S001C001P001R001A001.skeleton.npy")
    raw = read(shared("data", "raw-samples", "ntu", "S001C001P001R001A001.skeleton"))
    assert isinstance(raw, Clip)
    assert isinstance(npy, Clip)
    np.testing.assert_array_equal(npy.frames, raw.frames)


def test_ten_whole_classes_have_the_counts_of_the_official_rules() -> None:
    samples = [parse_name(item.path.name) for item in get_reader("ntu-60").items(ten_classes())]
    columns = {
        "subject": np.array([one.performer for one in samples]),
        "camera": np.array([one.camera for one in samples]),
    }
    counts = {split.name: tuple(map(len, split.indices(columns))) for split in SPLITS_60}
    assert counts == {"xsub": (6_667, 2_739), "xview": (6_247, 3_159)}


def test_symlink_loops_end_and_an_empty_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    write_skeleton(folder)
    (folder / "loop").symlink_to(tmp_path / "a", target_is_directory=True)
    (folder / "dangling.skeleton").symlink_to(tmp_path / "nowhere")
    assert len(list(get_reader("ntu").items(tmp_path))) == 1
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="no file is named like"):
        list(get_reader("ntu").items(empty))


@pytest.mark.skipif(os.name != "posix", reason="needs a file that is not a regular file")
def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{NAME}.skeleton")
    with pytest.raises(InputError, match="not a regular file"):
        read(tmp_path / f"{NAME}.skeleton")


@pytest.mark.skipif(os.name != "posix", reason="limits of a process are set the POSIX way")
def test_a_hostile_file_does_not_cost_memory(tmp_path: Path) -> None:
    # Many frames and one with very many bodies: an array of all places would have more than 10^11 numbers.
    path = tmp_path / f"{NAME}.skeleton"
    path.write_text("1000000\n" + "0\n" * 999_999 + "1000000\n")
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n"
        "from pathlib import Path; from halp.data.readers import Item, get_reader\n"
        f"get_reader('ntu').read(Item(Path({str(path)!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "InputError" in done.stderr
    assert "MemoryError" not in done.stderr
