"""Ports for servers of tests that cannot choose one themselves."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_HELD: list[int] = []  # open files, whose locks end with this process


def free_port() -> int:
    """A port of this machine that is this process's until it ends.

    It lies below those that the system hands out by itself, so nobody is given it between this call and the
    start of the server; other test processes see the lock.
    """
    folder = Path(tempfile.gettempdir(), "halp-test-ports")
    folder.mkdir(exist_ok=True)
    for port in random.SystemRandom().sample(range(12_000, 30_000), 200):
        file = os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as free:
                free.bind(("127.0.0.1", port))
        except OSError:
            os.close(file)
            continue
        _HELD.append(file)
        return port
    raise AssertionError("none of 200 ports is free")
