"""The schedule of a sweep: the runs of a table, what each forks from, and the data set of each cell.

HaLP runs fork from a MoCo warm-up of the same seed, which continues as the baseline; a longer warm-up forks
from a shorter one. Runs are named by what differs from the scale's recipe, so tables share them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from halp.core.config import plain
from halp.core.errors import InputError
from halp.core.sampling import steps_in_epoch
from halp.data.store import Store
from halp.encoders import EncoderSettings
from halp.reproduce.scales import PUBLISHED_SIZES, Scale
from halp.reproduce.tables import PaperTable, TableColumn, TableRow
from halp.training.recipe import Recipe


@dataclass(frozen=True)
class DataSet:
    """A data set of a sweep; schedules can be made before its store exists."""

    key: str
    store: Store | None = None

    def size(self, split: str) -> int:
        """How many clips are trained on."""
        if self.store is not None:
            return len(self.store.split(split)[0])
        if (self.key, split) not in PUBLISHED_SIZES:
            raise InputError(
                f"the size of split '{split}' of '{self.key}' is not known; give its store with --data"
            )
        return PUBLISHED_SIZES[self.key, split]


def loaded(dataset: DataSet) -> Store:
    """The store of a data set, which must be there."""
    if dataset.store is None:
        raise RuntimeError("a schedule without data cannot be carried out")
    return dataset.store


@dataclass(frozen=True)
class Job:
    """One training: run folder `name`, its recipe, the job it forks from and its last epoch."""

    name: str
    recipe: Recipe
    dataset: DataSet
    first: int  # epoch it starts at
    last: int
    parent: str | None = None

    @property
    def steps_per_epoch(self) -> int:
        return steps_in_epoch(self.dataset.size(self.recipe.split), self.recipe.batch_size)

    @property
    def steps(self) -> int:
        return (self.last - self.first) * self.steps_per_epoch


@dataclass(frozen=True)
class Cell:
    """One value of one seed: read from a run by a protocol, or from raw coordinates."""

    row: TableRow
    column: int
    seed: int
    run: str | None  # None for raw coordinates, shipped and untrained encoders
    dataset: DataSet
    split: str
    target: DataSet | None = None
    recipe: Recipe | None = None  # None for raw coordinates


@dataclass(frozen=True)
class Schedule:
    """Everything a table needs."""

    table: PaperTable
    scale: Scale
    # index in the paper's table, column, data set, split
    columns: tuple[tuple[int, TableColumn, DataSet, str], ...]
    jobs: Mapping[str, Job]  # in an order in which they can be run
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    rows: tuple[TableRow, ...]
    # settings of protocols, by the user
    protocols: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def store(self) -> Store:
        """The store of the first column."""
        return loaded(self.columns[0][2])


def make_schedule(
    table: PaperTable,
    scale: Scale,
    datasets: Sequence[DataSet],
    *,
    target: DataSet | None = None,
    splits: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    settings: Sequence[str] = (),
    protocols: Mapping[str, Mapping[str, Any]] | None = None,
    all_cells: bool = False,
) -> Schedule:
    """Columns, runs and cells of a table on these data sets; `settings` of recipes, `protocols` beside.

    A data set of key `DATA:RECIPE` takes the place of `DATA` for rows of that recipe. Other systems are run on
    the paper's data sets where the paper has a figure of them, everywhere with `all_cells`.
    """
    columns = tuple(
        choose_columns(table, [dataset for dataset in datasets if ":" not in dataset.key], splits)
    )
    targets = {dataset.key: dataset for dataset in datasets}
    rows = table.all_rows()
    jobs: dict[str, Job] = {}
    cells = []
    for index, column, dataset, split in columns:
        goal = _target(column, target, targets)
        for seed in seeds:
            for row in rows:
                if not row.has_recipe and (column.metric != "accuracy" or column.target):
                    continue
                if not scale.runs(dataset.key, row):
                    continue
                if not (all_cells or _has_figure(table, row, index, dataset)):
                    continue
                store = targets.get(f"{dataset.key}:{row.recipe}", dataset)
                run = recipe = None
                if row.has_recipe:
                    recipe = scale.recipe(dataset.key, split, seed, row, settings)
                if recipe is not None and row.trained:
                    run = _add_jobs(jobs, scale, store, dataset.key, recipe, row, settings)
                cells.append(Cell(row, index, seed, run, store, split, goal, recipe))
    ordered = _in_order(jobs.values())
    return Schedule(table, scale, columns, ordered, tuple(cells), tuple(seeds), rows, protocols or {})


def choose_columns(
    table: PaperTable, datasets: Sequence[DataSet], splits: Sequence[str]
) -> Iterable[tuple[int, TableColumn, DataSet, str]]:
    """The paper's columns for its data sets; else one column per store, split and protocol setting."""
    published = {column.data for column in table.columns}
    if any(dataset.key in published for dataset in datasets):
        known = {dataset.key: dataset for dataset in datasets}
        for index, column in enumerate(table.columns):
            if column.data in known and (not splits or column.split in splits):
                yield index, column, known[column.data], column.split
        return
    for dataset in datasets:
        known_splits = list(dataset.store.splits) if dataset.store is not None else []
        if not known_splits:
            raise InputError(f"'{dataset.key}' has no split to evaluate on; add one to its store")
        shared = [column.split for column in table.columns if column.split in known_splits]
        seen = set()
        for split in splits or [("xsub" if "xsub" in shared else shared[0]) if shared else known_splits[0]]:
            # a value of the paper for the same split is the better neighbour, any other will do
            order = sorted(range(len(table.columns)), key=lambda i: (table.columns[i].split != split, i))
            for index in order:
                column = table.columns[index]
                same = (split, column.protocol, column.metric, repr(sorted(column.settings.items())))
                if same not in seen:
                    seen.add(same)
                    yield index, column, dataset, split


