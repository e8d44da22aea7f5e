"""The demonstration replaces what an earlier one made, and never touches what is somebody's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from halp.cli import main
from halp.cli.demo import MARKER, _clear
from halp.core.errors import InputError
from halp.data.synthetic import make_synthetic_store

pytestmark = pytest.mark.slow  # real processes


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("more", [["--clips", "0"], ["--clips", "5"], ["--set", "nope=1"], []])
def test_folders_of_others_are_left_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    for name, content in {
        "store/precious.txt": "thesis",
        "halp/main.c": "source",
        "moco/run.json": "{}",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    before = files(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--out", str(tmp_path), *more])
    assert stopped.value.code == 2
    assert files(tmp_path) == before
    said = capsys.readouterr().err.strip().splitlines()
    assert sum(line.startswith("halp:") for line in said) == 1


def test_wrong_arguments_leave_nothing_behind(tmp_path: Path) -> None:
    for more in (["--clips", "3"], ["--set", "epochs=0"], ["--set", "epochs=40"], ["--set", "nope=1"]):
        with pytest.raises(SystemExit) as stopped:
            main(["demo", "--out", str(tmp_path / "new"), *more])
        assert stopped.value.code == 2
        assert not (tmp_path / "new").exists()


def test_marked_folders_are_replaced_unless_something_else_stands_there(tmp_path: Path) -> None:
    _clear(tmp_path)
    make_synthetic_store(tmp_path / "store", count=24)
    (tmp_path / "notes.txt").write_text("mine")
    _clear(tmp_path)
    assert not (tmp_path / "store").exists()
    assert set(files(tmp_path)) == {MARKER, "notes.txt"}
    (tmp_path / "moco").mkdir()
    (tmp_path / "moco" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="was not made by a demonstration"):
        _clear(tmp_path)
    assert (tmp_path / "moco" / "thesis.txt").read_text() == "mine"
    with pytest.raises(InputError, match="is a file"):
        _clear(tmp_path / "notes.txt")


def test_list_of_recipes_says_what_the_recipes_say() -> None:
    from halp.core.recipe_list import summarise_recipes
    from halp.training import load_recipe

    summaries = summarise_recipes()
    assert len(summaries) > 50
    for name, summary in summaries.items():
        recipe = load_recipe(name)
        assert (summary.description, summary.epochs) == (recipe.description, recipe.epochs)
        if recipe.method == "moco":
            assert summary.terms == tuple(recipe.terms)
