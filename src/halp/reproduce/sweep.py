"""Sweeps: a recipe with all combinations of settings, over seeds, evaluated and compared in pairs.

A run is a shard: it is resumed where it stopped, and found again where it is done.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from halp.core.errors import InputError
from halp.core.progress import Bar, log
from halp.data.choose_splits import evaluation_splits
from halp.data.store import Store, open_store
from halp.engine import Failure, run_shards
from halp.evaluation.analysis.paired_difference import Difference, paired_difference
from halp.evaluation.evaluate_run import evaluate_run
from halp.reproduce.summary import spread
from halp.reproduce.trainings import Training, one_core, stoppable, train, training_engine
from halp.training import load_recipe, open_run
from halp.training.devices import DeviceKeywords
from halp.training.run import check_same
from halp.training.run_folder import RunFolder
from halp.training.start import fitted_recipe


@dataclass(frozen=True)
class SweepRun:
    """One training of a sweep with its evaluation, as sent to workers."""

    training: Training
    protocols: tuple[str, ...]
    splits: tuple[str, ...]


def train_and_evaluate(run: SweepRun) -> dict[str, float]:
    """The function that workers run: accuracies by `protocol split`; training is resumed, or skipped if
    complete.
    """
    recipe, folder = run.training.recipe, run.training.folder
    if not (RunFolder(Path(folder)).holds_run() and "finished" in open_run(folder).info):
        train(run.training)
    store, splits, _ = evaluation_splits(open_store(run.training.store), run.splits, recipe.split)
    stream = "joint" if "joint" in recipe.streams else recipe.streams[0]
    with one_core():
        rows = evaluate_run(
            open_run(folder), store, protocols=run.protocols, splits=splits, stream=stream, baselines=False
        )
    return {f"{result.protocol} {result.split}": result.accuracy for row in rows for result in row.results}


@dataclass(frozen=True)
class Setting:
    """One combination of a sweep: accuracies by protocol and split, one per seed, and failed trainings."""

    name: str
    seeds: list[int]
    accuracies: dict[str, list[float]]
    failures: dict[int, str]


@dataclass(frozen=True)
class Sweep:
    """The settings of a sweep; the others are compared with the first."""

    recipe: str
    settings: list[Setting]

    def difference(self, setting: Setting, column: str) -> Difference | None:
        """Mean paired difference to the first setting over common seeds, with simultaneous intervals."""
        first = self.settings[0]
        both = [seed for seed in setting.seeds if seed in first.seeds]
        if setting is first or not both:
            return None
        ours, theirs = (
            [one.accuracies[column][one.seeds.index(seed)] for seed in both] for one in (setting, first)
        )
        return paired_difference(ours, theirs, comparisons=max(1, len(self.settings) - 1))

    @property
    def columns(self) -> list[str]:
        return list(next((setting.accuracies for setting in self.settings if setting.accuracies), {}))

    def rows(self) -> list[dict[str, str]]:
        """A row per setting: mean ± standard deviation over seeds, and the difference to the first."""
        rows = []
        for setting in self.settings:
            row = {"setting": setting.name, "seeds": str(len(setting.seeds))}
            for column in self.columns:
                values = setting.accuracies.get(column, [])
                row[column] = spread(values)
                difference = self.difference(setting, column) if values else None
                row[f"Δ {column}"] = "" if difference is None else str(difference)
            rows.append(row)
        return rows

    def to_json(self) -> dict[str, Any]:
        settings = []
        for setting in self.settings:
            differences = {column: self.difference(setting, column) for column in setting.accuracies}
            settings.append(
                {
                    "setting": setting.name,
                    "seeds": setting.seeds,
                    "accuracies": setting.accuracies,
                    "differences": {
                        column: (
                            None
                            if d is None
                            else {"mean": d.mean, "half_width": d.half_width, "pairs": d.pairs}
                        )
                        for column, d in differences.items()
                    },
                    "failures": {str(seed): reason for seed, reason in setting.failures.items()},
                }
            )
        return {"recipe": self.recipe, "settings": settings}


def sweep(
    recipe: str,
    store: str | Path,
    grid: Sequence[str],
    *,
    seeds: int = 3,
    out: str | Path | None = None,
    protocols: Sequence[str] = ("knn", "linear"),
    splits: Sequence[str] = (),
    workers: int | None = None,
    engine: str | Executor | None = None,
    progress: bool = True,
    **devices: Unpack[DeviceKeywords],
) -> Sweep:
    """Train and evaluate a recipe with all combinations of settings, over seeds; repeat it to resume.

    Parameters
    ----------
    recipe : str
        A recipe by name or file.
    store : path
        What is learned from and evaluated on.
    grid : sequence of str
        Settings with their values, as `key=a,b,c`; one with a single value holds for all runs.
    seeds : int
        How many, from 0 on: the same for every combination, so that differences are paired.
    out : path, optional
        Where the runs go (default: `sweeps/RECIPE`).
    protocols, splits : sequence of str
        How runs are evaluated (splits: default as `halp evaluate` chooses).
    workers : int, optional
        Trainings at a time on this machine, each on one core (default: as many as cores; one on a GPU).
    engine : str or Executor, optional
        The address of a Dask scheduler, or an executor.
    **devices
        Of every training, as `halp.pretrain` takes them.
    progress : bool
        Whether progress is shown.

    Returns
    -------
    Sweep
        Accuracies of every combination, and paired differences to the first one with their intervals.
    """
    if seeds < 1:
        raise InputError(f"{seeds} seeds: at least one seed is needed")
    home = Path(out or Path("sweeps") / Path(recipe).stem).absolute()
    named = dict(combinations(grid))
    runs = {
        (name, seed): SweepRun(
            Training(
                load_recipe(recipe, [*overrides, f"seed={seed}"]),
                str(Path(store).absolute()),
                str(home / f"{_file_name(name)}-seed{seed}"),
                devices=devices,
            ),
            tuple(protocols),
            tuple(splits),
        )
        for name, overrides in named.items()
        for seed in range(seeds)
    }
    _check_folders(runs.values(), open_store(store))
    where = training_engine(workers, engine, devices.get("accelerator", "auto"))
    keys, found, failed = list(runs), {}, {}
    with stoppable(), Bar("sweep", len(keys), shown=progress) as bar:
        for place, result in run_shards(train_and_evaluate, list(runs.values()), where):
            if isinstance(result, Failure):
                failed[keys[place]] = result.reason
                log.info(f"{keys[place][0]}, seed {keys[place][1]} failed: {result.reason}")
            else:
                found[keys[place]] = result
            bar.advance()
    return Sweep(recipe, [_setting(name, seeds, found, failed) for name in named])


def _check_folders(runs: Iterable[SweepRun], store: Store) -> None:
    """Refuse folders that hold runs of other settings or data, whose results would be mistaken for these."""
    for run in runs:
        folder = Path(run.training.folder)
        if RunFolder(folder).holds_run():
            try:
                check_same(open_run(folder), fitted_recipe(run.training.recipe, store)[0], store)
            except InputError as error:
                raise InputError(f"{error}; choose another folder with --out, or remove that one") from None


def _setting(
    name: str, seeds: int, found: Mapping[Any, dict[str, float]], failed: Mapping[Any, str]
) -> Setting:
    there = [seed for seed in range(seeds) if (name, seed) in found]
    columns = found[name, there[0]] if there else {}
    accuracies = {column: [found[name, seed][column] for seed in there] for column in columns}
    return Setting(
        name, there, accuracies, {seed: failed[name, seed] for seed in range(seeds) if (name, seed) in failed}
    )


def combinations(grid: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Names and overrides of all combinations of settings `key=a,b,c`, in order.

    >>> list(combinations(["epochs=3", "halp.hardness=0.2,0.6"]))
    [('halp.hardness=0.2', ['epochs=3', 'halp.hardness=0.2']), ('halp.hardness=0.6', ['epochs=3',
    'halp.hardness=0.6'])]
    """
    settings: list[list[str]] = []
    for entry in grid:
        key, equals, text = entry.partition("=")
        values = [value.strip() for value in re.split(r",(?![^\[{]*[\]}])", text)]
        if not (key and equals and all(values)):
            raise InputError(f"--set takes key=a,b,c, such as halp.hardness=0.2,0.6, not '{entry}'")
        settings.append([f"{key.strip()}={value}" for value in values])
    varied = [number for number, choices in enumerate(settings) if len(choices) > 1]
    for chosen in itertools.product(*settings):
        yield " ".join(chosen[number] for number in varied) or "as it is", list(chosen)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", name)
