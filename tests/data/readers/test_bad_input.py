"""Whatever is wrong with a file, a reader raises `InputError` with one sentence or names the clip it leaves
out.
"""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader_samples import BVH, OPTIONS, SAMPLES, files_of, write_coco17, write_csv, write_nwucla

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.readers import Dropped, Item, get_reader, with_options

CASES = int(os.environ.get("HALP_FUZZ_CASES", "30"))
JSON_SAMPLES = ("nw-ucla", "mediapipe", "openpose", "coco17", "azure-kinect")


def outcome(reader_name: str, source: Path) -> list[Clip | Dropped] | InputError:
    """What a reader makes of a source; anything but clips, dropped clips and `InputError` fails the test."""
    reader = with_options(get_reader(reader_name), OPTIONS.get(reader_name, {}))
    reader.sniff(source)
    try:
        info = reader.info(source)
        found = [clip for item in reader.items(source) for clip in reader.read(item)]
    except InputError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 1000
        return error
    for clip in found:
        assert isinstance(clip, (Clip, Dropped))
        if isinstance(clip, Clip):
            assert clip.shape[1] <= info.persons
            assert clip.shape[2:] == (len(info.topology), info.topology.dimensions)
            assert -1 <= clip.label < max(len(info.class_names), 1)
    return found


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_whole_sample_gives_clips_that_fit_its_topology(sample: str, tmp_path: Path) -> None:
    reader, write = SAMPLES[sample]
    source = write(tmp_path)
    found = outcome(reader, source)
    assert isinstance(found, list)
    assert isinstance(found[0], Clip)


