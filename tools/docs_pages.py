"""Pages of the documentation that are made from the code when the site is built: commands, formats, recipes.

A hook of mkdocs (`make docs`); it writes nothing to disk.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""
    from mkdocs.structure.files import File

    pages = {"formats": formats(), "recipes": recipes(), **commands(), **python()}
    for path, text in pages.items():
        files.append(File.generated(config, f"reference/{path}.md", content=text))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """A page opened from disk takes what its search needs from this site, not from a network."""
    root = "../" * page.file.url.count("/")
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{root}javascripts/worker.js")


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Mark inline code that is short enough to stay on one line, and options in what is longer."""
    html = re.sub(r"(?<=[ >])--[a-z][\w-]*(?=[^<>]*</code>)", r'<span class="short">\g<0></span>', html)
    return re.sub(r"(?<!<pre>)(?<!</span>)<code>(?=[^<]{1,24}</code>)", '<code class="short">', html)


def commands() -> dict[str, str]:
    """A page for each heading of `halp --help`: its commands with arguments, types, defaults and examples."""
    from halp.cli import headings
    from halp.cli.app import CommandGroup, app
    from halp.cli.verbs import Verb

    pages = {}
    for heading, names in headings().items():
        lines = [f"# Commands: {heading[0].lower()}{heading[1:]}"]
        for name in names:
            entry = app.commands[name]
            grouped = isinstance(entry, CommandGroup)
            for key, function in entry.commands.items() if grouped else [("", entry)]:
                full = f"{name} {key}".strip()
                called = function.command() if isinstance(function, Verb) else function
                lines += ["", f"## halp {full}", "", *_command(called)]
        if len(lines) > 1:
            pages[f"commands-{heading.split()[0].lower()}"] = "\n".join(lines) + "\n"
    return pages


def _command(function: Any) -> list[str]:
    """The docstring of a command as Markdown: text, examples as code, arguments as a table."""
    from halp.cli.options import From

    text, _, arguments = (inspect.getdoc(function) or "").partition("Args:")
    text, _, examples = re.sub(r"Examples?:\s*", "\0", text, count=1).partition("\0")
    lines = [_escaped(text.strip())]
    if examples.strip():
        typed = [line.strip() for line in examples.strip().splitlines()]
        lines += ["", "```", *(part for line in typed for part in _continued(line)), "```"]
    parameters = inspect.signature(function).parameters
    rows = []
    for name, described in re.findall(r"^\s+(\w+): (.*(?:\n\s{8,}.*)*)", arguments, flags=re.M):
        parameter = parameters[name]
        if parameter.annotation == "From":  # a name of a type, which a postponed annotation leaves as it is
            parameter = parameter.replace(annotation=From)
        positional = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        shown = name.upper() if positional else _options(name, parameter)
        kind, default = _kind(parameter.annotation), _default(parameter.default)
        rows.append(f"| `{shown}` | {kind} | {default} | {_escaped(' '.join(described.split()))} |")
    for parameter in parameters.values():
        for field in getattr(parameter.default, "__dataclass_fields__", {}).values():
            if "Suppress[" in str(field.type):  # of the library, not of this command
                continue
            doc = _attribute_docs(type(parameter.default)).get(field.name, "")
            default = _default(getattr(parameter.default, field.name))
            option = f"--{field.name.replace('_', '-')}"
            rows.append(f"| `{option}` | {_kind(field.type)} | {default} | {_escaped(doc)} |")
    head = ["", "| argument | type | default | what it is |", "| --- | --- | --- | --- |"]
    return [*lines, *head, *rows] if rows else lines


def _options(name: str, parameter: inspect.Parameter) -> str:
    """An option as it is typed, under the name and the aliases that its annotation gives it."""
    notes = getattr(parameter.annotation, "__metadata__", ())
    names = [note.name for note in notes if getattr(note, "name", None)] or [name.rstrip("_")]
    aliases = [alias for note in notes for alias in getattr(note, "aliases", None) or ()]
    return ", ".join([*(f"--{each.replace('_', '-')}" for each in names), *aliases])


