"""Recipes that come along: what they resolve to is what it was before they moved into tables and settings got other names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from halp.core.config import flatten
from halp.core.recipe_list import list_recipes
from halp.training import load_recipe
from halp.training.recipe_files import RENAMED, RENAMED_TERMS

BEFORE: dict[str, str] = json.loads((Path(__file__).parents[1] / "fixtures" / "recipes.json").read_text())
# settings that did not exist
ADDED = {"normalisation", "dropout_draws", "fit_queue", "partition", "persons", "repeat_edge", "gate_bias"}
ADDED |= {"predict-cluster.target", "mix.interpolation", "optimiser.every"}
# recipes that were corrected: the public code's graph, views and schedule in place of ours
CORRECTED = ("aimclr", "hiclr", "skeletonbt", "predict-cluster")


def digest(resolved: dict[str, Any]) -> str:
    """A fingerprint of a resolved recipe in the words of the former version."""
    former = {present: (old, {now: was for was, now in values.items()}) for old, (present, values) in RENAMED.items()}
    terms = {present: old for old, present in RENAMED_TERMS.items()}
    words: dict[str, Any] = {}
    for key, value in flatten(resolved):
        name, values = former.get(key, (key, {}))
        section, _, last = name.rpartition(".")
        if last in ADDED or key in ADDED:
            continue
        if key == "terms":
            value = [terms.get(term, term) for term in value]
        if key.endswith("augmentations") and isinstance(value, list):
            value = [{entry: step[entry] for entry in step if entry not in ADDED} for step in value]
        section = terms.get(section, section)
        words[f"{section}.{last}" if section else last] = values[value] if values else value
    words["name"] = words["name"].replace("crossclr", "crosclr")
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:16]


def corrected(name: str) -> bool:
    data, _, method = name.partition("-")
    return data in ("ntu60", "ntu120", "pku2") and method.removesuffix("-halp") in CORRECTED


@pytest.mark.parametrize("name", sorted(BEFORE))
def test_resolved_recipe_is_what_it_was(name: str) -> None:
    present = name.replace("crosclr", "crossclr")
    same = digest(load_recipe(present).to_plain()) == BEFORE[name]
    assert same != corrected(present)


def test_every_name_is_still_there_and_former_spellings_are_said() -> None:
    assert {name.replace("crosclr", "crossclr") for name in BEFORE} <= set(list_recipes())
    with pytest.warns(FutureWarning, match="'small-crosclr-b' is called 'small-crossclr-b' now"):
        assert load_recipe("recipes/small-crosclr-b.toml").name == "small-crossclr-b"
    settings = ["halp.guide=cross", "halp.pull=balanced", "halp.reduction=anchors", "optimiser.accumulate=2"]
    with pytest.warns(FutureWarning) as notices:
        recipe = load_recipe("small-halp-cmd", [*settings, "saving.every=3", "saving.steps=7", "saving.watch=2"])
    assert (recipe.halp.prototype_source, recipe.halp.negatives) == ("cross_stream", True)
    assert (recipe.halp.average_over, recipe.optimiser.encode_chunks) == ("anchors", 2)
    assert (recipe.saving.checkpoint_epochs, recipe.saving.checkpoint_steps, recipe.saving.log_every) == (3, 7, 2)
    assert len(notices) == 7
    with pytest.warns(FutureWarning, match="'mining' is called 'crossclr' now"):
        assert load_recipe("small-crossclr-b", ["mining.top=2"]).crossclr.top == 2


def test_a_recipe_of_ones_own_extends_an_entry_of_a_table(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "ntu120-halp"\nname = "mine"\n\n[halp]\ncount = 7\n')
    recipe = load_recipe(file)
    assert (recipe.halp.count, recipe.halp.prototypes, recipe.halp.weight) == (7, 40, 2.0)
