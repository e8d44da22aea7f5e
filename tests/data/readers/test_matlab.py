"""Matrices of MATLAB 5 files: the same bits as SciPy reads, and no changed bit of a header ends in anything
but a sentence.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from reader_samples import body, read_all, shared, write_utdmhad

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.readers import Dropped, get_reader
from halp.data.sandbox import load_matrix

KINDS = ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")


def element(kind: int, content: bytes, order: str) -> bytes:
    return struct.pack(order + "II", kind, len(content)) + content + bytes(-len(content) % 8)


def mat_file(
    array: np.ndarray, *, big: bool = False, packed: bool = False, stored: tuple[int, str] = (9, "f8")
) -> bytes:
    """A file with the double matrix `d_skel`, its numbers stored as another type, written from the format's
    description.
    """
    order = ">" if big else "<"
    inner = element(6, struct.pack(order + "II", 6, 0), order)
    inner += element(5, struct.pack(f"{order}{array.ndim}i", *array.shape), order)
    inner += element(1, b"d_skel", order)
    inner += element(stored[0], array.astype(order + stored[1]).tobytes("F"), order)
    matrix = element(14, inner, order)
    if packed:
        content = zlib.compress(matrix)
        matrix = struct.pack(order + "II", 15, len(content)) + content
    version = struct.pack(order + "H", 0x0100) + (b"MI" if big else b"IM")
    return b"MATLAB 5.0 MAT-file".ljust(124) + version + matrix


def is_answer(folder: Path) -> bool:
    """Whether reading ends in clips, a dropped clip or an InputError; anything else goes through as it is."""
    try:
        return all(isinstance(clip, Clip | Dropped) for clip in read_all("utd-mhad", folder))
    except InputError:
        return True


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    array=npst.arrays(st.sampled_from(KINDS), npst.array_shapes(min_dims=2, max_dims=4, max_side=5)),
    packed=st.booleans(),
)
def test_every_matrix_of_numbers_has_the_bits_that_scipy_reads(
    array: np.ndarray, packed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"before": np.arange(3), "d_skel": array, "name": "after"}, do_compression=packed)
    found, expected = load_matrix(path, "d_skel"), scipy.io.loadmat(path)["d_skel"]
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def test_real_clips_have_the_bits_that_scipy_reads(tmp_path: Path) -> None:
    clips = read_all("interchange", shared("data", "utd-mhad.npz"))[:40:4]
    assert len(clips) == 10
    for clip in clips:
        path = write_utdmhad(tmp_path, clip.name, clip.frames[:, 0], packed=clip.label % 2 == 0)
        assert load_matrix(path, "d_skel").tobytes() == scipy.io.loadmat(path)["d_skel"].tobytes()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.slow
def test_flipped_bits_of_the_first_256_bytes_give_clips_or_one_sentence(packed: bool, tmp_path: Path) -> None:
    path = write_utdmhad(tmp_path, joints=body(3), packed=packed)
    whole = path.read_bytes()
    reader = get_reader("utd-mhad")
    item = next(iter(reader.items(tmp_path)))
    sentences = 0
    for bit in [
        *range(0, 8 * 116, 13),
        *range(8 * 116, 8 * 256),
    ]:  # of the text at the beginning a few are enough
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            found = list(reader.read(item))
            assert found
            assert all(isinstance(clip, Clip | Dropped) for clip in found)
        except InputError as error:
            sentences += path.name in str(error)
    assert sentences > 200  # compressed content has checks everywhere, the text of the header none


@pytest.mark.slow
def test_a_file_cut_anywhere_gives_one_sentence(tmp_path: Path) -> None:
    for packed in (False, True):
        path = write_utdmhad(tmp_path, joints=body(1), packed=packed)
        whole = path.read_bytes()
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            with pytest.raises(InputError):
                read_all("utd-mhad", tmp_path)


@pytest.mark.heavy
def test_many_small_bombs_share_one_budget(tmp_path: Path) -> None:
    bomb = zlib.compress(struct.pack("<II", 14, 60_000_000) + bytes(60_000_000), 9)
    data = mat_file(np.ones((20, 3, 1)))[:128] + (struct.pack("<II", 15, len(bomb)) + bomb) * 50
    (tmp_path / "a1_s1_t1_skeleton.mat").write_bytes(data)
    with pytest.raises(InputError):
        read_all("utd-mhad", tmp_path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.heavy
def test_changed_bytes_anywhere_give_clips_or_one_sentence(data: st.DataObject, tmp_path: Path) -> None:
    whole = bytearray(
        mat_file(np.ones((20, 3, 2)), big=data.draw(st.booleans()), packed=data.draw(st.booleans()))
    )
    for _ in range(data.draw(st.integers(1, 5))):
        whole[data.draw(st.integers(120, len(whole) - 1))] = data.draw(
            st.sampled_from([0, 1, 4, 14, 15, 127, 128, 255])
        )
    (tmp_path / "a1_s1_t1_skeleton.mat").write_bytes(whole)
    assert is_answer(tmp_path)
