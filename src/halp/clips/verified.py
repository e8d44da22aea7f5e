"""Whether a store still holds what was written: its frames and index are compared with the fingerprint that it carries.

All of it is read once, in blocks, with what is not finite noticed on the way. The outcome is remembered for as long as
device, inode, size and times of both files stay the same: in this process, and in the user's cache folder
(`HALP_CACHE`, else `$XDG_CACHE_HOME/halp`, else `~/.cache/halp`), never inside the store, which may be read-only.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.clips.store_check import damaged
from halp.errors import InputError
from halp.files import write_text
from halp.progress import Bar

_BLOCK = 16 * 2**20
# A file changed within this time may change again without its times showing it: clocks of file systems are coarse.
_SETTLED = 2.0
_SHOWN_FROM = 512 * 2**20
_known: dict[str, list[Any]] = {}


def verify(path: Path, expected: str, frames: np.memmap[Any, Any], lengths: npt.NDArray[np.int64], names: Any) -> None:
    """Raise unless frames and index have the expected fingerprint and every number is finite."""
    state = _state(path)
    if state is not None and _remembered(path) == [expected, state]:
        return
    found, bad = content_hash(path, frames.offset)
    if found != expected:
        raise damaged(path, "frames.npy or index.json", "the content is not what was written (its fingerprint differs)")
    if bad is not None:
        frame = bad // int(np.prod(frames.shape[1:]))
        clip = int(np.searchsorted(np.cumsum(lengths), frame, side="right"))
        within = frame - int(lengths[:clip].sum())
        raise InputError(
            f"store '{path}': clip '{names[clip]}', frame {within} holds a number that is not finite; prepare it again"
        )
    if state is not None and state == _state(path):
        _remember(path, [expected, state])


def content_hash(path: Path, offset: int) -> tuple[str, int | None]:
    """Fingerprint of frames and index, and the position of the first number that is not finite."""
    digest, bad, done = hashlib.sha256(), None, 0
    try:
        # Read, not through the map: pages that were only hashed should not stay in this process.
        with open(path / "frames.npy", "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size - offset
            file.seek(offset)
            with Bar("verify store (MiB)", size // 2**20, shown=size > _SHOWN_FROM) as bar:
                while block := _read(file.fileno(), _BLOCK):
                    digest.update(block)
                    numbers = np.frombuffer(block[: len(block) // 4 * 4], "<f4")
                    if bad is None and not np.isfinite(numbers).all():
                        bad = done // 4 + int(np.argmin(np.isfinite(numbers)))
                    done += len(block)
                    bar.advance(len(block) // 2**20)
        digest.update((path / "index.json").read_bytes())
    except OSError as error:
        raise InputError(f"store '{path}' cannot be read ({error}); check the disk and its permissions") from error
    return digest.hexdigest(), bad


def _read(handle: int, size: int) -> bytes:
    """Up to `size` bytes, fewer only at the end of the file."""
    parts, left = [], size
    while left and (part := os.read(handle, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _state(path: Path) -> list[list[int]] | None:
    """What changes when a file does; None while it is too fresh for that to be sure."""
    rows, newest = [], 0.0
    for name in ("frames.npy", "index.json"):
        try:
            found = os.stat(path / name)
        except OSError:
            return None
        rows.append([found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns])
        newest = max(newest, found.st_mtime, found.st_ctime)
    return rows if time.time() - newest > _SETTLED else None


def _record(path: Path) -> Path | None:
    """The file in the user's cache folder that remembers this store; None where there is no such folder."""
    chosen = os.environ.get("HALP_CACHE")
    if chosen == "":
        return None
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "halp")
    return base / "verified" / f"{hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:32]}.json"


def _remembered(path: Path) -> list[Any] | None:
    key = os.path.realpath(path)
    if key not in _known:
        with suppress(OSError, ValueError, RuntimeError):
            record = _record(path)
            if record is not None:
                _known[key] = json.loads(record.read_text(encoding="utf-8"))
    return _known.get(key)


def _remember(path: Path, outcome: list[Any]) -> None:
    _known[os.path.realpath(path)] = outcome
    with suppress(OSError, RuntimeError):
        record = _record(path)
        if record is not None:
            write_text(record, json.dumps(outcome))
