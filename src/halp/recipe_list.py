"""The recipes that come with halp at a glance: names and first facts, read without torch so that listing them is quick."""

from __future__ import annotations

import importlib.resources
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RecipeSummary:
    """What a list of recipes shows."""

    description: str
    epochs: int | None
    terms: tuple[str, ...]


def list_recipes() -> dict[str, Path]:
    """The recipes that come with halp, by name."""
    packaged = Path(str(importlib.resources.files("halp"))) / "recipes"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[2] / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def summarise_recipes() -> dict[str, RecipeSummary]:
    """Description, epochs and terms of every recipe; what one extends is looked up in the same folder."""
    files = {name: _read(path) for name, path in list_recipes().items()}
    found = {}
    for name, data in files.items():
        merged, layer = dict(data), data
        for _ in files:  # a chain is at most as long as there are recipes
            layer = files.get(str(layer.get("extends", "")).removesuffix(".toml"), {})
            merged = {**layer, **merged}
        terms = merged.get("terms") or [merged.get("method", "")]
        found[name] = RecipeSummary(str(merged.get("description", "")), merged.get("epochs"), tuple(map(str, terms)))
    return found


def _read(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.loads(text)
    import tomlkit

    return tomlkit.parse(text).unwrap()
