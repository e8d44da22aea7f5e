"""Commands made from public functions: a verb's signature and docstring are its options and help.

A verb takes what it reads and returns an answer that knows its spans and its JSON
(`halp.tasks.segments.Answer`). Every such command ends alike: `--json` prints the answer, `--out` writes its
events, `--html` its page.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from halp.cli.options import READING, SHARED, WHOLE, From, ReadingArgs, WholeArgs

# of the library alone: a command shows progress and computes where it runs
_LIBRARY = ("progress", "device", "batch_size", "keywords")
_PLAIN: Mapping[str, Any] = {"encoder": str, "from_format": From}
In = Annotated[Path, tyro.conf.arg(name="in")]
_LINE = re.compile(r"^\$ (halp .*)", re.MULTILINE)  # an example of the command in a docstring
MaybeIn = Annotated[Path | None, tyro.conf.arg(name="in")]
Out = Annotated[Path, tyro.conf.arg(name="out")]
Count = Annotated[int, tyro.conf.arg(aliases=["-k"])]


@dataclass(frozen=True)
class Verb:
    """How a public function becomes a command.

    Attributes
    ----------
    function : str
        `module:name` of the function.
    types : mapping
        Types of arguments on the command line, if they are not those of the function.
    options : tuple of str
        Positional parameters of the function that are options of the command.
    texts : mapping
        Help of arguments, if the docstring speaks of Python.
    events : bool
        Whether the answer has events to write (`--out`).
    examples : tuple of str
        Lines that work when typed, beside those of the docstring (`$ halp …`).
    end : callable, optional
        Shows the answer, called with it and with the arguments by name, if it has neither events nor a page.
    """

    function: str
    types: Mapping[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    events: bool = True
    examples: tuple[str, ...] = ()
    end: Callable[..., None] | None = None

    @property
    def takes_encoder(self) -> bool:
        """Whether it looks at recordings through an encoder, rather than measuring them."""
        return any(each.arg == "encoder" for each in self._definition.args.args)

    @property
    def description(self) -> str:
        """The docstring of the function."""
        return ast.get_docstring(self._definition) or ""

    @functools.cached_property
    def _definition(self) -> ast.FunctionDef:
        """The function, read from its source: nothing is imported for a list of commands."""
        module, _, name = self.function.partition(":")
        source = Path(__file__).parents[1].joinpath(*module.split(".")[1:]).with_suffix(".py")
        tree = ast.parse(source.read_text(encoding="utf-8"))
        return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)

    def load(self) -> Callable[..., Any]:
        """The public function."""
        module, _, name = self.function.partition(":")
        return getattr(importlib.import_module(module), name)

    def command(self) -> Callable[..., None]:
        """A function for tyro, with the arguments of the verb and `--out`, `--html`, `--json`."""
        from halp.reports.pages import has_page

        function = self.load()
        given = inspect.signature(function).parameters
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = [
            self._parameter(p, hints.get(p.name, str), whole="encoder" not in given)
            for p in given.values()
            if p.name not in _LIBRARY
        ]
        if self.events and self.end is None:
            parameters.append(_option("out", Path | None))
        if self.end is None and has_page(hints["return"]):
            parameters.append(_option("html", Path | None))
        if self.end is None or "json" in inspect.signature(self.end).parameters:
            parameters.append(_option("json", bool, False))
        added = [p.name for p in parameters if p.name not in given]

        def run(**arguments: Any) -> None:
            named = dict(arguments)
            ending = {name: arguments.pop(name) for name in added}
            reading = arguments.get("reading")
            if reading is not None:
                arguments["reading"] = reading.reading
            positional = [
                arguments.pop(p.name)
                for p in given.values()
                if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "reading" and p.name in arguments
            ]
            answer = function(*positional, **arguments)
            if self.end is None:
                finish(answer, **ending)
            else:
                self.end(answer, **named)

        order = sorted(
            parameters, key=lambda p: (p.kind, p.default is not p.empty and p.kind is not p.KEYWORD_ONLY)
        )
        run.__signature__ = inspect.Signature(order)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in order}
        run.__doc__ = self._docstring(function, [p.name for p in order])
        run.__name__ = function.__name__
        return run

    def _parameter(self, parameter: inspect.Parameter, hint: Any, *, whole: bool) -> inspect.Parameter:
        name = parameter.name
        if name == "reading":
            kind, default = (WholeArgs, WHOLE) if whole else (ReadingArgs, READING)
            return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        kind = self.types.get(name, _PLAIN.get(name, _typed(hint)))
        positional = parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name not in self.options
        return inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if positional else inspect.Parameter.KEYWORD_ONLY,
            default=parameter.default,
            annotation=Annotated[kind, tyro.conf.Positional] if positional else kind,
        )

    def _docstring(self, function: Callable[..., Any], names: list[str]) -> str:
        import docstring_parser

        parsed = docstring_parser.parse(inspect.getdoc(function) or "")
        known = {
            name.strip(): (entry.description or "").strip()
            for entry in parsed.params
            for name in entry.arg_name.split(",")
        }
        texts = {**known, **{name: SHARED[name] for name in names if name in SHARED}, **self.texts}
        lines = [parsed.short_description or ""]
        lines += ["", parsed.long_description] if parsed.long_description else []
        examples = [*_LINE.findall(inspect.getdoc(function) or ""), *self.examples]
        if examples:  # on the line of its heading: tyro leaves a section out of the help
            lines += ["", f"Example: {examples[0]}", *(f"    {line}" for line in examples[1:])]
        told = [name for name in names if texts.get(name) and name != "reading"]
        lines += ["", "Args:", *(f"    {name}: {_help(texts[name])}" for name in told)]
        return "\n".join(lines)


def _typed(hint: Any) -> Any:
    """The type on the command line: an argument that may be a path (`AnySource` is `Any`) is one."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if not any(part in (Path, Any) or typing.get_origin(part) is os.PathLike for part in parts):
        return hint
    return Path | None if type(None) in parts else Path