def _continued(command: str) -> list[str]:
    """A command in lines that fit the site."""
    lines = textwrap.wrap(command, 72, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [*(f"{line} \\" for line in lines[:-1]), *lines[-1:]]


def _kind(annotation: Any) -> str:
    """A type as a reader types it: `Annotated[Path | None, …]` is a path."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"^(?:typing\.)?Annotated\[(.*?), .*\]$", r"\1", text, flags=re.S)
    text = re.sub(r"\b(?:typing|pathlib|collections\.abc|halp\.[\w.]+)\.", "", text)
    text = re.sub(r"^Positional\[(.*)\]$", r"\1", text.replace("Assignments", "key=value …"))
    text = re.sub(r"^tuple\[(\w+), \.\.\.\]", r"\1 …", text)
    return _escaped(text.replace(" | None", "").replace("None | ", ""))


def _default(value: Any) -> str:
    return "" if value in (None, inspect.Parameter.empty, (), False) else f"`{_escaped(str(value))}`"


def _attribute_docs(options: type) -> dict[str, str]:
    """The text below each field of a class of options and of those it is built on."""
    source = "\n".join(inspect.getsource(each) for each in reversed(options.__mro__[:-1]))
    return {
        name: " ".join(text.split())
        for name, text in re.findall(r'^\s+(\w+): [^\n]*\n\s+"""(.*?)"""', source, flags=re.M | re.S)
    }


def formats() -> str:
    """What is read, whether `auto` knows it, with which options; and what is refused with advice."""
    from halp.data.readers import _ADVICE, get_reader, list_readers, reader_options

    lines = [
        "# Formats",
        "",
        "`halp formats` in the terminal. With `auto` halp finds out which of them a file or folder is.",
        "Every format can also be named.",
        (
            "Which units and axes come out, and what is refused within a format: [Which files halp"
            " reads](../formats.md)."
        ),
        "",
        "| format | what it reads | `auto` | options |",
        "| --- | --- | --- | --- |",
    ]
    for name, description in list_readers().items():
        options = ", ".join(f"`{key}={value}`" for key, value in reader_options(get_reader(name)).items())
        named = name == "synthetic" or getattr(get_reader(name), "only", 0)
        lines.append(f"| `{name}` | {_escaped(description)} | {'by name' if named else 'yes'} | {options} |")
    lines += ["", "## Refused, with advice", "", "| ending | what to do |", "| --- | --- |"]
    lines += [
        f"| `{ending}` | {_escaped(advice)} |" for ending, advice in _ADVICE.items() if ending != ".mkv"
    ]
    return "\n".join(lines) + "\n"


ROOMS = {
    "halp.data": "Data",
    "halp.skeleton": "Data",
    "halp.features": "Encoders and vectors",
    "halp.encoders": "Encoders and vectors",
    "halp.tasks": "Use",
    "halp.explorer": "Use",
    "halp.training": "Training and evaluation",
    "halp.evaluation": "Training and evaluation",
    "halp.hallucinate": "The method of the paper",
}
METHOD = (
    "halp.hallucinate.hallucinate",
    "halp.sphere.kmeans",
    "halp.sphere.hardest_step",
    "halp.sphere.slerp",
)


def python() -> dict[str, str]:
    """A page for each room: its public names with signature and docstring."""
    import halp

    rooms: dict[str, list[str]] = {title: [] for title in dict.fromkeys(ROOMS.values())}
    for name in sorted(set(halp.__all__) - {"__version__"}):
        home = getattr(getattr(halp, name), "__module__", "halp.core.errors")
        title = next((title for room, title in ROOMS.items() if home.startswith(room)), "More")
        rooms.setdefault(title, []).append(f"halp.{name}")
    rooms["The method of the paper"] += METHOD
    rooms["Components of your own"] = ["halp.extend"]
    return {
        f"python-{title.split()[0].lower() if title[:3] != 'The' else 'method'}": "\n".join(
            [f"# Python: {title[0].lower()}{title[1:]}", "", *(f"::: {name}\n" for name in names)]
        )
        for title, names in rooms.items()
        if names
    }


def recipes() -> str:
    """Recipes that come with halp."""
    from halp.core.recipe_list import summarise_recipes

    lines = ["# Recipes", "", "`halp recipes NAME` prints one with every default spelled out.", ""]
    lines += ["| recipe | what it is | epochs | terms |", "| --- | --- | ---: | --- |"]
    for name, recipe in summarise_recipes().items():
        lines.append(
            f"| `{name}` | {_escaped(recipe.description)} | {recipe.epochs} | {' + '.join(recipe.terms)} |"
        )
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")
