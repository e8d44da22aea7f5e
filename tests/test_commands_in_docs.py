"""Every command that README, site, examples and help texts show is one that the command line takes."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import halp.cli
from halp.cli.app import CommandGroup, app, options_of
from halp.cli.verbs import Verb

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / name / "README.md" for name in ("experiments", "tools/encoders")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src" / "halp" / "encoders" / "shipped").glob("*/README.md")),
    *sorted((ROOT / "examples").glob("*.sh")),
]
MAKE_TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))


def block_lines(text: str) -> Iterator[str]:
    """Lines of shell in fenced blocks; a script is one block."""
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.M | re.S)
    for kind, block in [("bash", text)] if text.startswith("#!") else blocks:
        if kind not in ("", "bash", "console"):
            continue
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            yield re.split(r"(?:^|\s)#", line)[0].strip().removeprefix("$ ")


def shell_commands(text: str, program: str) -> Iterator[list[str]]:
    """The words of every call of a program in blocks of shell."""
    for line in block_lines(text):
        for part in re.split(r"\s(?:\||&&|;|>|2>)\s", line):
            if part.startswith(f"{program} ") and "…" not in part:
                yield [word for word in shlex.split(part) if word != "$@"][len(program.split()) :]


def inline_commands(text: str) -> Iterator[list[str]]:
    """The words of `halp …` inside sentences, which may leave out what does not matter there."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    for span in re.findall(r"`\s*halp ([a-z][^`]*)`", prose):
        yield span.split()


def silent(entry: Any) -> Any:
    """A command, or a group of them, that takes the same arguments and does nothing."""
    if isinstance(entry, CommandGroup):
        group = CommandGroup(entry.prog, entry.description)
        group.commands = {name: silent(inner) for name, inner in entry.commands.items()}
        return group
    entry = entry.command() if isinstance(entry, Verb) else entry

    @functools.wraps(entry)
    def nothing(*_: object, **__: object) -> None:
        return None

    return nothing


@pytest.fixture(autouse=True)
def silent_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "commands", {name: silent(entry) for name, entry in app.commands.items()})
    monkeypatch.setattr(halp.cli, "_load_plugins", without_plugins)


def without_plugins(words: list[str]) -> list[str]:
    return [word for word, before in zip(words, ["", *words]) if "--plugin" not in (word, before)]


def typed(words: list[str]) -> str:
    """What the command line says against the words; nothing if it takes them."""
    try:
        halp.cli.main(words)
    except SystemExit as stop:
        return f"halp {shlex.join(words)}" if stop.code else ""
    return ""


def test_there_are_commands_to_read() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    for program, least in (("halp", 50), ("python -m", 10), ("make", 1)):
        assert sum(1 for text in texts for _ in shell_commands(text, program)) >= least, program
    assert sum(1 for text in texts for _ in inline_commands(text)) >= 50


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_line_takes_what_the_page_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not [refused for words in shell_commands(text, "halp") if (refused := typed(words))]
    for name, *words in inline_commands(text):
        entry = app.commands.get(name)
        assert entry is not None, f"halp {name} …"
        if isinstance(entry, CommandGroup):
            assert not words or words[0] in entry.commands, f"halp {name} {words[0]}"
            entry = entry.commands[words[0]] if words else next(iter(entry.commands.values()))
        known = {*options_of(entry), "--plugin", "--help"}
        options = {word.split("=")[0] for word in words if word.startswith("--")}
        assert {option.replace("--no-", "--") for option in options} <= known, (
            f"halp {name} {' '.join(words)}"
        )


def options_of_everything() -> set[str]:
    """Options of every command of halp, of our other programs, and those of torchrun."""
    known = {"--plugin", "--help", "--max-restarts", "--nnodes", "--rdzv-backend", "--rdzv-endpoint"}
    for entry in app.commands.values():
        for command in entry.commands.values() if isinstance(entry, CommandGroup) else [entry]:
            known |= set(options_of(command))
    for path in (*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")):
        known |= set(re.findall(r'"(--[a-z-]+)"', path.read_text(encoding="utf-8")))
    return known


def test_options_inside_sentences_exist() -> None:
    known, unknown = options_of_everything(), []
    for page in PAGES:
        prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for span in re.findall(r"`(--[^`]*)`", prose):
            for option in re.findall(r"(?:^|\s)(--[a-z][a-z-]*)", span):
                if option.replace("--no-", "--") not in known:
                    unknown.append(f"{page.name}: {option}")
    assert not unknown


TYPED_THROUGH = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("start", "data", "use", "classify", "production")),
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
]


@pytest.mark.parametrize("page", TYPED_THROUGH, ids=lambda page: page.stem)
def test_no_command_meets_the_folder_that_one_before_it_wrote(page: Path) -> None:
    writers = {("classify", "fit"): 4, ("prepare",): 3}  # where the folder is named
    written = [
        words[place]
        for words in shell_commands(page.read_text(encoding="utf-8"), "halp")
        for verb, place in writers.items()
        if tuple(words[: len(verb)]) == verb
    ]
    assert len(written) == len(set(written)), "an existing folder is refused"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_and_make_targets_of_the_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for module, *words in shell_commands(text, "python -m"):
        if module.split(".")[0] not in ("benchmarks", "experiments", "tools"):
            continue
        found = importlib.util.find_spec(module)
        assert found is not None, f"python -m {module}"
        source = Path(str(found.origin)).read_text(encoding="utf-8")
        assert not [word for word in words if word.startswith("--") and f'"{word}"' not in source], (
            f"{module} {words}"
        )
    inline = re.findall(r"`python -m ((?:benchmarks|experiments|tools)\.[a-z_0-9.]+)", text)
    assert not [module for module in inline if importlib.util.find_spec(module) is None]
    targets = {words[0] for words in shell_commands(text, "make")} | set(re.findall(r"`make ([a-z]+)", text))
    assert targets <= MAKE_TARGETS


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem
)
def test_workflow_has_jobs_with_steps_and_calls_targets_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    workflow = pytest.importorskip("yaml").safe_load(text)
    assert {"name", True, "permissions", "jobs"} <= set(workflow)  # YAML reads the word `on` as true
    assert workflow["jobs"]
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert job["steps"]
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    called = [word for words in re.findall(r"\bmake ([a-z ]+)", text) for word in words.split()]
    assert set(called) <= MAKE_TARGETS


def examples_of(entries: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, entry in entries.items():
        if isinstance(entry, CommandGroup):
            yield from examples_of(entry.commands)
        else:
            yield name, inspect.getdoc(entry) or ""


@pytest.mark.heavy
def test_command_line_takes_the_examples_of_its_own_help() -> None:
    lines = [
        re.split(r"\s#", line)[0].strip()
        for _, text in examples_of(app.commands)
        for line in re.findall(r"^\s*(?:Examples?: )?(halp .*)$", text.split("Args:")[0], flags=re.M)
    ]
    assert len(lines) > 10
    assert not [
        refused
        for line in lines
        if "…" not in line and (refused := typed(shlex.split(line.split(" | ")[-1])[1:]))
    ]


def test_unknown_option_and_unknown_command_are_refused() -> None:
    assert typed(["search", "halp-base", "a.bvh", "--in", "recordings", "--hmtl", "found.html"])
    assert typed(["serach", "halp-base"])
    assert not typed(
        ["search", "halp-base", "a.bvh", "--in", "recordings", "-k", "5", "--html", "found.html"]
    )