def _help(text: str) -> str:
    """A description of an argument in one line; it begins in lower case, like those of all commands."""
    text = " ".join(text.split())
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _option(name: str, kind: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def finish(
    answer: Any, *, out: Path | None = None, html: Path | None = None, json: bool | None = False
) -> None:
    """The output of a verb: tables and text or one JSON document, events as a file, and a page."""
    from halp.cli.app import note, print_json, print_table
    from halp.cli.present import present

    shown = present(answer)
    if out is not None:
        written = shown.write(out) if shown.write else _write_events(answer, out)
        for path in [*written, *_write_reasons(out, shown.reasons)]:
            note(f"written: {path}")
    if json:
        print_json(answer.to_json())
    else:
        for sentence in shown.said:
            note(sentence)
        for table in shown.tables:
            print_table(table)
    if html is not None:
        from halp.reports.pages import page_of

        note(f"written: {page_of(answer, html).save(html)}")
    for sentence in () if json else filter(None, (*shown.after, shown.reasons)):
        note(sentence)
    _warn_about_clock(answer)


def _warn_about_clock(answer: Any) -> None:
    """Warn if times count frames, because recordings do not state their rate."""
    table = getattr(answer, "table", None)
    frames = (
        [] if table is None else sorted({table.name(row) for row in (table.fps <= 0).nonzero()[0][:1000]})
    )
    if frames:
        from halp.cli.app import warn

        more = f" and {len(frames) - 1} more" if len(frames) > 1 else ""
        warn(
            f"start and stop of '{frames[0]}'{more} are frames, not seconds: the recordings do not state a"
            " rate; give --fps"
        )


def _write_reasons(out: Path, reasons: str) -> list[Path]:
    """Why numbers of a file have no interval: a text beside the file, or in the folder of several."""
    from halp.core.files import write_text

    place = out / "intervals.md" if out.is_dir() else out.with_name(f"{out.name}.intervals.md")
    return [write_text(place, f"{reasons}\n")] if reasons else []


def _write_events(answer: Any, out: Path) -> list[Path]:
    from halp.tasks.events.formats import write_events

    return write_events(answer.events(), out)
