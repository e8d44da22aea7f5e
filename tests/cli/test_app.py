"""The `halp` command as a whole: headings, help without noise, mistakes of spelling, completion, a closed
output pipe.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys

import pytest

from halp.cli import headings, main, training
from halp.cli.app import CommandGroup, app, options_of
from halp.cli.verbs import Verb
from halp.data.store import Store


def _halp(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "halp", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


def test_help_lists_every_command_once_under_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    bare = capsys.readouterr().out
    main(["--help"])
    text = capsys.readouterr().out
    assert bare == text
    lines = text.splitlines()
    for name in app.commands:
        assert sum(line.startswith(f"  {name} ") for line in lines) == 1, name
    named = [name for names in headings().values() for name in names]
    assert len(named) == len(set(named))


def test_help_of_a_command_names_its_arguments_and_no_empty_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["segment", "--help"])
    text = capsys.readouterr().out
    assert "ENCODER SOURCE" in text
    assert "None" not in text
    assert "(default: auto)" in text, "a default that says something stays"


def test_a_misspelt_command_is_answered_in_one_sentence_with_the_right_one() -> None:
    answer = _halp("serach", "x")
    assert answer.returncode == 2
    assert "did you mean 'search'" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert _halp("classify", "fitt").returncode == 2


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_closed_output_pipe_ends_the_command_without_a_traceback(more: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "halp", "formats", *more]
    answer = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert answer.returncode == 141
    assert not answer.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", shell])
    script = capsys.readouterr().out
    assert all(name in script for name in app.commands)
    assert "html" in script
    assert shell != "fish" or "from classify' -a fit" in script
    assert "--window" in options_of(app.commands["segment"])  # type: ignore[arg-type]
    assert "--in" in options_of(app.commands["search"])  # type: ignore[arg-type]


def test_bash_completes_a_command_and_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    ask = "COMP_WORDS=(halp {}); COMP_CWORD={}; _halp; echo ${{COMPREPLY[@]}}"
    script = capsys.readouterr().out
    for words, place, expected in (
        *(("se", 1, "search segment serve"), ("search --ht", 2, "--html")),
        *(("classify fi", 2, "fit"), ("classify fit --wi", 3, "--window")),
    ):
        shell = f"{script}\n{ask.format(words, place)}"
        answer = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
        assert answer.stdout.strip() == expected


def test_every_argument_of_every_command_is_described() -> None:
    entries = [
        *app.commands.values(),
        *(f for g in app.commands.values() if isinstance(g, CommandGroup) for f in g.commands.values()),
    ]
    for function in entries:
        if isinstance(function, CommandGroup):
            continue
        function = function.command() if isinstance(function, Verb) else function
        text = (inspect.getdoc(function) or "").partition("Args:\n")[2]
        for name, parameter in inspect.signature(function).parameters.items():
            shared = hasattr(parameter.default, "__dataclass_fields__")
            assert shared or re.search(rf"^ +{name}: \S", text, re.MULTILINE), (function.__name__, name)


def test_training_few_clips_is_said_not_to_pay_before_it_starts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = training._advice(store, "xsub")
    clips = len(store.split("xsub")[0])
    assert note.startswith(f"note: {clips} clips")
    assert "not been better than halp-base" in note
    monkeypatch.setattr(training, "_MEASURED", clips - 1)
    assert not training._advice(store, "xsub")
