"""File-system calls that fail on demand: the k-th call that changes something fails, tears, or ends the
process.

Installed into a process of its own (`install`), it stands between the writers and the system: `open` for
writing and what is written through it, the calls of `os` that create, rename, link, flush and remove, and the
two libraries that write files without Python. It also knows which files were changed after their last
`fsync`; a power cut takes the end off those.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import safetensors.numpy
import safetensors.torch
import torch

from halp.core import files

#: What the k-th call does instead of its work.
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EROFS": errno.EROFS, "EINTR": errno.EINTR}
KINDS = (*ERRORS, "torn", "crash", "power")
CRASHED = 77
_CALLS = (
    "replace",
    "rename",
    "link",
    "symlink",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "fsync",
    "truncate",
    "ftruncate",
)
_FREEING = ("unlink", "remove", "rmdir")
_CHANGING = ("w", "a", "x", "+")


class Faults:
    """Counts the calls that change something below `root`; the one numbered `at` meets the fault, later ones
    too if it lasts.
    """

    def __init__(self, root: Path, kind: str, at: int) -> None:
        self.root, self.kind, self.at = os.path.realpath(root), kind, at
        self.count = 0
        self.unsynced: dict[tuple[int, int], str] = {}

    def concerns(self, target: object) -> bool:
        """Whether a path or an open file lies below the root."""
        if isinstance(target, int):
            try:
                target = os.readlink(f"/proc/self/fd/{target}")
            except OSError:
                return False
        try:
            return os.path.abspath(os.fsdecode(target)).startswith(self.root)  # type: ignore[arg-type]
        except TypeError:
            return False

    def step(self, torn: Callable[[], object] | None = None, call: str = "write") -> None:
        """Pass one call, or fail it. `torn` does a part of its work."""
        self.count += 1
        # a full or read-only disk stays so, but room can be made on a full one; the other faults happen once
        lasts = self.kind in ("EROFS", "ENOSPC")
        if self.count != self.at and not (lasts and self.count > self.at > 0):
            return
        if self.kind == "ENOSPC" and call in _FREEING:
            return
        if self.kind == "torn" and torn is not None:
            torn()
        if self.kind in ("torn", "crash", "power"):
            self.crash()
        raise OSError(ERRORS[self.kind], os.strerror(ERRORS[self.kind]))

    def crash(self) -> None:
        if self.kind == "power":
            for (device, inode), _ in self.unsynced.items():
                for folder, _, files in os.walk(self.root):
                    for name in files:
                        path = os.path.join(folder, name)
                        found = os.lstat(path)
                        if (found.st_dev, found.st_ino) == (device, inode):
                            os.truncate(path, found.st_size // 2)
        os._exit(CRASHED)

    def changed(self, handle: int) -> None:
        found = os.fstat(handle)
        self.unsynced[found.st_dev, found.st_ino] = ""

    def synced(self, handle: int) -> None:
        found = os.fstat(handle)
        self.unsynced.pop((found.st_dev, found.st_ino), None)


class FaultyFile:
    """A file open for writing whose writes, flushes and closing are calls that can fail."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> FaultyFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Any:
        return iter(self._file)

    def write(self, data: Any) -> Any:
        def half() -> None:
            self._file.write(data[: len(data) // 2])
            self._file.flush()

        self._faults.step(half)
        self._faults.changed(self._file.fileno())
        return self._file.write(data)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if not self._file.closed:
            self._faults.step()
        self._file.flush()

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self._faults.step()
        finally:
            self._file.close()


def install(root: Path, kind: str = "", at: int = 0) -> Faults:
    """Put the shim in place for this process; `at` 0 only counts."""
    faults = Faults(root, kind, at)
    real_open = io.open

    def open_file(file: Any, mode: str = "r", *given: Any, **more: Any) -> Any:
        if not any(sign in mode for sign in _CHANGING) or not faults.concerns(file):
            return real_open(file, mode, *given, **more)
        faults.step()
        return FaultyFile(real_open(file, mode, *given, **more), faults)

    builtins.open = io.open = open_file  # type: ignore[assignment]
    for name in _CALLS:
        setattr(os, name, _faulty(getattr(os, name), faults, name))
    os.write = _faulty_write(os.write, faults)
    _wrap_libraries(faults)
    return faults


def _faulty(call: Callable[..., Any], faults: Faults, name: str) -> Callable[..., Any]:
    def wrapped(target: Any, *given: Any, **more: Any) -> Any:
        if faults.concerns(target) or more.get("dir_fd") is not None:
            faults.step(call=name)
        result = call(target, *given, **more)
        if name == "fsync":
            faults.synced(target)
        return result

    return wrapped


def _faulty_write(call: Callable[..., Any], faults: Faults) -> Callable[..., Any]:
    def wrapped(handle: int, data: bytes) -> int:
        if faults.concerns(handle):
            faults.step(lambda: call(handle, data[: len(data) // 2]))
            faults.changed(handle)
        return int(call(handle, data))

    return wrapped


@cache
def importers(library: ModuleType) -> list[ModuleType]:
    """Modules that hold the library's `save_file`, also by its bare name; looked for once, before processes
    are forked.
    """
    return [
        module
        for module in list(sys.modules.values())
        if module.__dict__.get("save_file") is library.save_file
    ]


def _wrap_libraries(faults: Faults) -> None:
    """safetensors and torch write whole files by themselves: one call each, which may leave half a file."""
    exchange = files._exchange

    def exchanged(one: Path, two: Path) -> bool:
        try:
            faults.step(call="rename")
        except OSError:
            return False  # what the C library says of it, whereupon the names are moved one after the other
        return exchange(one, two)

    files._exchange = exchanged

    def whole_file(save: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(content: Any, target: Any, *given: Any, **more: Any) -> Any:
            def half() -> None:
                save(content, target, *given, **more)
                os.truncate(target, os.stat(target).st_size // 2)

            if not faults.concerns(target):
                return save(content, target, *given, **more)
            faults.step(half)
            result = save(content, target, *given, **more)
            with io.FileIO(target) as file:
                faults.changed(file.fileno())
            return result

        return wrapped

    torch.save = whole_file(torch.save)
    for library in (safetensors.torch, safetensors.numpy):
        faulty = whole_file(library.save_file)
        for module in importers(library):
            module.save_file = faulty  # type: ignore[attr-defined]
