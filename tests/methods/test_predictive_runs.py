"""Predictive methods as whole runs: exact resume, forks, evaluation and report by the command, several
processes.
"""

from __future__ import annotations

import json
from pathlib import Path

import jobs
import pytest
import torch
from predictive_recipes import COMMON, RECIPES

from halp.cli import main
from halp.data.store import Store
from halp.features.loading import load_encoder
from halp.methods import StepContext
from halp.skeleton import get_topology
from halp.training import Recipe, load_recipe, pretrain
from halp.training.checkpoint import newest_checkpoint
from halp.training.run import build_method


def recipe(name: str, *more: str) -> Recipe:
    return load_recipe(name, (*COMMON, *RECIPES[name][0], *more))


@pytest.mark.parametrize("name", ["small-masked", "small-longt-gan"])
@pytest.mark.slow
def test_run_resumes_exactly_and_forks(name: str, tmp_path: Path, store: Store) -> None:
    settings = recipe(name, "saving.checkpoint_steps=2")
    whole = pretrain(settings, store, tmp_path / "whole", progress=False)
    pretrain(settings, store, tmp_path / "parts", until=1, progress=False)
    parts = pretrain(settings, store, tmp_path / "parts", resume=True, progress=False)
    assert jobs.final_files(whole.path) == jobs.final_files(parts.path)
    assert "joint/embedding_std" in whole.metrics()[-1]
    # a fork may have another decoder, and keeps the encoder that it starts from
    forked = pretrain(
        recipe(name, *RECIPES[name][1], "epochs=4"), store, tmp_path / "fork", fork=whole.path, progress=False
    )
    assert forked.info["forked"]["step"] == newest_checkpoint(whole.checkpoints).state["step"]
    width = whole.encoder()(torch.randn(2, 12, store.persons, 25, 3)).shape[1]
    assert forked.encoder()(torch.randn(2, 12, store.persons, 25, 3)).shape == (2, width)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.slow
def test_run_by_the_command_is_evaluated_reported_and_exported(
    name: str, tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run, page = str(tmp_path / "run"), tmp_path / "page.html"
    settings = ("--set", *COMMON, *RECIPES[name][0], "epochs=1")
    main(["pretrain", name, "--data", str(store.path), "--run", run, "--accelerator", "cpu", *settings])
    capsys.readouterr()
    main(["evaluate", run, "--protocol", "knn", "--split", "xsub", "--no-baselines", "--json"])
    ((result,),) = json.loads(capsys.readouterr().out).values()
    assert (result["protocol"], result["split"]) == ("knn", "xsub")
    main(["report", run, "--out", str(page)])
    assert "All terms together" in page.read_text(encoding="utf-8")
    main(["export", run, str(tmp_path / "package")])
    clips = torch.randn(2, 12, store.persons, 25, 3)
    assert torch.equal(load_encoder(tmp_path / "package")(clips), load_encoder(run)(clips))


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.heavy
def test_any_topology_and_number_of_persons_and_empty_clips_have_finite_losses_and_gradients(
    name: str,
) -> None:
    for topology, persons in ((get_topology("coco-17"), 1), (get_topology("kinect-v2"), 3)):
        method = build_method(recipe(name), topology, persons)
        shape = (4, 12, persons, len(topology), topology.dimensions)
        for clips in (torch.randn(shape), torch.zeros(shape)):
            method({"clip": clips}, StepContext(0, torch.Generator())).loss.backward()
            gradients = [parameter.grad for parameter in method.parameters() if parameter.grad is not None]
            assert gradients
            assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", RECIPES)
def test_lower_precision_trains_to_about_the_same_loss(name: str, tmp_path: Path, store: Store) -> None:
    settings = recipe(name, "epochs=1", "batch_size=48")
    whole, half = (
        pretrain(
            settings, store, tmp_path / precision, progress=False, accelerator="cpu", precision=precision
        )
        for precision in ("32-true", "bf16-mixed")
    )
    assert half.metrics()[0]["loss"] == pytest.approx(whole.metrics()[0]["loss"], rel=0.05)


@pytest.mark.slow
def test_masked_run_ends_in_the_same_bits_after_kill_and_on_two_processes(
    tmp_path: Path, store: Store
) -> None:
    settings = (*COMMON, *RECIPES["small-masked"][0], "saving.checkpoint_steps=2")
    jobs.compare_whole_killed_and_two_processes(tmp_path, store, "small-masked", settings)
    jobs.assert_whole_and_two_are_close(tmp_path, 2e-3)
