"""Training in 16-mixed: the scaler is part of the saved state, skips steps that overflow, and enters no
figure.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked as subprocess
import pytest
import torch
from jobs import final_files

from halp.augment import ViewMaker
from halp.core.errors import Diverged, Interrupted
from halp.data.store import Store
from halp.methods import MocoMethod, StepContext
from halp.methods.base import Metrics
from halp.training import Run, load_recipe, pretrain
from halp.training.checkpoint import (
    identity_of,
    list_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    write_manifest,
)

MEAN = "encoder.pooling=mean"  # the scale overflows within the few steps of these runs


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Products in float16 on a CPU are rounded differently from run to run where two threads share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale that grows every other step, so that it overflows now and then in a run of a few steps."""
    monkeypatch.setattr(torch.amp, "GradScaler", functools.partial(torch.amp.GradScaler, growth_interval=2))


def train(
    settings: tuple[str, ...], store: Store, path: Path, precision: str = "16-mixed", **more: Any
) -> Run:
    recipe = load_recipe("small", (MEAN, *settings))
    return pretrain(recipe, store, path, accelerator="cpu", precision=precision, progress=False, **more)


def scaler(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = newest_checkpoint(run / "checkpoints").state["scaler"]
    return found


def moved(run: Path) -> bool:
    """Whether the saved scaler is another than one begins with."""
    saved = scaler(run)
    return (saved["scale"], saved["_growth_tracker"]) != (2.0**16, 0)


def skips(run: Run, after: int = 0) -> int:
    """How many steps the scaler skipped; they have no gradient to speak of."""
    return sum("gradient_norm" not in line for line in run.metrics() if line["step"] > after)


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("steps", [3, 10])
def test_run_that_a_signal_stops_continues_with_the_scale_it_had(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    whole = train(tiny, store, tmp_path / "whole")
    views, left = ViewMaker.make, [steps]

    def signalled(*given: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return views(*given)

    with monkeypatch.context() as patch:
        patch.setattr(ViewMaker, "make", signalled)
        with pytest.raises(Interrupted):
            train(tiny, store, tmp_path / "parts")
    assert newest_checkpoint(tmp_path / "parts" / "checkpoints").state["step"] == steps
    assert moved(tmp_path / "parts")
    train(tiny, store, tmp_path / "parts", resume=True)
    assert final_files(whole.path) == final_files(tmp_path / "parts")


@pytest.mark.slow
def test_killed_half_precision_run_resumes_in_the_same_bytes(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    program = """
import functools, os, sys, torch
torch.amp.GradScaler = functools.partial(torch.amp.GradScaler, growth_interval=2)
from halp.augment import ViewMaker
from halp.cli import main
kill, *arguments = sys.argv[1:]
views, left = ViewMaker.make, [int(kill)]
def deadly(*given):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), 9)
    return views(*given)
ViewMaker.make = deadly
main(arguments)
"""
    options = ["--accelerator", "cpu", "--precision", "16-mixed"]
    settings = ["--set", MEAN, *tiny, "saving.checkpoint_steps=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def job(run: str, kill: int, *more: str) -> int:
        given = [
            "pretrain",
            "small",
            "--data",
            str(store.path),
            "--run",
            str(tmp_path / run),
            *options,
            *more,
        ]
        command = [sys.executable, "-c", program, str(kill), *given, *settings]
        return subprocess.run(
            command, env=environment, capture_output=True, timeout=300, check=False
        ).returncode

    assert job("whole", 0) == 0
    assert job("killed", 8) == -signal.SIGKILL
    assert moved(tmp_path / "killed")
    assert job("killed", 0, "--resume") == 0
    assert final_files(tmp_path / "whole") == final_files(tmp_path / "killed")


@pytest.mark.usefixtures("restless")
def test_fork_takes_over_the_scale_of_the_warm_up(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    warm = train((*tiny, 'terms=["infonce"]'), store, tmp_path / "warm", until=1)
    assert moved(warm.path)
    forked = train(tiny, store, tmp_path / "forked", fork=warm.path)
    straight = train(tiny, store, tmp_path / "straight")
    ours, theirs = final_files(forked.path), final_files(straight.path)
    for name in ("model.safetensors", "optimiser.safetensors", "state.json"):
        assert ours[name] == theirs[name], name


def test_checkpoint_without_a_scaler_continues_with_a_fresh_one(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    run = train(tiny, store, tmp_path / "run", until=1)
    file = list_checkpoints(run.checkpoints)[-1] / "state.json"
    state = json.loads(file.read_text())
    del state["scaler"]
    file.write_text(json.dumps(state))
    write_manifest(file.parent, file.parent.name, state, identity_of(run.path))
    train(tiny, store, run.path, resume=True, until=2)
    assert scaler(run.path)["scale"] * 2 ** skips(run, after=state["step"]) == 2.0**16


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_precision_that_scales_nothing_saves_no_scaler_and_reads_over_one(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], precision: str
) -> None:
    run = train(tiny, store, tmp_path / "run", precision, until=1)
    state = json.loads((list_checkpoints(run.checkpoints)[-1] / "state.json").read_text())
    assert set(state) == {"format", "step", "epoch", "data"}
    half = train(tiny, store, tmp_path / "half", until=1)
    train(tiny, store, half.path, precision, resume=True, until=2)
    assert "scaler" not in newest_checkpoint(half.checkpoints).state


@pytest.mark.usefixtures("restless")
def test_watching_the_gradient_changes_nothing(tmp_path: Path, store: Store, tiny: tuple[str, ...]) -> None:
    runs = [train((*tiny, f"saving.log_every={every}"), store, tmp_path / f"{every}") for every in (1, 4)]
    often, rarely = (final_files(run.path) for run in runs)
    for name in ("model.safetensors", "optimiser.safetensors", "state.json"):
        assert often[name] == rarely[name], name


def test_gradient_norm_is_that_of_the_gradient_without_the_scale(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    norms = [
        train(tiny, store, tmp_path / precision, precision, until=1).metrics()[0]["gradient_norm"]
        for precision in ("32-true", "16-mixed")
    ]
    assert norms[1] == pytest.approx(norms[0], rel=0.05)


@pytest.mark.usefixtures("restless")
def test_step_that_overflows_is_skipped_and_training_continues(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    run = train((*tiny, "saving.checkpoint_steps=1", "saving.keep=99"), store, tmp_path / "run")
    trained = [name for name, parameter in run.model().named_parameters() if parameter.requires_grad]
    saved, lines = [load_checkpoint(path) for path in list_checkpoints(run.checkpoints)], run.metrics()
    assert len(saved) == len(lines) == run.info["finished"]["step"]
    for before, after, line in zip(saved, saved[1:], lines[1:]):
        skipped = after.state["scaler"]["scale"] < before.state["scaler"]["scale"]
        assert skipped == ("gradient_norm" not in line), line
        assert skipped == all(torch.equal(before.model[name], after.model[name]) for name in trained), line
        assert all(bool(torch.isfinite(after.model[name]).all()) for name in trained)
    assert 0 < skips(run) < len(lines) / 2
    assert "Infinity" not in (run.path / "metrics.jsonl").read_text()


def test_loss_that_is_no_number_stops_a_scaled_run(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = MocoMethod.loss

    def broken(self: MocoMethod, batches: Any, moment: StepContext) -> tuple[torch.Tensor, Metrics]:
        value, metrics = loss(self, batches, moment)
        return value * (torch.inf if moment.epoch == 1 else 1), metrics

    monkeypatch.setattr(MocoMethod, "loss", broken)
    with pytest.raises(Diverged, match="at step 5 "):
        train(tiny, store, tmp_path / "run")
    assert newest_checkpoint(tmp_path / "run" / "checkpoints").state["step"] == 5
