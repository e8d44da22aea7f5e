"""The recipe: all settings of a run as one TOML file, checked key by key before anything starts.

The sections of a recipe belong to the components that it chooses: a method, its loss terms, an encoder. They
are looked up in the registries, so that components of a plugin have sections like ours. A key that the chosen
component does not have, or that nothing would read, is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit

from halp.augment import AUGMENTATIONS, ViewSettings, build_views
from halp.core.config import (
    CheckedSettings,
    british_spelling,
    build_settings,
    checked_value,
    field_types,
    flatten,
    limited,
    plain,
    section,
    unknown_setting,
)
from halp.core.dropout import DRAWS
from halp.core.errors import InputError, check_choice
from halp.core.recipe_list import list_recipes
from halp.core.registry import Component
from halp.encoders import ENCODERS, EncoderSettings, encoder_of
from halp.methods import METHODS, TERMS
from halp.methods.base import MethodComponent
from halp.methods.term import term_views
from halp.training.optimisers import OptimiserSettings
from halp.training.recipe_files import read_layers


@dataclass(frozen=True)
class SavingSettings(CheckedSettings):
    """What a run writes and how often."""

    checkpoint_epochs: int = limited(10, least=1)  # between two checkpoints
    # between two further checkpoints inside long epochs; 0 for none
    checkpoint_steps: int = limited(0, least=0)
    keep: int = limited(2, least=1)  # newest checkpoints that stay
    log_every: int = limited(10, least=1)  # steps between two lines of metrics


@dataclass(frozen=True)
class Recipe:
    """All settings of a run. `sections` of the method and its terms can be read as attributes."""

    name: str = "unnamed"
    description: str = ""
    method: str = "moco"
    streams: tuple[str, ...] = ("joint",)
    terms: tuple[str, ...] = ()  # those that the method has by default, if none is named
    split: str = "xsub"  # whose training part is learned from; "all" takes every clip
    seed: int = 0
    epochs: int = 450
    batch_size: int = 64
    normalisation: tuple[str, ...] = ()  # steps that the store should have been prepared with; none: any
    dropout_draws: str = "rows"  # batch: as earlier versions drew masks
    # views of larger batches are drawn in blocks of this many clips, by each rank its own; 0: whole batches
    draw_block: int = 512
    fit_queue: bool = False  # a queue with more room than there are clips is cut to their number
    views: ViewSettings = field(default_factory=ViewSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    # by label, for streams like joint@stgcn
    encoders: dict[str, EncoderSettings] = field(default_factory=dict)
    sections: dict[str, Any] = field(default_factory=dict)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    saving: SavingSettings = field(default_factory=SavingSettings)

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"epochs = {self.epochs} must be at least 1")
        if self.batch_size < 2:
            raise InputError(f"batch_size = {self.batch_size} must be at least 2")
        if self.draw_block < 0:
            raise InputError(f"draw_block = {self.draw_block} must not be negative; 0 draws whole batches")
        check_choice("dropout_draws", self.dropout_draws, DRAWS)
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
                raise InputError(f"section [{name}] would be ignored: no chosen method or term has this name")
        object.__setattr__(
            self, "sections", {name: self.sections.get(name, kind()) for name, kind in kinds.items()}
        )
        views = {**method.build.views, **term_views(self.term_settings)}
        for view in self.views.named:
            if view not in views:
                raise unknown_setting(view, views, "views.")
        method.build.check(self.method_settings, self)

    def _checked_terms(self, method: MethodComponent) -> tuple[str, ...]:
        default = method.build.default_terms
        if default is None:
            if self.terms:
                raise InputError(
                    f"terms = {list(self.terms)}: method '{self.method}' is not composed of terms; leave"
                    " them out"
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
        return self.sections[METHODS[self.method].section]

    @property
    def term_settings(self) -> dict[str, Any]:
        """The settings of the loss terms by name, in order."""
        return {term: self.sections[term] for term in self.terms}

    def encoder_of(self, stream: str) -> EncoderSettings:
        """The encoder of a representation."""
        return encoder_of(stream, self.encoder, self.encoders)

    def components(self) -> list[Component]:
        """Every registered component that the recipe uses."""
        policies = [self.views.policy, *self.views.named.values()]
        chosen = [METHODS[self.method], *(TERMS[term] for term in self.terms)]
        chosen += [ENCODERS[self.encoder_of(stream).name] for stream in self.streams]
        return chosen + [AUGMENTATIONS[step.name] for policy in policies for step in policy]

    def fitted_to(self, clips: int) -> Recipe:
        """The recipe adapted to this many clips: `fit_queue` limits the keys in the queue, and HaLP's
        prototypes.
        """
        queue = getattr(self.method_settings, "queue", 0)
        if not self.fit_queue or queue <= clips:
            return self
        sections = {
            **self.sections,
            METHODS[self.method].section: dataclasses.replace(self.method_settings, queue=clips),
        }
        if "halp" in sections and sections["halp"].source == "queue":
            halp = sections["halp"]
            few = max(2, min(halp.prototypes, clips // 4))
            sections["halp"] = dataclasses.replace(halp, recent=min(halp.recent, clips), prototypes=few)
        return dataclasses.replace(self, sections=sections)

    def flat(self) -> dict[str, Any]:
        """Every setting by its dotted name."""
        return dict(flatten(self.to_plain()))

    def to_plain(self) -> dict[str, Any]:
        """The recipe as nested plain values, with every default spelled out."""
        settings_by_name = {
            entry.name: plain(getattr(self, entry.name))
            for entry in dataclasses.fields(self)
            if entry.name != "sections"
        }
        if not self.terms:
            del settings_by_name["terms"]
        return settings_by_name | {
            name: plain(settings) for name, settings in self.sections.items() if field_types(type(settings))
        }

    def to_toml(self) -> str:
        """The recipe as a file, with every default spelled out."""
        return tomlkit.dumps(self.to_plain())


def sections_of(method: MethodComponent, terms: Iterable[str]) -> dict[str, type[Any]]:
    """The sections that a method and its terms have, with the dataclass of each."""
    return {method.section: method.settings} | {term: TERMS[term].settings for term in terms}


def load_recipe(source: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe, then apply overrides.

    Parameters
    ----------
    source : str or path
        A TOML file, or the name of a recipe that comes with halp (see `list_recipes`).
    overrides : iterable of str
        Settings as `key=value`.

    Returns
    -------
    Recipe
        Checked; unknown keys and wrong types are an `InputError` that names them.

    Examples
    --------
    >>> load_recipe("small", ["epochs=3", "halp.hardness=0.6"]).epochs
    3
    """
    return recipe_from_dict(*read_layers(source, overrides))


