"""Hostile pickles: no code runs, no memory beyond a small multiple of the file, no endless reading."""

from __future__ import annotations

import math
import os
import pickle
import re
import struct
import time
import tracemalloc
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from halp.core.errors import InputError
from halp.data import sandbox
from halp.data.ingest.prepare import prepare
from halp.data.sandbox import load_pickle
from halp.data.store import open_store

MIB = 2**20
CASES = int(os.environ.get("HALP_FUZZ_CASES", "30"))


class Raw:
    """An object whose pickle is a call of anything."""

    def __init__(self, *reduced: object) -> None:
        self.reduced = reduced

    def __reduce__(self) -> tuple:
        return self.reduced


def laughs(depth: int, kind: type = list) -> Any:
    """Two references to two references to … `depth` times: tiny in a file, endless to walk through."""
    value: Any = kind(["ha"])
    for _ in range(depth):
        value = kind([value, value])
    return value


def test_nothing_can_be_set_on_what_a_pickle_may_call(tmp_path: Path) -> None:
    # BUILD with slots would set attributes of whatever a name stands for.
    data = b"\x80\x04cnumpy\ndtype\nN}\x8c\t_functionNs\x86b."
    message, _, _ = refused(tmp_path / "a.pkl", data)
    assert "not plain data" in message


def annotations(count: int = 2, **changes: Any) -> bytes:
    """A PYSKL file, its first annotation changed."""
    clips = [
        {
            "frame_dir": f"clip{i}",
            "label": i,
            "total_frames": 4,
            "keypoint": np.ones((1, 4, 25, 3), dtype=np.float16),
        }
        for i in range(count)
    ]
    clips[0].update(changes)
    return pickle.dumps({"split": {"xsub_train": ["clip0"], "xsub_val": ["clip1"]}, "annotations": clips})


