"""Pools of worker processes that share the cores, ignore Ctrl-C and end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import types
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.context import SpawnContext, SpawnProcess


def cores() -> int:
    """Cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_pool(workers: int) -> ProcessPoolExecutor:
    """Fresh processes (forking one with threads can hang) that share the cores and end with this one."""
    threads = max(1, cores() // workers)
    return ProcessPoolExecutor(workers, _Context(), initializer=start_worker, initargs=(threads,))


class _Process(SpawnProcess):
    """A process that does not run the caller's script again, so that no script needs a guard."""

    def start(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process = _Process


def start_worker(threads: int = 1) -> None:
    """Set up a worker process: its share of cores; it ignores Ctrl-C and ends with its parent."""
    os.environ.update(OMP_NUM_THREADS=str(threads))
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    with suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
