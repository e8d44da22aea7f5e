"""Untrusted HDF5, MATLAB and pickle files, opened in a separate process with limited memory and time.

Libraries written in C trust their files more than one may trust a download, and a pickle is a program.
Whatever happens to the process becomes one sentence here, and what comes out of it is plain data: containers,
numbers, texts, NumPy arrays.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.source_files import MIB, head, unreadable
from halp.data.text_files import as_floats, problem

#: The largest file of a kind that is opened.
LARGEST_FILE = {"matlab": 64 * MIB, "hdf5": 2048 * MIB}
# A damaged file can keep a library busy without end; a sound one is read at hundreds of MB per second.
_SECONDS, _BYTES_PER_SECOND = 10.0, 4e6
_CHILD = Path(__file__).with_name("sandbox_child.py")
_REFUSED = "it is not a pose file; do not open it with other programs, it may be malicious"


def load_pickle(path: Path, data: bytes | None = None) -> Any:
    """Content of a pickle file: containers, numbers, texts and NumPy arrays; anything else is refused.

    With `data` it is these bytes, found inside the file, that are read. An array of objects comes as a list.
    """
    return _ask("pickle", path, "a whole pickle file", data)


def load_matrix(path: Path, name: str) -> Any:
    """The array `name` of a MATLAB 5 file; real numbers only."""
    return _ask("matlab", path, "a MATLAB 5 file (`save -v6` or `-v7`) with such a matrix", name=name)


def _ask(task: str, path: Path, expected: str, data: bytes | None = None, **settings: Any) -> Any:
    global _running
    try:
        with open(path, "rb"):
            weight = path.stat().st_size if data is None else len(data)
    except OSError as error:
        raise unreadable(path, error) from error
    if weight > LARGEST_FILE.get(task, weight):
        raise problem(path, "", f"it has more than {LARGEST_FILE[task]} bytes", "split it")
    request = {"task": task, "path": str(path.resolve()) if data is None else None, "size": len(data or b"")}
    with _one_at_a_time:
        if _running is None or not _running.usable:
            _running = _Process()
        request |= {"weight": weight, **settings}
        answer = _running.ask(request, data or b"", _SECONDS + weight / _BYTES_PER_SECOND)
    if "refused" in answer:
        raise InputError(f"'{path}' is refused: {answer['refused']}; {_REFUSED}")
    if "error" in answer:
        raise InputError(f"'{path}' is not {expected} ({answer['error']}); fetch or write it again")
    return answer["value"]


class _Process:
    """The child process, restarted if it died."""

    def __init__(self) -> None:
        environment = {
            **os.environ,
            "HDF5_PLUGIN_PATH": "",
            "HDF5_USE_FILE_LOCKING": "FALSE",
            "OMP_NUM_THREADS": "1",
        }
        self.child = subprocess.Popen(  # noqa: S603  our own script under our own interpreter
            [sys.executable, "-I", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "OPENBLAS_NUM_THREADS": "1"},
        )
        self.owner = os.getpid()

    @property
    def usable(self) -> bool:
        return self.child.poll() is None and self.owner == os.getpid()

    def ask(self, request: dict[str, Any], data: bytes, patience: float) -> dict[str, Any]:
        """The answer; the child is killed if it takes longer than `patience` seconds."""
        given, out = self.child.stdin, self.child.stdout
        assert given is not None and out is not None  # noqa: S101, PT018  opened as pipes above
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self.child.kill()

        clock = threading.Timer(patience, give_up)
        clock.start()
        try:
            given.write(json.dumps(request).encode() + b"\n" + data)
            given.flush()
            head = json.loads(out.readline() or b'{"error": "the library crashed on it"}')
            parts = [out.read(size) for size in head.get("sizes", ())]
            if [len(part) for part in parts] != head.get("sizes", []):
                raise ValueError("the answer is incomplete")
            answer = {"value": _decoded(head["value"], parts)} if "value" in head else dict(head)
        except (OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError):
            answer = {"error": "the library crashed on it"}
            self.child.kill()
        finally:
            clock.cancel()
        if late.is_set() or self.child.poll() is not None:
            self.stop()
        return {"error": f"reading it took more than {patience:.0f} s"} if late.is_set() else answer

    def stop(self) -> None:
        """End the child and wait for it."""
        if self.owner == os.getpid():
            self.child.kill()
            self.child.wait()
            for pipe in (self.child.stdin, self.child.stdout):
                with contextlib.suppress(OSError):  # what is left in the pipe has nobody to go to
                    if pipe is not None:
                        pipe.close()


def _decoded(value: Any, parts: list[bytes]) -> Any:
    """Plain data from the child's JSON and the bytes beside it."""
    if isinstance(value, list):
        return [_decoded(item, parts) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind in ("array", "scalar"):
        dtype, shape, part = content
        array = np.frombuffer(parts[part], dtype).reshape(shape) if parts[part] else np.empty(shape, dtype)
        return array if kind == "array" else array[()]
    if kind in ("bytes", "bytearray"):
        return parts[content] if kind == "bytes" else bytearray(parts[content])
    items = [_decoded(item, parts) for item in content]
    return {"dict": dict, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](items)


_running: _Process | None = None
_one_at_a_time = threading.Lock()


@atexit.register
def _stop() -> None:
    if _running is not None:
        _running.stop()


SIGNATURE = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class Content:
    """Numeric arrays by name, lists of texts by name, and text attributes of each object."""

    numbers: dict[str, npt.NDArray[Any]]
    texts: dict[str, list[str]]
    attributes: dict[str, dict[str, str]]


def is_hdf5(path: Path) -> bool:
    """Whether a file begins as HDF5 files do."""
    return head(path, 8) == SIGNATURE


def object_names(path: Path) -> frozenset[str]:
    """Names of all groups and arrays in a file, for sniffing; empty if it cannot be read."""
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
            f"'{path}' is an HDF5 file, which needs h5py; install it with `pip install"
            " 'halp-motion[formats]'`, or export CSV"
        )
    if path.is_file() and not is_hdf5(path):
        raise problem(path, "", "it does not begin like an HDF5 file")
    answer = _ask("hdf5", path, "a whole HDF5 file", patterns=list(patterns))
    texts = {name: words for name, words in answer["arrays"].items() if isinstance(words, list)}
    numbers = {name: array for name, array in answer["arrays"].items() if name not in texts}
    return Content(numbers, texts, answer["attributes"])


def column(content: Content, name: str, path: Path, *, axes: int) -> npt.NDArray[np.float64]:
    """One array of numbers with this many axes."""
    values = content.numbers.get(name)
    if values is None:
        raise problem(path, "", f"it has no array '{name}'", "check the format")
    if values.ndim != axes or not math.prod(values.shape):
        raise problem(
            path, f"array '{name}'", f"its shape is {values.shape}", f"expected {axes} axes, none empty"
        )
    return as_floats(values)
