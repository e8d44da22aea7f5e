"""One call per table: data, schedule, missing trainings, evaluation, the table and its page."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halp.core.errors import InputError
from halp.core.locks import locked_folder
from halp.core.progress import log
from halp.data.ingest.prepare import prepare
from halp.data.store import Store, open_store
from halp.data.synthetic import make_synthetic_store
from halp.evaluation import list_protocols
from halp.evaluation.analysis.prototypes import prototype_table
from halp.evaluation.analysis.similarities import similarities_by_epoch
from halp.evaluation.protocol import parse_protocol_settings
from halp.features.loading import load_encoder
from halp.reproduce.runner import SweepRunner, measured_step, seconds_per_step
from halp.reproduce.scales import PUBLISHED_SIZES, Scale, get_scale
from halp.reproduce.scheduler import DataSet, Schedule, make_schedule
from halp.reproduce.summary import TableSummary, summarise_rows, summary_page
from halp.reproduce.tables import get_table, list_tables
from halp.reproduce.trainings import training_engine
from halp.skeleton import KINECT_V2
from halp.training import open_run


@dataclass(frozen=True)
class PreparedSweep:
    """A schedule and its runner in a folder."""

    schedule: Schedule
    runner: SweepRunner

    def cost(self) -> dict[str, Any]:
        """Remaining runs, steps and time, and how the time was estimated."""
        jobs = list(self.schedule.jobs.values())
        states = [self.runner.state(job) for job in jobs]
        left = [job for job, state in zip(jobs, states) if state != "done"]
        measured = measured_step(jobs, [self.runner.path(job.name) for job in jobs])
        guesses: dict[Any, float] = {}
        seconds = 0.0
        for job in left:
            store = job.dataset.store
            # NTU's if there is no data
            layout = (KINECT_V2, 2) if store is None else (store.topology, store.persons)
            kind = (
                job.recipe.encoder,
                job.recipe.streams,
                job.recipe.batch_size,
                job.recipe.views.frames,
                *layout,
            )
            if measured is None and kind not in guesses:
                guesses[kind] = seconds_per_step(job.recipe, *layout)
            seconds += job.steps * (guesses[kind] if measured is None else measured)
        columns = self.schedule.table.columns
        return {
            "table": self.schedule.table.id,
            "scale": self.schedule.scale.name,
            "seeds": list(self.schedule.seeds),
            "runs": len(jobs),
            "runs left": len(left),
            "steps left": sum(job.steps for job in left),
            "evaluations": sum(columns[cell.column].metric == "accuracy" for cell in self.schedule.cells),
            "seconds left": round(seconds),
            "time from": (
                "runs of this sweep" if measured is not None else "a rough guess for this machine's CPU"
            ),
            "jobs": [
                {"run": job.name, "state": state, "steps": job.steps, "forks from": job.parent}
                for job, state in zip(jobs, states)
            ],
        }


def prepare_sweep(
    table: str,
    *,
    data: Sequence[str] = (),
    target: str | None = None,
    scale: str | None = None,
    seeds: int = 1,
    splits: Sequence[str] = (),
    settings: Sequence[str] = (),
    out: Path = Path("reproduced"),
    dry: bool = False,
    all_cells: bool = False,
    workers: int | None = None,
    engine: str | Executor | None = None,
    accelerator: str = "auto",
    progress: bool = True,
    **devices: Any,
) -> PreparedSweep:
    """Schedule a table. `data` are stores, `KEY=STORE` for the paper's data sets (ntu60, ntu120, pku2).

    A folder of recordings is prepared first. Without `scale` it is the table's own.
    `KEY:RECIPE=STORE` is the store of one recipe's rows, such as `ntu60:aimclr`, where it needs another
    normalisation.
    `settings` are of recipes (`epochs=100`) or of protocols (`linear.head=mlp`); `workers` and `engine` say
    where trainings run, `accelerator` and `devices` are what `pretrain` takes.
    """
    chosen = get_table(table)
    size = get_scale(chosen.scale if scale is None else scale)
    if seeds < 1:
        raise InputError(f"--seeds {seeds}: at least one seed is needed")
    of_protocols = [text for text in settings if text.partition(".")[0].strip() in list_protocols()]
    of_recipes = [text for text in settings if text not in of_protocols]
    shipped = [row.recipe for row in chosen.rows if row.method == "shipped"]
    datasets = _datasets(data, size, out, dry, shipped)
    goal = None if target is None else _named(target, out)[0]
    if any(column.target for column in chosen.columns) and goal is None and not data and size.clips:
        goal = DataSet("other", _synthetic(out / "stores" / f"{size.name}-other", size.clips, seed=1))
    schedule = make_schedule(
        chosen,
        size,
        datasets,
        target=goal,
        splits=splits,
        seeds=tuple(range(seeds)),
        settings=of_recipes,
        protocols=parse_protocol_settings(of_protocols),
        all_cells=all_cells,
    )
    if not schedule.columns:
        raise InputError(f"no column of table '{table}' is about the given data and splits")
    where = training_engine(workers, engine, accelerator)
    runner = SweepRunner(out, engine=where, progress=progress, accelerator=accelerator, **devices)
    return PreparedSweep(schedule, runner)


def tables_for(data: Sequence[str], target: str | None) -> list[str]:
    """The tables that `all` means: all of them, those of transfer only if there is a store to fine-tune on."""
    keys = {text.partition("=")[0] for text in data}
    return [
        name
        for name, table in list_tables().items()
        if table.kind != "graphs"
        if not data
        or target is not None
        or all(not column.target or column.target in keys for column in table.columns)
    ]


def reproduce(
    table: str,
    *,
    data: Sequence[str] = (),
    target: str | None = None,
    scale: str | None = None,
    seeds: int = 1,
    splits: Sequence[str] = (),
    settings: Sequence[str] = (),
    out: str | os.PathLike[str] = "reproduced",
    all_cells: bool = False,
    workers: int | None = None,
    engine: str | Executor | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    progress: bool = True,
) -> TableSummary:
    """Reproduce a table, ablation or analysis figure of the paper.

    Parameters
    ----------
    table : str
        Its name, see `halp reproduce`.
    data : sequence of str
        Stores or recordings; `KEY=STORE` for the paper's data sets (ntu60, ntu120, pku2), `KEY:RECIPE=STORE`
        for the rows of one recipe. Synthetic people at the scales tiny and small.
    target : str, optional
        For transfer, the store to fine-tune on.
    scale : str, optional
        tiny, quick, small, ntu10 or paper (default: the table's own).
    seeds : int
        How many seeds; HaLP and the baseline of a seed share their warm-up.
    splits : sequence of str
        Splits of the store, for data of your own.
    settings : sequence of str
        Overrides of recipes (`epochs=100`) or protocols (`linear.head=mlp`).
    out : path
        Runs go to `runs/`, the table as Markdown, CSV, JSON and HTML to `tables/`. A sweep that was stopped
        is resumed.
    all_cells : bool
        Run other systems also where the paper has no figure for them.
    workers : int, optional
        Trainings at a time on this machine, each on one core (default: as many as cores; one on a GPU).
    engine : str or Executor, optional
        Where trainings run: the address of a Dask scheduler, or any executor of `concurrent.futures`.
    accelerator, devices, precision
        As `halp.pretrain` takes them.
    progress : bool
        Whether progress is shown.

    Returns
    -------
    TableSummary
        Rows with published and measured figures.
    """
    choices: dict[str, Any] = {
        "data": data,
        "target": target,
        "scale": scale,
        "seeds": seeds,
        "splits": splits,
        "settings": settings,
    }
    choices |= {
        "all_cells": all_cells,
        "workers": workers,
        "engine": engine,
        "accelerator": accelerator,
        "devices": devices,
        "precision": precision,
    }
    with locked_folder(Path(out), f"the sweep in '{out}'"):
        return _reproduce(table, Path(out), progress, choices)


def _reproduce(table: str, out: Path, progress: bool, choices: Mapping[str, Any]) -> TableSummary:
    prepared = prepare_sweep(table, out=out, progress=progress, **choices)
    schedule, runner = prepared.schedule, prepared.runner
    runner.train(schedule.jobs.values())
    data = {
        dataset.key: dataset.store.hash for _, _, dataset, _ in schedule.columns if dataset.store is not None
    }
    columns: list[str] = []
    points: list[list[object]] = []
    runs = {cell.seed: open_run(runner.path(cell.run)) for cell in schedule.cells if cell.run is not None}
    if schedule.table.kind == "similarities":
        columns, points = similarities_by_epoch(list(runs.values()))
    elif schedule.table.kind == "prototypes":
        columns, points = prototype_table(runs[schedule.seeds[0]], schedule.store())
    summary = TableSummary(
        id=schedule.table.id,
        title=schedule.table.title,
        source=schedule.table.source,
        caption=schedule.table.caption,
        scale=schedule.scale.name,
        seeds=list(schedule.seeds),
        data=data,
        command=(
            " ".join(["halp", *sys.argv[1:]]) if sys.argv[1:2] == ["reproduce"] else f"halp reproduce {table}"
        ),
        rows=summarise_rows(schedule, runner.measure(schedule)) if schedule.table.kind == "table" else [],
        columns=columns,
        points=points,
        protocols={name: dict(chosen) for name, chosen in schedule.protocols.items()},
        corrected=schedule.table.corrected,
    )
    folder = out / "tables" / schedule.scale.name
    summary.save(folder)
    summary_page(summary, schedule, runs).save(folder / f"{table}.html")
    if progress:
        log.info(f"written: {folder / table}.md, .csv, .json and .html")
    return summary


def _datasets(
    data: Sequence[str], scale: Scale, out: Path, dry: bool, shipped: Sequence[str] = ()
) -> list[DataSet]:
    if data:
        return [dataset for text in data for dataset in _named(text, out, shipped)]
    if scale.clips:
        return [DataSet("synthetic", _synthetic(out / "stores" / scale.name, scale.clips))]
    if dry:  # a schedule at the paper's scale needs no data
        return [DataSet(key) for key in dict.fromkeys(key for key, _ in PUBLISHED_SIZES)]
    raise InputError(f"scale '{scale.name}' needs data; give stores with --data ntu60=STORE …")


def _named(text: str, out: Path, shipped: Sequence[str] = ()) -> list[DataSet]:
    """A store by its key; recordings are prepared first, once, and also with steps of shipped encoders."""
    key, equals, path = text.partition("=")
    if not equals:
        key, path = Path(text).resolve().name, text
    if not Path(path).is_dir() or (Path(path) / "store.json").exists():
        return [DataSet(key, open_store(path))]
    steps = {key: None} | {f"{key}:{name}": load_encoder(name).normalisation for name in shipped}
    homes = {name: out / "stores" / name.replace(":", "-") for name in steps}
    for name, home in homes.items():
        if not (home / "store.json").exists():
            prepare("auto", path, home, normalisation=steps[name])
    return [DataSet(name, open_store(home)) for name, home in homes.items()]


def _synthetic(path: Path, count: int, seed: int = 0) -> Store:
    if (path / "store.json").exists():
        return open_store(path)
    subjects = 6 if count < 400 else 20
    return make_synthetic_store(path, count=count, subjects=subjects, seed=seed)
