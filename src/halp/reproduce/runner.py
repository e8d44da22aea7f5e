"""Run a schedule: trainings are resumed where they stopped, evaluations found again by name."""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from halp.core.errors import InputError
from halp.core.files import read_json, write_json
from halp.core.progress import log
from halp.data.store import Store
from halp.encoders import build_encoder
from halp.engine import Engine, Failure, run_shards
from halp.evaluation import RawCoordinates
from halp.evaluation.analysis.similarities import kept_share
from halp.evaluation.evaluate_run import evaluate_cached, settings_for
from halp.evaluation.protocol import EncoderEnsemble, get_protocol
from halp.evaluation.results import Result
from halp.features.loading import load_encoder
from halp.methods.term import term_views
from halp.reproduce.scales import Scale
from halp.reproduce.scheduler import Cell, Job, Schedule, cell_folder, loaded, waves
from halp.reproduce.tables import TableColumn
from halp.reproduce.trainings import Training, raise_failures, stoppable, train
from halp.skeleton import Topology
from halp.training import Run, open_run
from halp.training.recipe import Recipe
from halp.training.run import data_facts, read_lines
from halp.training.run_folder import RunFolder


class SweepRunner:
    """Runs of a schedule under one folder; finished runs are used, missing or unfinished ones are trained."""

    def __init__(
        self, folder: Path, *, engine: Engine | None = None, progress: bool = True, **devices: Any
    ) -> None:
        """`engine` says where trainings run (default: here, one after the other); `devices` are accelerator,
        devices, nodes, strategy and precision of every training, as `pretrain` takes them.
        """
        self.folder, self.progress, self.devices = folder, progress, devices
        self.engine = engine or Engine(1)

    def path(self, job: str) -> Path:
        """The run folder of a job."""
        return self.folder / "runs" / job

    def state(self, job: Job) -> str:
        """`done`, `started` or `to do`."""
        path = self.path(job.name)
        if not RunFolder(path).holds_run():
            return "to do"
        done = open_run(path).info.get("finished", {}).get("step", -1)
        return "done" if done >= job.last * job.steps_per_epoch else "started"

    def train(self, jobs: Iterable[Job]) -> None:
        """Train unfinished jobs: forks after their origin, others in parallel."""
        failures: dict[str, Failure] = {}
        lost: set[str | None] = set()
        with stoppable():
            for wave in waves([job for job in jobs if self.state(job) != "done"]):
                lost |= {job.name for job in wave if job.parent in lost}
                failures |= self._train_wave([job for job in wave if job.name not in lost])
                lost |= failures.keys()
        raise_failures(failures)

    def _train_wave(self, jobs: Sequence[Job]) -> dict[str, Failure]:
        """Train jobs that do not depend on each other, and return those that failed."""
        alone, failures = self.engine.alone(len(jobs), few=2), {}
        trainings = [self._training(job, alone) for job in jobs]
        for place, result in run_shards(train, trainings, self.engine):
            job = jobs[place]
            if isinstance(result, Failure):
                failures[job.name] = result
            if self.progress:
                log.info(f"{job.name}: {result.reason if job.name in failures else 'done'}")
        return failures

    def _training(self, job: Job, alone: bool) -> Training:
        return Training(
            job.recipe,
            str(loaded(job.dataset).path.absolute()),
            str(self.path(job.name).absolute()),
            None if job.parent is None else str(self.path(job.parent).absolute()),
            job.last,
            self.devices,
            self.progress and alone,
        )

    def measure(self, schedule: Schedule) -> dict[tuple[str, int, str], list[float]]:
        """For every row, column and data set (by key and split) one value per seed."""
        values: dict[tuple[str, int, str], list[float]] = {}
        for cell in schedule.cells:
            value = self._value(schedule, cell, schedule.table.columns[cell.column])
            if value is not None:
                data = cell.dataset.key.partition(":")[0]  # whichever store of it the row is evaluated on
                values.setdefault((cell.row.name, cell.column, f"{data}-{cell.split}"), []).append(value)
        return values

    def _value(self, schedule: Schedule, cell: Cell, column: TableColumn) -> float | None:
        if column.metric == "accuracy":
            result = self.result(schedule.scale, cell, column, schedule.protocols)
            return None if result is None else result.accuracy
        if cell.run is None:
            return None
        if column.metric == "kept":
            share = kept_share(open_run(self.path(cell.run)))
            return None if share is None else round(100 * share, 4)
        return self._relative_cost(schedule, cell, column.metric)

    def _relative_cost(self, schedule: Schedule, cell: Cell, metric: str) -> float | None:
        """Time or memory over that of the baseline of the same seed on the same data."""
        if cell.run is None:
            return None
        where = (cell.seed, cell.dataset.key, cell.split)
        baseline = next(
            (
                other.run
                for other in schedule.cells
                if other.row.baseline and (other.seed, other.dataset.key, other.split) == where
            ),
            None,
        )
        if baseline is None:
            return None
        cost, reference = (self.cost(schedule.jobs[name])[metric] for name in (cell.run, baseline))
        return round(cost / reference, 4)

    def cost(self, job: Job) -> dict[str, float]:
        """Seconds of an epoch and peak memory in bytes of a job."""
        parent = None if job.parent is None else self.path(job.parent)
        home = RunFolder(self.path(job.name))
        return measure_training(job.recipe, loaded(job.dataset).path, home, parent, job.first, **self.devices)

    def result(
        self, scale: Scale, cell: Cell, column: TableColumn, protocols: Mapping[str, Mapping[str, Any]]
    ) -> Result | None:
        """The evaluation of a cell, from its file or made now; None if it means nothing for such a row."""
        store = loaded(cell.target or cell.dataset)
        split = (
            cell.split
            if cell.target is None
            else ("xsub" if "xsub" in store.splits else next(iter(store.splits)))
        )
        encoder, home = self._encoder(scale, cell, column, store)
        if cell.row.method == "shipped" and encoder.normalisation != list(store.normalisation):
            return None  # recordings must be prepared with the encoder's own steps
        protocol = cell.row.protocol_of(column)
        settings = settings_for(
            encoder, protocol, {protocol: scale.protocol_settings(column, cell.row, protocols)}
        )
        if settings is None:
            return None
        own = cell.seed if cell.row.has_recipe else 0
        seeds: Sequence[int] = (own,)
        if get_protocol(protocol).draws_labels:  # other labels for every seed: what varies is averaged over
            seeds = range(1000 * own, 1000 * own + scale.draws)
        return evaluate_cached(
            home, encoder, store, protocol, split, seeds=seeds, settings=settings, progress=self.progress
        )

    def run_of(self, scale: Scale, cell: Cell) -> Run | None:
        """The run of a cell's encoder; None for raw coordinates and shipped encoders.

        An untrained encoder is as its recipe builds it: nothing must be trained to see it, and its run has no
        checkpoint.
        """
        if cell.recipe is None:
            return None
        if cell.run is not None:
            return open_run(self.path(cell.run))
        digest = hashlib.sha256(cell.recipe.to_toml().encode()).hexdigest()[:8]
        folder = self.path(cell_folder(scale, cell.dataset, cell.split)) / f"untrained-{digest}"
        return Run(folder, cell.recipe, {"data": data_facts(loaded(cell.dataset))})

    def _encoder(self, scale: Scale, cell: Cell, column: TableColumn, store: Store) -> tuple[Any, RunFolder]:
        """The encoder of a cell and the folder that its results are saved in."""
        run, trained = self.run_of(scale, cell), cell.row.trained
        if run is None:
            folder = self.path(cell_folder(scale, cell.dataset, cell.split))
            if cell.row.method == "shipped":
                return load_encoder(cell.row.recipe), RunFolder(folder / cell.row.recipe)
            return RawCoordinates(store.topology, persons=store.persons), RunFolder(folder / "raw")
        if get_protocol(cell.row.protocol_of(column)).fuses_encoders:
            return (
                EncoderEnsemble({name: run.encoder(name, trained=trained) for name in run.recipe.streams}),
                run,
            )
        return run.encoder(run.recipe.streams[0], trained=trained), run


