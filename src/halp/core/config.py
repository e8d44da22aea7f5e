"""Settings from text: the one checker of configuration for recipes, protocols, readers and plugins.

A component's settings are a frozen dataclass. `build_settings` makes one from nested plain values, names what
is unknown with the nearest spelling, and checks types. A field says what it may be by `limited`; what fields
may be together is checked by the dataclass itself in `__post_init__`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from halp.core.errors import InputError, check_choice

SETTINGS = TypeVar("SETTINGS")
SPELLINGS = {"optimizer": "optimiser", "normalize": "normalise", "normalization": "normalisation"}
_KINDS = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}


@dataclasses.dataclass(frozen=True)
class Limits:
    """The range of a setting: a number within bounds, or one of several names."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    among: Iterable[str] = ()

    def check(self, name: str, value: Any) -> None:
        """Raise if a value, or an entry of a list, is out of range; None is not checked."""
        for entry in value if isinstance(value, (list, tuple)) else [] if value is None else [value]:
            if self.among:
                check_choice(name, entry, self.among)
            elif not (self.least <= entry <= self.most and self.above < entry < self.below):
                raise InputError(f"{name} = {value} {self._words()}")

    def _words(self) -> str:
        low, high = max(self.least, self.above), min(self.most, self.below)
        if high < math.inf:
            start = f"above {low:,.10g}" if self.above == low else f"from {low:,.10g}"
            end = "and below" if self.below == high else "and at most" if self.above == low else "to"
            return f"must be {start} {end} {high:,.10g}"
        if self.above == low:
            return f"must be above {low:g}"
        return f"must be at least {low:g}" if low else "cannot be negative"


def limited(default: Any, **limits: Any) -> Any:
    """A field of settings with its default and range (`least`, `above`, `most`, `below` or `among`).

    >>> @dataclasses.dataclass(frozen=True)
    ... class Mask(CheckedSettings):
    ...     share: float = limited(0.5, above=0, most=1)
    >>> Mask(2.0)
    Traceback (most recent call last):
    ...
    halp.core.errors.InputError: share = 2.0 must be above 0 and at most 1
    """
    return dataclasses.field(default=default, metadata={"limits": Limits(**limits)})


def check_limits(kind: type[Any], values: Mapping[str, Any], prefix: str = "") -> None:
    """Raise if a field of a dataclass is outside its limits."""
    for field in dataclasses.fields(kind):
        if "limits" in field.metadata and field.name in values:
            field.metadata["limits"].check(f"{prefix}{field.name}", values[field.name])


class CheckedSettings:
    """Settings whose ranges are declared by `limited` and checked on construction."""

    def __post_init__(self) -> None:
        check_limits(type(self), vars(self))


def build_settings(kind: type[SETTINGS], data: Any, prefix: str = "", more: Iterable[str] = ()) -> SETTINGS:
    """Build a settings dataclass from plain values; messages put `prefix` before every name.

    `more` are further dotted names that a wrong key may have been meant for.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Tiny:
    ...     width: int = 32
    >>> build_settings(Tiny, {"width": 16})
    Tiny(width=16)
    >>> build_settings(Tiny, {"widht": 16}, "encoder.")
    Traceback (most recent call last):
    ...
    halp.core.errors.InputError: unknown setting 'encoder.widht': did you mean 'encoder.width'? Known here:
    encoder.width.
    """
    data = {
        british_spelling(key, field_types(kind)): value
        for key, value in section(data, prefix.rstrip(".")).items()
    }
    hints = field_types(kind)
    for key in data:
        if key not in hints:
            raise unknown_setting(key, hints, prefix, more)
    values = {key: checked_value(hints[key], value, f"{prefix}{key}") for key, value in data.items()}
    check_limits(kind, values, prefix)
    return kind(**values)


def field_types(kind: type[Any]) -> dict[str, Any]:
    """The types of a dataclass's fields by name."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def british_spelling(key: str, known: Iterable[str]) -> str:
    """The key in British spelling if its American spelling was given."""
    return SPELLINGS.get(key, key) if key not in known else key


def unknown_setting(key: str, known: Iterable[str], prefix: str = "", more: Iterable[str] = ()) -> InputError:
    """The error for an unknown key, with the nearest known spelling."""
    every = [f"{prefix}{name}" for name in known]
    near = difflib.get_close_matches(f"{prefix}{key}", [*every, *more], n=1)
    # what people write for a name of several words, as `lr` for `learning_rate`
    words = {name: name.rpartition(".")[2].split("_") for name in every}
    initials = [
        name for name in every if len(words[name]) > 1 and key == "".join(word[:1] for word in words[name])
    ]
    hint = f"did you mean '{(initials or near)[0]}'? " if initials or near else ""
    return InputError(f"unknown setting '{prefix}{key}': {hint}Known here: {', '.join(every) or 'none'}.")


def checked_value(hint: Any, value: Any, key: str) -> Any:
    """Convert a plain value to the type of a setting; whole numbers are valid floats, lists valid tuples."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else build_settings(hint, value, f"{key}.")
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        if value is None:
            return None
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
        return checked_value(hint, value, key)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, (list, tuple)):
            raise InputError(f"{key} = {value!r} must be a list")
        return tuple(checked_value(typing.get_args(hint)[0], entry, key) for entry in value)
    if hint is Any or typing.get_origin(hint) is not None:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise InputError(f"{key} = {value!r} must be {_KINDS.get(hint, hint)}")
    return value


def section(value: Any, key: str) -> Mapping[str, Any]:
    """The value as a section of settings."""
    if not isinstance(value, Mapping):
        raise InputError(f"'{key}' is a section and needs settings of its own, not {value!r}")
    return value


def parse_assignment(text: str, example: str) -> tuple[str, Any]:
    """Key and value of `key=value`.

    >>> parse_assignment("halp.hardness=0.5", "")
    ('halp.hardness', 0.5)
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set takes key=value, for example {example}, not '{text}'")
    return key.strip(), parse_value(value)


def parse_value(text: str) -> Any:
    """A number, truth value, list or table as TOML writes it; a bare word is a text.

    >>> parse_value("[1, 2]"), parse_value("mlp"), parse_value("true")
    ([1, 2], 'mlp', True)
    """
    # Loaded here: listing formats and recipes has no use for TOML.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(f"x = {text}").unwrap()["x"]
    except (TOMLKitError, ValueError):
        return text.strip()


def plain(value: Any) -> Any:
    """Settings as nested dictionaries, lists and scalars, the way files hold them."""
    if hasattr(value, "to_plain"):
        return value.to_plain()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, (tuple, list)) else value


def flatten(data: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Every setting by its dotted name."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
