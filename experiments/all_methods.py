"""`python -m experiments.all_methods [--epochs N] [--seeds …] [--only …] [--jobs 2] [--cost]`: every method
at one budget.

Each method's `small-…` recipe is trained without labels on the training part of NW-UCLA (views 1 and 2,
tested on view 3), with the same store, the same batches of 64 and the same number of steps; epochs at which
something starts or the learning rate drops keep their share of the training. Nothing was tuned for this
table. Frozen features are evaluated by kNN (k = 1) and ridge regression, whose penalty is chosen on training
clips; the raw coordinates and the same encoder before training stand beside. A cell is one method with one
seed: what is finished is found again, and several commands may train different cells at once. `--cost` trains
two epochs of every method and prints what the table would take. A new method is one line of `METHODS`. Data
is looked for in `HALP_SHARED/data` (default `../shared/data`). Writes `results/all_methods.json` and `.md`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from experiments.files import RESULTS
from experiments.stores import prepared_store
from halp.core.errors import InputError, check_choice
from halp.core.files import read_json, write_json
from halp.data.store import Store
from halp.evaluation.analysis.paired_difference import paired_difference
from halp.evaluation.evaluate_run import evaluate_run
from halp.evaluation.results import mean_and_std, versions
from halp.reproduce.scales import shortened, timed
from halp.training import Run, open_run, pretrain
from halp.training.checkpoint import list_checkpoints
from halp.training.recipe import Recipe, load_recipe
from halp.training.run_folder import RunFolder

DATA_SET, SPLIT, BATCH = "nw-ucla", "xview", 64
PROTOCOLS = ("knn", "ridge")


@dataclass(frozen=True)
class Entry:
    """A method of the table: its recipe, settings beside, and the method that it is HaLP on, for a paired
    difference.
    """

    recipe: str
    settings: tuple[str, ...] = ()
    on: str = ""


READ_OUT = (
    "thirds-max",
    "mean",
)  # the pooling of the small recipes, and the one that this table has in its place
METHODS: dict[str, Entry] = {
    "MoCo": Entry("small", ('terms=["infonce"]',)),
    "HaLP": Entry("small", on="MoCo"),
    "MoCHi": Entry("small-mochi"),
    "HaLP + MoCHi": Entry("small-mochi-halp", on="MoCHi"),
    "PCM3's mix and distillation": Entry("small-pcm3"),
    "HaLP + PCM3's mix and distillation": Entry("small-pcm3-halp", on="PCM3's mix and distillation"),
    "MoCo without queue": Entry("small-queue-free"),
    "HaLP without queue": Entry("small-queue-free-halp", on="MoCo without queue"),
    "MoCo without queue and momentum": Entry("small-queue-free-no-momentum"),
    "HaLP without queue and momentum": Entry(
        "small-queue-free-no-momentum-halp", on="MoCo without queue and momentum"
    ),
    "SkeletonBT": Entry("small-skeletonbt"),
    "HaLP + SkeletonBT": Entry("small-skeletonbt-halp", on="SkeletonBT"),
    "VICReg": Entry("small-vicreg"),
    "HaLP + VICReg": Entry("small-vicreg-halp", on="VICReg"),
    "AS-CAL": Entry("small-ascal"),
    "CMD": Entry("small-cmd"),
    "HaLP + CMD": Entry("small-halp-cmd", on="CMD"),
    "CrosSCLR-B": Entry("small-crossclr-b"),
    "ISC": Entry("small-isc"),
    "SkeletonCLR": Entry("small-skeletonclr"),
    "CrosSCLR": Entry("small-crossclr"),
    "AimCLR": Entry("small-aimclr"),
    "HaLP + AimCLR": Entry("small-aimclr-halp", on="AimCLR"),
    "HiCLR": Entry("small-hiclr"),
    "masked prediction": Entry("small-masked"),
    "P&C": Entry("small-predict-cluster"),
    "MS2L": Entry("small-ms2l"),
    "LongT GAN": Entry("small-longt-gan"),
    "GL-Transformer": Entry("small-gl-transformer"),
    "H-Transformer": Entry("small-h-transformer"),
    "SeBiReNet": Entry("small-sebirenet"),
}


def budgeted(name: str, epochs: int, seed: int) -> Recipe:
    """A method's recipe at the common budget; moments of its training keep their share of all epochs."""
    entry = METHODS[check_choice("method", name, METHODS)]
    own = load_recipe(entry.recipe, entry.settings)
    common = [f"batch_size={BATCH}", f"seed={seed}", f"split={SPLIT}"]
    common += [f"saving.checkpoint_epochs={max(1, epochs // 4)}", "saving.log_every=20"]
    if own.encoder.name == "gru" and own.encoder.pooling == READ_OUT[0]:
        common.append(f"encoder.pooling={READ_OUT[1]}")
    moments = [
        f"{key}={json.dumps(shortened(value, epochs / own.epochs))}" for key, value in timed(own.flat())
    ]
    return load_recipe(entry.recipe, [*entry.settings, *common, *moments])


