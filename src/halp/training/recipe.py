"""The recipe: all settings of a run as one TOML file, checked key by key before anything starts."""

from __future__ import annotations

import dataclasses
import difflib
import importlib.resources
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from halp.encoders import EncoderSettings, encoder_of, list_encoders
from halp.errors import InputError, choose
from halp.methods import TERMS, CmdSettings, ContrastSettings, HalpSettings, MiningSettings, check_terms
from halp.views import ViewSettings


@dataclass(frozen=True)
class OptimiserSettings:
    """SGD with a step schedule. The defaults are those of the paper for NTU."""

    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    milestones: tuple[int, ...] = (350,)  # the learning rate is multiplied by gamma at each of these epochs
    gamma: float = 0.1
    accumulate: int = 1  # pieces a batch is encoded in, to save memory; the gradient is that of the whole batch

    def __post_init__(self) -> None:
        if self.learning_rate <= 0 or self.weight_decay < 0 or not 0 <= self.momentum < 1:
            raise InputError(
                f"optimiser: learning_rate = {self.learning_rate} has to be above 0, weight_decay = {self.weight_decay} "
                f"not negative and momentum = {self.momentum} in [0, 1)"
            )
        if self.accumulate < 1:
            raise InputError(f"optimiser: accumulate = {self.accumulate} pieces of a batch: at least 1")

    def rate(self, epoch: int) -> float:
        """Learning rate in an epoch.

        >>> OptimiserSettings().rate(349), OptimiserSettings().rate(350)
        (0.01, 0.001)
        """
        return self.learning_rate * self.gamma ** sum(epoch >= milestone for milestone in self.milestones)


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
    """All settings of a run."""

    name: str = "unnamed"
    description: str = ""
    streams: tuple[str, ...] = ("joint",)
    terms: tuple[str, ...] = ("infonce", "halp")
    split: str = "xsub"  # whose training part is learned from; "all" takes every clip
    seed: int = 0
    epochs: int = 450
    batch_size: int = 64
    views: ViewSettings = field(default_factory=ViewSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    encoders: dict[str, EncoderSettings] = field(default_factory=dict)  # by label, for streams like joint@stgcn
    contrast: ContrastSettings = field(default_factory=ContrastSettings)
    halp: HalpSettings = field(default_factory=HalpSettings)
    cmd: CmdSettings = field(default_factory=CmdSettings)
    mining: MiningSettings = field(default_factory=MiningSettings)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    saving: SavingSettings = field(default_factory=SavingSettings)

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 2:
            raise InputError(f"epochs = {self.epochs} has to be at least 1, batch_size = {self.batch_size} at least 2")
        for kind, chosen in (("stream", self.streams), ("term", self.terms)):
            if not chosen or len(set(chosen)) != len(chosen):
                raise InputError(f"{kind}s = {list(chosen)}: name at least one, each once")
        for settings in (self.encoder, *self.encoders.values()):
            choose("encoder", settings.name, list_encoders())
        for stream in self.streams:
            encoder_of(stream, self.encoder, self.encoders)
        check_terms(self.terms, self.sections, self.streams, self.contrast.queue)

    @property
    def sections(self) -> dict[str, Any]:
        """Settings of the loss terms by name, for those that have any."""
        return {name: getattr(self, name) for name, kind in TERMS.items() if kind.settings is not None}

    def flat(self) -> dict[str, Any]:
        """Every setting by its dotted name."""
        return dict(_flatten(dataclasses.asdict(self)))

    def to_toml(self) -> str:
        """The recipe as a file, with every default spelled out."""
        return tomlkit.dumps(_plain(dataclasses.asdict(self)))


def list_recipes() -> dict[str, Path]:
    """The recipes that come with halp, by name."""
    packaged = Path(str(importlib.resources.files("halp"))) / "recipes"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[3] / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_recipe(source: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe by file name or by the name of one that comes with halp, then apply `key=value` overrides."""
    known = list_recipes()
    path = Path(source)
    if not path.exists():
        if path.suffix == ".toml" or "/" in str(source):
            raise InputError(f"there is no recipe file '{source}'; recipes that come with halp: {', '.join(known)}")
        path = known[choose("recipe", str(source), known)]
    try:
        data = tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"recipe '{path}' cannot be read ({error})") from error
    except TOMLKitError as error:
        raise InputError(f"recipe '{path}' is no valid TOML: {error}") from error
    for override in overrides:
        _override(data, override)
    return recipe_from_dict(data, str(path))


def recipe_from_dict(data: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """A checked recipe from nested settings; unknown keys and wrong types are named."""
    try:
        return _build(Recipe, data, "")
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _override(data: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set takes key=value, for example halp.hardness=0.5, not '{text}'")
    try:
        parsed = tomlkit.parse(f"x = {value}").unwrap()["x"]
    except TOMLKitError:
        parsed = value.strip()
    *sections, last = key.strip().split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise InputError(f"--set {text}: '{section}' is no section of a recipe")
    data[last] = parsed


def _build(kind: Any, data: Any, prefix: str) -> Any:
    if not isinstance(data, Mapping):
        raise InputError(f"'{prefix.rstrip('.')}' is a section and needs settings of its own, not {data!r}")
    hints = typing.get_type_hints(kind)
    unknown = [key for key in data if key not in hints]
    if unknown:
        every = [f"{prefix}{name}" for name in hints]
        near = difflib.get_close_matches(f"{prefix}{unknown[0]}", every + list(Recipe().flat()), n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise InputError(f"unknown setting '{prefix}{unknown[0]}': {hint}Known here: {', '.join(every)}.")
    return kind(**{key: _value(hints[key], value, f"{prefix}{key}") for key, value in data.items()})


def _value(hint: Any, value: Any, key: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, f"{key}.")
    if typing.get_origin(hint) is dict:
        if not isinstance(value, Mapping):
            raise InputError(f"'{key}' holds sections, for example [{key}.stgcn], not {value!r}")
        item = typing.get_args(hint)[1]
        # a labelled encoder is called like its label unless it says otherwise
        return {
            name: _value(item, {"name": name, **_section(entry, f"{key}.{name}")}, f"{key}.{name}")
            for name, entry in value.items()
        }
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, (list, tuple)):
            raise InputError(f"{key} = {value!r} has to be a list")
        item = typing.get_args(hint)[0]
        return tuple(_value(item, entry, key) for entry in value)
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        names = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}
        raise InputError(f"{key} = {value!r} has to be {names.get(hint, hint)}")
    return value


def _section(value: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"'{key}' is a section and needs settings of its own, not {value!r}")
    return value


def _flatten(data: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value
