"""Atomic writing of files and folders, and reading of JSON with clear errors."""

from __future__ import annotations

import csv
import ctypes
import errno
import glob
import hashlib
import json
import mmap
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halp.core.errors import InputError
from halp.core.locks import locked
from halp.core.urls import check_local

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path` to write a file to; it takes the name `path` when the body ends well.

    Readers see the old content or the new, never a part, also after a power cut. If the body fails, nothing
    is left behind. A link stays a link, to the new file; devices and pipes are refused.
    """
    path = Path(path)
    check_local(path)
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a device or a pipe, not a regular file", os.fspath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # the process number keeps two writers apart; the ending stays, since some libraries choose the format by
    # it
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield partial
        with open(partial, "r+b") as file:  # Windows flushes only what may be written
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        if error.filename is not None and os.fspath(error.filename) == os.fspath(partial):
            # nobody asked for the temporary name
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file atomically."""
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return Path(path)


def write_json(path: str | os.PathLike[str], data: Any) -> Path:
    """Write JSON atomically."""
    return write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; what is wrong with it is reported in one sentence."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no file '{path}'") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"'{path}' cannot be read as JSON ({error}); it is damaged or not JSON") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file that comes with halp."""
    text = path.read_text(encoding="utf-8")
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.loads(text)
    import tomlkit

    return tomlkit.parse(text).unwrap()


def spreadsheet_cell(value: Any) -> Any:
    """A cell of a CSV table that no spreadsheet takes for a formula; numbers, even as text, stay the same.

    `plain_cell` gives every text back.

    >>> spreadsheet_cell("=1+1"), spreadsheet_cell("-3.5"), spreadsheet_cell(-2), spreadsheet_cell("walk")
    ("'=1+1", '-3.5', -2, 'walk')
    >>> plain_cell(spreadsheet_cell("'=1+1"))
    "'=1+1"
    """
    return f"'{value}" if isinstance(value, str) and _is_formula(value.lstrip("'")) else value


def plain_cell(text: str) -> str:
    """Undo `spreadsheet_cell`."""
    return text[1:] if text[:1] == "'" and _is_formula(text.lstrip("'")) else text


def _is_formula(text: str) -> bool:
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def cache_home() -> Path | None:
    """The user's cache folder: `HALP_CACHE`, else the system's; None if it is set to nothing (no cache)."""
    chosen = os.environ.get("HALP_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    from platformdirs import user_cache_path

    return user_cache_path("halp", appauthor=False)


def sha256(path: Path) -> str:
    """Fingerprint of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def file_state(path: Path) -> list[int]:
    """Size and times of a file, which change when it is written."""
    status = os.stat(path)
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def sync_folder(path: Path) -> None:
    """Make renames inside a folder survive a power cut (where the system lets one open folders)."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def seal(path: Path) -> None:
    """Write the hash of a file beside it, so that `is_sealed` can detect changes."""
    write_text(_seal_of(path), sha256(path))


def is_sealed(path: Path) -> bool:
    """Whether a file exists unchanged since `seal` was called."""
    beside = _seal_of(path)
    try:
        return path.is_file() and beside.is_file() and beside.read_text(encoding="ascii") == sha256(path)
    except (OSError, ValueError):
        return False


def _seal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def write_csv(
    path: str | os.PathLike[str],
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    *,
    delimiter: str = ",",
) -> Path:
    """Write rows under a header; None is an empty cell."""
    path = Path(path)
    try:
        with atomic_path(path) as partial, open(partial, "w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, columns, extrasaction="ignore", delimiter=delimiter)
            table.writeheader()
            table.writerows({name: spreadsheet_cell(cell) for name, cell in row.items()} for row in rows)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written ({error}); choose another path") from error
    return path


_ASIDE = "-old"
_AT_WORKING_FOLDER, _RENAME_EXCHANGE = -100, 2


@contextmanager
def building(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """An empty folder that becomes `path` if the body succeeds, and is removed otherwise.

    Every file in it has reached the disk by then, so that a power cut leaves all of it or nothing. A lock
    beside it, held meanwhile, tells others that it is not the leftover of a process that was killed. With
    `replace` a folder at `path` goes.
    """
    remove_leftovers(path)
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    with locked(_lock_of(partial), f"'{path}'", wait=1.0):  # others look whether it is left over
        try:
            partial.mkdir(parents=True)
            yield partial
            for folder, _, names in os.walk(partial):
                for name in names:
                    # Windows flushes only what may be written
                    with open(os.path.join(folder, name), "r+b") as file:
                        os.fsync(file.fileno())
                sync_folder(Path(folder))
            if replace:
                put_in_place(partial, path)
            else:
                os.replace(partial, path)
            sync_folder(path.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def put_in_place(partial: Path, path: Path) -> None:
    """Give a finished folder its name, replacing and removing a folder that has it.

    Where the system can exchange two names, `path` is the old or the new folder at every moment. Elsewhere
    the old one is first moved aside; a process that dies between the two steps leaves it there, and
    `restore_moved_aside` brings it back.
    """
    if not path.exists():
        os.replace(partial, path)
    elif _exchange(partial, path):
        shutil.rmtree(partial, ignore_errors=True)
    else:
        aside = partial.with_name(partial.name + _ASIDE)
        os.replace(path, aside)
        os.replace(partial, path)
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, two: Path) -> bool:
    """Exchange two names in one step; False if the system or the file system cannot."""
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(one), os.fsencode(two)
    return bool(rename(_AT_WORKING_FOLDER, names[0], _AT_WORKING_FOLDER, names[1], _RENAME_EXCHANGE) == 0)


def restore_moved_aside(path: Path) -> None:
    """Restore what a killed process had moved aside, unless it has been replaced."""
    for leftover in _leftovers(path):
        if leftover.name.endswith(_ASIDE) and not path.exists():
            with suppress(OSError):
                os.replace(leftover, path)


def remove_leftovers(path: Path) -> None:
    """Remove leftovers of killed processes beside `path`, but nothing that is being built."""
    restore_moved_aside(path)
    for leftover in _leftovers(path):
        shutil.rmtree(leftover, ignore_errors=True)


def _leftovers(path: Path) -> list[Path]:
    """Unfinished folders beside `path` that nobody works on; their locks go, also those without a folder."""
    found = path.parent.glob(glob.escape(f".{path.name}.partial-") + "*")
    folders = sorted({entry.with_name(entry.name.removesuffix(".lock")) for entry in found})
    return [folder for folder in folders if _abandoned(folder) and folder.is_dir()]


def _abandoned(folder: Path) -> bool:
    try:
        with locked(_lock_of(folder), f"'{folder}'"):
            return True
    except InputError:  # held, or in a place where nothing can be removed either
        return False


def _lock_of(partial: Path) -> Path:
    name = partial.name.removesuffix(_ASIDE)
    return partial.with_name(f"{name}.lock")


def release(array: Any) -> None:
    """Return the memory of a mapped file that was read; its pages are reloaded on access."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def trim_heap() -> None:
    """Return freed memory to the system: glibc keeps it in pieces, into which the next large array may not fit."""
    with suppress(AttributeError, OSError, TypeError):  # no glibc
        ctypes.CDLL(None).malloc_trim(0)


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors by name, from any device and of any stride."""
    from safetensors import torch as torch_files  # slow to import, and arrays do not need it

    torch_files.save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path)
    _finish(path)


def save_arrays(arrays: Mapping[str, npt.NDArray[Any]], path: Path) -> None:
    """Write arrays by name; they may share memory or be empty."""
    import numpy as np
    from safetensors import numpy as numpy_files

    numpy_files.save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, path)
    _finish(path)


def _finish(path: Path) -> None:
    # safetensors makes files for their owner alone; a colleague of the same group is to read a run as well
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)
    with open(path, "r+b") as file:
        os.fsync(file.fileno())
