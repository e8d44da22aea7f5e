"""Shared by all commands: the application they register with, and printing for machines."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro

from halp.cli.options import SHARED
from halp.cli.verbs import Verb
from halp.core.errors import check_choice

Command = TypeVar("Command", bound=Callable[..., None])
MOST_ROWS = 1000  # of a table on a terminal; nobody reads more, and laying out takes minutes
CONFIG = (tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName)


class CommandGroup:
    """Commands by name, each a function whose signature and docstring are its options and its help."""

    def __init__(self, prog: str, description: str) -> None:
        self.prog, self.description = prog, description
        self.arguments: list[str] = []  # of the command that runs
        self.commands: dict[str, Callable[..., None] | CommandGroup | Verb] = {}

    def verb(self, function: str, **settings: Any) -> None:
        """Register a command that is made from the public function `module:name` when it is called."""
        self.commands[function.partition(":")[2].replace("_", "-")] = Verb(function, **settings)

    def command(self, function: Command | None = None, *, name: str | None = None) -> Any:
        """Register a function under its own name or another."""
        if function is None:
            return lambda decorated: self.command(decorated, name=name)
        function.__doc__ = _with_shared_options(function)
        self.commands[name or function.__name__.replace("_", "-")] = function
        return function

    def group(self, name: str, description: str) -> CommandGroup:
        """Register commands of commands, such as `halp classify fit`."""
        nested = CommandGroup(f"{self.prog} {name}", description)
        self.commands[name] = nested
        return nested

    def run(self, arguments: Sequence[str]) -> None:
        """Call the command named by the first argument with the other arguments."""
        self.arguments = list(arguments)
        if not arguments or arguments[0] in ("-h", "--help"):
            sys.stdout.write(self.help() + "\n")
            sys.exit(0 if arguments else 2)
        chosen = self.commands[check_choice(f"command of '{self.prog}'", arguments[0], self.commands)]
        if isinstance(chosen, CommandGroup):
            chosen.run(arguments[1:])
        else:
            chosen = chosen.command() if isinstance(chosen, Verb) else chosen
            tyro.cli(described(chosen), prog=f"{self.prog} {arguments[0]}", args=arguments[1:], config=CONFIG)

    def summaries(self) -> dict[str, str]:
        """The first sentence of every command."""
        texts = {
            name: (
                entry.description if isinstance(entry, (CommandGroup, Verb)) else inspect.getdoc(entry) or ""
            )
            for name, entry in self.commands.items()
        }
        return {name: text.partition("\n\n")[0].replace("\n", " ") for name, text in texts.items()}

    def help(self, headings: Mapping[str, Sequence[str]] | None = None) -> str:
        """The list of commands, under headings."""
        summaries = self.summaries()
        headings = headings or {"commands": list(summaries)}
        width = max(map(len, summaries))
        lines = [f"usage: {self.prog} COMMAND …", "", self.description]
        for heading, names in headings.items():
            shown = [name for name in names if name in summaries]
            if shown:
                lines += ["", heading, *(f"  {name:{width}}  {summaries[name]}" for name in shown)]
        return "\n".join([*lines, "", f"{self.prog} COMMAND --help says what a command takes."])


def _with_shared_options(function: Callable[..., None]) -> str:
    """The docstring of a command, completed with the descriptions of shared options."""
    text, _, described = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
    text = re.sub(r"^Examples:\s+", "Example: ", text, flags=re.MULTILINE)  # tyro leaves a section out
    entries = SHARED | dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", described, re.MULTILINE))
    lines = [
        f"    {name}: {entries[name]}" for name in inspect.signature(function).parameters if name in entries
    ]
    return "\n".join([text, "", "Args:", *lines]) if lines else text


def described(function: Callable[..., None]) -> Callable[..., None]:
    """Hide uninformative defaults from the help."""
    for owner in (function, *_option_classes(function)):
        hints = get_type_hints(owner, include_extras=True)
        owner.__annotations__ = {
            name: hint if _QUIET in getattr(hint, "__metadata__", ()) else Annotated[hint, _QUIET]
            for name, hint in hints.items()
        }
    return function


def _option_classes(function: Callable[..., None]) -> list[type]:
    hints = get_type_hints(function).values()
    return [hint for hint in hints if isinstance(hint, type) and hint.__module__ == "halp.cli.options"]


def options_of(entry: Callable[..., None] | Verb) -> list[str]:
    """The options of a command, such as `--json`."""
    function = entry.command() if isinstance(entry, Verb) else entry
    hints = get_type_hints(function, include_extras=True)
    names = [
        field
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        for field in _shown_fields(parameter.default) or [_option_name(name, hints[name])]
    ]
    return [f"--{name.rstrip('_').replace('_', '-')}" for name in names]


def _shown_fields(default: Any) -> list[str]:
    """The fields of a dataclass of options that are options of the command."""
    if not is_dataclass(default):
        return []
    return [each.name for each in fields(default) if "Suppress" not in str(each.type)]


def _option_name(name: str, hint: Any) -> str:
    """The name of an option, if its type gives it another one than the parameter has."""
    given = (getattr(part, "name", None) for part in getattr(hint, "__metadata__", ()))
    return next(filter(None, given), name)


def _default(label: str) -> str:
    return "" if label in ("", "None", "True", "False") else f"(default: {label})"


_QUIET = tyro.conf.arg(help_behavior_hint=_default)
app = CommandGroup(
    "halp", "Learn human actions from skeletons without labels, and find, label and compare movements."
)


def print_json(data: Any, *, indent: int | None = 1) -> None:
    """Print one JSON document to standard output; NaN and infinity become null."""
    sys.stdout.write(json.dumps(_finite(data), indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def note(text: str) -> None:
    """Print a line to standard error."""
    from halp.core.progress import console

    console.print(text, highlight=False, markup=False, soft_wrap=True)


def warn(*sentences: str) -> None:
    """Print warnings to standard error."""
    for sentence in sentences:
        note(f"warning: {sentence}")


def print_table(table: Any) -> None:
    """Print a table to standard output; 200 columns wide if that is not a terminal."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # one exit code for tables and JSON, see `halp.cli.main`

    console = Output()
    if not console.is_terminal:
        console = Output(width=200)
    console.print(table)


