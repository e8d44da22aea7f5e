"""Independent pieces of work in threads, each with a share of the cores of its own."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

RESULT = TypeVar("RESULT")


def run_in_threads(tasks: Sequence[Callable[[], RESULT]]) -> list[RESULT]:
    """Results of tasks that share the cores torch may use; one after the other if there is one core.

    A task that divides its own work finds its share of the cores there. What it computes must be the same on
    whatever thread it runs: nothing drawn from torch's own generator, no messages to other processes.
    """
    cores = torch.get_num_threads()
    if min(cores, len(tasks)) < 2 or torch.compiler.is_compiling():
        return [task() for task in tasks]
    wanted = torch.is_grad_enabled()

    def run(task: Callable[[], RESULT]) -> RESULT:
        with torch.set_grad_enabled(wanted):  # which every thread decides for itself
            return task()

    workers = _workers(
        os.getpid(), threading.get_ident(), min(cores, len(tasks)), max(1, cores // len(tasks))
    )
    return list(workers.map(run, tasks))


@functools.cache
def _workers(process: int, caller: int, count: int, cores: int) -> ThreadPoolExecutor:
    """Threads of one caller; all of them run at once, each with its share of the cores."""
    before, all_there = torch.get_num_threads(), threading.Barrier(count)

    def take_share(_: int) -> None:
        torch.get_num_threads()  # a new thread takes the default when torch is first asked something, and would later
        torch.set_num_threads(cores)
        all_there.wait()

    workers = ThreadPoolExecutor(count)
    list(workers.map(take_share, range(count)))
    # what a thread sets for itself is also the default of those that others start
    torch.set_num_threads(before)
    return workers
