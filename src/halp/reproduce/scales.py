"""Scales, from `scales.toml`: a test of the machinery (tiny), a CPU (quick, small), or as published."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halp.core.config import field_types, parse_value
from halp.core.errors import InputError, check_choice
from halp.core.files import read_toml
from halp.core.recipe_list import list_recipes
from halp.encoders import EncoderSettings
from halp.evaluation.protocol import get_protocol
from halp.reproduce.tables import TableColumn, TableRow
from halp.training.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class Scale:
    """The recipe of each data set, the translation of the paper's settings, and how long to evaluate.

    `ratios` multiply swept numbers of the paper (whole numbers stay whole, at least 1); everything else is
    taken as it is.
    """

    name: str
    # by data set; "" for any other
    recipes: Mapping[str, str] = field(default_factory=lambda: {"": "cpu-halp"})
    settings: Sequence[str] = ()
    ratios: Mapping[str, float] = field(default_factory=dict)
    others: Sequence[str] = ()  # settings of other systems' recipes, each where the recipe has it
    others_epochs: float = 1.0  # share of their epochs, milestones and start epochs
    protocols: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings of protocols
    draws: int = 5  # of labels, in semi-supervised evaluation
    clips: int = 0  # of a synthetic store that is made if no data is given

    def system_recipe(self, data: str, stem: str) -> str | None:
        """The name of another system's recipe on a data set; None if it has none at this scale."""
        prefixes = (data, "ntu60") if self.recipes[""].startswith("ntu60") else ("cpu", "small")
        known = list_recipes()
        return next((name for prefix in prefixes if (name := f"{prefix}-{stem}") in known), None)

    def runs(self, data: str, row: TableRow) -> bool:
        """Whether a row can be trained at this scale."""
        return row.method != "recipe" or self.system_recipe(data, row.recipe) is not None

    def _system(self, data: str, row: TableRow, extra: Sequence[str]) -> Recipe:
        name = self.system_recipe(data, row.recipe)
        if name is None:
            raise InputError(f"row '{row.name}' has no recipe for scale '{self.name}' and data '{data}'")
        recipe = load_recipe(name)
        overrides = [
            f"{key}={json.dumps(shortened(value, self.others_epochs))}" for key, value in timed(recipe.flat())
        ]
        overrides += [text for text in self.others if _concerns(text, recipe)]
        settings = [f"{key}={json.dumps(value)}" for key, value in row.settings_on(data).items()]
        return load_recipe(name, [*overrides, *settings, *extra])

    def recipe(self, data: str, split: str, seed: int, row: TableRow, extra: Sequence[str] = ()) -> Recipe:
        """The recipe of a row; the baseline is the same without the term."""
        if row.method == "recipe":
            return self._system(data, row, [*extra, f'split="{split}"', f"seed={seed}"])
        name = self.recipes.get(data, self.recipes[""]).removesuffix("halp") + row.recipe
        base = load_recipe(name)
        overrides = [text for text in self.settings if _concerns(text, base)]
        overrides += [*extra, f'split="{split}"', f"seed={seed}"]
        overrides += [
            f"{key}={json.dumps(self.carried(key, value))}" for key, value in row.settings_on(data).items()
        ]
        if row.method != "halp":
            terms = [term for term in row.settings.get("terms", base.terms) if term != "halp"]
            overrides.append(f"terms={json.dumps(terms)}")
        return load_recipe(name, overrides)

    def protocol_settings(
        self, column: TableColumn, row: TableRow, chosen: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Settings of a cell's protocol: the scale's, the column's, the system's, the user's (`chosen`)."""
        protocol = row.protocol_of(column)
        given, system = chosen.get(protocol, {}), row.protocols.get(protocol, {})
        of_column = dict(column.settings)
        if protocol != column.protocol:
            known = field_types(get_protocol(protocol).settings)
            of_column = {key: value for key, value in of_column.items() if key in known}
        settings = {**self.protocols.get(protocol, {}), **of_column, **system, **given}
        if settings.get("head") == "mlp" and "solver" in settings and "solver" not in given:
            del settings["solver"]  # the exact solver of a small scale is for a linear head
        return settings

    def carried(self, key: str, value: Any) -> Any:
        """A setting of the paper at this scale."""
        if key not in self.ratios or isinstance(value, (str, bool)):
            return value
        if isinstance(value, list):
            return [self.carried(key, entry) for entry in value]
        scaled = value * self.ratios[key]
        return max(2 if key == "halp.prototypes" else 1, round(scaled)) if isinstance(value, int) else scaled


def _concerns(text: str, recipe: Recipe) -> bool:
    """Whether a recipe has the encoder or term that a setting of a scale belongs to."""
    section, dot, name = text.partition("=")[0].partition(".")
    if not dot:
        return True
    if section != "encoder":
        return hasattr(recipe, section)
    try:
        EncoderSettings(**{**recipe.encoder.to_plain(), name: parse_value(text.partition("=")[2])})
    except InputError:
        return False
    return True


def timed(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Those of a recipe's settings that count epochs."""
    words = ("epochs", "milestones", "warmup", "epoch")
    return [(key, value) for key, value in settings.items() if re.split(r"[._]", key)[-1] in words]


def shortened(value: Any, share: float) -> Any:
    """Epochs cut to a share; integers stay integers, and none that was at least 1 falls below.

    >>> shortened(300, 0.1), shortened([250], 0.01), shortened(0, 0.5), shortened(10.0, 0.5)
    (30, [2], 0, 5.0)
    """
    if isinstance(value, (list, tuple)):
        return [shortened(entry, share) for entry in value]
    return max(min(value, 1), round(value * share)) if isinstance(value, int) else value * share


_DATA = read_toml(Path(__file__).with_name("scales.toml"))
PUBLISHED_SIZES = {
    (data, split): size for data, splits in _DATA["sizes"].items() for split, size in splits.items()
}
SCALES = {
    name: Scale(
        name,
        **{**entry, "ratios": {key: ours / paper for key, (ours, paper) in entry.get("ratios", {}).items()}},
    )
    for name, entry in _DATA["scales"].items()
}


def get_scale(name: str) -> Scale:
    """A scale by name."""
    return SCALES[check_choice("scale", name, SCALES)]
