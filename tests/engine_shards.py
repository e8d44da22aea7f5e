"""Shards for the tests of the engine: workers import this module."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def double(number: int) -> int:
    return 2 * number


def refuse_three(number: int) -> int:
    if number == 3:
        raise ValueError("three is not possible")
    return number


def write_or_die(shard: tuple[str, int, str]) -> int:
    """Write a file; the shard `poison` kills its worker always, `once` the first time."""
    folder, number, kind = shard
    marker = Path(folder) / f"died-{number}"
    if kind == "poison" or (kind == "once" and not marker.exists()):
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    (Path(folder) / f"shard-{number}").write_text(str(number))
    return os.getpid()


def write_slowly(shard: tuple[str, int]) -> int:
    folder, number = shard
    (Path(folder) / f"started-{number}-{os.getpid()}").touch()
    time.sleep(0.5)
    (Path(folder) / f"shard-{number}").write_text(str(number))
    return os.getpid()
