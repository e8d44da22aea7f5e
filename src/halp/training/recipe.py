"""The recipe: all settings of a run as one TOML file, checked key by key before anything starts.

The sections of a recipe belong to the components that it chooses: a method, its loss terms, an encoder. They are looked up
in the registries, so that components of a plugin have sections like ours. A key that the chosen component does not have, or
that nothing would read, is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit

from halp.augment import AUGMENTATIONS, ViewSettings, build_views
from halp.config import build_settings, checked_value, field_types, flatten, plain, respell, section, unknown_setting
from halp.encoders import ENCODERS, EncoderSettings, encoder_of
from halp.errors import InputError
from halp.methods import METHODS, TERMS
from halp.methods.term import term_views
from halp.recipe_list import list_recipes
from halp.registry import Entry
from halp.training.optimisers import OptimiserSettings
from halp.training.recipe_files import migrate, read_layers


@dataclass(frozen=True)
class SavingSettings:
    """What a run writes and how often."""

    every: int = 10  # epochs between two checkpoints
    steps: int = 0  # steps between two further checkpoints inside long epochs; 0 for none
    keep: int = 2  # newest checkpoints that stay
    watch: int = 10  # steps between two lines of metrics

    def __post_init__(self) -> None:
        if min(self.every, self.keep, self.watch) < 1:
            raise InputError("saving: every, keep and watch have to be at least 1")
        if self.steps < 0:
            raise InputError(f"saving: steps = {self.steps} cannot be negative; 0 saves at the end of epochs only")


@dataclass(frozen=True)
class Recipe:
    """All settings of a run. `sections` are those of the method and of its terms, and can be read as attributes."""

    name: str = "unnamed"
    description: str = ""
    method: str = "moco"
    streams: tuple[str, ...] = ("joint",)
    terms: tuple[str, ...] = ()  # those that the method has by default, where none is named
    split: str = "xsub"  # whose training part is learned from; "all" takes every clip
    seed: int = 0
    epochs: int = 450
    batch_size: int = 64
    views: ViewSettings = field(default_factory=ViewSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    encoders: dict[str, EncoderSettings] = field(default_factory=dict)  # by label, for streams like joint@stgcn
    sections: dict[str, Any] = field(default_factory=dict)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    saving: SavingSettings = field(default_factory=SavingSettings)

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"epochs = {self.epochs} has to be at least 1")
        if self.batch_size < 2:
            raise InputError(f"batch_size = {self.batch_size} has to be at least 2")
        method = METHODS[self.method]
        terms = self._checked_terms(method)
        object.__setattr__(self, "terms", terms)
        for kind, chosen in (("stream", self.streams), ("term", terms)):
            if len(set(chosen)) != len(chosen) or (kind == "stream" and not chosen):
                raise InputError(f"{kind}s = {list(chosen)}: name at least one, each once")
        for stream in self.streams:
            self.encoder_of(stream)
        kinds = sections_of(method, terms)
        for name in self.sections:
            if name not in kinds:
                raise InputError(f"section [{name}] would be ignored: neither the method nor its terms are called so")
        object.__setattr__(self, "sections", {name: self.sections.get(name, kind()) for name, kind in kinds.items()})
        views = {**method.facts["views"], **term_views(self.term_settings)}
        for view in self.views.named:
            if view not in views:
                raise unknown_setting(view, views, "views.")
        if method.facts["check"] is not None:
            method.facts["check"](self.method_settings, self)

    def _checked_terms(self, method: Entry) -> tuple[str, ...]:
        default = method.facts["default_terms"]
        if default is None:
            if self.terms:
                raise InputError(
                    f"terms = {list(self.terms)}: method '{self.method}' is not composed of terms; leave them out"
                )
            return ()
        terms = self.terms or tuple(default)
        for term in terms:
            TERMS[term]
        return terms

    def __getattr__(self, name: str) -> Any:
        sections = self.__dict__.get("sections", {})
        if name in sections:
            return sections[name]
        raise AttributeError(f"recipe '{self.__dict__.get('name')}' has no setting or section '{name}'")

    @property
    def method_settings(self) -> Any:
        """The settings of the method."""
        return self.sections[METHODS[self.method].facts["section"]]

    @property
    def term_settings(self) -> dict[str, Any]:
        """The settings of the loss terms by name, in order."""
        return {term: self.sections[term] for term in self.terms}

    def encoder_of(self, stream: str) -> EncoderSettings:
        """The encoder of a representation."""
        return encoder_of(stream, self.encoder, self.encoders)

    def components(self) -> list[Entry]:
        """Every registered component that the recipe uses."""
        policies = [self.views.policy, *self.views.named.values()]
        chosen = [METHODS[self.method], *(TERMS[term] for term in self.terms)]
        chosen += [ENCODERS[self.encoder_of(stream).name] for stream in self.streams]
        return chosen + [AUGMENTATIONS[step.name] for policy in policies for step in policy]

    def flat(self) -> dict[str, Any]:
        """Every setting by its dotted name."""
        return dict(flatten(self.to_plain()))

    def to_plain(self) -> dict[str, Any]:
        """The recipe as nested plain values, with every default spelled out."""
        own = {
            entry.name: plain(getattr(self, entry.name))
            for entry in dataclasses.fields(self)
            if entry.name != "sections"
        }
        if not self.terms:
            del own["terms"]
        return own | {name: plain(settings) for name, settings in self.sections.items() if field_types(type(settings))}

    def to_toml(self) -> str:
        """The recipe as a file, with every default spelled out."""
        return tomlkit.dumps(self.to_plain())


def sections_of(method: Entry, terms: Iterable[str]) -> dict[str, type[Any]]:
    """The sections that a method and its terms have, with the dataclass of each."""
    return {method.facts["section"]: method.settings} | {term: TERMS[term].settings for term in terms}


def load_recipe(source: str | Path, overrides: Iterable[str] = (), *, saved: bool = False) -> Recipe:
    """Read a recipe by file name or by the name of one that comes with halp, then apply `key=value` overrides.

    `saved` recipes are those of run folders, which older versions of halp may have written.
    """
    data, path = read_layers(source, overrides)
    return recipe_from_dict(migrate(data) if saved else data, str(path))


def recipe_from_dict(data: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """A checked recipe from nested settings; unknown keys and wrong types are named."""
    try:
        return _build(data)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _build(data: Mapping[str, Any]) -> Recipe:
    hints = field_types(Recipe)
    data = {respell(key, hints): value for key, value in data.items()}
    made: dict[str, Any] = {}
    simple = {"name", "description", "method", "streams", "terms", "split", "seed", "epochs", "batch_size"}
    for key in simple & data.keys():
        made[key] = checked_value(hints[key], data[key], key)
    method = METHODS[made.get("method", "moco")]
    if "terms" in made and not made["terms"]:
        raise InputError("terms = []: name at least one, each once")
    terms = made.get("terms", method.facts["default_terms"] or ())
    kinds = sections_of(method, [term for term in terms if term in TERMS])
    made["sections"] = {
        name: build_settings(kind, data[name], f"{name}.") for name, kind in kinds.items() if name in data
    }
    if "views" in data:
        made["views"] = build_views(data["views"])
    if "encoder" in data:
        made["encoder"] = _encoder(data["encoder"], "encoder")
    if "encoders" in data:
        if not isinstance(data["encoders"], Mapping):
            raise InputError(f"'encoders' holds sections, for example [encoders.stgcn], not {data['encoders']!r}")
        # a labelled encoder is called like its label unless it says otherwise
        made["encoders"] = {
            label: _encoder({"name": label, **section(entry, f"encoders.{label}")}, f"encoders.{label}")
            for label, entry in data["encoders"].items()
        }
    if "optimiser" in data:
        made["optimiser"] = OptimiserSettings(**section(data["optimiser"], "optimiser"))
    if "saving" in data:
        made["saving"] = build_settings(SavingSettings, data["saving"], "saving.")
    known = (set(hints) - {"sections"}) | set(kinds)
    for key in data:
        if key not in known:
            raise _unknown(key, known, method.name, terms)
    return Recipe(**made)


def _encoder(data: Any, key: str) -> EncoderSettings:
    given = dict(section(data, key))
    name = given.pop("name", "gru")
    if not isinstance(name, str):
        raise InputError(f"{key}.name = {name!r} has to be a text in quotes")
    return EncoderSettings(name, f"{key}.", **{str(entry): value for entry, value in given.items()})


def _unknown(key: str, known: Iterable[str], method: str, terms: Iterable[str]) -> InputError:
    if key in TERMS:
        return InputError(
            f"section [{key}] would be ignored: '{key}' is not among terms = {list(terms)}; leave it out or add it"
        )
    if key in {METHODS[name].facts["section"] for name in METHODS}:
        return InputError(
            f"section [{key}] would be ignored by method '{method}'; leave it out or choose another method"
        )
    return unknown_setting(key, sorted(known), more=Recipe().flat())


__all__ = ["Recipe", "SavingSettings", "list_recipes", "load_recipe", "recipe_from_dict"]
