"""Hostile archives and links: nothing expands beyond its budget, nothing outside of the source is read."""

from __future__ import annotations

import io
import os
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import forked as subprocess
import numpy as np
import pytest
from reader_samples import body, write_npz, write_nwucla

from halp.core.errors import InputError
from halp.data.ingest.prepare import prepare
from halp.data.readers.archives import load_npz, load_pickled_member, memory_limit
from halp.skeleton import KINECT_V1

MIB = 2**20


def header(shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def bomb(path: Path, frames: int, padding: int = 0) -> Path:
    """An interchange file of zeros, with incompressible bytes beside them that make the whole look less
    extreme.
    """
    shape = (frames, 1, len(KINECT_V1), 3)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("joints.npy", "w", force_zip64=True) as file:
            file.write(header(shape))
            for _ in range(frames * 240 // MIB + 1):
                file.write(bytes(min(MIB, frames * 240)))
        archive.writestr("padding.bin", np.random.default_rng(0).bytes(padding))
        for name, array in {
            "offsets": np.array([0, frames]),
            "joint_names": np.array(KINECT_V1.joints),
        }.items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            archive.writestr(f"{name}.npy", buffer.getvalue())
    return path


def peak(path: Path, load: Callable[[Path], object] = load_npz) -> int:
    """The most memory that refusing a file takes."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            load(path)
        assert str(path) in str(caught.value)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("padding", [0, 100_000])
@pytest.mark.heavy
def test_a_bomb_is_refused_with_and_without_padding(padding: int, tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.npz", 600_000, padding)
    assert path.stat().st_size < 300_000
    assert peak(path) < 4 * MIB


def test_a_header_that_lies_about_its_size_takes_no_memory(tmp_path: Path) -> None:
    for shape in ((10**12,), (2**62, 2**62), (40, 1, 20, 3), (1, 1, 1, 1)):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("joints.npy", header(shape) + bytes(1000))
        assert peak(tmp_path / "a.npz") < 4 * MIB


def test_an_archive_that_lies_about_its_size_is_not_believed(tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.npz", 300_000)
    data = path.read_bytes()
    true = (300_000 * 240 // MIB + 1) * MIB + len(header((300_000, 1, 20, 3)))
    # the directory now speaks of a kilobyte, the stream behind it still unpacks to all of it
    changed = data.replace(true.to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    assert changed != data
    path.write_bytes(changed)
    assert peak(path) < 4 * MIB
    assert peak(path, partial(load_pickled_member, name="joints")) < 4 * MIB


@pytest.mark.heavy
def test_members_that_share_their_bytes_are_paid_for_each(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a0.npy", header((8 * MIB,)) + bytes(32 * MIB))
        first = archive.infolist()[0]
        for number in range(1, 20):
            twin = zipfile.ZipInfo(f"a{number}.npy")
            for name in ("compress_type", "CRC", "compress_size", "file_size", "header_offset", "flag_bits"):
                setattr(twin, name, getattr(first, name))
            archive.filelist.append(twin)
            archive.NameToInfo[twin.filename] = twin
    assert peak(tmp_path / "a.npz") < 100 * MIB


def test_the_limit_can_be_raised_and_lowered(tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.npz", 300_000)
    with memory_limit(MIB), pytest.raises(InputError, match="--max-memory"):
        load_npz(path)
    np.savez(tmp_path / "b.npz", a=np.zeros((3, 2), order="F"), b=np.zeros((0, 3)), c=np.array("text"))
    with memory_limit(MIB):
        found = load_npz(tmp_path / "b.npz")
    assert {name: array.shape for name, array in found.items()} == {"a": (3, 2), "b": (0, 3), "c": ()}
    with pytest.raises(InputError, match="too small to read anything"), memory_limit(0):
        pass


def test_the_command_takes_the_limit(tmp_path: Path) -> None:
    path = write_npz(tmp_path)
    command = [sys.executable, "-m", "halp", "prepare", "interchange", str(path), str(tmp_path / "store")]
    answer = subprocess.run([*command, "--max-memory", "1e-6"], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "raise the limit with --max-memory" in " ".join(answer.stderr.split())
    assert not (tmp_path / "store").exists()


def test_arrays_come_out_as_numpy_reads_them(tmp_path: Path) -> None:
    arrays = {
        "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "swapped": np.arange(4, dtype=">i2"),
        "text": np.array(["a", "bb"]),
        "scalar": np.array(3),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        found = load_npz(tmp_path / "a.npz")
        with np.load(tmp_path / "a.npz") as expected:
            for name in arrays:
                np.testing.assert_array_equal(found[name], expected[name], strict=True)


def test_links_out_of_the_source_are_not_followed(tmp_path: Path) -> None:
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    for folder in (source, elsewhere, source / "deeper"):
        folder.mkdir()
    write_nwucla(elsewhere, "a01_s01_e00_v01")
    write_nwucla(source / "deeper", "a02_s01_e00_v01", body(seed=1))
    (source / "folder").symlink_to(elsewhere, target_is_directory=True)
    (source / "a03_s01_e00_v01.json").symlink_to(elsewhere / "a01_s01_e00_v01.json")
    (source / "a04_s01_e00_v01.json").symlink_to(source / "deeper" / "a02_s01_e00_v01.json")
    manifest = prepare("nw-ucla", source, tmp_path / "store", progress=False)
    assert manifest.clips == 2  # the file inside and the link to it


def test_a_source_of_nothing_but_links_out_says_so(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    write_nwucla(tmp_path, "a01_s01_e00_v01")
    os.symlink(tmp_path / "a01_s01_e00_v01.json", tmp_path / "source" / "a01_s01_e00_v01.json")
    with pytest.raises(InputError, match="1 links point outside it and are not followed"):
        prepare("nw-ucla", tmp_path / "source", tmp_path / "store", progress=False)


def test_a_linked_source_that_the_user_names_is_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    write_nwucla(tmp_path / "real", "a01_s01_e00_v01")
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    assert prepare("nw-ucla", tmp_path / "link", tmp_path / "store", progress=False).clips == 1
