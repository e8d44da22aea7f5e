"""One owner at a time for a run, a store being written, results or a sweep: a lock file that says who holds it.

A lock is made by linking a finished file to its name, which is atomic on local and on network file systems (exclusive
creation takes over where there are no hard links). It names process, start of the process, machine, boot and process
namespace, so that the lock of a process that is gone is recognised and replaced. What cannot be known is whether a process
on *another* machine still lives: such a lock is respected, and the message says which file to remove if it does not.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from halp.errors import InputError

# A process that replaces a dead one's lock holds the guard for a moment only; an older guard was left by a crash.
_GUARD_SECONDS = 30.0
_PAUSE = 0.05


class InUse(InputError):
    """Somebody else holds the lock; `waits` tells whether it is known to live, so that waiting for it makes sense."""

    waits = False


class CannotLock(InputError):
    """The place cannot be written, and so neither can what the lock would protect."""


@dataclass(frozen=True)
class Owner:
    """Who holds a lock. `place` is where `pid` means something: machine, boot and process namespace."""

    pid: int
    started: str
    host: str
    place: str
    since: str
    token: str

    def here(self) -> bool:
        """Whether the owner's number means a process that can be looked up from here."""
        return (self.host, self.place) == (platform.node(), _place())

    def gone(self) -> bool:
        """Whether the owner certainly no longer runs; of another machine or container nothing is certain."""
        if not self.here():
            # the same machine after a restart: none of its processes survived
            own, other = _place().split(" ", 1), self.place.split(" ", 1)
            return self.host == platform.node() and own[0] != other[0] and own[1:] == other[1:]
        return not process_runs(self.pid) or self.started != _started(self.pid)


@contextmanager
def locked(path: Path, what: str, *, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path` while the body runs; `what` names in messages what it protects.

    Raises `InUse` where somebody else holds it for longer than `wait` seconds.
    """
    owner = _myself()
    _acquire(path, owner, what, time.monotonic() + wait)
    try:
        yield
    finally:
        if os.getpid() == owner.pid:  # not in a copy of this process
            _release(path, owner)


@contextmanager
def locked_where_possible(path: Path, what: str) -> Iterator[None]:
    """As `locked`; in a place that cannot be written, where nothing can be damaged either, the body runs without a lock."""
    with ExitStack() as stack:
        with suppress(CannotLock):
            stack.enter_context(locked(path, what))
        yield


def locked_folder(path: Path, what: str, *, wait: float = 0.0) -> AbstractContextManager[None]:
    """As `locked` for a folder; its lock lies beside it, so that a copied or moved folder takes none with it."""
    real = Path(os.path.realpath(path))
    return locked(real.with_name(f".{real.name}.lock"), what, wait=wait)


def _acquire(path: Path, owner: Owner, what: str, deadline: float) -> None:
    while not _create(path, json.dumps(asdict(owner)), what):
        holder = read_owner(path)
        if holder is not None and holder.gone() and _replace_dead(path, what):
            continue
        if time.monotonic() >= deadline:
            refusal = InUse(_refusal(path, holder, what))
            refusal.waits = holder is not None and holder.here()
            raise refusal
        time.sleep(_PAUSE)


def _refusal(path: Path, holder: Owner | None, what: str) -> str:
    if holder is None:
        return f"{what} is in use (its lock '{path}' cannot be read); if nothing uses it, remove that file"
    who = f"process {holder.pid} on {holder.host} since {holder.since}"
    if holder.here():
        return f"{what} is in use by {who}; wait until it ends or stop it, then try again"
    return f"{what} is in use by {who}; if that process no longer runs, remove '{path}'"


def _create(path: Path, content: str, what: str) -> bool:
    """Make a lock file with this content; False where there is one already."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
            return True
        except FileExistsError:
            # over a network the answer can get lost: two names for our file mean that it was made after all
            return os.stat(temporary).st_nlink == 2
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES):
                raise
            return _create_exclusively(path, content)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CannotLock(f"{what} cannot be locked ('{path}': {reason}); make room or choose another place") from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _create_exclusively(path: Path, content: str) -> bool:
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(content)
            return True
    except FileExistsError:
        return False


def _replace_dead(path: Path, what: str) -> bool:
    """Remove the lock of an owner that is gone; one process at a time does this, or a fresh lock could be hit."""
    guard = path.with_name(f"{path.name}.guard")
    if not _create(guard, str(os.getpid()), what):
        with suppress(OSError):
            if time.time() - os.stat(guard).st_mtime > _GUARD_SECONDS:
                os.unlink(guard)
        return False
    try:
        holder = read_owner(path)
        if holder is not None and holder.gone():
            with suppress(FileNotFoundError):
                os.unlink(path)
        return True
    finally:
        with suppress(OSError):
            os.unlink(guard)


def _release(path: Path, owner: Owner) -> None:
    holder = read_owner(path)
    if holder is not None and holder.token == owner.token:
        with suppress(OSError):
            os.unlink(path)


def read_owner(path: Path) -> Owner | None:
    """Who holds a lock; None where nobody does or the file says nothing."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        owner = Owner(**data)
        return owner if type(owner.pid) is int and owner.pid > 0 and isinstance(owner.place, str) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _myself() -> Owner:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    return Owner(os.getpid(), _started(os.getpid()), platform.node(), _place(), since, secrets.token_hex(8))


def process_runs(process: int) -> bool:
    """Whether a process of that number runs on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _started(process: int) -> str:
    """When a process started, in ticks since the machine did; empty where the system does not tell.

    Numbers of processes are used again, times of start with the same number are not.
    """
    if sys.platform != "linux":
        return ""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    state, *fields = text.rpartition(")")[2].split()
    return "ended" if state in "ZX" else fields[18]  # one that ended and was not yet asked how


def _place() -> str:
    """Boot of the machine and namespace of processes: a number of a process means nothing outside of it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return "unknown unknown"
