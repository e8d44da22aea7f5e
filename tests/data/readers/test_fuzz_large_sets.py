"""Random damage to the files of the large data sets gives clips or `InputError`, nothing else.

`HALP_FUZZ_CASES` sets the number of cases a test; it is small by default.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

import numpy as np
from clip_samples import NAME, annotation, bodies, skeleton_text, write_pku, write_pyskl, write_trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.readers import Dropped, Item, get_reader
from halp.data.readers.ntu import parse_skeleton

# Every case is a new state of its file, so that none is answered from memory.
CLOCK = itertools.count(1, 1000)
CASES = int(os.environ.get("HALP_FUZZ_CASES", "50"))
fuzz = settings(
    max_examples=CASES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
WORDS = st.sampled_from(
    [
        "",
        "0",
        "1",
        "-1",
        "25",
        "24",
        "1e9",
        "1000000000",
        "nan",
        "inf",
        "-0.0",
        "x",
        "1_0",
        "٣",
        "\x00",
        "1e400",
        "\t",
        ",",
    ]
)
EDIT = st.tuples(
    st.sampled_from(["line", "word", "delete", "double", "cut", "byte"]), st.integers(0, 10**6), WORDS
)


def damaged(text: str, edits: list[tuple[str, int, str]]) -> bytes:
    """The text after some edits at pseudo-random places."""
    for kind, place, word in edits:
        lines = text.split("\n")
        row = place % len(lines)
        if kind == "line":
            lines[row] = word
        elif kind == "word":
            words = lines[row].split(" ")
            words[place // 7 % len(words)] = word
            lines[row] = " ".join(words)
        elif kind == "delete":
            del lines[row]
        elif kind == "double":
            lines.insert(row, lines[row])
        text = "\n".join(lines)
        if kind in ("cut", "byte"):
            at = place % (len(text) + 1)
            text = text[:at] if kind == "cut" else text[:at] + word + text[at + 1 :]
    return text.encode("utf-8", "surrogatepass")


SKELETON = skeleton_text(bodies(2, 2))


@fuzz
@given(st.lists(EDIT, min_size=1, max_size=3))
def test_damaged_skeleton_files(edits: list[tuple[str, int, str]]) -> None:
    with contextlib.suppress(InputError):
        frames = parse_skeleton(damaged(SKELETON, edits), Path("a.skeleton"))
        assert frames.shape[2:] == (25, 3)
        assert np.isfinite(frames).all()


@fuzz
@given(st.binary(max_size=300))
def test_random_bytes_as_skeleton_files(data: bytes) -> None:
    with contextlib.suppress(InputError):
        parse_skeleton(data, Path("a.skeleton"))


def read_everything(format_name: str, source: Path) -> None:
    reader = get_reader(format_name)
    reader.sniff(source)
    with contextlib.suppress(InputError):
        info = reader.info(source)
        for item in reader.items(source):
            for outcome in reader.read(Item(item.path, item.key)):
                assert isinstance(outcome, Clip | Dropped)
                if isinstance(outcome, Clip):
                    assert outcome.shape[2:] == (len(info.topology), info.topology.dimensions)


@fuzz
@given(st.lists(EDIT, min_size=1, max_size=3), st.booleans())
def test_damaged_pku_files(tmp_path: Path, edits: list[tuple[str, int, str]], label: bool) -> None:
    write_pku(tmp_path, frames=3, labels="3,1,2,2\n51,2,3,1\n")
    path = tmp_path / ("label" if label else "skeleton") / "A01N02-L.txt"
    path.write_bytes(damaged(path.read_text(), edits))
    read_everything("pku-mmd", tmp_path)


@fuzz
@given(st.data())
def test_damaged_trios(tmp_path: Path, data: st.DataObject) -> None:
    write_trio(tmp_path, "train", [NAME, "S001C001P001R001A001"], [3, 20])
    kind = data.draw(st.sampled_from(["data_joint.npy", "label.pkl", "num_frame.npy"]))
    path = tmp_path / f"train_{kind}"
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, min(len(whole), 400) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
    os.utime(path, ns=(0, next(CLOCK)))
    read_everything("authors", tmp_path)


@fuzz
@given(st.data())
def test_damaged_annotation_files(tmp_path: Path, data: st.DataObject) -> None:
    path = write_pyskl(
        tmp_path / "a.pkl", [annotation(frames=1, joints=17, dimensions=2)], {"train": ["a"], "val": [NAME]}
    )
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    os.utime(path, ns=(0, next(CLOCK)))
    read_everything("pyskl", path)
