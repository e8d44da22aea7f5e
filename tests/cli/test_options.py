"""No command accepts an option that it does not have; the commands are taken from the registered ones."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from halp.cli import main
from halp.cli.app import CommandGroup, app
from halp.cli.verbs import Verb


def commands() -> dict[str, Any]:
    """All commands by name, `classify fit` included."""
    every: dict[str, Any] = {}
    for name, entry in app.commands.items():
        inner = entry.commands.items() if isinstance(entry, CommandGroup) else ()
        every |= {f"{name} {other}": function for other, function in inner} or {name: entry}
    return every


def required(name: str) -> list[str]:
    """A word for each argument that a command requires."""
    entry = commands()[name]
    given = inspect.signature(entry.command() if isinstance(entry, Verb) else entry).parameters.values()
    needed = [one for one in given if one.default is one.empty]
    return [
        word
        for one in sorted(needed, key=lambda one: one.kind)
        for word in ([f"--{one.name}", "1"] if one.kind is one.KEYWORD_ONLY else ["1"])
    ]


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_refuses_an_option_that_it_does_not_have(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*name.split(), *required(name), "--nonsense", "1"])
    assert stopped.value.code == 2
    assert "--nonsense" in capsys.readouterr().err
