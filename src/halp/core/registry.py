"""Registries: components by name, each with its settings. Plugins use `halp.extend`.

Core components register when their package is imported. A name that is not among them is looked for in
`halp.zoo`, the published systems beside the core, and in installed plugins, both of which are loaded then.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from halp.core.errors import InputError, check_choice

# the plugin whose code is being loaded; what registers meanwhile belongs to it
loading_plugin: contextvars.ContextVar[str | None] = contextvars.ContextVar("loading_plugin", default=None)


@dataclasses.dataclass(frozen=True)
class Component:
    """A component: the dataclass of its settings, its builder and its plugin; kinds add their own fields."""

    name: str
    settings: type[Any]
    build: Callable[..., Any]
    plugin: str | None = None


COMPONENT = TypeVar("COMPONENT", bound=Component)


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """A component without settings."""


class Registry(Generic[COMPONENT]):
    """Components of one kind by name; an unknown name makes the zoo and installed plugins load once."""

    def __init__(self, kind: str, entry: type[COMPONENT]) -> None:
        self.kind, self._entry = kind, entry
        self._entries: dict[str, COMPONENT] = {}

    def register(self, name: str, settings: type[Any] | None = None, **fields: Any) -> Callable[[Any], Any]:
        """Decorator that registers a component; `settings` is a frozen dataclass with defaults.

        `fields` are those that entries of this kind have beside.
        """
        settings = NoSettings if settings is None else settings
        if not dataclasses.is_dataclass(settings):
            raise TypeError(f"the settings of {self.kind} '{name}' must be a dataclass")

        def add(build: Any) -> Any:
            # a plugin may be the first to import our own modules, which register while it is loaded
            ours = build.__module__.partition(".")[0] == "halp"
            plugin = None if ours else loading_plugin.get()
            self._entries[name] = self._entry(
                name=name, settings=settings, build=build, plugin=plugin, **fields
            )
            return build

        return add

    def __getitem__(self, name: str) -> COMPONENT:
        if name not in self._entries:
            load_further_components()
        return self._entries[check_choice(self.kind, name, self._entries)]

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            load_further_components()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        load_further_components()
        return iter(sorted(self._entries))

    def remove(self, name: str) -> None:
        """Forget a component."""
        self._entries.pop(name, None)


@contextmanager
def as_plugin(name: str) -> Iterator[None]:
    """Components registered in this context belong to the plugin of that name."""
    token = loading_plugin.set(name)
    try:
        yield
    finally:
        loading_plugin.reset(token)


@functools.cache
def load_further_components() -> None:
    """Load the zoo, then installed plugins, once."""
    for module in pkgutil.iter_modules(importlib.import_module("halp.zoo").__path__):
        importlib.import_module(f"halp.zoo.{module.name}")
    load_installed_plugins()


@functools.cache
def load_installed_plugins() -> None:
    """Load the plugins that are installed as packages (entry points of the group `halp.plugins`), once.

    One that fails is named and left out.
    """
    for point in metadata.entry_points(group="halp.plugins"):
        with as_plugin(point.name):
            try:
                point.load()
            except Exception as error:
                warnings.warn(
                    f"plugin '{point.name}' cannot be loaded ({error}); it is left out", stacklevel=2
                )


def load_plugin(source: str) -> ModuleType:
    """Import a plugin by module name or by the path of a Python file, which registers its components."""
    path = Path(source)
    if path.suffix == ".py":
        return _load_file(path)
    with as_plugin(source):
        try:
            return importlib.import_module(source)
        except ModuleNotFoundError as error:
            if error.name is not None and source.startswith(error.name):
                raise InputError(
                    f"--plugin {source}: there is no module '{source}'; give the name of an installed module"
                    " or the path of a .py file"
                ) from None
            raise InputError(f"--plugin {source}: module '{error.name}' is not installed") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"--plugin {path}: there is no such file")
    # the name depends on the place, so that two files of one name do not shadow each other
    name = f"halp_plugin_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise InputError(f"--plugin {path}: it cannot be imported as a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    with as_plugin(path.name):
        try:
            specification.loader.exec_module(module)
        except InputError:
            del sys.modules[name]
            raise
        except Exception as error:
            del sys.modules[name]
            raise InputError(
                f"--plugin {path}: it fails when it is loaded ({type(error).__name__}: {error})"
            ) from error
    return module


def plugins_of(entries: Iterable[Component]) -> dict[str, list[str]]:
    """The plugins that provide these components, each with the names of its own, for the record of a run."""
    names_by_plugin: dict[str, list[str]] = {}
    for entry in entries:
        if entry.plugin is not None:
            names_by_plugin.setdefault(entry.plugin, []).append(entry.name)
    return {plugin: sorted(set(names)) for plugin, names in sorted(names_by_plugin.items())}


def require_plugins(needed: Mapping[str, Any], registries: Iterable[Any], what: str) -> None:
    """Raise one clear error if components of a run or package are not registered."""
    known = {name for registry in registries for name in registry}
    for plugin, names in needed.items():
        missing = [name for name in names if name not in known]
        if missing:
            option = plugin if plugin.endswith(".py") else f"{plugin} (or install it)"
            raise InputError(
                f"{what} needs {', '.join(repr(name) for name in missing)} of plugin '{plugin}', which is not"
                f" loaded; add --plugin {option}"
            )
