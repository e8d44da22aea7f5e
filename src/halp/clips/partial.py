"""Unfinished folders: named by machine and process, so that a later run can clear away what a killed one left behind."""

from __future__ import annotations

import glob
import os
import platform
import re
import shutil
from pathlib import Path


def _partial_prefix(path: Path) -> str:
    host = re.sub(r"\W", "_", platform.node()) or "host"
    return f".{path.name}.partial-{host}-"


def partial_folder(path: Path) -> Path:
    """Where this process builds what is to become `path`."""
    return path.with_name(f"{_partial_prefix(path)}{os.getpid()}")


def remove_leftovers(path: Path) -> None:
    """Remove what runs on this machine left beside `path` when they were killed; those still running are spared."""
    prefix = _partial_prefix(path)
    for leftover in path.parent.glob(glob.escape(prefix) + "*"):
        process = leftover.name.removeprefix(prefix).removesuffix("-old")
        if process.isdecimal() and (int(process) == os.getpid() or not _alive(int(process))):
            shutil.rmtree(leftover, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
