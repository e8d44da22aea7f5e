"""The demonstration: synthetic people, MoCo and HaLP from the same warm-up, one table and one report."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from halp.core.errors import InputError
from halp.core.files import write_text
from halp.core.progress import log
from halp.data.store import Store, open_store
from halp.data.synthetic import make_synthetic_store
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import RawCoordinates
from halp.evaluation.analysis.similarities import kept_share
from halp.evaluation.evaluate_run import EncoderResults, evaluate_protocols, fitting_shipped
from halp.reports.page import Report
from halp.reports.run_report import add_accuracies, add_curves, add_embedding, add_prototypes, add_provenance
from halp.training import Recipe, Run, load_recipe, open_run, pretrain
from halp.training.checkpoint import list_checkpoints

MARKER = ".halp-demo"
PARTS = ("store", "moco", "halp")
FEWEST = 96  # clips: fewer leave classes without any to train or test on


@dataclass(frozen=True)
class Demo:
    """Results of the demonstration."""

    rows: list[EncoderResults]
    runs: dict[str, Run]
    report: Path
    seconds: float


def run_demo(folder: Path, *, clips: int = 1440, seed: int = 0, settings: tuple[str, ...] = ()) -> Demo:
    """Make data, train, evaluate and report into `folder`; `settings` override both recipes, as `--set`."""
    started = time.monotonic()
    torch.set_num_threads(1)  # a core per run: the two train at once
    if clips < FEWEST:
        raise InputError(
            f"the demonstration needs at least {FEWEST} clips, not {clips}: two per action and room to train"
        )
    halp = load_recipe("demo-halp", (*settings, f"seed={seed}"))
    if halp.epochs <= (start := halp.halp.start_epoch):
        raise InputError(
            f"epochs = {halp.epochs} leaves nothing to train after the shared warm-up of {start} epochs; raise"
            f" epochs above {start}, or lower halp.start_epoch"
        )
    # the baseline has no such term
    common = [setting for setting in settings if not setting.startswith("halp.")]
    moco = load_recipe("demo-moco", (*common, f"seed={seed}"))
    _clear(folder)
    store = make_synthetic_store(folder / "store", count=clips, seed=seed)
    actions, people = len(store.class_names), len(set(store.subjects.tolist()))
    log.info(f"{len(store)} clips of {people} synthetic people doing {actions} actions, seen by 3 cameras")
    split = moco.split

    rows = [
        _row(
            "raw coordinates", RawCoordinates(store.topology, persons=store.persons), store, split, seed, None
        )
    ]
    warm = pretrain(moco, store, folder / "moco", until=halp.halp.start_epoch)
    rows.append(_row("untrained", warm.encoder(trained=False), store, split, seed, warm))
    # HaLP forks before MoCo is resumed and replaces the checkpoint; then each has a core to itself
    checkpoint = list_checkpoints(warm.checkpoints)[-1]
    with _alongside(folder / "moco", moco, store.path):
        with_positives = pretrain(halp, store, folder / "halp", fork=checkpoint)
    runs = {"MoCo": open_run(folder / "moco"), "HaLP": with_positives}
    rows += [_row(name, run.encoder(), store, split, seed, run) for name, run in runs.items()]
    if (shipped := fitting_shipped(store)) is not None:
        rows.insert(2, _row(shipped.origin["shipped"], shipped, store, split, seed, runs["HaLP"]))

    report = Report(
        "HaLP on synthetic people",
        f"{len(store)} clips of synthetic people, {actions} actions, split {split}",
    )
    add_accuracies(report, rows)
    add_curves(report, runs)
    add_prototypes(report, runs["HaLP"], store)
    add_embedding(report, runs["HaLP"], store, rows[-1].results[-1], split=split)
    add_provenance(report, runs)
    path = report.save(folder / "report.html")
    if (kept := kept_share(runs["HaLP"])) is not None:
        log.info(f"positives kept by the rank filter at the end: {kept:.1%} (the paper: 91 %)")
    return Demo(rows, runs, path, time.monotonic() - started)


@contextmanager
def _alongside(path: Path, recipe: Recipe, store: Path) -> Iterator[None]:
    """Resume a run in a separate process while the body runs."""
    process = multiprocessing.get_context("spawn").Process(target=_resume, args=(recipe, store, path))
    process.start()
    try:
        yield
    except BaseException:
        process.terminate()
        raise
    finally:
        process.join()
    if process.exitcode:
        raise InputError(f"training '{path}' ended with exit code {process.exitcode}; see its output above")


def _resume(recipe: Recipe, store: Path, path: Path) -> None:
    torch.set_num_threads(1)
    pretrain(recipe, open_store(store), path, resume=True, progress=False)


def _row(
    name: str, encoder: PretrainedEncoder, store: Store, split: str, seed: int, run: Run | None
) -> EncoderResults:
    row = evaluate_protocols(name, encoder, store, splits=(split,), seeds=(seed,), run=run, progress=False)
    log.info(f"{name}: " + ", ".join(f"{result.protocol} {result.accuracy:.1f} %" for result in row.results))
    return row


def _clear(folder: Path) -> None:
    """Remove the files of an earlier demonstration, and nothing else.

    A folder of a demonstration carries a marker, which is written before anything else. Without it, or where
    a part is neither a store nor a run, nothing is touched.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"'{folder}' is a file; choose a folder for the demonstration")
    there = [folder / name for name in PARTS if (folder / name).exists()]
    for path in there:
        ours = (folder / MARKER).is_file() and any(
            (path / name).is_file() for name in ("store.json", "run.json")
        )
        if not ours:
            raise InputError(
                f"'{path}' exists already and was not made by a demonstration; choose another --out, or move it away"
            )
    try:
        write_text(
            folder / MARKER,
            "The folders store, moco and halp beside this file are replaced by `halp demo`.\n",
        )
        for path in there:
            shutil.rmtree(path)
    except OSError as error:
        raise InputError(f"'{folder}' cannot be written ({error}); choose another one with --out") from error
