"""Independent pieces of work on threads of their own, the cores shared out among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """What the calls return, in order; they run at once where there are cores for it, without recording gradients."""
    threads = torch.get_num_threads()
    if threads < 2 or len(calls) < 2:
        return [call() for call in calls]
    share = max(1, threads // len(calls))
    others = [_workers().submit(_alone, call, share) for call in calls[1:]]
    try:
        first = _alone(calls[0], share)
    finally:
        wait(others)
        torch.set_num_threads(threads)
    return [first, *(other.result() for other in others)]


def _alone(call: Callable[[], T], threads: int) -> T:
    # both are settings of the thread that makes them
    torch.set_num_threads(threads)
    with torch.no_grad():
        return call()


@cache
def _workers() -> ThreadPoolExecutor:
    # a thread takes over the number of the others when it first asks for its own, so that it has to ask before it sets it
    return ThreadPoolExecutor(thread_name_prefix="halp", initializer=torch.get_num_threads)


# threads do not survive a fork
os.register_at_fork(after_in_child=_workers.cache_clear)
