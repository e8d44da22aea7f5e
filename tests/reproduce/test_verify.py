"""A finished table or run beside the published figures: which agree, which do not, and what does not
compare.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import halp
from halp.cli import main
from halp.core.errors import InputError
from halp.data.store import Store
from halp.reproduce.summary import CellSummary, RowSummary, TableSummary
from halp.reproduce.verify import _names, _published
from halp.training import load_recipe, pretrain


def table(folder: Path, scale: str = "paper", values: tuple[float, ...] = (79.4, 80.1)) -> Path:
    """A table of one row with a published figure of 79.7 and one without."""
    cells = [
        CellSummary("NTU-60 x-sub", "ntu60 xsub", 79.7, list(values)),
        CellSummary("mine", "mine xsub", None, [50.0]),
    ]
    rows = [RowSummary("HaLP", "", cells)]
    summary = TableSummary(
        "linear", "Linear", "Table 1", "c", scale, [0, 1], {}, "halp reproduce linear", rows=rows
    )
    return summary.save(folder / "tables" / scale)[-1]


def test_a_table_at_the_papers_scale_agrees_or_says_by_how_much_not(tmp_path: Path) -> None:
    (cell,) = halp.verify(table(tmp_path)).cells
    assert (cell.paper, cell.ours, cell.seeds, cell.verdict) == (79.7, 79.75, 2, "agrees")
    assert cell.difference == pytest.approx(0.05)
    (low,) = halp.verify(table(tmp_path / "low", values=(70.0, 70.2))).cells
    assert (low.verdict, round(low.difference, 1)) == ("below", -9.6)
    (high,) = halp.verify(table(tmp_path / "high", values=(82.0,))).cells
    assert high.verdict == "above", "one seed has a margin of a point"
    assert "1 of 1 figures agree" in halp.verify(tmp_path).sentence


def test_another_scale_does_not_compare(tmp_path: Path) -> None:
    found = halp.verify(table(tmp_path, scale="tiny"))
    assert [cell.verdict for cell in found.cells] == ["does not compare"]
    assert "none at the paper's scale" in found.sentence


def test_recipes_of_the_paper_find_their_rows() -> None:
    for recipe, row, paper in (
        ("ntu60-halp", "HaLP", 79.7),
        ("ntu60-moco", "baseline (MoCo)", 78.0),
        ("ntu60-halp-cmd", "HaLP + CMD", 82.1),
        ("ntu60-cmd", "CMD", 79.8),
        ("ntu60-aimclr", "AimCLR", 74.3),
    ):
        found = [(cell[1].name, cell[3]) for cell in _published(recipe) if cell[2].protocol == "linear"]
        assert (row, paper) in found, recipe
    assert _names(next(iter(_published("ntu60-halp")))[1], next(iter(_published("ntu60-halp")))[2]) == [
        "ntu60-halp"
    ]
    assert not list(_published("small"))


def test_a_run_with_other_settings_does_not_compare(
    store: Store, tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    run = pretrain(load_recipe("ntu60-halp", (*tiny, "epochs=1")), store, tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="holds no figure that the paper has"):
        halp.verify(run.path)
    halp.evaluate(run.encoder(), store, "knn", progress=False).save(run.results / "knn-xsub-joint-seed0.json")
    cells = halp.verify(run.path).cells
    assert {cell.paper for cell in cells} == {65.8}
    assert {cell.verdict for cell in cells} == {"does not compare"}


def test_the_command_prints_differences_and_refuses_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["verify", str(table(tmp_path)), "--json"])
    (cell,) = json.loads(capsys.readouterr().out)
    assert (cell["row"], cell["verdict"], cell["difference"]) == ("HaLP", "agrees", 0.05)
    other = tmp_path / "other.json"
    other.write_text('{"rows": 3}')
    with pytest.raises(SystemExit) as stopped:
        main(["verify", str(other)])
    assert stopped.value.code == 2
    assert "is not a table that `halp reproduce` saved" in " ".join(capsys.readouterr().err.split())
