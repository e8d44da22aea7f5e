"""Every argument of every command reaches the library, and no command accepts an option that it does not have.

The commands are those that are registered, run through their real parser. For the first test the library
behind them is a recorder: an argument counts as passed on if another value changes what the library is asked
for, or what is shown.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import itertools
import os
import re
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from halp.cli import main
from halp.cli.app import CommandGroup, app, options_of
from halp.cli.options import From
from halp.cli.verbs import Verb

SHOWN = ("show", "note", "warn", "print_json", "print_table", "write_rows", "finish")
ABOUT_THE_INSTALLATION = ("demo", "doctor", "completion", "pose-model")
OPERATORS = "add radd sub rsub mul rmul truediv rtruediv floordiv mod or ror and rand"


@functools.cache
def commands() -> dict[str, Any]:
    """All commands by name, `classify fit` included."""
    every: dict[str, Any] = {}
    for name, entry in app.commands.items():
        inner = entry.commands.items() if isinstance(entry, CommandGroup) else ()
        every |= {f"{name} {other}": function for other, function in inner} or {name: entry}
    return every


@functools.cache
def parameters(name: str) -> dict[str, inspect.Parameter]:
    """Parameters of a command; a dataclass of options counts as its fields."""
    entry = commands()[name]
    function = entry.command() if isinstance(entry, Verb) else entry
    hints = typing.get_type_hints(function, include_extras=True)
    every: dict[str, inspect.Parameter] = {}
    for key, one in inspect.signature(function).parameters.items():
        if is_dataclass(one.default):
            inner = typing.get_type_hints(type(one.default))
            every |= {
                each.name: one.replace(
                    name=each.name, default=getattr(one.default, each.name), annotation=inner[each.name]
                )
                for each in fields(one.default)
                if "Suppress" not in str(each.type)
            }
        else:
            every[key] = one.replace(annotation=hints.get(key, one.annotation))
    return every


def value(hint: Any, default: Any, word: str) -> str:
    """A word for an argument of this type that is not its default."""
    inner = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    if typing.get_origin(hint) is typing.Literal:
        return next(str(choice) for choice in inner if choice != default)
    if inner:
        return value(inner[0], default, word)
    number = word if word.isdigit() else str(len(word))
    other = f"key={number}" if default == () else word
    return {int: number, float: f"0.{number}"}.get(hint, other)


def given(one: inspect.Parameter, word: str) -> list[str]:
    """An argument of a command line, with its flag if it is an option."""
    names = [getattr(each, "name", None) for each in getattr(one.annotation, "__metadata__", ())]
    flag = f"--{next(filter(None, names), one.name).rstrip('_').replace('_', '-')}"
    if bool in (one.annotation, getattr(one.annotation, "__origin__", None)):  # annotated once a command ran
        return [flag.replace("--", "--no-", 1) if one.default else flag]
    words = [value(one.annotation, one.default, word)]
    return [flag, *words] if one.kind is one.KEYWORD_ONLY else words


def line(name: str, more: tuple[str, ...], word: str, changed: str | None = None) -> list[str]:
    """A command line with what the command requires and some other arguments, one of them `changed`."""
    every = parameters(name).items()
    chosen = [(key, one) for key, one in every if one.default is one.empty or key in more]
    arguments = itertools.chain.from_iterable(
        given(one, f"other-{word}" if key == changed else word)
        for key, one in sorted(chosen, key=lambda pair: pair[1].kind)
    )
    return [*name.split(), *arguments]


def words(name: str) -> list[str]:
    """A word, a file, and words for which the command does something else, such as - for standard input."""
    entry = commands()[name]
    known = () if isinstance(entry, Verb) else entry.__code__.co_consts
    special = [each for each in known if isinstance(each, str) and re.fullmatch(r"-|[a-z]{3,9}", each)]
    return ["word", "word.npz", *sorted(set(special) - set(parameters(name)))]


class Anything:
    """A library that can be asked for anything: it records every call and answers with more of itself."""

    def __init__(self, calls: list[str], name: str) -> None:
        self._calls, self._name = calls, name

    def __call__(self, *values: Any, **named: Any) -> Anything:
        self._calls.append(f"{self._name}{rendered((values, named))}")
        return Anything(self._calls, f"{self._name}()")

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(self._calls, f"{self._name}.{name}")

    def __getitem__(self, key: Any) -> Anything:
        return Anything(self._calls, f"{self._name}[{rendered(key)}]")

    def __iter__(self) -> Iterator[Anything]:
        """As many items as the caller unpacks, none in a loop."""
        frame = sys._getframe(1)
        code, at = frame.f_code.co_code, frame.f_lasti
        count = code[at + 1] if dis.opname[code[at]] == "UNPACK_SEQUENCE" else 0
        return iter([Anything(self._calls, f"{self._name}[{place}]") for place in range(count)])

    def __enter__(self) -> Anything:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def __repr__(self) -> str:
        return self._name

    def __format__(self, _: str) -> str:
        return self._name

    __str__ = __fspath__ = __repr__


for operator in OPERATORS.split():
    setattr(Anything, f"__{operator}__", lambda self, _: self)
for comparison in ("lt", "gt", "le", "ge", "contains"):
    setattr(Anything, f"__{comparison}__", lambda self, _: False)
for number, kind in ("len", int), ("index", int), ("float", float):
    setattr(Anything, f"__{number}__", lambda self, kind=kind: kind(1))


def rendered(value: Any) -> str:
    """A value as text; of a function what it holds."""
    if isinstance(value, types.FunctionType):
        return f"<{value.__name__} {[rendered(cell.cell_contents) for cell in value.__closure__ or ()]}>"
    if isinstance(value, (tuple, list)):
        return str([rendered(item) for item in value])
    if isinstance(value, dict):
        return str({key: rendered(item) for key, item in value.items()})
    return re.sub(r" at 0x\w+|/tmp\w{8}\b", "", repr(value))  # neither addresses nor temporary folders


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the commands ask of the library and show, while every import of the library is replaced."""
    recorded: list[str] = []
    load, real = Verb.load, builtins.__import__

    def recorder(verb: Verb) -> Any:
        function = load(verb)
        return functools.wraps(function)(lambda *a, **k: Anything(recorded, function.__name__)(*a, **k))

    def imported(name: str, space: Any = None, local: Any = None, names: Any = (), level: int = 0) -> Any:
        asking = (space or {}).get("__name__", "")
        if asking.startswith("halp.cli") and name.startswith("halp.") and not name.startswith("halp.cli"):
            return Anything(recorded, name)
        return real(name, space, local, names, level)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Verb, "load", recorder)
    monkeypatch.setattr(os, "_exit", sys.exit)
    for module in [module for name, module in sys.modules.items() if name.startswith("halp.cli.")]:
        for name in SHOWN:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, Anything(recorded, name))
    monkeypatch.setattr(builtins, "__import__", imported)
    return recorded


