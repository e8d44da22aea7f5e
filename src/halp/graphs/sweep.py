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

from halp.errors import InputError, Interrupted
from halp.graphs.cells import METHODS, Cell, cell_path, expected_cost, fingerprint, read_cell, run_cells
from halp.graphs.data import GraphSet
from halp.graphs.readers import read_graphs
from halp.graphs.settings import GraphSettings
from halp.progress import Bar

_UNITS = 10  # progress counts tenths of a second of expected work


@dataclass(frozen=True)
class Job:
    """The missing cells of one set and seed."""

    set: str
    seed: int
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Schedule:
    """All cells that were asked for, in the order set, seed, method, and the jobs for those that are missing."""

    graphs: dict[str, GraphSet]
    paths: list[Path]
    jobs: list[Job]
    seconds: float  # expected work of all jobs, on one core


def schedule(data: Path, sets: Sequence[str], seeds: Sequence[int], settings: GraphSettings, folder: Path) -> Schedule:
    """Read the sets and look for what is finished already."""
    graphs = {name: read_graphs(data, name) for name in sets}
    paths: list[Path] = []
    jobs: list[Job] = []
    seconds = 0.0
    for name, known in graphs.items():
        check_classes(known, settings.folds)
        keys = {method: fingerprint(known, settings, method) for method in METHODS}
        for seed in seeds:
            own = {method: cell_path(folder, name, seed, method, key) for method, key in keys.items()}
            paths += own.values()
            missing = tuple(method for method, path in own.items() if not path.exists())
            if missing:
                jobs.append(Job(name, seed, missing))
                seconds += expected_cost(known, settings, missing)
    return Schedule(graphs, paths, jobs, seconds)


def check_classes(graphs: GraphSet, folds: int) -> None:
    """Refuse a set that cannot be divided into stratified folds before anything is trained."""
    counts = torch.bincount(graphs.labels)
    if len(counts) < 2 or int(counts.min()) < folds:
        raise InputError(
            f"set '{graphs.name}': {folds} stratified folds need two classes of at least {folds} graphs, "
            f"not {counts.tolist()}; lower --set folds"
        )


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
    planned = schedule(data, sets, seeds, settings, folder)
    folder.mkdir(parents=True, exist_ok=True)
    shown = progress and bool(planned.jobs)
    with Bar("graphs", int(planned.seconds * _UNITS), shown=shown) as bar, _stoppable():
        if jobs > 1 and len(planned.jobs) > 1:
            _run_parallel(planned.jobs, data, settings, folder, min(jobs, len(planned.jobs)), bar)
        else:
            for job in planned.jobs:
                tick = _Ticker(partial(bar.advance, note=f"{job.set}, seed {job.seed}"))
                run_cells(planned.graphs[job.set], settings, job.seed, job.methods, folder, tick)
    return [read_cell(path) for path in planned.paths]


class _Ticker:
    """Turns seconds of expected work into whole units, carrying the rest."""

    def __init__(self, advance: Callable[[int], Any]) -> None:
        self.advance, self.rest = advance, 0.0

    def __call__(self, cost: float) -> None:
        whole, self.rest = divmod(self.rest + cost * _UNITS, 1)
        if whole:
            self.advance(int(whole))


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
