"""Scales: the same sweep as a test of the machinery (tiny), on a CPU (quick, small), or as published (paper)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from halp.config import parse_value
from halp.encoders import EncoderSettings
from halp.errors import InputError, choose
from halp.recipe_list import list_recipes
from halp.reproduce.tables import TableColumn, TableRow
from halp.training.recipe import Recipe, load_recipe

# training clips of the published splits, for plans made before anybody has the data
PUBLISHED_SIZES = {
    ("ntu60", "xsub"): 40_091,
    ("ntu60", "xview"): 37_646,
    ("ntu120", "xsub"): 63_026,
    ("ntu120", "xset"): 54_468,
    ("pku2", "xsub"): 5_332,
}


@dataclass(frozen=True)
class Scale:
    """Which recipe a data set gets, how settings of the paper are carried over, and how long evaluation takes.

    `ratios` multiply swept numbers of the paper (whole numbers stay whole, at least `least`); everything else is taken as
    it is.
    """

    name: str
    recipes: Mapping[str, str]  # data set → recipe with the term; "" for any other
    settings: tuple[str, ...] = ()
    ratios: Mapping[str, float] = field(default_factory=dict)
    others: tuple[str, ...] = ()  # settings of other systems' recipes, each where the recipe has it
    others_epochs: float = 1.0  # share of their epochs, milestones and start epochs
    protocols: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings of protocols
    draws: int = 5  # of labels, in semi-supervised evaluation
    clips: int = 0  # of a synthetic store that is made where no data is given

    def system_recipe(self, data: str, stem: str) -> str | None:
        """The name of another system's recipe on a data set; None where it has none at this scale."""
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
        overrides = [f"{key}={json.dumps(shortened(value, self.others_epochs))}" for key, value in timed(recipe.flat())]
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
        overrides += [f"{key}={json.dumps(self.carried(key, value))}" for key, value in row.settings_on(data).items()]
        if row.method != "halp":
            terms = [term for term in row.settings.get("terms", base.terms) if term != "halp"]
            overrides.append(f"terms={json.dumps(terms)}")
        return load_recipe(name, overrides)

    def protocol_settings(
        self, column: TableColumn, row: TableRow, chosen: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Settings of a column's protocol: the scale's, the column's, the system's own and what the user `chosen`."""
        given = chosen.get(column.protocol, {})
        system = row.protocols.get(column.protocol, {})
        settings = {**self.protocols.get(column.protocol, {}), **column.settings, **system, **given}
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
    """Whether a setting of a scale is about something that the recipe has: its encoder, which has to take it, or a term."""
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
    """A number of epochs, or several, cut to a share; a whole one stays whole, and none falls below 1 that was not.

    >>> shortened(300, 0.1), shortened([250], 0.01), shortened(0, 0.5), shortened(10.0, 0.5)
    (30, [2], 0, 5.0)
    """
    if isinstance(value, (list, tuple)):
        return [shortened(entry, share) for entry in value]
    return max(min(value, 1), round(value * share)) if isinstance(value, int) else value * share


PAPER = Scale("paper", {"ntu60": "ntu60-halp", "ntu120": "ntu120-halp", "pku2": "pku2-halp", "": "ntu60-halp"})


def _ratios(epochs: int, stgcn: int) -> dict[str, float]:
    """These epochs stand for the 450 of the paper, a queue of 512 for 16384: the largest number of keys is all of them."""
    in_epochs = ("epochs", "optimiser.milestones", "halp.start_epoch", "crossclr.start_epoch")
    return {
        **dict.fromkeys(in_epochs, epochs / 450),
        "halp.recent": 512 / 3072,
        "encoders.stgcn.output": stgcn / 256,
    }


SMALL = Scale(
    "small",
    {"": "cpu-halp"},
    ratios=_ratios(160, stgcn=128),
    protocols={"finetune": {"epochs": 40, "milestones": (25, 35)}},
    clips=1440,
)
QUICK = replace(
    SMALL,
    name="quick",
    settings=(
        *("epochs=60", "encoder.hidden=64", "optimiser.milestones=[48]", "halp.start_epoch=24"),
        *("saving.checkpoint_epochs=30", "saving.log_every=5", "encoder.output=32", "aimclr.mining_epoch=30"),
    ),
    ratios=_ratios(60, stgcn=64),
    protocols={"finetune": {"epochs": 20, "milestones": (12, 17)}},
    others_epochs=60 / 160,
    clips=720,
)
TINY = Scale(
    "tiny",
    {"": "cpu-halp"},
    settings=(
        *("epochs=9", "batch_size=16", "views.frames=8", "encoder.hidden=8", "encoder.layers=1"),
        *("contrast.queue=192", "contrast.dimension=16", "optimiser.milestones=[7]", "saving.checkpoint_epochs=9"),
        *("saving.log_every=3", "halp.start_epoch=4", "halp.prototypes=4", "halp.recent=16"),
        *("encoder.output=16", "encoder.stages=1", "aimclr.mining_epoch=5"),
    ),
    ratios={**_ratios(9, stgcn=16), "halp.prototypes": 4 / 20, "halp.recent": 16 / 256},
    protocols={
        # after a few epochs of SGD every encoder would score alike; the exact solver tells runs apart
        "linear": {"solver": "exact", "crops": 1},
        "semi": {"epochs": 4, "crops": 1, "hidden": 16},
        "finetune": {"epochs": 1},
    },
    others=(
        *(
            "batch_size=16",
            "views.frames=8",
            "encoder.frames=8",
            "encoder.patch=4",
            "encoder.hidden=16",
            "encoder.layers=1",
        ),
        *("encoder.output=16", "encoder.width=8", "encoder.heads=2", "contrast.queue=64", "contrast.dimension=16"),
        *("barlow.width=16", "saving.checkpoint_epochs=9", "saving.log_every=3"),
    ),
    others_epochs=0.01,
    draws=2,
    clips=192,
)
# Ten classes of NTU-60 in tens of core-minutes per seed; a queue of 2048 is to 6,667 clips what 16384 is to 40,091.
NTU10 = Scale(
    "ntu10",
    {"": "cpu-halp"},
    settings=(
        *("epochs=16", "encoder.hidden=64", "encoder.layers=1", "views.frames=16", "contrast.queue=2048"),
        *("optimiser.milestones=[13]", "halp.start_epoch=8", "saving.checkpoint_epochs=8", "saving.log_every=8"),
        "aimclr.mining_epoch=8",
    ),
    ratios={"halp.start_epoch": 16 / 450},
    protocols={name: {"solver": "exact", "crops": 0, "penalty": 0.0} for name in ("linear", "semi")},
    draws=3,
    clips=720,
)
SCALES = {scale.name: scale for scale in (TINY, QUICK, SMALL, NTU10, PAPER)}


def get_scale(name: str) -> Scale:
    """A scale by name."""
    return SCALES[choose("scale", name, SCALES)]
