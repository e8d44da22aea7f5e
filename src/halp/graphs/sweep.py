"""All cells of the graph table: what is missing is computed, in one process or several; what is there is kept."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from halp.errors import InputError
from halp.graphs.cells import METHODS, Cell, cell_path, expected_cost, fingerprint, read_cell, run_cells
from halp.graphs.data import GraphSet
from halp.graphs.readers import read_graphs
from halp.graphs.settings import GraphSettings
from halp.progress import Bar
from halp.training.stopping import Interrupted

_UNITS = 10  # progress counts tenths of a second of expected work


@dataclass(frozen=True)
class Job:
    """The missing cells of one set and seed."""

    set: str
    seed: int
    methods: tuple[str, ...]


def run_sweep(
    data: Path,
    sets: Sequence[str],
    seeds: Sequence[int],
    settings: GraphSettings,
    folder: Path,
    *,
    jobs: int = 1,
    progress: bool = True,
) -> list[Cell]:
    """Compute all missing cells into `folder` and return all that were asked for, in the order set, seed, method."""
    graphs = {name: read_graphs(data, name) for name in sets}
    for name, known in graphs.items():
        rarest = int(torch.bincount(known.labels).min())
        if len(known.labels.unique()) < 2 or rarest < settings.folds:
            raise InputError(
                f"set '{name}': {settings.folds} stratified folds need two classes of at least so many graphs"
            )
    keys = {(name, method): fingerprint(graphs[name], settings, method) for name in sets for method in METHODS}
    paths = {
        (name, seed, method): cell_path(folder, name, seed, method, keys[name, method])
        for name in sets
        for seed in seeds
        for method in METHODS
    }
    waiting = []
    for name in sets:
        for seed in seeds:
            missing = tuple(method for method in METHODS if not paths[name, seed, method].exists())
            if missing:
                waiting.append(Job(name, seed, missing))
    total = sum(_units(expected_cost(graphs[job.set], settings, job.methods)) for job in waiting)
    folder.mkdir(parents=True, exist_ok=True)
    with Bar("graphs", total, shown=progress and bool(waiting)) as bar, _stoppable():
        if jobs > 1 and len(waiting) > 1:
            _run_parallel(waiting, data, settings, folder, min(jobs, len(waiting)), bar)
        else:
            for job in waiting:
                tick = _Ticker(partial(bar.advance, note=f"{job.set}, seed {job.seed}"))
                run_cells(graphs[job.set], settings, job.seed, job.methods, folder, tick)
    return [read_cell(path) for path in paths.values()]


class _Ticker:
    """Turns seconds of expected work into whole units, carrying the rest."""

    def __init__(self, advance: Callable[[int], Any]) -> None:
        self.advance, self.rest = advance, 0.0

    def __call__(self, cost: float) -> None:
        whole, self.rest = divmod(self.rest + cost * _UNITS, 1)
        if whole:
            self.advance(int(whole))


def _units(cost: float) -> int:
    return int(cost * _UNITS)


@contextmanager
def _stoppable() -> Iterator[None]:
    """A request to stop ends the sweep at once: finished cells are on disk already."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, stop) if main else None
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("stopped; finished cells are saved, and the same command computes the others") from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


_worker: dict[str, Any] = {}


def _begin(ticks: Any, data: Path, settings: GraphSettings, folder: Path) -> None:
    """Prepare a worker process; the parent alone listens to the keyboard."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker.update(ticks=ticks, data=data, settings=settings, folder=folder, graphs={})


def _work(job: Job) -> None:
    graphs: dict[str, GraphSet] = _worker["graphs"]
    if job.set not in graphs:
        graphs.clear()
        graphs[job.set] = read_graphs(_worker["data"], job.set)
    tick = _Ticker(lambda units: _worker["ticks"].put((units, f"{job.set}, seed {job.seed}")))
    run_cells(graphs[job.set], _worker["settings"], job.seed, job.methods, _worker["folder"], tick)


def _run_parallel(
    waiting: Sequence[Job], data: Path, settings: GraphSettings, folder: Path, processes: int, bar: Bar
) -> None:
    context = multiprocessing.get_context("spawn")
    ticks = context.Queue()
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(processes, context, _begin, (ticks, data, settings, folder))
    try:
        left: set[Future[None]] = {pool.submit(_work, job) for job in waiting}
        while left:
            done, left = wait(left, timeout=0.5, return_when=FIRST_COMPLETED)
            while not ticks.empty():
                bar.advance(*ticks.get())
            for one in done:
                one.result()
    except BrokenProcessPool:
        raise Interrupted(
            "a process of the sweep was killed; finished cells are saved, run the command again"
        ) from None
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
