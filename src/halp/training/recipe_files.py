"""Recipe files: found by name, inheriting from one another by `extends`, changed by `key=value`, brought up to date.

A recipe is built in layers: the file that it extends, the file itself, every override in turn. A layer that chooses another
component (method, terms, encoder, optimiser) takes away what earlier layers had set for the one before.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from halp.augment import PaperSettings
from halp.config import SPELLINGS, field_types, parse_assignment
from halp.encoders import ENCODERS
from halp.errors import InputError, choose
from halp.methods import METHODS, TERMS
from halp.recipe_list import list_recipes
from halp.training.optimisers import drop_foreign


def find_recipe(source: str | Path, beside: Path | None = None) -> Path:
    """The file of a recipe: a path, the name of one that comes with halp, or one in the same folder as another."""
    path = Path(source)
    if path.exists():
        return path
    if beside is not None and (neighbour := beside / f"{path.name.removesuffix('.toml')}.toml").exists():
        return neighbour
    known = list_recipes()
    if path.suffix == ".toml" or "/" in str(source):
        raise InputError(f"there is no recipe file '{source}'; recipes that come with halp: {', '.join(known)}")
    return known[choose("recipe", str(source), known)]


def read_layers(source: str | Path, overrides: Iterable[str] = ()) -> tuple[dict[str, Any], Path]:
    """The settings of a recipe file with all that it extends and the overrides, and the path of the file."""
    path = find_recipe(source)
    data = _read_extended(path, ())
    for text in overrides:
        key, value = parse_assignment(text, "halp.hardness=0.5")
        *sections, last = (SPELLINGS.get(part, part) for part in key.split("."))
        layer: Any = {last: value}
        for name in reversed(sections):
            layer = {name: layer}
        data = merge_layer(data, layer, f"--set {text}")
    return data, path


def _read_extended(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    own = _read(path)
    base = own.pop("extends", None)
    if base is None:
        return own
    if not isinstance(base, str):
        raise InputError(f"recipe '{path}': extends = {base!r} has to be the name of a recipe")
    parent = find_recipe(base, path.parent)
    if parent.resolve() in (*seen, path.resolve()):
        raise InputError(f"recipe '{path}' extends itself by way of '{parent.stem}'")
    return merge_layer(_read_extended(parent, (*seen, path.resolve())), own, f"recipe '{path}'")


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
    """Take away what belongs to components that the layer replaces."""
    if isinstance(layer.get("terms"), list):
        for term in [name for name in data if name in TERMS and name not in layer["terms"]]:
            del data[term]
    method = layer.get("method", data.get("method", "moco"))
    if "method" in layer and isinstance(method, str) and method != data.get("method", "moco") and method in METHODS:
        old = METHODS[data.get("method", "moco")]
        for name in [old.facts["section"], "terms", *(term for term in TERMS)]:
            data.pop(name, None)
    encoder = layer.get("encoder")
    before = data.get("encoder")
    if isinstance(encoder, Mapping) and isinstance(before, Mapping):
        name = before.get("name", "gru")
        data["encoder"] = before if encoder.get("name", name) == name else {}
    optimiser, before = layer.get("optimiser"), data.get("optimiser")
    if isinstance(optimiser, Mapping) and isinstance(before, Mapping) and {"name", "schedule"} & optimiser.keys():
        name, schedule = ({**before, **optimiser}.get(key, "") for key in ("name", "schedule"))
        data["optimiser"] = drop_foreign(before, str(name or "sgd"), str(schedule or "steps"))
    views, before = layer.get("views"), data.get("views")
    if isinstance(views, Mapping) and isinstance(before, Mapping) and "augmentations" in views:
        data["views"] = {key: value for key, value in before.items() if key not in field_types(PaperSettings)}


def migrate(data: dict[str, Any]) -> dict[str, Any]:
    """A recipe that halp 0.1 wrote into a run folder, as the present version reads it.

    It held the sections of all terms, and every encoder had the settings of the GRU.
    """
    if "method" in data:
        return data
    data = dict(data)
    terms = data.get("terms", ["infonce", "halp"])
    for name in ("halp", "cmd", "mining"):
        if name not in terms:
            data.pop(name, None)
    sections = [data.get("encoder"), *data.get("encoders", {}).values()]
    for encoder in [entry for entry in sections if isinstance(entry, dict) and entry.get("name") == "stgcn"]:
        encoder |= {"output": encoder.pop("hidden", 1024), "stages": encoder.pop("layers", 3)}
        for key in [key for key in encoder if key not in ("name", *field_types(ENCODERS["stgcn"].settings))]:
            del encoder[key]
    return data
