"""What training costs: measured in a process of its own, and guessed beforehand for a schedule."""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from halp.clips.store import open_store
from halp.encoders import build_encoder
from halp.errors import InputError
from halp.files import read_json, write_json
from halp.methods.term import term_views
from halp.reproduce.scheduler import Job
from halp.skeleton import Topology
from halp.training import pretrain
from halp.training.recipe import Recipe
from halp.training.run import read_lines
from halp.training.run_folder import RunFolder

_EPOCHS = 2  # the second is measured, when everything is warm


def measure_training(recipe: Recipe, store: Path, folder: RunFolder, warm: Path | None, first: int) -> dict[str, float]:
    """Seconds of an epoch and peak memory in bytes, two epochs after the fork; kept in `cost.json` of the run folder."""
    kept = folder.cost_file
    if kept.exists():
        return read_json(kept)
    # peak memory is that of a whole process, so every measurement gets a fresh one
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        found = pool.submit(_measure, recipe, store, warm, first, torch.get_num_threads()).result()
    write_json(kept, found)
    return found


def _measure(recipe: Recipe, store: Path, warm: Path | None, first: int, threads: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        until = min(recipe.epochs, first + _EPOCHS)
        run = pretrain(recipe, open_store(store), Path(folder) / "run", fork=warm, until=until, progress=False)
        lines = run.timing()
    if not lines:
        raise InputError(f"recipe '{recipe.name}' has no epoch left after its start epoch to measure")
    on_gpu = torch.cuda.is_available()
    memory = torch.cuda.max_memory_allocated() if on_gpu else max(line["peak_memory"] for line in lines)
    return {"time": float(lines[-1]["seconds"]), "memory": float(memory)}


def seconds_per_step(recipe: Recipe, topology: Topology, persons: int) -> float:
    """A rough guess of a training step on this machine's CPU, from forward passes of the recipe's encoders.

    The query and every further view are encoded forwards and backwards (three times the work of a forward pass), the key
    forwards.
    """
    guess, passes = 0.0, 4 + 3 * len(term_views(recipe.term_settings))
    for stream in recipe.streams:
        encoder = build_encoder(recipe.encoder_of(stream), topology, persons)
        guess += passes * _forward_seconds(
            encoder, (recipe.views.frames, persons, len(topology), topology.dimensions), recipe
        )
    return guess


@torch.inference_mode()
def _forward_seconds(encoder: torch.nn.Module, shape: tuple[int, ...], recipe: Recipe) -> float:
    """Seconds of a forward pass of a batch: the quicker of two passes of up to eight clips, by their number."""
    clips = torch.randn(min(8, recipe.batch_size), *shape)
    times = []
    for _ in range(2):
        began = time.perf_counter()
        encoder(clips)
        times.append(time.perf_counter() - began)
    return min(times) * recipe.batch_size / len(clips)


def measured_step(jobs: Iterable[Job], paths: Iterable[Path]) -> float | None:
    """Median seconds of a step in runs that were made already; None where there is none."""
    found = []
    for job, path in zip(jobs, paths):
        lines = read_lines(RunFolder(path).timing_file)
        found += [line["seconds"] / job.steps_per_epoch for line in lines]
    return statistics.median(found) if found else None
