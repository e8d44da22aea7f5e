"""One owner at a time for runs, stores being written, results and sweeps: a lock file held by the system.

The system frees the lock of a process that ends in whatever way, so a lock is never stale. The file names its
owner for messages. Where a file system has no such locks (some network ones), a second file is the lock.
"""

from __future__ import annotations

import errno
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from halp.core.errors import InputError
from halp.core.urls import check_local

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


class InUse(InputError):
    """Another live process holds the lock, so waiting for it makes sense."""

    waits = True


class CannotLock(InputError):
    """The folder is not writable, so what the lock protects cannot change either."""


@contextmanager
def locked(path: Path, what: str, *, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path` while the body runs; `what` names in messages what it protects.

    Raises `InUse` if somebody else holds it for longer than `wait` seconds.
    """
    check_local(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquire(path, wait)
    except Timeout:
        _check_writable(path, what)  # where no file can be made, the lock is waited for just as well
        who = _read_owner(path) or "another process"
        raise InUse(f"{what} is in use by {who}; wait until it ends or stop it, then try again") from None
    except OSError as error:
        raise _cannot_lock(path, what, error) from error
    owner = os.getpid()
    try:
        with suppress(OSError):  # Windows lets nobody write or read a locked file
            path.write_text(
                f"process {owner} on {platform.node()} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
            )
        yield
    finally:
        if os.getpid() == owner:  # not in a copy of this process
            with suppress(OSError):
                # before it is freed: who waits for it notices that it is gone and makes
                # another
                os.unlink(path)
            with suppress(OSError):
                lock.release()


def _check_writable(path: Path, what: str) -> None:
    """Raise `CannotLock` if no file can be created beside the lock."""
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise _cannot_lock(path, what, error) from error


def _cannot_lock(path: Path, what: str, error: OSError) -> CannotLock:
    reason = error.strerror or type(error).__name__
    return CannotLock(
        f"{what} cannot be locked: nothing can be written in '{path.parent}' ({reason}); free disk space or"
        " choose another path"
    )


def _acquire(path: Path, wait: float) -> BaseFileLock:
    lock: BaseFileLock = FileLock(path, mode=0o666)
    try:
        lock.acquire(timeout=wait)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        lock = SoftFileLock(path.with_name(f"{path.name}.soft"))
        lock.acquire(timeout=wait)
    return lock


def _read_owner(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:200]
    except OSError:
        return ""


@contextmanager
def locked_where_possible(path: Path, what: str) -> Iterator[None]:
    """Like `locked`, but a read-only place, which cannot be damaged, gets no lock."""
    with ExitStack() as stack:
        with suppress(CannotLock):
            stack.enter_context(locked(path, what))
        yield


def locked_folder(path: Path, what: str, *, wait: float = 0.0) -> AbstractContextManager[None]:
    """As `locked` for a folder; the lock lies beside it, so that copies of the folder do not contain it."""
    real = Path(os.path.realpath(path))
    return locked(real.with_name(f".{real.name}.lock"), what, wait=wait)