def table_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None, digits: int = 3) -> Any:
    """Rows as a table for the terminal, at most `MOST_ROWS`; by default without empty columns."""
    from rich.table import Table

    if columns is None:
        columns = [
            name for name in (rows[0] if rows else {}) if any(row[name] not in ("", None) for row in rows)
        ]
    table = Table()
    for name in columns:
        table.add_column(name, overflow="fold")  # cut off, the names of two sides would be the same
    for row in rows[:MOST_ROWS]:
        table.add_row(*(_cell(row.get(name), digits) for name in columns))
    if len(rows) > MOST_ROWS:
        table.caption = f"the first {MOST_ROWS:,} of {len(rows):,} rows; --json prints all of them"
    return table


def _cell(value: Any, digits: int) -> str:
    from rich.markup import escape

    if isinstance(value, float):
        return f"{round(value, digits) + 0.0:.{digits}f}"  # without the sign of −0.0
    return "" if value is None else escape(str(value))


def write_rows(out: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a CSV table if a path is given."""
    from halp.core.files import write_csv

    if out is not None:
        note(f"written: {write_csv(out, list(rows[0] if rows else ()), rows)}")


def show(
    answer: Any,
    *tables: Any,
    json: bool,
    said: str = "",
    html: Path | None = None,
    page: Callable[[], Any] | None = None,
) -> None:
    """Finish a command: print the answer as JSON or text and tables; write a page, if asked."""
    if json:
        print_json(answer)
    elif said:
        note(said)
    for table in () if json else tables:
        print_table(table)
    if html is not None and page is not None:
        note(f"written: {page().save(html)}")


def first_process() -> bool:
    """Whether this is rank 0 of the job."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", os.environ.get("SLURM_PROCID", "0")))) == 0