def asked(arguments: list[str], calls: list[str]) -> list[str]:
    """What a command asks of the library; it may stop where the recorder cannot follow it."""
    calls.clear()
    try:
        app.run(arguments)
    except SystemExit as stopped:
        if stopped.code == 2:
            pytest.fail(f"refused: {' '.join(arguments)}")
    except Exception as error:
        calls.append(rendered(error))
    return list(calls)


def reach_together(name: str, calls: list[str]) -> set[str]:
    """Arguments whose values, each another number, the library is asked with when all are given at once."""
    marks = {key: str(7000 + place) for place, key in enumerate(parameters(name))}
    chosen = sorted(parameters(name).items(), key=lambda pair: pair[1].kind)
    arguments = itertools.chain.from_iterable(given(one, marks[key]) for key, one in chosen)
    try:
        said = " ".join(asked([*name.split(), *arguments], calls))
    except pytest.fail.Exception:  # some exclude each other
        return set()
    return {key for key, mark in marks.items() if mark in said}


def reaches(name: str, key: str, calls: list[str], known: dict[tuple[str, ...], list[str]]) -> bool:
    """Whether the library is asked for something else with another value of an argument (with a flag, if it
    is one): alone, or beside any one of the other arguments.
    """
    others = [other for other in parameters(name) if other != key]
    for more, word in itertools.product([(), *((other,) for other in others)], words(name)):
        lines = [tuple(line(name, (*more, key), word, changed)) for changed in (None, key)]
        if lines[0] == lines[1]:
            lines[0] = tuple(line(name, more, word))
        for one in lines:
            if one not in known:
                known[one] = asked(list(one), calls)
        if known[lines[0]] != known[lines[1]]:
            return True
    return False


@pytest.mark.parametrize("name", sorted(set(commands()) - set(ABOUT_THE_INSTALLATION)))
def test_every_argument_of_every_command_reaches_the_library(name: str, calls: list[str]) -> None:
    known: dict[tuple[str, ...], list[str]] = {}
    together = reach_together(name, calls)
    others = [key for key in parameters(name) if key not in together]
    assert [key for key in others if not reaches(name, key, calls, known)] == []


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_refuses_an_option_that_it_does_not_have(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*line(name, (), "word"), "--nonsense", "1"])
    assert stopped.value.code == 2
    assert "--nonsense" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_option_that_completion_offers_is_in_the_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        app.run([*name.split(), "--help"])
    assert {*options_of(commands()[name])} <= {*re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out)}


def test_completion_offers_options_under_the_names_that_commands_know() -> None:
    def command(*, from_format: From = "auto", dry_run: bool = False) -> None: ...

    assert options_of(command) == ["--from", "--dry-run"], "types are still texts before a command has run"
