"""Recipes that come along are a base for recipes of one's own."""

from __future__ import annotations

from pathlib import Path

from halp.training import load_recipe


def test_a_recipe_of_ones_own_extends_an_entry_of_a_table(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "ntu120-halp"\nname = "mine"\n\n[halp]\ncount = 7\n')
    recipe = load_recipe(file)
    assert (recipe.halp.count, recipe.halp.prototypes, recipe.halp.weight) == (7, 40, 2.0)