def cut(sample: str, folder: Path, step: int) -> None:
    """Cut a sample after every `step` bytes (0: at 50 places): an error, or a clip that is no longer than
    before.
    """
    reader, write = SAMPLES[sample]
    source = write(folder)
    path = files_of(folder)[0]
    whole = path.read_bytes()
    frames = max(len(clip.frames) for clip in outcome(reader, source) if isinstance(clip, Clip))
    errors = 0
    cuts = range(0, len(whole), step or max(1, len(whole) // 50))
    for length in cuts:
        path.write_bytes(whole[:length])
        found = outcome(reader, source)
        errors += isinstance(found, InputError)
        if isinstance(found, list):
            assert all(len(clip.frames) <= frames for clip in found if isinstance(clip, Clip))
    assert errors > 0.5 * len(cuts)


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_file_cut_at_many_places_gives_an_error_or_a_shorter_clip(sample: str, tmp_path: Path) -> None:
    cut(sample, tmp_path, step=0)


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_file_cut_at_hundreds_of_places_gives_an_error_or_a_shorter_clip(
    sample: str, tmp_path: Path
) -> None:
    whole, cuts = tmp_path / "whole", tmp_path / "cuts"
    whole.mkdir()
    cuts.mkdir()
    SAMPLES[sample][1](whole)
    # Of long files every n-th byte, so that no format takes longer than the others.
    cut(sample, cuts, step=1 + files_of(whole)[0].stat().st_size // 200)


@pytest.mark.parametrize("sample", SAMPLES)
def test_an_unreadable_file_says_so(sample: str, tmp_path: Path) -> None:
    reader, write = SAMPLES[sample]
    source = write(tmp_path)
    path = files_of(tmp_path)[0]
    path.unlink()
    path.symlink_to(tmp_path / "gone" / path.name)
    found = outcome(reader, source)
    assert isinstance(found, InputError)
    assert str(tmp_path) in str(found)


@pytest.mark.parametrize("reader", sorted({reader for reader, _ in SAMPLES.values()}))
def test_an_empty_folder_and_a_missing_one_say_so(reader: str, tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=re.escape(str(source))):
            list(get_reader(reader).items(source))


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_symlink_loop_is_walked_once(sample: str, tmp_path: Path) -> None:
    reader, write = SAMPLES[sample]
    write(tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert isinstance(outcome(reader, tmp_path), list)


@pytest.mark.parametrize("sample", JSON_SAMPLES)
@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"people":' * 5000, "[" * 500 + "]" * 500, "null", "3", '"x"', "[]", "{}", "[[]]", "[null]", "[3]",
     "1" * 5000, "[1e999]", "NaN", '{"skeletons":[[[NaN,0,0]]]}', '{"people":[{}]}', '{"people":[{"pose_keypoints_2d":[1]}]}',
     '[{"keypoints":null}]', '[{"keypoints":{}}]', '[{"keypoints":[' + "1," * 50 + "1e400]}]", '{"frames":3}', "\ud83d",
     '{"instance_info":{}}', '{"pose_landmarks":[[]]}', '[{"pose_landmarks":3}]', '[{"landmarks":[{"x":1}]}]'],
    ids=range(26),
)  # fmt: skip
def test_json_of_another_kind_is_refused(sample: str, text: str, tmp_path: Path) -> None:
    reader, write = SAMPLES[sample]
    source = write(tmp_path)
    files_of(tmp_path)[0].write_bytes(text.encode("utf-8", "surrogatepass"))
    found = outcome(reader, source)
    dropped = isinstance(found, list) and found and all(isinstance(clip, Dropped) for clip in found)
    assert isinstance(found, InputError) or dropped


def test_a_billion_declared_frames_are_not_believed(tmp_path: Path) -> None:
    (tmp_path / "a.bvh").write_text(BVH.replace("Frames: 2", "Frames: 1000000000"))
    with pytest.raises(InputError, match=r"line 22: 1000000000 frames .*2 lines"):
        get_reader("bvh").read(Item(tmp_path / "a.bvh"))


def test_a_message_stays_short_whatever_it_quotes(tmp_path: Path) -> None:
    for number in ("9" * 5000, "x" * 5000):
        (tmp_path / "a.bvh").write_text(BVH.replace("OFFSET 1 0 0", f"OFFSET {number} 0 0"))
        assert isinstance(outcome("bvh", tmp_path), InputError)


@pytest.mark.parametrize("kind", [np.float16, np.int64, np.uint8, np.longdouble])
def test_numbers_of_any_kind_are_read(kind: type, tmp_path: Path) -> None:
    _, write = SAMPLES["interchange"]
    arrays = dict(np.load(write(tmp_path)))
    joints = np.ones(arrays["joints"].shape, kind)
    np.savez(tmp_path / "set.npz", **(arrays | {"joints": joints}))
    assert all(isinstance(clip, Clip) for clip in outcome("interchange", tmp_path))
    joints[0] = np.iinfo(kind).min if kind is np.int64 else joints[0]
    np.savez(tmp_path / "set.npz", **(arrays | {"joints": joints}))
    assert isinstance(outcome("interchange", tmp_path)[0], Dropped if kind is np.int64 else Clip)


def test_names_in_a_table_cannot_lead_out_of_a_folder(tmp_path: Path) -> None:
    path = write_csv(tmp_path)
    for name in ("../../x", "/etc/passwd", "a/../b", "..\\x", "x\x07"):
        path.write_text(write_csv(tmp_path).read_text().replace("anna", name))
        found = outcome("csv", path)
        assert isinstance(found, InputError)
        assert "cannot name a clip" in str(found)


def test_a_bare_file_is_read_without_its_source(tmp_path: Path) -> None:
    assert get_reader("nw-ucla").read(Item(write_nwucla(tmp_path)))[0].name == "a01_s01_e00_v01"
    assert get_reader("coco17").read(Item(write_coco17(tmp_path)))[0].name == "walk"


NASTY = [
    b"", b"0", b"-1", b"1e999", b"nan", b"NaN", b"inf", b"-Infinity", b"null", b"[]", b"{}", b"[[]]", b'"x"', b'""', b"1e300",
    b"9" * 30, b"9" * 5000, b"1000000000", b"abc", b"\0", b"\xff", b"\n", b",", b'"', b"{", b"}", b"[", b"]", b"../../x", b"0.5",
    b"true", b"1_0", b"\xef\xbb\xbf", b"\r",
    b"Frames: 1000000000", b"\xd9\xa3", "²".encode(), b"-0", b"0x10", b"[[[[[[[[[[1]]]]]]]]]]",
]  # fmt: skip
TOKEN = re.compile(rb"[^\s,:;\[\]{}\"]+")


def damage(data: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    """Edits by kind, relative position and payload: bytes, tokens, brackets with all they hold, lines, the
    end.
    """
    for kind, position, payload in edits:
        at = int(position * len(data))
        if kind == "cut":
            data = data[:at]
        elif kind == "insert":
            data = data[:at] + payload + data[at:]
        elif kind == "byte":
            data = data[:at] + payload[:1] + data[at + 1 :]
        elif kind == "token" and (token := TOKEN.search(data, at)):
            data = data[: token.start()] + payload + data[token.end() :]
        elif kind == "bracket":
            start = max(data.find(b"[", at), data.find(b"{", at))
            end = _closing(data, start)
            data = data[:start] + payload + data[end:] if start >= 0 else data
        elif kind in ("drop line", "double line"):
            lines = data.split(b"\n")
            row = int(position * len(lines))
            lines[row : row + 1] = [] if kind == "drop line" else [lines[row]] * 2
            data = b"\n".join(lines)
    return data


def _closing(data: bytes, start: int) -> int:
    depth = 0
    for place in range(max(start, 0), len(data)):
        depth += (data[place] in b"[{") - (data[place] in b"]}")
        if depth == 0:
            return place + 1
    return len(data)


KINDS = ["cut", "insert", "byte", "token", "token", "bracket", "drop line", "double line"]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(NASTY) | st.binary(min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=4,
)
FUZZ = settings(
    max_examples=CASES,
    deadline=None,
    derandomize=CASES <= 60,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_damage_raises_anything_but_an_input_error(sample: str, tmp_path: Path) -> None:
    reader, write = SAMPLES[sample]
    source = write(tmp_path)
    path = files_of(tmp_path)[0]
    whole = path.read_bytes()

    @FUZZ
    @given(EDITS)
    def check(edits: list[tuple[str, float, bytes]]) -> None:
        path.write_bytes(damage(whole, edits))
        outcome(reader, source)

    check()


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_rubbish_raises_anything_but_an_input_error(sample: str, tmp_path: Path) -> None:
    reader, write = SAMPLES[sample]
    source = write(tmp_path)
    path = files_of(tmp_path)[0]
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["people", "keypoints", "skeletons", "landmarks", "frames", "instances", "x", "y", "z"]),
            inner,
            max_size=3,
        ),
        max_leaves=8,
    )  # fmt: skip

    @settings(FUZZ, max_examples=max(CASES // 4, 1))
    @given(
        st.binary(max_size=200)
        | st.text(max_size=200).map(str.encode)
        | values.map(lambda value: json.dumps(value).encode())
    )
    def check(content: bytes) -> None:
        path.write_bytes(content)
        outcome(reader, source)

    check()


def test_no_array_in_an_interchange_file_raises_anything_but_an_input_error(tmp_path: Path) -> None:
    reader, write = SAMPLES["interchange"]
    path = write(tmp_path)
    arrays = dict(np.load(path))
    odd = [
        np.zeros(0), np.zeros((0, 1, 20, 3)), np.array(3), np.array("x"), np.array(["a", "b"]), np.array("{}"), np.array("[]"),
        np.full((4, 1, 20, 3), np.nan), np.full((4, 1, 20, 3), 1e30), np.zeros((4, 1, 20, 2), np.float16), np.array([1j]),
        np.array([0, 4]), np.array([0, 9, 4]), np.array([-1, 2, 4]), np.array([0, 2, 4], np.uint8), np.zeros((2, 2), int),
        np.array([2**63], np.uint64), np.array(["2020-01-01"], "M8[D]"), np.zeros(2, "V4"), np.array(["é" * 300, "\0"]),
    ]  # fmt: skip

    @FUZZ
    @given(
        st.dictionaries(
            st.sampled_from([*sorted(arrays), "other"]), st.integers(-1, len(odd) - 1), min_size=1, max_size=3
        )
    )
    def check(changes: dict[str, int]) -> None:
        changed = {
            key: odd[changes[key]] if changes.get(key, -1) >= 0 else value for key, value in arrays.items()
        }
        changed = {key: value for key, value in changed.items() if changes.get(key) != -1}
        stream = io.BytesIO()
        np.savez(stream, **changed)
        path.write_bytes(stream.getvalue())
        outcome(reader, path)

    check()
