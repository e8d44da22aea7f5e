"""Recipe files: found by name, inheriting by `extends`, changed by `key=value`.

A recipe is built in layers: the file that it extends, the file itself, every override in turn. A layer that
chooses another component (method, terms, encoder, optimiser) takes away what earlier layers had set for the
one before.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from halp.augment import PaperSettings
from halp.core.config import SPELLINGS, field_types, parse_assignment
from halp.core.errors import InputError, check_choice
from halp.core.recipe_list import list_recipes
from halp.methods import METHODS
from halp.training.optimisers import drop_foreign


def find_recipe(source: str | Path, beside: Path | None = None) -> tuple[str, Path | None, dict[str, Any]]:
    """A recipe by path, by the name of one that comes with halp, or beside another one.

    What to call it, its folder where it is a file, and what it has on top of the recipe that it extends.
    """
    path = Path(source)
    name = path.name.removesuffix(".toml")
    for file in (path, *([] if beside is None else [beside / f"{name}.toml"])):
        if file.exists():
            return str(file), file.parent, _read(file)
    known = list_recipes()
    if path.parent.name in ("", "recipes") and name in known:
        return name, None, copy.deepcopy(known[name])
    if path.suffix != ".toml" and "/" not in str(source):
        check_choice("recipe", str(source), known)
    raise InputError(f"there is no recipe file '{source}'; recipes that come with halp: {', '.join(known)}")


def read_layers(source: str | Path, overrides: Iterable[str] = ()) -> tuple[dict[str, Any], str]:
    """The settings of a recipe with all that it extends and overrides, and its name in messages."""
    name, folder, layer = find_recipe(source)
    data = _extended(name, folder, layer, ())
    for text in overrides:
        key, value = parse_assignment(text, "halp.hardness=0.5")
        *sections, last = (SPELLINGS.get(part, part) for part in key.split("."))
        layer = {last: value}
        for section in reversed(sections):
            layer = {section: layer}
        data = merge_layer(data, layer, f"--set {text}")
    return data, name


def _extended(name: str, folder: Path | None, layer: dict[str, Any], seen: tuple[str, ...]) -> dict[str, Any]:
    """A layer with all that it extends below it."""
    base = layer.pop("extends", None)
    if base is None:
        return layer
    if not isinstance(base, str):
        raise InputError(f"recipe '{name}': extends = {base!r} must be the name of a recipe")
    parent, home, below = find_recipe(base, folder)
    if parent in (*seen, name):
        raise InputError(f"recipe '{name}' extends itself through '{Path(parent).stem}'")
    return merge_layer(_extended(parent, home, below, (*seen, name)), layer, f"recipe '{name}'")


def _read(path: Path) -> dict[str, Any]:
    try:
        data = tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"recipe '{path}' cannot be read ({error})") from error
    except TOMLKitError as error:
        raise InputError(f"recipe '{path}' is not valid TOML: {error}") from error
    return {SPELLINGS.get(key, key): value for key, value in data.items()}


def merge_layer(base: Mapping[str, Any], layer: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings of `base` with those of `layer` on top."""
    merged = copy.deepcopy(dict(base))
    _drop_unchosen(merged, layer)
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = _merge_section(merged[key], value)
        elif isinstance(value, Mapping) and merged.get(key) is not None and key not in ("seed", "epochs"):
            raise InputError(f"{where}: '{key}' is not a section of a recipe")
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def _merge_section(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for key, value in layer.items():
        nested = isinstance(value, Mapping) and isinstance(both.get(key), Mapping)
        both[key] = _merge_section(both[key], value) if nested else copy.deepcopy(value)
    return both


def _drop_unchosen(data: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Remove settings of components that the layer replaces."""
    old = METHODS[data.get("method", "moco")]
    terms = data.get("terms") or old.build.default_terms or ()
    if isinstance(layer.get("terms"), list):
        for term in terms:
            if term not in layer["terms"]:
                data.pop(term, None)
    method = layer.get("method", old.name)
    if isinstance(method, str) and method != old.name and method in METHODS:
        for name in [old.section, "terms", *terms]:
            data.pop(name, None)
    encoder = layer.get("encoder")
    before = data.get("encoder")
    if isinstance(encoder, Mapping) and isinstance(before, Mapping):
        name = before.get("name", "gru")
        data["encoder"] = before if encoder.get("name", name) == name else {}
    optimiser, before = layer.get("optimiser"), data.get("optimiser")
    if (
        isinstance(optimiser, Mapping)
        and isinstance(before, Mapping)
        and {"name", "schedule"} & optimiser.keys()
    ):
        name, schedule = ({**before, **optimiser}.get(key, "") for key in ("name", "schedule"))
        data["optimiser"] = drop_foreign(before, str(name or "sgd"), str(schedule or "steps"))
    views, before = layer.get("views"), data.get("views")
    if isinstance(views, Mapping) and isinstance(before, Mapping) and "augmentations" in views:
        data["views"] = {key: value for key, value in before.items() if key not in field_types(PaperSettings)}
