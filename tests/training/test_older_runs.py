"""Runs that older versions wrote still open: the fixture was trained and saved by halp 0.1.0."""

from __future__ import annotations

import dataclasses
import json
import shutil
import types
from pathlib import Path

import pytest
import torch

import halp
from halp.core.errors import InputError
from halp.data.synthetic import make_synthetic_store
from halp.training import load_recipe, open_run, pretrain
from halp.training.run import check_same

OLD = Path(__file__).parents[1] / "fixtures" / "run-0.1.0"


@pytest.mark.parametrize("stream", ["joint", "joint@stgcn"])
def test_encoders_of_a_run_of_the_first_version_compute_what_they_did(stream: str) -> None:
    encoder = halp.load_encoder(OLD, stream=stream)
    clips = torch.randn(2, 8, encoder.persons, 25, 3, generator=torch.Generator().manual_seed(0))
    expected = torch.tensor(json.loads((OLD / "expected.json").read_text())[stream])
    with torch.no_grad():
        torch.testing.assert_close(encoder(clips), expected, atol=1e-5, rtol=1e-4)


def test_its_recipe_has_todays_sections_and_its_checkpoint_can_be_forked(tmp_path: Path) -> None:
    run = open_run(OLD)
    assert set(run.recipe.sections) == {"contrast", "isc"}
    assert (run.recipe.encoders["stgcn"].output, run.recipe.encoders["stgcn"].stages) == (16, 1)
    copy = tmp_path / "old"
    shutil.copytree(OLD, copy)
    store = make_synthetic_store(tmp_path / "store", count=48)
    recipe = load_recipe(OLD / "recipe.toml", ["epochs=2"], saved=True)
    forked = pretrain(recipe, store, tmp_path / "fork", fork=copy, progress=False)
    assert forked.info["forked"]["step"] == 1


def test_runs_of_versions_without_the_setting_keep_their_dropout_masks() -> None:
    assert open_run(OLD).recipe.dropout_draws == "batch"
    assert load_recipe("small").dropout_draws == "rows"


def test_a_run_begun_under_a_former_name_can_be_resumed() -> None:
    run, store = open_run(OLD), open_run(OLD).info["data"]["hash"]
    today = dataclasses.replace(run.recipe, name="renamed", description="other words", dropout_draws="rows")
    check_same(run, today, types.SimpleNamespace(hash=store, path="store"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="epochs was"):
        check_same(run, dataclasses.replace(today, epochs=77), types.SimpleNamespace(hash=store))  # type: ignore[arg-type]


def test_what_an_old_run_may_hold_is_refused_in_a_recipe_of_today() -> None:
    with pytest.raises(InputError, match="unknown setting"):
        load_recipe(OLD / "recipe.toml")
