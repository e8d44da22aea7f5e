"""Recipe files: found by name, inheriting from one another by `extends`, changed by `key=value`, brought up to date.

A recipe is built in layers: the file that it extends, the file itself, every override in turn. A layer that chooses another
component (method, terms, encoder, optimiser) takes away what earlier layers had set for the one before.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from halp.augment import PaperSettings
from halp.core.config import SPELLINGS, field_types, parse_assignment
from halp.core.errors import InputError, check_choice
from halp.core.recipe_list import list_recipes
from halp.encoders import ENCODERS
from halp.methods import METHODS, TERMS
from halp.training.optimisers import drop_foreign


def find_recipe(source: str | Path, beside: Path | None = None) -> tuple[str, Path | None, dict[str, Any]]:
    """A recipe by path, by the name of one that comes with halp, or by that of one in the same folder as another.

    What to call it, its folder where it is a file, and what it has on top of the recipe that it extends.
    """
    path = Path(source)
    name = path.name.removesuffix(".toml")
    for file in (path, *([] if beside is None else [beside / f"{name}.toml"])):
        if file.exists():
            return str(file), file.parent, _read(file)
    known = list_recipes()
    if path.parent.name in ("", "recipes"):
        present = name.replace("crosclr", "crossclr")
        if present != name and present in known:
            warnings.warn(f"recipe '{name}' is called '{present}' now", FutureWarning, stacklevel=2)
            name = present
        if name in known:
            return name, None, copy.deepcopy(known[name])
    if path.suffix != ".toml" and "/" not in str(source):
        check_choice("recipe", str(source), known)
    raise InputError(f"there is no recipe file '{source}'; recipes that come with halp: {', '.join(known)}")


def read_layers(
    source: str | Path, overrides: Iterable[str] = (), *, saved: bool = False
) -> tuple[dict[str, Any], str]:
    """The settings of a recipe with all that it extends and the overrides, and what to call it in messages.

    Former names of settings are said in a warning, unless the recipe was `saved` by a run.
    """
    name, folder, layer = find_recipe(source)
    data = _extended(name, folder, layer, (), saved)
    for text in overrides:
        key, value = parse_assignment(text, "halp.hardness=0.5")
        *sections, last = (SPELLINGS.get(part, part) for part in key.split("."))
        layer = {last: value}
        for section in reversed(sections):
            layer = {section: layer}
        data = merge_layer(data, with_present_names(layer, f"--set {text}"), f"--set {text}")
    return data, name


def _extended(
    name: str, folder: Path | None, layer: dict[str, Any], seen: tuple[str, ...], saved: bool
) -> dict[str, Any]:
    """A layer with all that it extends below it."""
    layer = with_present_names(layer, "" if saved else f"recipe '{name}'")
    base = layer.pop("extends", None)
    if base is None:
        return layer
    if not isinstance(base, str):
        raise InputError(f"recipe '{name}': extends = {base!r} has to be the name of a recipe")
    parent, home, below = find_recipe(base, folder)
    if parent in (*seen, name):
        raise InputError(f"recipe '{name}' extends itself by way of '{Path(parent).stem}'")
    return merge_layer(_extended(parent, home, below, (*seen, name), saved), layer, f"recipe '{name}'")


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
    if isinstance(optimiser, Mapping) and isinstance(before, Mapping) and {"name", "schedule"} & optimiser.keys():
        name, schedule = ({**before, **optimiser}.get(key, "") for key in ("name", "schedule"))
        data["optimiser"] = drop_foreign(before, str(name or "sgd"), str(schedule or "steps"))
    views, before = layer.get("views"), data.get("views")
    if isinstance(views, Mapping) and isinstance(before, Mapping) and "augmentations" in views:
        data["views"] = {key: value for key, value in before.items() if key not in field_types(PaperSettings)}


#: former names of settings: the present one, and present values where those changed, too
RENAMED: dict[str, tuple[str, dict[Any, Any]]] = {
    "halp.guide": ("halp.prototype_source", {"own": "self", "cross": "cross_stream"}),
    "halp.pull": ("halp.negatives", {"paper": False, "balanced": True}),
    "halp.reduction": ("halp.average_over", {}),
    "optimiser.accumulate": ("optimiser.encode_chunks", {}),
    "saving.every": ("saving.checkpoint_epochs", {}),
    "saving.steps": ("saving.checkpoint_steps", {}),
    "saving.watch": ("saving.log_every", {}),
}
RENAMED_TERMS = {"mining": "crossclr", "cross": "isc"}


def with_present_names(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A layer of a recipe with former names of settings and terms replaced; a warning says which, but for `where` empty."""
    layer, notices = dict(data), []
    for former, (present, values) in RENAMED.items():
        (section, key), (_, new) = former.split("."), present.split(".")
        if isinstance(layer.get(section), Mapping) and key in layer[section]:
            entries = dict(layer[section])
            value = entries.pop(key)
            layer[section] = {**entries, new: values.get(value, value) if isinstance(value, str) else value}
            notices.append((former, present))
    for former, present in RENAMED_TERMS.items():
        named = isinstance(layer.get("terms"), list) and former in layer["terms"]
        if (named or isinstance(layer.get(former), Mapping)) and former not in TERMS:
            if named:
                layer["terms"] = [present if term == former else term for term in layer["terms"]]
            if former in layer:
                layer[present] = layer.pop(former)
            notices.append((former, present))
    for former, present in notices if where else []:
        warnings.warn(f"{where}: '{former}' is called '{present}' now", FutureWarning, stacklevel=2)
    return layer


def migrate(data: dict[str, Any]) -> dict[str, Any]:
    """A recipe that an earlier version wrote into a run folder, as the present version reads it: the run resumes as it began.

    Dropout masks were drawn for whole batches. Before that, a recipe held the sections of all terms, and every encoder had the
    settings of the GRU.
    """
    data = {"dropout_draws": "batch", **data}
    if "method" in data:
        return data
    terms = data.get("terms", ["infonce", "halp"])
    for name in ("halp", "cmd", "crossclr"):
        if name not in terms:
            data.pop(name, None)
    sections = [data.get("encoder"), *data.get("encoders", {}).values()]
    for encoder in [entry for entry in sections if isinstance(entry, dict) and entry.get("name") == "stgcn"]:
        encoder |= {"output": encoder.pop("hidden", 1024), "stages": encoder.pop("layers", 3)}
        for key in [key for key in encoder if key not in ("name", *field_types(ENCODERS["stgcn"].settings))]:
            del encoder[key]
    return data
