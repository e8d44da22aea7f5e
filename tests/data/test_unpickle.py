"""The restricted unpickler builds plain data and arrays of every protocol, and nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halp.core.errors import InputError
from halp.data.sandbox import load_pickle

CASES = int(os.environ.get("HALP_FUZZ_CASES", "30"))
PLAIN = {
    "half": np.arange(24, dtype=np.float16).reshape(2, 3, 4),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "swapped": np.arange(3, dtype=">f4"),
    "empty": np.zeros((0, 3)),
    "texts": np.array(["a", "bb"]),
    "truth": np.array([True, False]),
    "whole": np.int64(7),
    "real": np.float32(2.5),
    "list": [1, 2.5, "three", None, True, b"", b"four", 10**30],
    "sets": [{1, 2}, frozenset({3})],
    "nested": {"a": [({"b": ()},)]},
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_and_arrays_come_through(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(PLAIN, protocol=protocol))
    loaded = load_pickle(path)
    for key, value in PLAIN.items():
        if isinstance(value, np.ndarray | np.generic):
            np.testing.assert_array_equal(loaded[key], value)
            assert loaded[key].dtype.newbyteorder("=") == value.dtype.newbyteorder("=")
        else:
            assert loaded[key] == value


class Evil:
    """Reduces to whatever it is told."""

    def __init__(self, *reduced: object) -> None:
        self.reduced = reduced

    def __reduce__(self) -> tuple:
        return self.reduced


@pytest.mark.parametrize(
    "make",
    [
        lambda mark: Evil(os.system, (f"touch {mark}",)),
        lambda mark: Evil(eval, (f"open({str(mark)!r}, 'w')",)),
        lambda mark: Evil(open, (str(mark), "w")),
        lambda mark: np.array([Evil(os.system, (f"touch {mark}",))], dtype=object),
        lambda mark: Evil(np.load, (str(mark),)),
        lambda mark: Evil(np.ndarray, ((2**40,),)),
        lambda mark: Evil(np.dtype, ("O",)),
        lambda mark: Evil(bytes, (2**40,)),
        lambda mark: Evil(io.StringIO, ("a",)),
        lambda mark: Path("a"),
        lambda mark: len,
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_malicious_pickle_is_refused_and_does_nothing(make, protocol: int, tmp_path: Path) -> None:
    path, mark = tmp_path / "a.pkl", tmp_path / "mark"
    path.write_bytes(pickle.dumps([make(mark)], protocol=protocol))
    with pytest.raises(InputError) as caught:
        load_pickle(path)
    assert str(path) in str(caught.value)
    assert not mark.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04",
        b"no pickle",
        b"\x80\x04r\xff\xff\xff\x7f.",  # a place far out of turn would make room for two thousand million
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",  # bytes of a length nobody has
        b"\x80\x02\x82\x01.",
        b"\x80\x02cos\nsystem\n.",
        b"\x80\x04P1\n.",
        pickle.dumps(PLAIN)[:-40],
    ],
)
def test_a_damaged_or_wasteful_pickle_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.pkl"):
        load_pickle(path)


def test_a_dtype_cannot_be_turned_into_one_of_objects(tmp_path: Path) -> None:
    # The state of a dtype could clear the flag that says "objects", and bytes would be taken for addresses.
    state = (3, "|", None, None, None, -1, -1, 63)
    dtype = Evil(np.dtype, ("O8", False, True), state)
    array = Evil(
        np._core.multiarray._reconstruct, (np.ndarray, (0,), b"b"), (1, (1,), dtype, False, b"A" * 8)
    )
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(array))
    with pytest.raises(InputError, match="array of objects is damaged"):
        load_pickle(path)


def test_an_array_with_too_few_bytes_or_a_wrong_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    for shape, raw in (
        ((1000,), b"12345678"),
        ((-1,), b"12345678"),
        ((2**50,), b""),
        ("x", b""),
        ((1,), "snowman ☃"),
    ):
        parts = (
            np._core.multiarray._reconstruct,
            (np.ndarray, (0,), b"b"),
            (1, shape, np.dtype("f8"), False, raw),
        )
        path.write_bytes(pickle.dumps(Evil(*parts)))
        with pytest.raises(InputError):
            load_pickle(path)


@settings(max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_bytes_give_plain_data_or_the_sentence(tmp_path: Path, data: st.DataObject) -> None:
    whole = bytearray(pickle.dumps(PLAIN, protocol=data.draw(st.sampled_from([0, 2, 4, 5]))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "a.pkl"
    path.write_bytes(whole)
    with contextlib.suppress(InputError):
        load_pickle(path)
