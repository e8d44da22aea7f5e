"""Sweeps end to end on a tiny scale: every table, interrupted and resumed, from shared and cached runs."""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import forked as subprocess
import pytest
import torch

from halp.core.errors import InputError, Interrupted
from halp.core.files import write_json
from halp.data.store import Store
from halp.data.synthetic import make_synthetic_store
from halp.evaluation import Result
from halp.features.cache import module_fingerprint
from halp.reproduce import list_tables, prepare_sweep, reproduce, trainings
from halp.reproduce import runner as runner_module
from halp.reproduce.scales import SCALES
from halp.reproduce.tables import TableColumn, TableRow
from halp.training import load_recipe, open_run, pretrain
from halp.training.run_folder import RunFolder

pytestmark = pytest.mark.slow  # real processes


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trainings of a second are not worth processes of their own."""
    monkeypatch.setattr("halp.engine.Engine.processes", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all tables, so that they share warm-ups, baselines and features."""
    return tmp_path_factory.mktemp("reproduced")


# one table of each kind; that every row of all others has a recipe and a schedule is shown without training
TABLES = (
    "cost",
    "filter",
    "transfer",
    "semi-network",
    "similarities",
    "prototype-similarity",
    "aimclr",
    "no-queue",
)


@pytest.mark.parametrize("table", [*TABLES, "knn-streams", "ensemble", "knn-others"])
def test_every_table_runs_end_to_end(out: Path, table: str) -> None:
    if table == "cost":
        prepared = prepare_sweep(table, out=out, scale="tiny", progress=False)
        prepared.runner.train(prepared.schedule.jobs.values())
        for job in prepared.schedule.jobs.values():  # what a training costs is measured in a test of its own
            write_json(RunFolder(prepared.runner.path(job.name)).cost_file, {"time": 1.0, "memory": 1.0})
    summary = reproduce(table, out=out, scale="tiny", progress=False)
    folder = out / "tables" / "tiny"
    assert json.loads((folder / f"{table}.json").read_text())["id"] == table
    with open(folder / f"{table}.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    assert len(lines) > 1
    assert all(len(line) == len(lines[0]) for line in lines)
    page = (folder / f"{table}.html").read_text(encoding="utf-8")
    assert summary.title.split()[0] in page
    text = (folder / f"{table}.md").read_text(encoding="utf-8")
    known = list_tables()[table]
    assert bool(summary.rows) == (known.kind == "table")
    if summary.rows:
        for row in known.rows:
            assert f"| {row.name} |" in text
        trained = {row.name for row in known.rows if SCALES["tiny"].runs("synthetic", row)}
        assert trained & {line.name for line in summary.rows}
        for line in summary.rows:
            assert line.cells[-1].values or line.name not in trained
    else:
        assert "<svg" in page


def test_the_rows_of_a_sweep_are_different_encoders(out: Path) -> None:
    reproduce("hardness", out=out, scale="tiny", progress=False)
    runs = [open_run(path) for path in sorted((out / "runs/tiny/synthetic-xsub").glob("*hardness*"))]
    assert len({module_fingerprint(run.encoder()) for run in runs}) == len(runs) == 4


def test_results_of_a_sweep_fit_the_schema(out: Path) -> None:
    reproduce("knn", out=out, scale="tiny", progress=False)
    files = list(out.glob("runs/**/results/*.json"))
    assert files
    for path in files:
        Result.load(path)


def test_an_interrupted_sweep_resumes_and_ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = reproduce("knn", out=tmp_path / "a", scale="tiny", progress=False)
    calls = []

    def stops(recipe, store, path, **options):  # type: ignore[no-untyped-def]
        calls.append(path)
        if len(calls) == 2:  # the run has done a part and saved it
            pretrain(recipe, store, path, **{**options, "until": 6})
            raise Interrupted("stopped as asked")
        return pretrain(recipe, store, path, **options)

    monkeypatch.setattr(trainings, "pretrain", stops)
    with pytest.raises(Interrupted):
        reproduce("knn", out=tmp_path / "b", scale="tiny", progress=False)
    states = [job["state"] for job in prepare_sweep("knn", out=tmp_path / "b").cost()["jobs"]]
    assert states == ["done", "started", "to do"]
    monkeypatch.undo()
    again = reproduce("knn", out=tmp_path / "b", scale="tiny", progress=False)
    assert [line.cells for line in again.rows] == [line.cells for line in straight.rows]
    for name in ("moco-seed0", "halp-seed0"):
        prints = [
            module_fingerprint(open_run(tmp_path / side / "runs/tiny/synthetic-xsub" / name).encoder())
            for side in "ab"
        ]
        assert prints[0] == prints[1]


def test_a_table_is_the_same_from_one_worker_two_and_an_executor_and_after_a_kill(tmp_path: Path) -> None:
    """Two seeds and three kinds of runs; the pool of two loses a worker on its way."""
    from halp.engine import Engine

    alone = reproduce("knn", out=tmp_path / "a", scale="tiny", seeds=2, workers=1, progress=False)
    with ThreadPoolExecutor(1) as threads:
        given = reproduce("knn", out=tmp_path / "b", scale="tiny", seeds=2, engine=threads, progress=False)
    command = [sys.executable, "-m", "halp", "reproduce", "knn", "--scale", "tiny", "--seeds", "2", "--json"]
    job = subprocess.Popen(
        [*command, "--workers", "2", "--out", str(tmp_path / "c")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    assert kill_first_worker(tmp_path / "c" / "runs", job)
    pooled = json.loads(job.communicate(timeout=300)[0])
    assert job.returncode == 0
    assert Engine(2).processes == 1, "the fixture keeps everything else in this process"
    wanted = [asdict(line) for line in alone.rows]
    assert [asdict(line) for line in given.rows] == wanted
    assert pooled["rows"] == json.loads(json.dumps(wanted))


def kill_first_worker(runs: Path, job: subprocess.Popen) -> bool:
    """Kill the worker that holds the lock of the first run, as soon as it has written a checkpoint."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and job.poll() is None:
        if list(runs.glob("**/checkpoints/step-*")):
            workers = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            victims = [pid for pid in workers if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            os.kill(int(victims[0]), signal.SIGKILL)
            return True
        time.sleep(0.02)
    return False


def test_runs_that_need_a_failed_one_are_left_out_and_the_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(recipe, store, path, **options):  # type: ignore[no-untyped-def]
        if "warm" in Path(path).name and "seed0" in Path(path).name:
            raise InputError("no room")
        return pretrain(recipe, store, path, **options)

    monkeypatch.setattr(trainings, "pretrain", fails)
    with pytest.raises(InputError, match="no room"):
        reproduce("knn", out=tmp_path, scale="tiny", seeds=2, progress=False)
    prepared = prepare_sweep("knn", out=tmp_path, seeds=2)
    states = {
        name.rpartition("/")[2]: prepared.runner.state(job) for name, job in prepared.schedule.jobs.items()
    }
    assert {name for name, state in states.items() if state == "done"} == {
        name for name in states if name.endswith("seed1")
    }


def test_a_finished_sweep_trains_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reproduce("knn", out=tmp_path, scale="tiny", seeds=2, progress=False)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a finished run was trained again")

    monkeypatch.setattr(trainings, "pretrain", refuse)
    again = reproduce("knn", out=tmp_path, scale="tiny", seeds=2, progress=False)
    assert again == first
    halp = again.rows[-1].cells[0]
    assert len(halp.values) == 2
    assert halp.difference is not None
    assert halp.difference.half_width is not None
    assert "±" in halp.ours


def test_the_baseline_that_forks_equals_one_trained_in_one_go(tmp_path: Path) -> None:
    prepared = prepare_sweep("knn", out=tmp_path, scale="tiny", progress=False)
    prepared.runner.train(prepared.schedule.jobs.values())
    job = prepared.schedule.jobs["tiny/synthetic-xsub/moco-seed0"]
    assert job.dataset.store is not None
    whole = pretrain(job.recipe, job.dataset.store, tmp_path / "whole", progress=False)
    assert module_fingerprint(whole.encoder()) == module_fingerprint(
        open_run(prepared.runner.path(job.name)).encoder()
    )


def test_cost_of_a_training_is_measured_once_for_each_device_and_precision(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    given = (load_recipe("small", tiny), store.path, RunFolder(tmp_path / "run"), None, 0)
    cost = runner_module.measure_training(*given)
    assert cost["time"] > 0
    assert cost["memory"] > 2**20
    assert runner_module.measure_training(*given, accelerator="cpu") == cost
    half = runner_module.measure_training(*given, precision="bf16-mixed")
    kept = json.loads((tmp_path / "run" / "cost.json").read_text())
    assert kept == {"cpu 1 32-true": cost, "cpu 1 bf16-mixed": half}
    with pytest.raises(InputError, match="cannot be measured"):
        runner_module.measure_training(*given, accelerator="cuda")


def test_cost_of_a_sweep_is_that_of_its_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(runner_module, "measure_training", lambda *given, **how: seen.append(how) or {})
    prepared = prepare_sweep(
        "cost", scale="tiny", out=tmp_path, progress=False, precision="bf16-mixed", devices=2
    )
    prepared.runner.cost(next(iter(prepared.schedule.jobs.values())))
    assert seen == [{"accelerator": "auto", "precision": "bf16-mixed", "devices": 2}]


def test_cost_is_relative_to_the_baseline_on_the_same_store(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        make_synthetic_store(tmp_path / name, count=192, subjects=6, seed=seed)
    stores = [str(tmp_path / name) for name in "ab"]
    prepared = prepare_sweep("cost", data=stores, out=tmp_path / "out", scale="tiny", progress=False)
    seconds = {"a/moco": 1.0, "a/halp": 1.5, "b/moco": 2.0, "b/halp": 2.2}
    for job in prepared.schedule.jobs.values():
        folder = RunFolder(prepared.runner.path(job.name))
        key = f"{job.dataset.key}/{'halp' if 'halp' in job.recipe.terms else 'moco'}"
        write_json(folder.cost_file, {"cpu 1 32-true": {"time": seconds[key], "memory": 1.0}})
    column = next(i for i, one in enumerate(prepared.schedule.table.columns) if one.metric == "time")
    found = {
        (cell.dataset.key, cell.row.name): prepared.runner._relative_cost(prepared.schedule, cell, "time")
        for cell in prepared.schedule.cells
        if cell.column == column and cell.run is not None
    }
    baseline = "baseline (MoCo)"
    assert found == {("a", baseline): 1.0, ("a", "HaLP"): 1.5, ("b", baseline): 1.0, ("b", "HaLP"): 1.1}


def test_settings_of_protocols_are_carried_into_a_table(tmp_path: Path) -> None:
    settings = ("linear.head=mlp", "linear.epochs=2", "epochs=5", "halp.start_epoch=3")
    prepared = prepare_sweep("hardest", out=tmp_path, scale="tiny", settings=settings, dry=True)
    chosen = prepared.schedule.scale.protocol_settings(
        TableColumn("NTU-60 x-sub"), TableRow("HaLP"), prepared.schedule.protocols
    )
    assert chosen == {"crops": 1, "head": "mlp", "epochs": 2}, (
        "the exact solver of the tiny scale is for a linear head"
    )
    assert {job.recipe.epochs for job in prepared.schedule.jobs.values()} == {5}
    with pytest.raises(InputError, match=r"did you mean 'linear\.head'"):
        prepare_sweep("hardest", out=tmp_path, settings=("linear.haed=mlp",), dry=True)


def test_a_dry_run_counts_runs_steps_and_time(tmp_path: Path) -> None:
    cost = prepare_sweep("start", out=tmp_path, scale="tiny", dry=True).cost()
    assert cost["runs"] == cost["runs left"] == 11  # five warm-ups, five starts, the baseline
    assert cost["steps left"] == sum(job["steps"] for job in cost["jobs"])
    assert cost["seconds left"] > 0
    assert "rough guess" in cost["time from"]


def test_second_sweep_in_a_folder_is_refused_and_takes_over_from_a_killed_one(
    store: Store, tmp_path: Path
) -> None:
    out, settings = tmp_path / "out", ("--set", "epochs=5000")
    command = [
        sys.executable,
        "-m",
        "halp",
        "reproduce",
        "knn",
        "--data",
        str(store.path),
        "--out",
        str(out),
        *settings,
    ]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300
        while not (tmp_path / ".out.lock").exists():
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        said = " ".join(second.stderr.split())
        assert second.returncode == 2
        assert f"is in use by process {first.pid} on " in said
        assert "Traceback" not in said
    finally:
        first.kill()
        first.wait()
    # the lock of the dead is no obstacle: what is wrong with the request is said, not that the sweep is in
    # use
    said, deadline = "is in use", time.monotonic() + 300
    while (
        "is in use" in said and time.monotonic() < deadline
    ):  # a program it was just starting may hold the lock a moment longer
        with pytest.raises(InputError) as refused:
            reproduce("lineer", out=tmp_path / "out", progress=False)
        said = str(refused.value)
    assert "did you mean 'linear'" in said