def recipe_from_dict(data: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """A checked recipe from nested settings; unknown keys and wrong types are named."""
    try:
        return _build(data)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _build(data: Mapping[str, Any]) -> Recipe:
    hints = {key: hint for key, hint in field_types(Recipe).items() if key != "sections"}
    data = {british_spelling(key, hints): value for key, value in data.items()}
    fields: dict[str, Any] = {
        key: _SECTIONS[key](value) if key in _SECTIONS else checked_value(hints[key], value, key)
        for key, value in data.items()
        if key in hints
    }
    method = METHODS[fields.get("method", "moco")]
    if "terms" in fields and not fields["terms"]:
        raise InputError("terms = []: name at least one, each once")
    terms = fields.get("terms", method.build.default_terms or ())
    kinds = sections_of(method, [term for term in terms if term in TERMS])
    fields["sections"] = {
        name: build_settings(kind, data[name], f"{name}.") for name, kind in kinds.items() if name in data
    }
    known = {*hints, *kinds}
    for key in data:
        if key not in known:
            raise _unknown(key, known, method.name, terms)
    return Recipe(**fields)


def _encoder(data: Any, key: str = "encoder") -> EncoderSettings:
    given = dict(section(data, key))
    name = given.pop("name", "gru")
    if not isinstance(name, str):
        raise InputError(f"{key}.name = {name!r} must be a text in quotes")
    return EncoderSettings(name, f"{key}.", **{str(entry): value for entry, value in given.items()})


def _encoders(data: Any) -> dict[str, EncoderSettings]:
    """Encoders by label; each is called like its label unless it says otherwise."""
    if not isinstance(data, Mapping):
        raise InputError(f"'encoders' holds sections, for example [encoders.stgcn], not {data!r}")
    named = {label: {"name": label, **section(entry, f"encoders.{label}")} for label, entry in data.items()}
    return {label: _encoder(entry, f"encoders.{label}") for label, entry in named.items()}


_SECTIONS: dict[str, Callable[[Any], Any]] = {  # what is more than a dataclass of settings
    "views": build_views,
    "encoder": _encoder,
    "encoders": _encoders,
    "optimiser": lambda data: OptimiserSettings(**section(data, "optimiser")),
}


def _unknown(key: str, known: Iterable[str], method: str, terms: Iterable[str]) -> InputError:
    if key in TERMS:
        return InputError(
            f"section [{key}] would be ignored: '{key}' is not among terms = {list(terms)}; leave it out or"
            " add it"
        )
    if key in {METHODS[name].section for name in METHODS}:
        return InputError(
            f"section [{key}] would be ignored by method '{method}'; leave it out or choose another method"
        )
    return unknown_setting(key, sorted(known), more=Recipe().flat())


__all__ = ["Recipe", "SavingSettings", "list_recipes", "load_recipe", "recipe_from_dict"]