_EPOCHS = 2  # the second is measured, when everything is warm


def measure_training(
    recipe: Recipe,
    store: Path,
    folder: RunFolder,
    warm: Path | None,
    first: int,
    *,
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    **more: Any,
) -> dict[str, float]:
    """Seconds of an epoch and peak memory in bytes, two epochs after the fork.

    `cost.json` of the run folder keeps them by accelerator, devices and precision. `more` are nodes and
    strategy.
    """
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    how = {"accelerator": accelerator, "devices": devices, "precision": precision, **more}
    key = " ".join(map(str, how.values()))
    kept = read_json(folder.cost_file) if folder.cost_file.exists() else {}
    if key not in kept:
        kept = {**kept, key: _measure(recipe, store, warm, first, how)}
        write_json(folder.cost_file, kept)
    return kept[key]


def _measure(
    recipe: Recipe, store: Path, warm: Path | None, first: int, how: Mapping[str, Any]
) -> dict[str, float]:
    """Two epochs by the command in a fresh process, since peak memory is that of a whole one."""
    with tempfile.TemporaryDirectory() as folder:
        settings, run = Path(folder) / "recipe.toml", RunFolder(Path(folder) / "run")
        settings.write_text(recipe.to_toml(), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "halp",
            "pretrain",
            str(settings),
            "--data",
            str(store),
            "--run",
            str(run.path),
        ]
        command += [word for name, value in how.items() for word in (f"--{name}", str(value))]
        command += ["--fork", str(warm)] if warm is not None else []
        command += ["--set", f"epochs={min(recipe.epochs, first + _EPOCHS)}"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        if answer.returncode:
            raise InputError(
                f"the cost of recipe '{recipe.name}' cannot be measured: {answer.stderr.strip()[-500:]}"
            )
        lines = read_lines(run.timing_file)
    memory = max(line.get("device_memory", line["peak_memory"]) for line in lines)
    return {"time": float(lines[-1]["seconds"]), "memory": float(memory)}


def seconds_per_step(recipe: Recipe, topology: Topology, persons: int) -> float:
    """A rough guess of a training step on this machine's CPU, from forward passes of the recipe's encoders.

    The query and every further view are encoded forwards and backwards (three times the work of a forward
    pass), the key forwards.
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
    """Seconds of a forward pass of a batch: the quicker of two passes of up to eight clips, per clip."""
    clips = torch.randn(min(8, recipe.batch_size), *shape)
    times = []
    for _ in range(2):
        began = time.perf_counter()
        encoder(clips)
        times.append(time.perf_counter() - began)
    return min(times) * recipe.batch_size / len(clips)


def measured_step(jobs: Iterable[Job], paths: Iterable[Path]) -> float | None:
    """Median seconds of a step in finished runs; None if there is none."""
    seconds = []
    for job, path in zip(jobs, paths):
        lines = read_lines(RunFolder(path).timing_file)
        seconds += [line["seconds"] / job.steps_per_epoch for line in lines]
    return statistics.median(seconds) if seconds else None
