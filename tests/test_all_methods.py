"""The table of all methods: every line is a recipe at the common budget, and what is written says what was found."""

from __future__ import annotations

import pytest

from benchmarks.all_methods import BATCH, METHODS, SPLIT, budgeted, markdown
from halp.methods.base import METHODS as REGISTERED


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_the_same_budget_and_what_starts_late_starts_within_it(name: str) -> None:
    recipe = budgeted(name, 20, 1)
    assert (recipe.epochs, recipe.batch_size, recipe.seed, recipe.split) == (20, BATCH, 1, SPLIT)
    assert recipe.method in REGISTERED
    assert not METHODS[name].on or METHODS[name].on in METHODS
    flat = recipe.flat()
    starts = [value for key, value in flat.items() if key.endswith("_epoch")]
    assert all(0 <= start < 20 for start in [*starts, *flat.get("optimiser.milestones", [])])


def test_table_has_means_baselines_and_paired_differences() -> None:
    def cell(knn: float) -> dict[str, object]:
        sides = {
            side: {"knn": knn + shift, "ridge": 50.0} for side, shift in (("trained", 0), ("untrained", -9), ("raw", 9))
        }
        return {**sides, "steps": 30, "seconds": 2.0, "parameters": 1234, "encoder": "gru"}

    text = markdown({"MoCo": [cell(60.0), cell(62.0)], "HaLP": [cell(63.0), cell(64.0)]}, 2, "command")
    assert "| MoCo | 61.0 ± " in text
    assert "knn 69.0 and ridge 50.0" in text
    assert "| HaLP − MoCo | +2.50 ± " in text
    assert "1,234" in text