@dataclass(frozen=True)
class Cells:
    """Where cells are kept, and how many epochs they have."""

    folder: Path
    epochs: int

    def path(self, name: str, seed: int) -> Path:
        """The run folder of a cell."""
        plain = "".join(letter if letter.isalnum() else "-" for letter in name.lower())
        return self.folder / f"epochs-{self.epochs}" / f"{plain}-seed{seed}"

    def found(self, name: str, seed: int) -> dict[str, Any] | None:
        """What a cell has, if it is finished."""
        file = self.path(name, seed) / "cell.json"
        return read_json(file) if file.exists() else None

    def make(self, name: str, seed: int) -> dict[str, Any]:
        """Train and evaluate a cell, from where it was stopped."""
        known = self.found(name, seed)
        if known is not None:
            return known
        store, path = prepared_store(DATA_SET, self.folder / "stores"), self.path(name, seed)
        run = _trained(budgeted(name, self.epochs, seed), store, path)
        rows = {
            row.name: row.results for row in evaluate_run(run, store, protocols=PROTOCOLS, splits=(SPLIT,))
        }
        labels = {"raw coordinates": "raw", "untrained": "untrained", run.path.name: "trained"}
        accuracies = {
            labels[row]: {result.protocol: result.accuracy for result in results}
            for row, results in rows.items()
        }
        method = sum(parameter.numel() for parameter in run.encoder(run.recipe.streams[0]).parameters())
        seconds = sum(line["seconds"] for line in run.timing())
        facts = {"steps": run.info["finished"]["step"], "seconds": round(seconds, 1), "parameters": method}
        write_json(path / "cell.json", {**accuracies, **facts, "encoder": run.recipe.encoder.name})
        return read_json(path / "cell.json")


