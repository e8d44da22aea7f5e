"""Plugins: components in somebody else's package or file. They are loaded because the user says so, never because a file does.

Installed packages announce themselves by an entry point of the group `halp.plugins`; a module or file is named with
`--plugin` or `load_plugin`. A run records which plugins its components came from, and opening it without them says so.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from halp.errors import InputError
from halp.registry import Entry, as_plugin


def load_plugin(source: str) -> ModuleType:
    """Import a plugin by module name or by the path of a Python file; what it registers is then known by name."""
    path = Path(source)
    if path.suffix == ".py":
        return _load_file(path)
    with as_plugin(source):
        try:
            return importlib.import_module(source)
        except ModuleNotFoundError as error:
            if error.name is not None and source.startswith(error.name):
                raise InputError(
                    f"--plugin {source}: there is no module '{source}'; give the name of an installed module or the path of "
                    "a .py file"
                ) from None
            raise InputError(
                f"--plugin {source}: it needs the module '{error.name}', which is not installed"
            ) from error


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


def plugins_of(entries: Iterable[Entry]) -> dict[str, list[str]]:
    """The plugins that components come from, each with their names, for the record of a run."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        if entry.plugin is not None:
            found.setdefault(entry.plugin, []).append(entry.name)
    return {plugin: sorted(set(names)) for plugin, names in sorted(found.items())}


def require_plugins(needed: Mapping[str, Any], registries: Iterable[Any], what: str) -> None:
    """Refuse to open something whose components nobody has registered, in one sentence."""
    known = {name for registry in registries for name in registry}
    for plugin, names in needed.items():
        missing = [name for name in names if name not in known]
        if missing:
            option = plugin if plugin.endswith(".py") else f"{plugin} (or install it)"
            raise InputError(
                f"{what} needs {', '.join(repr(name) for name in missing)} of plugin '{plugin}', which is not loaded; "
                f"add --plugin {option}"
            )
