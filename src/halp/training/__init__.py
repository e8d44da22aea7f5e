"""Training: recipes, the loop, checkpoints and the run folder."""

from halp.core.recipe_list import list_recipes
from halp.training.convert import convert
from halp.training.loop import pretrain
from halp.training.recipe import Recipe, load_recipe
from halp.training.run import Run, open_run

__all__ = ["Recipe", "Run", "convert", "list_recipes", "load_recipe", "open_run", "pretrain"]