def refused(path: Path, data: bytes) -> tuple[str, int, float]:
    """The sentence, the most memory held and the time needed to refuse a file."""
    path.write_bytes(data)
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(InputError) as caught:
            load_pickle(path)
        return str(caught.value), tracemalloc.get_traced_memory()[1], time.process_time() - began
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "arguments",
    [
        ((1, 5_000_000, 25, 3), "f4", b"abcd", 0, (0, 0, 0, 0)),  # one number seen as 1.5 GB
        ((1, 5_000_000, 25, 3), "f4"),  # memory that nobody filled
        ((10,), "O"),
        ((4,), "f4", b"x" * 64, 60, (-4,)),
    ],
)
def test_ndarray_cannot_be_called(arguments: tuple, tmp_path: Path) -> None:
    message, memory, _ = refused(tmp_path / "a.pkl", pickle.dumps(Raw(np.ndarray, arguments)))
    assert "calls something that is not plain data" in message
    assert memory < MIB


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("place", ["frame_dir", "label", "keypoint", "total_frames"])
def test_shared_nesting_is_refused_at_once(kind: type, place: str, tmp_path: Path) -> None:
    data = annotations(**{place: laughs(40, kind)})
    assert len(data) < 4000
    message, memory, _ = refused(tmp_path / "a.pkl", data)
    assert "its own parts without end" in message
    assert memory < MIB


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"split": laughs(40)}),
        pickle.dumps([["name"], laughs(60)]),
        b"\x80\x04}"
        + pickle.dumps(laughs(40, tuple))[2:-1]
        + b"K\x01s.",  # hashing such a key would never end
        b"\x80\x04]\x94h\x00a.",  # a list that holds itself
        b"\x80\x04)" + b"\x85" * 200 + b".",  # deeper than any reader walks
        b"\x80\x04(" + b"\x8f" * 600_000 + b"l.",  # a set of 216 bytes for every byte
        b"\x80\x04" + b"(" * 600_000 + b".",
        b"\x80\x04\x8b" + struct.pack("<I", 10**6) + b"\x01" * 10**6 + b".",  # a number of eight million bits
        b"\x80\x04X" + struct.pack("<I", 2**31 - 1) + b"a.",  # a text of a length nobody has
        b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"a.",
        b"\x80\x04\x96" + struct.pack("<Q", 2**40) + b"a.",
        b"\x80\x04r" + struct.pack("<I", 2**31 - 1) + b".",
        b"\x80\x05\x97.",  # a buffer that somebody else is to hand over
        b"\x80\x02c__builtin__\nset\n)\x81.",
        b"(iposix\nsystem\n.",
    ],
)
@pytest.mark.heavy
def test_programs_that_waste_memory_or_time_are_refused(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_SECONDS", 1.0)  # two of them are endless
    _, memory, _ = refused(tmp_path / "a.pkl", data)
    assert memory < 48 * MIB + 512 * len(data)  # an empty set alone takes 216 bytes


@pytest.mark.heavy
def test_one_text_encoded_many_times_is_paid_for(tmp_path: Path) -> None:
    text = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000
    call = b"c_codecs\nencode\nh\x00\x8c\x06latin1\x86Ra"
    _, memory, _ = refused(tmp_path / "a.pkl", b"\x80\x04" + text + b"\x940]" + call * 5000 + b".")
    assert memory < 100 * MIB


def test_one_array_under_many_names_is_refused(tmp_path: Path) -> None:
    shared = np.ones((1, 1000, 25, 3), dtype=np.float32)
    clips = [{"frame_dir": f"c{i}", "label": 0, "keypoint": shared} for i in range(1000)]
    data = pickle.dumps({"split": {}, "annotations": clips})
    assert len(data) < MIB
    message, _, _ = refused(tmp_path / "a.pkl", data)
    assert "its own parts without end" in message


@pytest.mark.parametrize("label", [10_000_000, 2_000_000_000, 2**62, -7])
def test_a_giant_label_costs_its_clip_and_no_memory(label: int, tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(annotations(label=label))
    tracemalloc.start()
    manifest = prepare("pyskl", tmp_path / "a.pkl", tmp_path / "store", progress=False)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert manifest.clips == 1
    assert re.search("class|label", manifest.dropped[0]["reason"])
    assert len(open_store(tmp_path / "store").class_names) == 2
    # reading keeps a block of 16 MiB, see `keep_memory`
    assert memory < 32 * MIB


def test_giant_labels_of_the_authors_trio_cost_no_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "train_data_joint.npy", np.ones((3, 3, 5, 25, 2), dtype=np.float32))
    np.save(tmp_path / "train_num_frame.npy", np.array([5, 5, 5]))
    (tmp_path / "train_label.pkl").write_bytes(pickle.dumps((["a", "b", "c"], [0, 1, 2_000_000_000])))
    manifest = prepare("authors", tmp_path, tmp_path / "store", progress=False)
    assert (manifest.clips, len(manifest.dropped)) == (2, 1)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=300)
    | npst.arrays(
        st.sampled_from(["<f4", ">f8", "f2", "i8", "<u2", "?", "U3", "S4"]),
        npst.array_shapes(min_dims=0, max_side=4),
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(-5, 5), inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=3).map(OrderedDict)
        | st.sets(st.text() | st.integers(-(2**63), 2**63), max_size=4)
        | st.frozensets(st.binary(max_size=3), max_size=4)
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    if isinstance(right, np.ndarray):
        left, right = (one.astype(one.dtype.newbyteorder("=")) for one in (left, right))
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(right, float):
        return type(left) is float and (left == right or (math.isnan(left) and math.isnan(right)))
    if isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in right)
    if isinstance(right, list | tuple):
        return (
            type(left) is type(right)
            and len(left) == len(right)
            and all(same(one, two) for one, two in zip(left, right))
        )
    return type(left) is type(right) and left == right


@settings(max_examples=2 * CASES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=plain, protocol=st.integers(0, 5))
def test_plain_data_comes_out_as_pickle_itself_reads_it(value: Any, protocol: int, tmp_path: Path) -> None:
    data = pickle.dumps(value, protocol=protocol)
    (tmp_path / "a.pkl").write_bytes(data)
    assert same(load_pickle(tmp_path / "a.pkl"), pickle.loads(data))  # noqa: S301


def test_what_python_2_wrote_is_read(tmp_path: Path) -> None:
    # protocol 0 and 2 of Python 2: texts are bytes, and array content is one of them
    old = (
        b"(dp0\nS'name'\np1\nS'S001'\np2\nsS'raw'\np3\ncnumpy.core.multiarray\n_reconstruct\np4\n(cnumpy\nndarray\np5\n"
        b"(I0\ntp6\nS'b'\np7\ntp8\nRp9\n(I1\n(I2\ntp10\ncnumpy\ndtype\np11\n(S'u1'\np12\nI0\nI1\ntp13\nRp14\n(I3\nS'|'\n"
        b"p15\nNNNI-1\nI-1\nI0\ntp16\nbI00\nS'\\x80\\xff'\np17\ntp18\nbs."
    )
    (tmp_path / "a.pkl").write_bytes(old)
    found = load_pickle(tmp_path / "a.pkl")
    assert found["name"] == "S001"
    np.testing.assert_array_equal(found["raw"], np.array([128, 255], dtype=np.uint8))
