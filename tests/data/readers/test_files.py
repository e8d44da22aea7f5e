"""Opening other people's files: loops, bombs, pipes and half files end in one sentence."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from halp.core.errors import InputError
from halp.data.readers import get_reader, list_readers, sniff_reader
from halp.data.readers.archives import load_npz
from halp.data.source_files import find_files, load_npy, read_bytes, read_json_source, read_text, walk


def test_a_walk_is_sorted_enters_linked_folders_once_and_skips_hidden_files(tmp_path: Path) -> None:
    for name in ("b/2.txt", "a/1.txt", "a/.hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b" / "itself").symlink_to(tmp_path / "b" / "itself")
    assert [path.relative_to(tmp_path).as_posix() for path in walk(tmp_path) if path.is_file()] == [
        "a/1.txt",
        "b/2.txt",
    ]
    with pytest.raises(InputError, match=r"ends with \.json"):
        find_files(tmp_path, ".json")


@pytest.mark.heavy
def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            buffer, {"descr": "<f4", "fortran_order": False, "shape": (24 * 2**20,)}
        )
        archive.writestr("joints.npy", buffer.getvalue() + bytes(96 * 2**20))
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="would expand"):
        load_npz(path)


def test_arrays_of_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "a.npz", a=np.array([{}], dtype=object))
    with pytest.raises(InputError, match=r"a\.npy"):
        load_npy(tmp_path / "a.npy")
    with pytest.raises(InputError, match=r"a\.npz"):
        load_npz(tmp_path / "a.npz")


def test_half_arrays_are_refused_at_every_length(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(4.0))
    np.savez(tmp_path / "a.npz", a=np.arange(4.0))
    for name, load in (("a.npy", load_npy), ("a.npz", load_npz)):
        whole = (tmp_path / name).read_bytes()
        for length in range(len(whole)):
            (tmp_path / f"cut{name}").write_bytes(whole[:length])
            with pytest.raises(InputError):
                load(tmp_path / f"cut{name}")


def test_unreadable_texts_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="byte 0"):
        read_text(path)
    path.write_text('{"a": 1,\n')
    with pytest.raises(InputError, match="line 2"):
        read_json_source(path)
    path.write_text("[" * 100_000)
    with pytest.raises(InputError):
        read_json_source(path)
    with pytest.raises(InputError, match="a clip may have 10"):
        read_bytes(path, limit=10)
    with pytest.raises(InputError, match="cannot be read"):
        read_bytes(tmp_path / "nothing")


def test_the_registry_names_its_formats_and_the_nearest_spelling(tmp_path: Path) -> None:
    assert {"ntu", "ntu-60", "ntu-120", "pku-mmd", "authors", "pyskl"} <= set(list_readers())
    assert all(list_readers().values())
    with pytest.raises(InputError, match="did you mean 'pyskl'"):
        get_reader("pyskel")
    with pytest.raises(InputError, match="is empty"):
        sniff_reader(tmp_path)
