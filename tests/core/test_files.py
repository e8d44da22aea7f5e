"""Files are whole or absent, JSON says what is wrong with it, seals notice a change."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from halp.core import files
from halp.core.errors import InputError


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
    assert {name: (path.parent / name).read_bytes() for name in os.listdir(path.parent)} == {
        "a.npz": b"third"
    }


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_link_stays_a_link_and_a_pipe_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "table.csv").write_text("old")
    link, pipe = tmp_path / "link.csv", tmp_path / "pipe.csv"
    link.symlink_to(Path("far") / "table.csv")
    files.write_text(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "far" / "table.csv").read_text() == "new"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="a device or a pipe, not a regular file"):
        files.write_text(pipe, "new")
    assert pipe.is_fifo()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["far", "link.csv", "pipe.csv"]


def test_content_and_name_reach_the_disk_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == json.dumps(
        data, indent=1, ensure_ascii=False
    ) + "\n"
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


def test_rows_are_written_under_their_columns_or_the_place_is_named(tmp_path: Path) -> None:
    rows = [{"a": 1, "b": "=x", "other": 2}, {"a": None, "b": "y"}]
    path = files.write_csv(tmp_path / "deep" / "a.csv", ["b", "a"], rows)
    assert path.read_bytes() == b"b,a\r\n'=x,1\r\ny,\r\n"
    with pytest.raises(InputError, match=r"b\.csv' cannot be written.*choose another path"):
        files.write_csv(path / "b.csv", ["a"], [])


def build(path: Path, content: str, **options: bool) -> None:
    with files.building(path, **options) as partial:
        assert partial.parent == path.parent
        assert len(partial.name) == len(f".{path.name}.partial-") + 8
        (partial / "inside").mkdir()
        (partial / "inside" / "a.txt").write_text(content)


def test_folder_takes_its_name_when_it_is_whole_and_a_failed_one_vanishes(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"
    build(path, "first")
    assert (path / "inside" / "a.txt").read_text() == "first"
    with pytest.raises(OSError):  # noqa: PT011
        build(path, "second")
    build(path, "third", replace=True)
    with pytest.raises(ZeroDivisionError), files.building(path, replace=True):
        1 / 0  # noqa: B018
    assert (path / "inside" / "a.txt").read_text() == "third"
    assert [name for name in os.listdir(path.parent) if not name.endswith(".lock")] == ["folder"]


def test_files_of_a_folder_their_folders_and_its_name_reach_the_disk_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("what is synced is seen in /proc")
    order: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os,
        "fsync",
        lambda handle: (order.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name), sync(handle)),
    )
    monkeypatch.setattr(os, "replace", lambda old, new: (order.append("renamed"), replace(old, new)))
    build(tmp_path / "folder", "text")
    top = order.pop(0)
    assert top.startswith(".folder.partial-")
    assert order == ["a.txt", "inside", "renamed", tmp_path.name]


@pytest.mark.parametrize("exchange", [True, False], ids=["exchanged", "moved aside"])
def test_folder_in_the_way_is_replaced_and_removed(
    exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda one, two: False)
    for number, name in enumerate(("new", "newer")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
        files.put_in_place(tmp_path / name, tmp_path / "folder")
        assert (tmp_path / "folder" / "a.txt").read_text() == name, number
    assert os.listdir(tmp_path) == ["folder"]


def test_two_names_are_exchanged_in_one_step_where_the_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").write_text("one")
    (tmp_path / "two").write_text("two")
    monkeypatch.chdir(tmp_path)
    if (
        sys.platform == "linux" and ctypes.CDLL(None).renameat2(-100, b"one", -100, b"two", 2) == 0
    ):  # man 2 renameat2
        assert files._exchange(Path("two"), Path("one"))
        assert files._exchange(tmp_path / "one", tmp_path / "two")
        assert ((tmp_path / "one").read_text(), (tmp_path / "two").read_text()) == ("two", "one")
    assert not files._exchange(tmp_path / "one", tmp_path / "nowhere")
    assert (tmp_path / "one").exists()
    monkeypatch.setattr(files.ctypes, "CDLL", lambda *_, **__: object())  # a C library without the call
    assert not files._exchange(tmp_path / "one", tmp_path / "two")
    monkeypatch.undo()
    monkeypatch.setattr(files.sys, "platform", "darwin")
    assert not files._exchange(tmp_path / "one", tmp_path / "two")


def test_what_killed_processes_left_is_removed_or_brought_back_and_work_in_progress_spared(
    tmp_path: Path,
) -> None:
    path = tmp_path / "folder"
    (tmp_path / ".folder.partial-12345678").mkdir()
    (tmp_path / ".folder.partial-87654321-old").mkdir()
    (tmp_path / ".folder.partial-87654321-old" / "a.txt").write_text("old")
    (tmp_path / ".folder.partial-file").write_text("not a folder")
    (tmp_path / ".folder2.partial-12345678").mkdir()
    files.restore_moved_aside(path)
    assert (path / "a.txt").read_text() == "old"
    assert (tmp_path / ".folder.partial-12345678").is_dir()
    (tmp_path / ".folder.partial-11111111-old").mkdir()
    with files.building(tmp_path / "folder", replace=True) as partial:  # takes away what it finds
        (partial / "a.txt").write_text("new")
        assert not (tmp_path / ".folder.partial-12345678").exists()
        assert (path / "a.txt").read_text() == "old"
        files.remove_leftovers(path)
        assert (partial / "a.txt").read_text() == "new"
    assert (path / "a.txt").read_text() == "new"
    kept = {".folder.partial-file", ".folder2.partial-12345678", "folder"}
    assert {name for name in os.listdir(tmp_path) if not name.endswith(".lock")} == kept


def test_what_was_moved_aside_comes_back_before_leftovers_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".folder.partial-87654321-old").mkdir()
    files.remove_leftovers(tmp_path / "folder")
    assert (tmp_path / "folder").is_dir()


def test_tensors_and_arrays_are_written_for_whoever_may_read_and_reach_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(handle), sync(handle)))
    strided = torch.arange(6.0).reshape(2, 3).T
    before = os.umask(0o027)
    try:
        files.save_tensors({"a": strided.requires_grad_()}, tmp_path / "a.safetensors")
        files.save_arrays({"b": strided.detach().numpy()}, tmp_path / "b.safetensors")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert len(synced) == 2
    assert torch.equal(load_file(tmp_path / "a.safetensors")["a"], strided)
    assert torch.equal(load_file(tmp_path / "b.safetensors")["b"], strided)
    if os.name != "nt":
        assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("a.safetensors", "b.safetensors")} == {
            0o640
        }
