"""Trainings and evaluations for workers of tables and sweeps: resumable, each on one core."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from halp.core.errors import InputError, Interrupted
from halp.engine import Engine, Failure
from halp.training import pretrain
from halp.training.checkpoint import list_checkpoints
from halp.training.recipe import Recipe
from halp.training.run_folder import RunFolder


@dataclass(frozen=True)
class Training:
    """One training, with everything that a worker on another machine needs.

    Attributes
    ----------
    recipe : Recipe
        All settings.
    store, folder : str
        What to learn from, and the run folder; absolute paths, the same on all machines.
    fork : str, optional
        The run whose newest checkpoint this one starts from.
    until : int, optional
        Stop after that epoch.
    devices : mapping
        As `halp.pretrain` takes them.
    progress : bool
        Whether the training shows a progress bar of its own.
    """

    recipe: Recipe
    store: str
    folder: str
    fork: str | None = None
    until: int | None = None
    devices: Mapping[str, Any] = field(default_factory=dict)
    progress: bool = False


def train(training: Training) -> None:
    """Train from the newest checkpoint, or from the beginning if nothing was saved yet."""
    folder = RunFolder(Path(training.folder))
    resume = bool(list_checkpoints(folder.checkpoints))
    if not resume and folder.path.exists():
        shutil.rmtree(folder.path)  # it was stopped before anything was saved
    try:
        with one_core():
            pretrain(
                training.recipe,
                training.store,
                folder.path,
                resume=resume,
                fork=None if resume else training.fork,
                until=training.until,
                progress=training.progress,
                **training.devices,
            )
    except Interrupted:
        if multiprocessing.parent_process() is not None:
            os._exit(Interrupted.exit_code)  # a worker that was told to stop takes nothing else
        raise


@contextmanager
def one_core() -> Iterator[None]:
    """Compute on one thread: rounding depends on their number, results must not on that of workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def training_engine(
    workers: int | None, engine: str | Executor | None = None, accelerator: str = "auto"
) -> Engine:
    """Where trainings run: by default one per core of this machine, or one at a time on a GPU."""
    if workers is None and (
        accelerator not in ("auto", "cpu") or (accelerator == "auto" and torch.cuda.is_available())
    ):
        workers = 1
    address, executor = (engine, None) if isinstance(engine, str) else (None, engine)
    return Engine(workers, address, executor)


def raise_failures(failures: Mapping[str, Failure]) -> None:
    """Raise what one job failed with, or name all that failed."""
    if len(failures) == 1 and (error := next(iter(failures.values())).error) is not None:
        raise error
    if failures:
        told = "; ".join(f"{name}: {failure.reason}" for name, failure in failures.items())
        raise InputError(
            f"{len(failures)} jobs failed ({told}); all that do not need them are done: repeat the command to"
            " retry"
        )


@contextmanager
def stoppable() -> Iterator[None]:
    """In this context, Ctrl-C or SIGTERM ends all workers; finished work stays on disk."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if main else None
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            "stopped; everything finished is saved, and the same command computes the rest"
        ) from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
