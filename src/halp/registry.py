"""Registries: components by name, each with the settings that belong to it. The way in for guests is `halp.extend`."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from typing import Any, Generic, TypeVar

from halp.errors import choose
from halp.progress import console

BUILD = TypeVar("BUILD", bound=Callable[..., Any])

# the plugin whose code is being loaded; what registers meanwhile belongs to it
loading_plugin: contextvars.ContextVar[str | None] = contextvars.ContextVar("loading_plugin", default=None)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A component: the dataclass of its settings, what builds it, further facts, and the plugin it came with."""

    name: str
    settings: type[Any]
    build: Callable[..., Any]
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    plugin: str | None = None


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """A component without settings."""


class Registry(Generic[BUILD]):
    """Components of one kind by name; a name that is not known yet is looked for in the installed plugins once."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry] = {}

    def register(self, name: str, settings: type[Any] | None = None, **facts: Any) -> Callable[[BUILD], BUILD]:
        """Decorator that makes a component known by name; `settings` is a frozen dataclass whose defaults hold."""
        settings = NoSettings if settings is None else settings
        if not dataclasses.is_dataclass(settings):
            raise TypeError(f"the settings of {self.kind} '{name}' have to be a dataclass")

        def add(build: BUILD) -> BUILD:
            # a plugin may be the first to import our own modules, which register while it is loaded
            own = build.__module__.partition(".")[0] == "halp"
            self._entries[name] = Entry(name, settings, build, facts, None if own else loading_plugin.get())
            return build

        return add

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            load_installed_plugins()
        return self._entries[choose(self.kind, name, self._entries)]

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            load_installed_plugins()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        load_installed_plugins()
        return iter(sorted(self._entries))

    def remove(self, name: str) -> None:
        """Forget a component."""
        self._entries.pop(name, None)


@contextmanager
def as_plugin(name: str) -> Iterator[None]:
    """What registers inside belongs to the plugin of that name."""
    token = loading_plugin.set(name)
    try:
        yield
    finally:
        loading_plugin.reset(token)


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
                console.print(f"[yellow]warning:[/] plugin '{point.name}' cannot be loaded ({error}); it is left out")
