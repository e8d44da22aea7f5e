"""Files are whole or absent, JSON says what is wrong with it, seals notice a change."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from halp import files
from halp.errors import InputError


def test_file_takes_its_name_when_it_is_whole_and_a_failed_one_leaves_the_old(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "a.npz"
    with files.atomic_path(path) as partial:
        partial.write_bytes(b"first")
        assert (partial.parent, partial.suffix) == (path.parent, ".npz")
        assert not path.exists()
    assert path.read_bytes() == b"first"
    with pytest.raises(ZeroDivisionError), files.atomic_path(path) as partial:  # noqa: PT012
        partial.write_bytes(b"second")
        1 / 0  # noqa: B018
    with files.atomic_path(path):
        pass_over = [name for name in os.listdir(path.parent) if "partial" in name]
        (path.parent / f".a.{os.getpid()}.partial.npz").write_bytes(b"third")
    assert pass_over == []
    assert {name: (path.parent / name).read_bytes() for name in os.listdir(path.parent)} == {"a.npz": b"third"}


def test_content_and_name_reach_the_disk_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[object] = []
    sync, replace = os.fsync, os.replace

    def note_sync(handle: int) -> None:
        order.append(Path(os.readlink(f"/proc/self/fd/{handle}")).suffix or "folder")
        sync(handle)

    def note_replace(old: Path, new: Path) -> None:
        order.append("renamed")
        replace(old, new)

    if not Path("/proc/self/fd").exists():
        pytest.skip("what is synced is seen in /proc")
    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    handles = len(os.listdir("/proc/self/fd"))
    files.write_text(tmp_path / "a.txt", "ä")
    assert order == [".txt", "renamed", "folder"]
    assert len(os.listdir("/proc/self/fd")) == handles
    assert (tmp_path / "a.txt").read_bytes() == "ä".encode()
    files.sync_folder(tmp_path / "nowhere")  # nothing to do, no error


def test_json_is_read_as_written_or_refused_by_name(tmp_path: Path) -> None:
    data = {"a": [1, None, "ü"]}
    assert files.read_json(files.write_json(tmp_path / "a.json", data)) == data
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(InputError, match=r"b\.json.*JSON"):
        files.read_json(tmp_path / "b.json")
    with pytest.raises(InputError, match=r"no file .*c\.json"):
        files.read_json(tmp_path / "c.json")
    with pytest.raises(InputError, match="JSON"):
        files.read_json(tmp_path)


def test_cells_that_are_formulas_are_quoted_and_numbers_are_not() -> None:
    for text in ("=1", "+a", "-a", "@x", "\tx", "\rx"):
        assert files.spreadsheet_cell(text) == f"'{text}"
    for value in ("a=1", "-1e3", "+2", 3.5, None, ""):
        assert files.spreadsheet_cell(value) == value


def test_cache_is_where_the_variable_says_nowhere_or_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALP_CACHE", "somewhere")
    assert files.cache_home() == Path("somewhere")
    monkeypatch.setenv("HALP_CACHE", "")
    assert files.cache_home() is None
    monkeypatch.delenv("HALP_CACHE")
    home = files.cache_home()
    assert home is not None
    assert home.parts.count("halp") == 1  # on Windows an author would stand before it


def test_seal_holds_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    content = bytes(range(256)) * 8200  # more than one block
    path.write_bytes(content)
    assert not files.is_sealed(path)
    files.seal(path)
    assert files.sha256(path) == hashlib.sha256(content).hexdigest()
    assert (tmp_path / "a.bin.sha256").read_text() == files.sha256(path)
    assert files.is_sealed(path)
    path.write_bytes(content[:-1] + b"x")
    assert not files.is_sealed(path)
    (tmp_path / "a.bin.sha256").write_bytes(b"\xff")
    assert not files.is_sealed(path)
    path.unlink()
    assert not files.is_sealed(path)
