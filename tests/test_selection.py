"""The selection benchmark: every candidate at one budget, trials that differ in the learning rate alone, and its tables."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.selection import CANDIDATES, RATES, TUNED, markdown, part_of, recipe_of
from halp.data.store import Store, open_store
from halp.training.recipe import load_recipe


@pytest.mark.parametrize("name", list(CANDIDATES))
def test_candidates_have_the_common_budget_and_trials_differ_in_the_learning_rate_alone(name: str) -> None:
    first, second = (load_recipe(*recipe_of(name, rate, 30, "xsub", 0)) for rate in RATES)
    assert first.batch_size == 64
    assert first.epochs == (TUNED if CANDIDATES[name].start else 30)
    assert first.views.frames == 32
    flat, other = first.flat(), second.flat()
    assert [key for key in flat if flat[key] != other[key]] == ["optimiser.learning_rate"]
    for milestone in flat.get("optimiser.milestones", []):
        assert milestone < first.epochs
    if "halp" in first.term_settings:
        assert 0 < first.term_settings["halp"].start_epoch < first.epochs


def test_tuned_candidates_start_from_encoders_of_their_own_kind() -> None:
    for name, candidate in CANDIDATES.items():
        if candidate.start:
            own, before = (load_recipe(*recipe_of(one, 1.0, 30, "xsub", 0)) for one in (name, candidate.start))
            assert own.encoder == before.encoder


def test_a_part_of_the_clips_lies_in_the_training_part_and_is_made_once(store: Store, tmp_path: Path) -> None:
    own = open_store(shutil.copytree(store.path, tmp_path / "store"))
    split = next(iter(own.splits))
    name = part_of(own, split, 0.5)
    again = open_store(own.path)
    train, test = again.split(split)
    kept, held = again.split(name)
    assert len(kept) == round(0.5 * len(train))
    assert set(kept.tolist()) < set(train.tolist())
    assert held.tolist() == test.tolist()
    assert part_of(again, split, 0.5) == name


def test_the_page_has_trials_curves_and_tests_with_the_untrained_encoder_beside() -> None:
    sets = ("nw-ucla", "utd-mhad", "msr-action3d", "mean")
    probes = {one: {"knn": 60.0, "ridge": 70.0} for one in sets}
    untrained = {one: {"knn": 50.0, "ridge": 65.0} for one in sets}
    trial = {"trained": probes, "untrained": untrained, "by checkpoint": {"step-1": {"knn": 55.0, "ridge": 66.0}}}
    spread = {one: {"knn": {"mean": 60.0, "std": 1.0}, "ridge": {"mean": 71.0, "std": 0.5}} for one in sets}
    found: dict[str, Any] = {
        "epochs": 30, "seeds": 3, "command": "c", "validation": {"MoCo": {"1": trial}}, "fewer clips": {"0.5": trial},
        "test": {"MoCo": {"rate": "1", "trained": spread, "untrained": spread}},
    }  # fmt: skip
    text = markdown(found)
    assert "| MoCo | 1 | 70.0 / 60.0 | 70.0 / 60.0 | 70.0 / 60.0 | 70.0 / 60.0 | 65.0 / 50.0 |" in text
    assert "- MoCo, rate 1: 66.0 / 55.0" in text
    assert "- MoCo on 50% of the clips, as many steps: 70.0 / 60.0" in text
    assert "71.0 ± 0.5 (71.0 ± 0.5)" in text
