"""Pages of the documentation that are made from the code when the site is built: commands, formats, recipes.

A hook of mkdocs (`make docs`); it writes nothing to disk.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    for path, text in (
        ("commands", commands()),
        ("formats", formats()),
        ("recipes", recipes()),
        ("python", python()),
    ):
        files.append(File.generated(config, f"reference/{path}.md", content=text))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """A page opened from disk takes what its search needs from this site, not from a network."""
    root = "../" * page.file.url.count("/")
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{root}javascripts/worker.js")


def commands() -> str:
    """Every command with its arguments, options and examples, under the headings of `halp --help`."""
    from halp.cli import HEADINGS
    from halp.cli.app import CommandGroup, app

    named = {name for names in HEADINGS.values() for name in names}
    headings = {**HEADINGS, "More": [name for name in app.commands if name not in named]}
    lines = ["# Commands", "", "What `halp COMMAND --help` says, in one page."]
    for heading, names in headings.items():
        present = [name for name in names if name in app.commands]
        if present:
            lines += ["", f"## {heading}"]
        for name in present:
            entry = app.commands[name]
            inner = (
                {f"{name} {key}": value for key, value in entry.commands.items()}
                if isinstance(entry, CommandGroup)
                else {name: entry}
            )
            for full, function in inner.items():
                lines += ["", f"### halp {full}", "", *_command(function)]
    return "\n".join(lines) + "\n"


def _command(function: Any) -> list[str]:
    """The docstring of a command as Markdown: text, examples as code, arguments as a table."""
    text, _, arguments = (inspect.getdoc(function) or "").partition("Args:")
    text, _, examples = re.sub(r"Examples?:\s*", "\0", text, count=1).partition("\0")
    lines = [_escaped(text.strip())]
    if examples.strip():
        lines += ["", "```", *(line.strip() for line in examples.strip().splitlines()), "```"]
    parameters = inspect.signature(function).parameters
    rows = []
    for name, described in re.findall(r"^\s+(\w+): (.*(?:\n\s{8,}.*)*)", arguments, flags=re.M):
        parameter = parameters.get(name)
        positional = parameter is not None and parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        shown = name.upper() if positional else f"--{name.rstrip('_').replace('_', '-')}"
        rows.append(f"| `{shown}` | {_escaped(' '.join(described.split()))} |")
    for parameter in parameters.values():
        for field in getattr(parameter.default, "__dataclass_fields__", {}):
            doc = _attribute_docs(type(parameter.default)).get(field, "")
            rows.append(f"| `--{field.replace('_', '-')}` | {_escaped(doc)} |")
    return [*lines, "", "| argument | what it is |", "| --- | --- |", *rows] if rows else lines


def _attribute_docs(options: type) -> dict[str, str]:
    """The text below each field of a class of options."""
    source = inspect.getsource(options)
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
            "Which units and axes come out, and what is refused within a format: [Recordings and"
            " stores](../formats.md)."
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


def python() -> str:
    """Every public name with its docstring, by room; then the method of the paper and what plugins
    register.
    """
    import halp

    rooms: dict[str, list[str]] = {title: [] for title in dict.fromkeys(ROOMS.values())}
    for name in sorted(halp.__all__):
        home = getattr(getattr(halp, name), "__module__", "halp.core.errors")
        title = next((title for room, title in ROOMS.items() if home.startswith(room)), "More")
        if name != "__version__":
            rooms.setdefault(title, []).append(f"halp.{name}")
    rooms["The method of the paper"] += METHOD
    rooms["Components of your own"] = ["halp.extend"]
    lines = [
        "# Python",
        "",
        "Everything that `import halp` offers. Names are loaded when they are first used.",
    ]
    for title, names in rooms.items():
        lines += ["", f"## {title}", "", *(f"::: {name}\n" for name in names)] if names else []
    return "\n".join(lines) + "\n"


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
