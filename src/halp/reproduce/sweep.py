"""Carrying out a plan: trainings that are resumed where they stopped, evaluations that are found again by name."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from halp.analysis.kept_positives import kept_share
from halp.clips.store import Store
from halp.evaluation import RawCoordinates
from halp.evaluation.evaluate_run import settings_for
from halp.evaluation.protocols.ensemble import EncoderGroup
from halp.evaluation.result_store import evaluate_cached
from halp.evaluation.results import Result
from halp.progress import console
from halp.reproduce.cost import measure_training
from halp.reproduce.plan import Cell, Job, Plan
from halp.reproduce.scales import Scale
from halp.reproduce.tables import Column
from halp.training import Run, open_run, pretrain
from halp.training.checkpoint import list_checkpoints
from halp.training.run_folder import RunFolder


class Sweep:
    """Runs of a plan under one folder; what is there already is used, what is missing or unfinished is made."""

    def __init__(self, folder: Path, *, progress: bool = True) -> None:
        self.folder, self.progress = folder, progress
        self.trained = 0  # runs that this sweep had to train or to go on with

    def path(self, job: str) -> Path:
        """The run folder of a job."""
        return self.folder / "runs" / job

    def state(self, job: Job) -> str:
        """`done`, `started` or `to do`."""
        path = self.path(job.name)
        if not RunFolder(path).holds_run():
            return "to do"
        done = open_run(path).info.get("finished", {}).get("step", -1)
        return "done" if done >= job.last * job.steps_an_epoch else "started"

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
            job.recipe,
            _store(job.source.store),
            path,
            resume=resume,
            fork=fork,
            until=job.last,
            progress=self.progress,
        )

    def figures(self, plan: Plan) -> dict[tuple[str, int, str], list[float]]:
        """For every row, column and data set (by key and split) one figure a seed."""
        found: dict[tuple[str, int, str], list[float]] = {}
        for cell in plan.cells:
            column = plan.table.columns[cell.column]
            value = self._figure(plan, cell, column)
            if value is not None:
                found.setdefault((cell.row.name, cell.column, f"{cell.source.key}-{cell.split}"), []).append(value)
        return found

    def _figure(self, plan: Plan, cell: Cell, column: Column) -> float | None:
        if column.figure == "accuracy":
            result = self.result(plan.scale, cell, column)
            return None if result is None else result.accuracy
        if cell.row.method == "untrained" or cell.run is None:
            return None
        if column.figure == "kept":
            share = kept_share(open_run(self.path(cell.run)))
            return None if share is None else round(100 * share, 4)
        return self._relative_cost(plan, cell, column.figure)

    def _relative_cost(self, plan: Plan, cell: Cell, figure: str) -> float | None:
        """Time or memory over that of the baseline of the same seed."""
        if cell.run is None:
            return None
        first = next(other for other in plan.cells if other.row.baseline and other.seed == cell.seed)
        if first.run is None:
            return None
        costs = []
        for name in (cell.run, first.run):
            job = plan.jobs[name]
            warm = None if job.parent is None else self.path(job.parent)
            costs.append(measure_training(job.recipe, _store(job.source.store).path, self.path(name), warm, job.first))
        return round(costs[0][figure] / costs[1][figure], 4)

    def result(self, scale: Scale, cell: Cell, column: Column) -> Result | None:
        """The evaluation of a cell, from its file or made now; None where it means nothing for such a row."""
        store = _store((cell.target or cell.source).store)
        split = cell.split if cell.target is None else ("xsub" if "xsub" in store.splits else next(iter(store.splits)))
        options = {column.protocol: {**scale.options.get(column.protocol, {}), **column.settings}}
        if cell.run is None:
            encoder: Any = RawCoordinates(store.topology, persons=store.persons)
            home = self.folder / "runs" / scale.name / f"{cell.source.key}-{cell.split}" / "raw"
        else:
            run = open_run(self.path(cell.run))
            trained = cell.row.method != "untrained"
            if column.protocol == "ensemble":
                encoder = EncoderGroup({stream: run.encoder(stream, trained=trained) for stream in run.recipe.streams})
            else:
                encoder = run.encoder(run.recipe.streams[0], trained=trained)
            home = run.path
        settings = settings_for(encoder, column.protocol, options)
        if settings is None:
            return None
        seeds = _seeds(scale, column, cell.seed)
        return evaluate_cached(
            RunFolder(home),
            encoder,
            store,
            column.protocol,
            split,
            seeds=seeds,
            settings=settings,
            progress=self.progress,
        )


def _seeds(scale: Scale, column: Column, seed: int) -> Sequence[int]:
    return range(scale.draws) if column.protocol == "semi" else (seed,)


def _store(store: Store | None) -> Store:
    if store is None:
        raise RuntimeError("a plan without data cannot be carried out")
    return store


def describe(plan: Plan, sweep: Sweep) -> list[Mapping[str, Any]]:
    """The jobs of a plan with their state and what they still cost in steps."""
    return [
        {"run": job.name, "state": sweep.state(job), "steps": job.steps, "forks from": job.parent}
        for job in plan.jobs.values()
    ]
