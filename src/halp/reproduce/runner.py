"""Carrying out a schedule: trainings that are resumed where they stopped, evaluations that are found again by name."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from halp.analysis.kept_positives import kept_share
from halp.clips.store import Store
from halp.evaluation import RawCoordinates
from halp.evaluation.encoder_group import EncoderGroup
from halp.evaluation.evaluate_run import settings_for
from halp.evaluation.protocol import get_protocol
from halp.evaluation.result_store import evaluate_cached
from halp.evaluation.results import Result
from halp.progress import console
from halp.reproduce.cost import measure_training
from halp.reproduce.scales import Scale
from halp.reproduce.scheduler import Cell, Job, Schedule, loaded
from halp.reproduce.table_registry import TableColumn
from halp.training import Run, open_run, pretrain
from halp.training.checkpoint import list_checkpoints
from halp.training.run_folder import RunFolder


class SweepRunner:
    """Runs of a schedule under one folder; what is there already is used, what is missing or unfinished is made."""

    def __init__(self, folder: Path, *, progress: bool = True) -> None:
        self.folder, self.progress = folder, progress
        self.trained = 0  # runs that had to be trained or resumed

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
        """Train what is not finished, in order."""
        pending = [job for job in jobs if self.state(job) != "done"]
        for number, job in enumerate(pending, start=1):
            if self.progress:
                console.print(f"run {number} of {len(pending)}: {job.name}, {job.steps} steps")
            self._train(job)

    def _train(self, job: Job) -> Run:
        path = self.path(job.name)
        resume = bool(list_checkpoints(RunFolder(path).checkpoints))
        if not resume and path.exists():
            shutil.rmtree(path)  # it was stopped before anything was saved
        fork = None if resume or job.parent is None else self.path(job.parent)
        self.trained += 1
        return pretrain(
            job.recipe, loaded(job.source), path, resume=resume, fork=fork, until=job.last, progress=self.progress
        )

    def measure(self, schedule: Schedule) -> dict[tuple[str, int, str], list[float]]:
        """For every row, column and data set (by key and split) one value per seed."""
        found: dict[tuple[str, int, str], list[float]] = {}
        for cell in schedule.cells:
            value = self._value(schedule, cell, schedule.table.columns[cell.column])
            if value is not None:
                found.setdefault((cell.row.name, cell.column, f"{cell.source.key}-{cell.split}"), []).append(value)
        return found

    def _value(self, schedule: Schedule, cell: Cell, column: TableColumn) -> float | None:
        if column.metric == "accuracy":
            result = self.result(schedule.scale, cell, column, schedule.protocols)
            return None if result is None else result.accuracy
        if cell.row.method == "untrained" or cell.run is None:
            return None
        if column.metric == "kept":
            share = kept_share(open_run(self.path(cell.run)))
            return None if share is None else round(100 * share, 4)
        return self._relative_cost(schedule, cell, column.metric)

    def _relative_cost(self, schedule: Schedule, cell: Cell, metric: str) -> float | None:
        """Time or memory over that of the baseline of the same seed on the same data."""
        if cell.run is None:
            return None
        where = (cell.seed, cell.source.key, cell.split)
        baseline = next(
            (
                other.run
                for other in schedule.cells
                if other.row.baseline and (other.seed, other.source.key, other.split) == where
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
        return measure_training(job.recipe, loaded(job.source).path, RunFolder(self.path(job.name)), parent, job.first)

    def result(
        self, scale: Scale, cell: Cell, column: TableColumn, protocols: Mapping[str, Mapping[str, Any]]
    ) -> Result | None:
        """The evaluation of a cell, from its file or made now; None where it means nothing for such a row."""
        store = loaded(cell.target or cell.source)
        split = cell.split if cell.target is None else ("xsub" if "xsub" in store.splits else next(iter(store.splits)))
        encoder, home = self._encoder(scale, cell, column, store)
        settings = settings_for(encoder, column.protocol, {column.protocol: scale.protocol_settings(column, protocols)})
        if settings is None:
            return None
        seeds: Sequence[int] = range(scale.draws) if get_protocol(column.protocol).draws_labels else (cell.seed,)
        return evaluate_cached(
            home, encoder, store, column.protocol, split, seeds=seeds, settings=settings, progress=self.progress
        )

    def _encoder(self, scale: Scale, cell: Cell, column: TableColumn, store: Store) -> tuple[Any, RunFolder]:
        """The encoder of a cell and the folder that its results are saved in."""
        if cell.run is None:
            raw = RawCoordinates(store.topology, persons=store.persons)
            return raw, RunFolder(self.folder / "runs" / scale.name / f"{cell.source.key}-{cell.split}" / "raw")
        run, trained = open_run(self.path(cell.run)), cell.row.method != "untrained"
        if get_protocol(column.protocol).fuses_encoders:
            return EncoderGroup({name: run.encoder(name, trained=trained) for name in run.recipe.streams}), run
        return run.encoder(run.recipe.streams[0], trained=trained), run


def list_jobs(schedule: Schedule, runner: SweepRunner) -> list[Mapping[str, Any]]:
    """The jobs of a schedule with their state and what they still cost in steps."""
    return [
        {"run": job.name, "state": runner.state(job), "steps": job.steps, "forks from": job.parent}
        for job in schedule.jobs.values()
    ]
