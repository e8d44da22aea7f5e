"""One call a table: find or make the data, plan, train what is missing, evaluate, write the table and its report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halp.analysis.prototypes import prototype_table
from halp.analysis.similarities import evenly_chosen, similarities_by_epoch
from halp.clips.store import open_store
from halp.clips.synthetic import make_synthetic_store
from halp.errors import InputError
from halp.progress import console
from halp.reports.page import Report
from halp.reports.run_report import add_curves, add_prototypes
from halp.reproduce.cost import measured_step, seconds_a_step
from halp.reproduce.outcome import Outcome, assemble
from halp.reproduce.plan import Plan, Source, make_plan
from halp.reproduce.scales import PUBLISHED_SIZES, Scale, get_scale
from halp.reproduce.sweep import Sweep, describe
from halp.reproduce.tables import get_table, list_tables
from halp.training import Run, open_run


@dataclass(frozen=True)
class Prepared:
    """A plan and the folder it is carried out in."""

    plan: Plan
    sweep: Sweep

    def cost(self) -> dict[str, Any]:
        """Runs, steps and time that are left, and how the time was found."""
        listed = describe(self.plan, self.sweep)
        jobs = list(self.plan.jobs.values())
        left = [job for job, line in zip(jobs, listed) if line["state"] != "done"]
        measured = measured_step(jobs, [self.sweep.path(job.name) for job in jobs])
        guesses: dict[Any, float] = {}
        seconds = 0.0
        for job in left:
            store = job.source.store
            inputs = 150 if store is None else store.persons * len(store.topology) * store.topology.dimensions
            kind = (job.recipe.encoder, job.recipe.batch_size, job.recipe.views.frames, inputs)
            if measured is None and kind not in guesses:
                guesses[kind] = seconds_a_step(job.recipe, inputs)
            seconds += job.steps * (guesses[kind] if measured is None else measured)
        return {
            "table": self.plan.table.id,
            "scale": self.plan.scale.name,
            "seeds": list(self.plan.seeds),
            "runs": len(jobs),
            "runs left": len(left),
            "steps left": sum(job.steps for job in left),
            "evaluations": sum(self.plan.table.columns[cell.column].figure == "accuracy" for cell in self.plan.cells),
            "seconds left": round(seconds),
            "time from": "runs of this sweep" if measured is not None else "a rough guess for this machine's CPU",
            "jobs": listed,
        }


def prepare_sweep(
    table: str,
    *,
    data: Sequence[str] = (),
    target: str | None = None,
    scale: str = "tiny",
    seeds: int = 1,
    splits: Sequence[str] = (),
    settings: Sequence[str] = (),
    out: Path = Path("reproduced"),
    dry: bool = False,
    progress: bool = True,
) -> Prepared:
    """Plan a table. `data` are stores, `KEY=STORE` for the paper's data sets (ntu60, ntu120, pku2)."""
    chosen, size = get_table(table), get_scale(scale)
    if seeds < 1:
        raise InputError(f"--seeds {seeds}: at least one seed is needed")
    sources = _sources(data, size, out, dry)
    goal = None if target is None else _named(target)
    if any(column.target for column in chosen.columns) and goal is None and not data and size.clips:
        goal = Source("other", _synthetic(out / "stores" / f"{size.name}-other", size.clips, seed=1))
    plan = make_plan(chosen, size, sources, target=goal, splits=splits, seeds=tuple(range(seeds)), settings=settings)
    if not plan.columns:
        raise InputError(f"none of the columns of table '{table}' is about the data and splits that were given")
    return Prepared(plan, Sweep(out, progress=progress))


def tables_for(data: Sequence[str], target: str | None) -> list[str]:
    """What `all` means: every table, but those of transfer only where there is a store to fine-tune on."""
    keys = {text.partition("=")[0] for text in data}
    return [
        name
        for name, table in list_tables().items()
        if not data or target is not None or all(not column.target or column.target in keys for column in table.columns)
    ]


def reproduce(table: str, *, out: Path = Path("reproduced"), progress: bool = True, **choices: Any) -> Outcome:
    """Reproduce a table into `out`: runs under `runs/`, the table as Markdown, CSV, JSON and HTML under `tables/`."""
    prepared = prepare_sweep(table, out=out, progress=progress, **choices)
    plan, sweep = prepared.plan, prepared.sweep
    sweep.train(plan.jobs.values())
    data = {source.key: source.store.hash for _, _, source, _ in plan.columns if source.store is not None}
    columns: list[str] = []
    points: list[list[object]] = []
    runs = {cell.seed: open_run(sweep.path(cell.run)) for cell in plan.cells if cell.run is not None}
    if plan.table.kind == "similarities":
        columns, points = similarities_by_epoch(list(runs.values()))
    elif plan.table.kind == "prototypes":
        columns, points = prototype_table(runs[plan.seeds[0]], _store(plan))
    outcome = Outcome(
        id=plan.table.id,
        title=plan.table.title,
        source=plan.table.source,
        caption=plan.table.caption,
        scale=plan.scale.name,
        seeds=list(plan.seeds),
        data=data,
        command=" ".join(["halp", *sys.argv[1:]]) if sys.argv[1:2] == ["reproduce"] else f"halp reproduce {table}",
        lines=assemble(plan, sweep.figures(plan)) if plan.table.kind == "table" else [],
        columns=columns,
        points=points,
    )
    folder = out / "tables" / plan.scale.name
    outcome.save(folder)
    _report(outcome, plan, runs).save(folder / f"{table}.html")
    if progress:
        console.print(f"written: [bold]{folder / table}.md[/], .csv, .json and .html")
    return outcome


def _report(outcome: Outcome, plan: Plan, runs: dict[int, Run]) -> Report:
    report = Report(f"{outcome.title} ({outcome.source})", outcome.caption)
    report.section("Table" if plan.table.kind == "table" else "Numbers", outcome.note())
    heads, rows = outcome.table()
    report.table(heads, evenly_chosen(rows) if outcome.columns else rows, caption=outcome.caption)
    first = {f"HaLP, seed {seed}": run for seed, run in runs.items()}
    if plan.table.kind == "similarities":
        add_curves(report, first)
    elif plan.table.kind == "prototypes":
        report.section("Figure")
        add_prototypes(report, runs[plan.seeds[0]], _store(plan))
    report.section("How this was made", f"{outcome.command}")
    jobs: list[list[object]] = [[job.name, job.parent or "–", job.steps] for job in plan.jobs.values()]
    report.table(["run", "forks from", "steps"], jobs, caption="Runs")
    return report


def _store(plan: Plan) -> Any:
    return plan.columns[0][2].store


def _sources(data: Sequence[str], scale: Scale, out: Path, dry: bool) -> list[Source]:
    if data:
        return [_named(text) for text in data]
    if scale.clips:
        return [Source("synthetic", _synthetic(out / "stores" / scale.name, scale.clips))]
    if dry:  # a plan at the paper's scale needs no data
        return [Source(key) for key in dict.fromkeys(key for key, _ in PUBLISHED_SIZES)]
    raise InputError(f"scale '{scale.name}' needs data; give stores with --data ntu60=STORE …")


def _named(text: str) -> Source:
    key, equals, path = text.partition("=")
    if not equals:
        key, path = Path(text).resolve().name, text
    return Source(key, open_store(path))


def _synthetic(path: Path, count: int, seed: int = 0) -> Any:
    if (path / "store.json").exists():
        return open_store(path)
    subjects = 6 if count < 400 else 20
    return make_synthetic_store(path, count=count, subjects=subjects, seed=seed)
