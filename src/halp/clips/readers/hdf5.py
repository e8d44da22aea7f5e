"""HDF5 files read in a process of their own, so that a damaged file can neither crash nor hang the one that asked.

The HDF5 library is written in C and trusts its files more than one may trust a download; whatever happens to the child
process becomes one sentence here.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.clips.source_files import MIB, head
from halp.clips.text_files import as_floats, problem
from halp.errors import InputError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_LARGEST_FILE = 2048 * MIB
# a damaged file can keep the library busy without end; a sound one is read at hundreds of MB per second
_SECONDS, _BYTES_PER_SECOND = 10.0, 4e6
_CHILD = Path(__file__).with_name("hdf5_child.py")


@dataclass(frozen=True)
class Content:
    """Arrays of numbers by name, lists of texts by name, and texts among the attributes of each object."""

    numbers: dict[str, npt.NDArray[Any]]
    texts: dict[str, list[str]]
    attributes: dict[str, dict[str, str]]


def is_hdf5(path: Path) -> bool:
    """Whether a file begins as HDF5 files do."""
    return head(path, 8) == SIGNATURE


def object_names(path: Path) -> frozenset[str]:
    """Names of all groups and arrays in a file, for sniffing; empty where it cannot be read."""
    if not is_hdf5(path) or importlib.util.find_spec("h5py") is None:
        return frozenset()
    try:
        return frozenset(read_hdf5(path, ()).attributes)
    except InputError:
        return frozenset()


def read_hdf5(path: Path, patterns: Sequence[str]) -> Content:
    """The arrays of a file whose names fit the patterns (`*/table`); needs the extra `formats`."""
    if importlib.util.find_spec("h5py") is None:
        raise InputError(
            f"'{path}' is an HDF5 file, which needs h5py; install it with `pip install 'halp[formats]'`, or export CSV"
        )
    if not path.is_file():
        raise InputError(f"'{path}' cannot be read; check that it exists and its permissions")
    if not is_hdf5(path):
        raise problem(path, "", "it does not begin like an HDF5 file", "check that the file is whole")
    if path.stat().st_size > _LARGEST_FILE:
        raise problem(path, "", f"it has more than {_LARGEST_FILE} bytes", "split it")
    reply = _process().ask(path, patterns)
    if "error" in reply.head:
        raise problem(path, "", f"HDF5 cannot read it ({reply.head['error']})", "fetch or write it again")
    return reply.content()


@dataclass
class _Reply:
    head: dict[str, Any]
    body: bytes

    def content(self) -> Content:
        numbers, texts, place = {}, {}, 0
        for name, array in self.head["arrays"].items():
            data = self.body[place : place + array["size"]]
            place += array["size"]
            if array["dtype"] == "text":
                texts[name] = json.loads(data)
            else:
                numbers[name] = np.frombuffer(data, np.dtype(array["dtype"])).reshape(array["shape"])
        return Content(numbers, texts, self.head["attributes"])


class _Process:
    """The child process; it is started again after it has died."""

    def __init__(self) -> None:
        environment = {**os.environ, "HDF5_PLUGIN_PATH": "", "HDF5_USE_FILE_LOCKING": "FALSE"}
        self.child = subprocess.Popen(  # noqa: S603  our own script under our own interpreter
            [sys.executable, "-I", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self.owner = os.getpid()

    @property
    def usable(self) -> bool:
        return self.child.poll() is None and self.owner == os.getpid()

    def ask(self, path: Path, patterns: Sequence[str]) -> _Reply:
        request = json.dumps({"path": str(path.resolve()), "patterns": list(patterns)}).encode() + b"\n"
        patience = _SECONDS + path.stat().st_size / _BYTES_PER_SECOND
        end = time.monotonic() + patience
        try:
            assert self.child.stdin is not None  # noqa: S101  opened as a pipe above
            self.child.stdin.write(request)
            self.child.stdin.flush()
            head, rest = self._line(end)
            sizes = [array["size"] for array in head.get("arrays", {}).values()]
            return _Reply(head, self._bytes(rest, sum(sizes), end))
        except (EOFError, BrokenPipeError):
            self.stop()
            raise problem(path, "", "the HDF5 library broke down over it", "fetch or write it again") from None
        except TimeoutError:
            self.stop()
            what = f"the HDF5 library was not done with it after {patience:.0f} s"
            raise problem(path, "", what, "fetch or write it again") from None

    def _line(self, end: float) -> tuple[dict[str, Any], bytes]:
        data = b""
        while b"\n" not in data:
            data += self._some(end)
        line, _, rest = data.partition(b"\n")
        return json.loads(line), rest

    def _bytes(self, start: bytes, size: int, end: float) -> bytes:
        parts, have = [start], len(start)
        while have < size:
            parts.append(self._some(end))
            have += len(parts[-1])
        return b"".join(parts)

    def _some(self, end: float) -> bytes:
        assert self.child.stdout is not None  # noqa: S101  opened as a pipe above
        handle = self.child.stdout.fileno()
        ready, _, _ = select.select([handle], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise TimeoutError
        data = os.read(handle, 1 << 20)
        if not data:
            raise EOFError
        return data

    def stop(self) -> None:
        """End the child and wait for it."""
        if self.owner == os.getpid():
            self.child.kill()
            self.child.wait()
            for pipe in (self.child.stdin, self.child.stdout):
                if pipe is not None:
                    pipe.close()


_running: _Process | None = None


def _process() -> _Process:
    global _running
    if _running is None or not _running.usable:
        if _running is not None:
            _running.stop()
        _running = _Process()
    return _running


@atexit.register
def _stop() -> None:
    if _running is not None:
        _running.stop()


def column(content: Content, name: str, path: Path, *, axes: int) -> npt.NDArray[np.float64]:
    """One array of numbers with this many axes."""
    found = content.numbers.get(name)
    if found is None:
        raise problem(path, "", f"it has no array '{name}'", "check the format")
    if found.ndim != axes or not math.prod(found.shape):
        raise problem(path, f"array '{name}'", f"its shape is {found.shape}", f"expected {axes} axes, none empty")
    return as_floats(found)