def _trained(recipe: Recipe, store: Store, path: Path) -> Run:
    """A finished run of a recipe in a folder."""
    if RunFolder(path).holds_run() and "finished" in open_run(path).info:
        done = open_run(path)
        if done.info["finished"]["step"] >= done.recipe.epochs * (len(store.split(SPLIT)[0]) // BATCH):
            return done
    resume = bool(list_checkpoints(RunFolder(path).checkpoints))
    if not resume and path.exists():
        shutil.rmtree(path)  # it was stopped before anything was saved
    return pretrain(recipe, store, path, resume=resume, accelerator="cpu", progress=False)


def _end_with_parent() -> None:
    """Let a worker end when the command is gone: it would wait for work for ever."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _make(cells: Cells, name: str, seed: int) -> tuple[str, int]:
    torch.set_num_threads(1)
    cells.make(name, seed)
    return name, seed


def _cost(cells: Cells, name: str, epochs: int = 2) -> float:
    """Seconds of processor time, which other work disturbs little, that all epochs of one seed would take on
    one core.
    """
    torch.set_num_threads(1)
    store = prepared_store(DATA_SET, cells.folder / "stores")
    recipe = budgeted(name, cells.epochs, 0)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        pretrain(recipe, store, Path(folder) / "run", until=epochs, accelerator="cpu", progress=False)
        return (time.process_time() - began) / epochs * cells.epochs


def collect(cells: Cells, names: Sequence[str], seeds: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
    """All finished cells by method, in the order of the seeds."""
    found = {
        name: [cell for seed in seeds if (cell := cells.found(name, seed)) is not None] for name in names
    }
    return {name: made for name, made in found.items() if made}


def differences(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, str]]:
    """What HaLP adds to the method it is on, paired by seed, where both have the same number of seeds."""
    gaps: dict[str, dict[str, str]] = {}
    for name, made in found.items():
        other = found.get(METHODS[name].on, ())
        if other and len(other) == len(made):
            gaps[f"{name} − {METHODS[name].on}"] = {
                protocol: str(
                    paired_difference(
                        *([cell["trained"][protocol] for cell in side] for side in (made, other))
                    )
                )
                for protocol in PROTOCOLS
            }
    return gaps


def markdown(found: Mapping[str, Sequence[Mapping[str, Any]]], epochs: int, command: str) -> str:
    """The table and the paired differences."""
    first = next(iter(found.values()))[0]
    raw = " and ".join(f"{protocol} {first['raw'][protocol]:.1f}" for protocol in PROTOCOLS)
    steps = sorted({cell["steps"] for made in found.values() for cell in made})
    lines = [
        "# All methods at one budget",
        "",
        (
            f"NW-UCLA, views 1 and 2 → 3; {epochs} epochs, {', '.join(map(str, steps))} steps of {BATCH}"
            " clips; top-1 in per cent, mean ± standard deviation over seeds, last epoch. Raw coordinates:"
            f" {raw}. Untrained: the same encoder before training. Seconds of training on one core, with"
            " whatever else the machine did."
        ),
        "",
        (
            "| method | kNN | untrained, kNN | ridge | untrained, ridge | encoder | parameters | seconds |"
            " seeds |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, made in found.items():
        shown = [
            _shown([cell[side][protocol] for cell in made])
            for protocol in PROTOCOLS
            for side in ("trained", "untrained")
        ]
        seconds = sum(cell["seconds"] for cell in made) / len(made)
        facts = [made[0]["encoder"], f"{made[0]['parameters']:,}", f"{seconds:.0f}", str(len(made))]
        lines.append(f"| {' | '.join([name, *shown, *facts])} |")
    gaps = differences(found)
    if gaps:
        lines += ["", "| paired by seed, 95 % interval | kNN | ridge |", "| --- | --- | --- |"]
        lines += [
            f"| {name} | {' | '.join(gap[protocol] for protocol in PROTOCOLS)} |"
            for name, gap in gaps.items()
        ]
    return "\n".join([*lines, "", f"`{command}`", ""])


def _shown(values: Sequence[float]) -> str:
    mean, spread = mean_and_std(values)
    return f"{mean:.1f}" if len(values) == 1 else f"{mean:.1f} ± {spread:.1f}"


def write(cells: Cells, seeds: Sequence[int], command: str) -> str:
    """Write the table of all finished cells; returns it."""
    found = collect(cells, list(METHODS), seeds)
    if not found:
        raise InputError("no cell is finished yet; run the command without --table")
    text = markdown(found, cells.epochs, command)
    facts = {"command": command, "versions": versions(), "epochs": cells.epochs, "seeds": list(seeds)}
    write_json(RESULTS / "all_methods.json", {**facts, "cells": found, "differences": differences(found)})
    (RESULTS / "all_methods.md").write_text(text, encoding="utf-8")
    return text


def main(arguments: Sequence[str]) -> int:
    """Train what is missing, evaluate, write the table of what is there."""
    parser = argparse.ArgumentParser(description="Every method on NW-UCLA at one budget.")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--only", nargs="+", default=list(METHODS), help="methods to train; the table has all that are there"
    )
    parser.add_argument("--jobs", type=int, default=1, help="cells at once, one core each")
    parser.add_argument("--out", type=Path, default=Path("runs/all_methods"))
    parser.add_argument("--cost", action="store_true", help="only say what the methods would take")
    parser.add_argument("--table", action="store_true", help="only write the table of what is finished")
    options = parser.parse_args(arguments)
    cells, said = Cells(options.out, options.epochs), Console(stderr=True)
    given = f"--epochs {options.epochs} --seeds {' '.join(map(str, options.seeds))}"
    command = f"python -m experiments.all_methods {given}"
    try:
        for name in options.only:
            budgeted(name, options.epochs, 0)  # refuses what is unknown before anything is trained
        prepared_store(DATA_SET, options.out / "stores")
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, context, _end_with_parent) as pool:
            if options.cost:
                for name, seconds in zip(
                    options.only, pool.map(_cost, [cells] * len(options.only), options.only)
                ):
                    print(f"{name}: {seconds / 60:.1f} min per seed", flush=True)
                return 0
            wanted = (
                [] if options.table else [(name, seed) for seed in options.seeds for name in options.only]
            )
            jobs = [pool.submit(_make, cells, *cell) for cell in wanted]
            try:
                for number, job in enumerate(jobs, start=1):
                    name, seed = job.result()
                    said.print(
                        f"{number} of {len(wanted)}: {name}, seed {seed}:"
                        f" {json.dumps(cells.found(name, seed))}"
                    )
            except BaseException:
                pool.shutdown(cancel_futures=True)  # cells that have not begun would be trained first
                raise
        print(write(cells, options.seeds, command))
    except InputError as error:
        said.print(str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
