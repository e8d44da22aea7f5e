"""Public signatures hide no builtin."""

from __future__ import annotations

import builtins
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import halp
import halp.tasks

PUBLIC = ["halp", "halp.extend", "halp.hallucinate", "halp.sphere", "halp.losses"]
PUBLIC += [f"halp.tasks.{module.name}" for module in pkgutil.iter_modules(halp.tasks.__path__)]
# keys of saved files and of --json
KEYS = {"Result.format", "Repetition.range", "Reading.format", "ReadingKeywords.format"}


def callables(module: Any) -> Iterator[tuple[str, Any]]:
    for name in getattr(module, "__all__", None) or [
        name for name in vars(module) if not name.startswith("_")
    ]:
        exported = getattr(module, name)
        if not str(getattr(exported, "__module__", "")).startswith("halp."):
            continue
        yield name, exported
        if inspect.isclass(exported):
            own = [member for member in vars(exported) if not member.startswith("_")]
            yield from ((f"{name}.{member}", getattr(exported, member)) for member in own)


@pytest.mark.parametrize("module", PUBLIC)
def test_no_public_signature_hides_a_builtin(module: str) -> None:
    hidden = {
        f"{name}.{parameter}"
        for name, exported in callables(importlib.import_module(module))
        if callable(exported) and not (inspect.isclass(exported) and issubclass(exported, (Exception, dict)))
        for parameter in inspect.signature(exported).parameters
        if hasattr(builtins, parameter)
    }
    assert hidden <= KEYS
