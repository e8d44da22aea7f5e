"""Unfinished folders: named by machine and process, so that a later run can clear away what a killed one left behind."""

from __future__ import annotations

import ctypes
import glob
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from halp.files import sync_folder
from halp.locks import process_runs

_ASIDE = "-old"
_AT_WORKING_FOLDER, _RENAME_EXCHANGE = -100, 2


def _partial_prefix(path: Path) -> str:
    host = re.sub(r"\W", "_", platform.node()) or "host"
    return f".{path.name}.partial-{host}-"


def partial_folder(path: Path) -> Path:
    """Where this process builds what is to become `path`."""
    return path.with_name(f"{_partial_prefix(path)}{os.getpid()}")


@contextmanager
def building(path: Path) -> Iterator[Path]:
    """An empty folder for what is to become `path`: it takes that name when the body ends well and vanishes otherwise.

    Every file in it has reached the disk by then, so that a power cut leaves all of it or nothing.
    """
    partial = partial_folder(path)
    try:
        remove_leftovers(path)
        partial.mkdir(parents=True)
        yield partial
        for folder, _, names in os.walk(partial):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
            sync_folder(Path(folder))
        os.replace(partial, path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def put_in_place(partial: Path, path: Path) -> None:
    """Give a finished folder its name; a folder that has it already is replaced and removed.

    Where the system can exchange two names, `path` is the old or the new folder at every moment. Elsewhere the old one is
    first moved aside; a process that dies between the two steps leaves it there, and `restore_moved_aside` brings it back.
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
    """Exchange two names in one step; False where the system or the file system cannot."""
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(one), os.fsencode(two)
    return bool(rename(_AT_WORKING_FOLDER, names[0], _AT_WORKING_FOLDER, names[1], _RENAME_EXCHANGE) == 0)


def restore_moved_aside(path: Path) -> None:
    """Bring back what a process had moved aside when it died, if nothing has taken its place."""
    for leftover, process in _leftovers(path):
        if leftover.name.endswith(_ASIDE) and not path.exists() and not _running(process):
            with suppress(OSError):
                os.replace(leftover, path)


def remove_leftovers(path: Path) -> None:
    """Remove what runs on this machine left beside `path` when they were killed; those still running are spared."""
    restore_moved_aside(path)
    for leftover, process in _leftovers(path):
        if not _running(process):
            shutil.rmtree(leftover, ignore_errors=True)


def _leftovers(path: Path) -> list[tuple[Path, int]]:
    """Unfinished folders beside `path` with the process that made them."""
    prefix = _partial_prefix(path)
    found = [
        (leftover, leftover.name.removeprefix(prefix).removesuffix(_ASIDE))
        for leftover in sorted(path.parent.glob(glob.escape(prefix) + "*"))
    ]
    return [(leftover, int(process)) for leftover, process in found if process.isdecimal()]


def _running(process: int) -> bool:
    """Whether another process of that number runs; this process leaves nothing unfinished between two writes."""
    if process == os.getpid():
        return False
    return process_runs(process)
