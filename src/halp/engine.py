"""Where shards run: this process, a pool, a Dask cluster, or any `concurrent.futures.Executor`.

A shard is an idempotent task that leaves its result on disk. `run_shards` submits shards, submits them again
when a worker dies, reports what still fails and finishes the rest. What is computed never depends on where.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from halp.core.errors import InputError, Interrupted, missing_extra
from halp.core.job_parts import Part
from halp.core.pools import cores, local_pool

SHARD = TypeVar("SHARD")
TRIES = 3
PATIENCE = 20.0  # seconds to wait for a scheduler
GRACE = 30.0  # seconds that workers have to save what they are at, when they are told to stop
DIED = "the worker process died every time, perhaps out of memory"
_SCHEMES = ("tcp", "tls", "ws", "wss", "ucx", "dask")


@dataclass(frozen=True)
class Failure:
    """A failed shard; `error` is the exception of its function, None if its worker died."""

    reason: str
    error: Exception | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Engine:
    """Where shards run, from the options.

    Attributes
    ----------
    workers : int, optional
        Processes of this machine (default: as many as cores).
    address : str, optional
        A Dask scheduler, such as `tcp://host:8786`; needs `pip install 'halp-motion[cluster]'`.
    executor : Executor, optional
        Any object of `concurrent.futures`, which is then used as it is.
    part : (int, int), optional
        Run only part i of n, counted from 1: for job arrays. `halp join` puts the parts together.
    """

    workers: int | None = None
    address: str | None = None
    executor: Executor | None = field(default=None, compare=False)
    part: Part | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"{self.workers} workers: choose at least 1")
        if self.address is not None and self.address.partition("://")[0] not in _SCHEMES:
            raise InputError(f"'{self.address}' is not the address of a scheduler; write tcp://HOST:PORT")

    @property
    def processes(self) -> int:
        """Worker processes of this machine."""
        return self.workers or cores()

    def alone(self, shards: int, few: int) -> bool:
        """Whether shards run in this process: one worker, or too few shards to be worth starting others."""
        return self.executor is None and self.address is None and (self.processes == 1 or shards < few)

    def mine(self, shards: Sequence[SHARD]) -> list[SHARD]:
        """The shards of this part, assigned in turn; all of them without parts."""
        return list(shards) if self.part is None else list(shards[self.part[0] - 1 :: self.part[1]])

    @contextmanager
    def pool(self) -> Iterator[tuple[Callable[[], Executor], int]]:
        """A function that creates an executor (again after a crash), and the number of tasks in flight."""
        if self.executor is not None:
            given = self.executor
            yield (lambda: given), 4 * cores()
        elif self.address is not None:
            client = _dask(self.address)
            try:
                slots = sum(client.ncores().values())
                yield (lambda: client.get_executor(retries=TRIES, pure=False)), max(4, 2 * slots)
            finally:
                client.close()
        else:
            open_pools: list[ProcessPoolExecutor] = []

            def make() -> Executor:
                open_pools.append(local_pool(self.processes))
                return open_pools[-1]

            try:
                yield make, 2 * self.processes
            except BaseException:
                for pool in open_pools:
                    _stop(pool)
                raise
            finally:
                for pool in open_pools:
                    pool.shutdown(cancel_futures=True)


def run_shards(
    function: Callable[[SHARD], Any],
    shards: Sequence[SHARD],
    engine: Engine | Executor | None = None,
    *,
    few: int = 2,
) -> Iterator[tuple[int, Any]]:
    """Call a function with every shard; yields each shard's index and its result or `Failure`.

    Shards that were on their way when a worker died are submitted again, each alone, up to three times. What
    the function raises is a failure of its shard, and the rest continues.

    Parameters
    ----------
    function : callable
        Of a module that workers can import; it may be called more than once with the same shard.
    shards : sequence
        What can be pickled.
    engine : Engine or Executor, optional
        Default: all cores of this machine.
    few : int
        Fewer shards than this run in this process, unless an engine is named.
    """
    engine = engine if isinstance(engine, Engine) else Engine(executor=engine)
    places = list(range(len(shards)))
    if engine.alone(len(shards), few):
        yield from ((place, _called(function, shards[place])) for place in places)
        return
    with engine.pool() as (make, most):
        for window in (most, *[1] * TRIES):  # alone, whoever dies is to blame
            died: list[int] = []
            for place, result in _rounds(function, shards, places, make, window):
                if isinstance(result, _Death):
                    died.append(place)
                else:
                    yield place, result
            places = sorted(died)
            if not places:
                return
    yield from ((place, Failure(DIED)) for place in places)


class _Death:
    """A worker died with this shard or a neighbour."""


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers of a pool without waiting for their tasks."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()


def _called(function: Callable[[SHARD], Any], shard: SHARD) -> Any:
    try:
        return function(shard)
    except Interrupted:
        raise
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> Failure:
    return Failure(str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}", error)


def _rounds(
    function: Callable[[SHARD], Any],
    shards: Sequence[SHARD],
    places: list[int],
    make: Callable[[], Executor],
    most: int,
) -> Iterator[tuple[int, Any]]:
    """Results as they complete, with a limited number of shards in flight; a broken pool is replaced."""
    left = list(reversed(places))
    waiting: dict[Future[Any], int] = {}
    executor = make()
    try:
        while left or waiting:
            broken = False
            while left and len(waiting) < most and not broken:
                try:
                    waiting[executor.submit(function, shards[left[-1]])] = left[-1]
                    left.pop()
                except BrokenExecutor:
                    broken = True
            done = wait(waiting, return_when=FIRST_COMPLETED).done if waiting else set()
            for future in done:
                result = _result(future)
                broken = broken or isinstance(result, _Death)
                yield waiting.pop(future), result
            if broken:
                # the others fail as well
                yield from ((place, _result(future)) for future, place in waiting.items())
                waiting, executor = {}, make()
    finally:
        for future in waiting:
            future.cancel()


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except (BrokenExecutor, CancelledError, Interrupted):
        return _Death()
    except Exception as error:
        return _Death() if type(error).__name__ == "KilledWorker" else _failure(error)


def _dask(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise missing_extra("--engine needs Dask, which is missing", "cluster") from None
    try:
        return Client(re.sub("^dask://", "tcp://", address), timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"no scheduler answers at '{address}' ({error}); start `dask scheduler`") from None
