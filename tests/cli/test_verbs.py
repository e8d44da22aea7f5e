"""A command is a public function of the same name; no setting of a format is dropped on the way."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import halp
from halp.cli import main
from halp.cli.app import CommandGroup, app

# commands about this installation, its cache and the demonstration
WITHOUT = {"demo", "doctor", "completion", "pose-model", "cache show", "cache clear"}
# commands that list things
LISTS = {"encoders": "list_encoders", "formats": "list_formats", "recipes": "list_recipes"}


def commands() -> dict[str, object]:
    """All commands by name, `classify fit` included."""
    every: dict[str, object] = {}
    for name, entry in app.commands.items():
        if isinstance(entry, CommandGroup):
            every |= {f"{name} {inner}": function for inner, function in entry.commands.items()}
        else:
            every[name] = entry
    return every


@pytest.mark.parametrize("name", sorted(set(commands()) - WITHOUT))
def test_every_command_is_a_public_function_with_types_and_a_docstring(name: str) -> None:
    public = LISTS.get(name, name.replace(" ", "_").replace("-", "_"))
    assert public in halp.__all__
    function = getattr(halp, public)
    assert inspect.signature(function).return_annotation is not inspect.Signature.empty
    assert inspect.getdoc(function)
    for each in inspect.signature(function).parameters.values():
        assert each.annotation is not each.empty, f"{public}({each.name})"
        assert each.kind is not each.VAR_KEYWORD or each.annotation != "Any", "an editor completes all"


READ = [
    "explore {} --no-browser --static {out}",
    "angles {}",
    "cluster halp-base {}",
    "search halp-base x --in {}",
]
READ += [
    "compare halp-base a b --in {}",
    "embed halp-base {} {out}/v.npz",
    "segment halp-base {}",
    "motifs halp-base {}",
]
READ += [
    "classify fit halp-base {} {out}/model",
    "finetune halp-base {} {out}/model",
    "deviation halp-base {} {}",
]
READ += ["repetitions {}", "poses {} {out}", "prepare auto {} {out}/store"]


@pytest.mark.parametrize("line", READ)
def test_an_unknown_setting_of_a_format_is_refused_by_every_command_that_reads(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    header = [
        "frame",
        *(f"{joint}_{axis}" for joint in ("hip_left", "knee_left", "ankle_left") for axis in "xyz"),
    ]
    rows = [",".join([str(number), *(f"{number + place}" for place in range(9))]) for number in range(30)]
    (recordings / "a.csv").write_text("\n".join([",".join(header), *rows]))
    words = line.replace("{out}", str(tmp_path / "out")).replace("{}", str(recordings)).split()
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--option", "nonsense=1"])
    assert stopped.value.code == 2
    assert "nonsense" in capsys.readouterr().err
