"""Readers: one file per format, each turning pose files into clips; `halp prepare` finds them by name in a registry.

A reader is split so that many processes can share the work: `items` lists cheaply what there is (names only), `read`
turns one item into clips. A new format is one module in this folder that ends with `register_reader(MyReader())`.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from halp.clips.clip import Clip, Dropped
from halp.clips.splits import Rule
from halp.errors import InputError, choose
from halp.registry import NoSettings, load_installed_plugins
from halp.skeleton import Topology

__all__ = [
    "Clip",
    "Dropped",
    "Info",
    "Item",
    "Option",
    "Reader",
    "get_reader",
    "list_readers",
    "reader_options",
    "register_reader",
    "sniff_reader",
    "with_options",
]


@dataclass(frozen=True)
class Item:
    """One unit of work: what one call of `read` opens. Small and picklable; `key` is the reader's own (a row, a range…)."""

    path: Path
    key: Any = None

    def __str__(self) -> str:
        return str(self.path) if self.key is None else f"{self.path} [{self.key}]"


@dataclass(frozen=True)
class Info:
    """What holds for a whole source. `persons` is the most that a clip has, `normalisation` what the format asks for.

    `applied` names the steps that the source has been through already; a store records both, `prepare` applies the second.
    `shared` says whether several processes may read items at once; False for a single file that has to be in memory whole.
    """

    topology: Topology
    persons: int = 1
    class_names: tuple[str, ...] = ()
    splits: tuple[Rule, ...] = ()
    normalisation: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    shared: bool = True
    origin: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Reader(Protocol):
    """What a format has to offer. Readers hold no open files and no data, so that they can be pickled to other processes."""

    name: str
    description: str

    def sniff(self, path: Path) -> bool:
        """Whether `path` looks like this format: by names and first bytes only, never raises for a readable path."""
        ...

    def info(self, path: Path) -> Info:
        """Topology, persons, classes, splits and default normalisation of the source."""
        ...

    def items(self, path: Path) -> Iterable[Item]:
        """The work, in a fixed order. An empty source raises `InputError`."""
        ...

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        """The clips of one item. Raises `InputError` (file, line or key, what, remedy) where the whole item is unusable."""
        ...


_READERS: dict[str, Reader] = {}
_BUILDERS: dict[str, tuple[type[Any], Callable[[Any], Any]]] = {}  # of readers that were registered with settings


def register_reader(reader: Any, settings: type[Any] | None = None) -> Any:
    """Make a reader known by its name; a later one of the same name takes its place.

    Either a reader itself, or its name and the dataclass of its settings as a decorator over `build(settings) → reader`;
    `halp prepare … --option key=value` changes the settings.
    """
    if not isinstance(reader, str):
        _READERS[reader.name] = reader
        return reader
    name = reader
    kind = NoSettings if settings is None else settings

    def add(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        _BUILDERS[name] = (kind, build)
        _READERS[name] = _build(name, kind())
        return build

    return add


def _build(name: str, settings: Any) -> Reader:
    made = _BUILDERS[name][1](settings)
    made.name, made.settings = name, settings
    return made


def _load_all() -> None:
    """Import every module of this folder and every installed plugin once; each registers its reader."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    load_installed_plugins()


def list_readers() -> dict[str, str]:
    """Names of all formats with their descriptions."""
    _load_all()
    return {name: _READERS[name].description for name in sorted(_READERS)}


def get_reader(name: str) -> Reader:
    """The reader of that format."""
    _load_all()
    return _READERS[choose("format", name, _READERS)]


Option = int | float | str
# Options that several readers have, what they have to be, and in words.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "persons": (lambda value: 1 <= value <= 20, "a whole number from 1 to 20"),
    "min_score": (lambda value: value >= 0, "0 or more"),
    "aspect": (lambda value: value > 0, "width / height of the picture, above 0"),
    "scale": (lambda value: value > 0, "above 0"),
    "fps": (lambda value: 0 <= value <= 1000, "frames per second up to 1000, 0 for those of the recording"),
}


def reader_options(reader: Reader) -> dict[str, Option]:
    """Settings of a reader that may be changed, such as `min_score`, with their values."""
    if reader.name in _BUILDERS:
        return {str(name): value for name, value in dataclasses.asdict(reader.settings).items()}  # type: ignore[attr-defined]
    if not dataclasses.is_dataclass(reader) or isinstance(reader, type):
        return {}
    values = {field.name: getattr(reader, field.name) for field in dataclasses.fields(reader)}
    fixed = ("name", "description")
    return {name: value for name, value in values.items() if type(value) in (int, float, str) and name not in fixed}


def with_options(reader: Reader, options: Mapping[str, Option]) -> Reader:
    """The reader with some of its settings changed; a setting it does not have, or a value it cannot have, is named."""
    known = reader_options(reader)
    changed: dict[str, Option] = {}
    for name, value in options.items():
        if not known:
            raise InputError(f"format '{reader.name}' has no options; leave out {name}={value}")
        choose(f"option of format '{reader.name}'", name, known)
        changed[name] = _option(reader.name, name, value, type(known[name]))
    if changed and reader.name in _BUILDERS:
        return _build(reader.name, dataclasses.replace(reader.settings, **changed))  # type: ignore[attr-defined]
    return dataclasses.replace(reader, **changed) if changed else reader  # type: ignore[type-var]


def _option(format: str, name: str, value: Option, kind: type) -> Option:
    """A value of an option as its kind, checked."""
    what = f"option {name} of format '{format}'"
    if kind is str:
        return str(value)
    try:
        number = float(value)
    except ValueError:
        raise InputError(f"{what} is a number, not '{value}'") from None
    if kind is int and not number.is_integer():
        raise InputError(f"{what} is a whole number, not {value}")
    allowed, words = _RULES.get(name, (lambda value: True, "a finite number"))
    if not math.isfinite(number) or not allowed(number):
        raise InputError(f"{what} cannot be {value}; it is {words}")
    return int(number) if kind is int else number


def sniff_reader(path: Path) -> Reader:
    """The one reader that recognises `path`; an error lists the candidates, or what was found instead of pose files."""
    from halp.clips.readers.unknown import describe_unknown

    _load_all()
    if not path.exists():
        raise InputError(f"there is nothing at '{path}'; check the path of the source")
    found = [reader for _, reader in sorted(_READERS.items()) if reader.sniff(path)]
    if len(found) == 1:
        return found[0]
    if found:
        names = " or ".join(reader.name for reader in found)
        raise InputError(
            f"'{path}' could be of several formats; name one of them in place of auto ({names}), or prepare the files of "
            "each format from a folder of its own"
        )
    raise InputError(describe_unknown(path))