def _target(column: TableColumn, target: DataSet | None, known: Mapping[str, DataSet]) -> DataSet | None:
    if not column.target:
        return None
    target_path = target or known.get(column.target)
    if target_path is None:
        raise InputError("transfer needs a second store to fine-tune on; give it with --target")
    return target_path


def _has_figure(table: PaperTable, row: TableRow, column: int, dataset: DataSet) -> bool:
    """Whether a cell of another system has a published figure; on other data it needs none."""
    if row.method != "recipe" or table.columns[column].data != dataset.key:
        return True
    known = next(
        other for other in table.rows if (other.recipe, other.settings) == (row.recipe, row.settings)
    )
    return table.paper_value(known, column) is not None


def cell_folder(scale: Scale, dataset: DataSet, split: str) -> str:
    """Where the runs of a data set and split lie in a sweep."""
    return f"{scale.name}/{dataset.key.replace(':', '-')}-{split}"


def _add_jobs(
    jobs: dict[str, Job],
    scale: Scale,
    dataset: DataSet,
    data: str,
    recipe: Recipe,
    row: TableRow,
    settings: Sequence[str],
) -> str:
    """Add what a row needs on a data set and return the name of its run."""
    split, seed = recipe.split, recipe.seed
    folder = cell_folder(scale, dataset, split)
    if row.method == "recipe":
        parts = [row.recipe, *(f"{key}={_text(value)}" for key, value in row.settings_on(data).items())]
        name = f"{folder}/{'-'.join(parts)}-seed{seed}"
        jobs.setdefault(name, Job(name, recipe, dataset, 0, recipe.epochs))
        return name
    base = scale.recipe(data, split, seed, TableRow("HaLP", recipe=row.recipe), settings)
    family = row.recipe.removesuffix("halp")
    warm_settings = {
        key: value for key, value in row.settings_on(data).items() if not key.startswith("halp.")
    }
    warm = scale.recipe(
        data, split, seed, TableRow("warm-up", "moco", warm_settings, recipe=row.recipe), settings
    )
    # the baseline forks where HaLP does, so that the two differ in nothing but the term
    start = recipe.halp.start_epoch if row.method == "halp" else base.halp.start_epoch
    if start >= recipe.epochs:
        raise InputError(
            f"row '{row.name}': epochs = {recipe.epochs} leaves nothing to train after the warm-up of {start}"
            f" epochs; raise epochs above {start}, or lower halp.start_epoch"
        )
    parent = None
    if start > 0:
        parent = f"{folder}/{family}{_name('warm', warm, base)}-epoch{start}-seed{seed}"
        jobs.setdefault(parent, Job(parent, warm, dataset, 0, start))
    kind = "halp" if "halp" in recipe.terms else "moco"
    name = f"{folder}/{family}{_name(kind, recipe, base)}-seed{seed}"
    jobs.setdefault(name, Job(name, recipe, dataset, start, recipe.epochs, parent))
    return name


def _name(kind: str, recipe: Recipe, base: Recipe) -> str:
    """A name made of the differences from the scale's recipe."""
    before, now = base.flat(), recipe.flat()
    halp = kind == "halp"
    ignored = ("seed", "name", "description")
    if not halp:
        before["terms"] = [term for term in before["terms"] if term != "halp"]
    for label, chosen in recipe.encoders.items():
        defaults = plain(EncoderSettings(chosen.name))
        before |= {f"encoders.{label}.{key}": value for key, value in defaults.items()}
    for section, settings in recipe.sections.items():
        if section not in base.sections:
            before |= {f"{section}.{key}": value for key, value in plain(type(settings)()).items()}
    parts = [
        f"{key.removeprefix('halp.')}={_text(now[key])}"
        for key in sorted(now)
        if now[key] != before.get(key) and key not in ignored and (halp or not key.startswith("halp."))
    ]
    return re.sub(r"[^\w.=+-]", "_", "-".join([kind, *parts]))


def _text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def waves(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs in groups, each of which forks only from those before it (or from what is not among the jobs)."""
    names = {job.name for job in jobs}
    depths: dict[str | None, int] = {}
    for job in jobs:  # in an order in which they can be run
        depths[job.name] = depths[job.parent] + 1 if job.parent in names else 0
    return [
        [job for job in jobs if depths[job.name] == depth]
        for depth in range(max(depths.values(), default=-1) + 1)
    ]


def _in_order(jobs: Iterable[Job]) -> dict[str, Job]:
    """Warm-ups by length, each forking from the next shorter one of its family, then the runs."""
    jobs = list(jobs)
    warm = sorted(
        (job for job in jobs if job.parent is None and job.last < job.recipe.epochs), key=lambda job: job.last
    )
    ordered: dict[str, Job] = {}
    newest: dict[str, Job] = {}
    for job in warm:
        family = re.sub(r"-epoch\d+-seed", "-seed", job.name)
        shorter = newest.get(family)
        if shorter is not None:
            job = dataclasses.replace(job, first=shorter.last, parent=shorter.name)
        newest[family] = ordered[job.name] = job
    ordered.update({job.name: job for job in jobs if job.name not in ordered})
    return ordered
