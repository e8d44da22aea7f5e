"""Summaries of the recipes that come with halp, read without torch so that listing them is quick.

Most stand in tables, one file per data set with an entry per method: `tables/ntu60.toml` has `[halp]`, which
is the recipe
`ntu60-halp`. In a table that is `like` another an entry is the other's with what stands there on top, so that
tables and a few exceptions make a product of data sets and methods. Recipes that fit in no table have a file
of their own.
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halp.core.files import read_toml


@dataclass(frozen=True)
class RecipeSummary:
    """A line of a list of recipes."""

    description: str
    epochs: int | None
    terms: tuple[str, ...]


@functools.cache
def list_recipes() -> dict[str, dict[str, Any]]:
    """The recipes that come with halp, by name.

    Returns
    -------
    dict of str to dict
        What each has on top of the one that it `extends`.

    Examples
    --------
    >>> list_recipes()["ntu60-halp"]["name"]
    'ntu60-halp'
    """
    packaged = Path(str(importlib.resources.files("halp"))) / "recipes"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[3] / "recipes"
    tables = {path.stem: read_toml(path) for path in sorted(folder.glob("tables/*.toml"))}
    known = {path.stem: read_toml(path) for path in folder.glob("*.toml")}
    for name, table in tables.items():
        like = tables.get(table.get("like", ""), {})
        for method, entry in table.items():
            if isinstance(entry, Mapping):
                known[f"{name}-{method}"] = _entry(f"{name}-{method}", entry, table, like, method)
    return dict(sorted(known.items()))


def _entry(
    name: str, entry: Mapping[str, Any], table: Mapping[str, Any], like: Mapping[str, Any], method: str
) -> dict[str, Any]:
    if method not in like:
        return {"name": name, **entry}
    description = str(like[method]["description"]).replace(like["title"], table["title"])
    return {"name": name, "extends": f"{table['like']}-{method}", "description": description, **entry}


def summarise_recipes() -> dict[str, RecipeSummary]:
    """Description, epochs and terms of every recipe."""
    recipes = list_recipes()
    summaries = {}
    for name, data in recipes.items():
        merged, layer = dict(data), data
        while layer := recipes.get(str(layer.get("extends", "")), {}):
            merged = {**layer, **merged}
        terms = merged.get("terms") or [merged.get("method", "")]
        summaries[name] = RecipeSummary(
            str(merged.get("description", "")), merged.get("epochs"), tuple(map(str, terms))
        )
    return summaries
