"""Every row of the paper's tables is known: it runs by a recipe, or it is quoted and says why."""

from __future__ import annotations

import re

import pytest

from halp.clips.store import Store
from halp.errors import InputError
from halp.recipe_list import list_recipes
from halp.reproduce import TableRow, list_rows, list_tables
from halp.reproduce.cost import seconds_per_step
from halp.reproduce.other_systems import AS_CAL, OtherSystem
from halp.reproduce.scales import PAPER, QUICK, SMALL, TINY
from halp.reproduce.scheduler import DataSource, make_schedule
from halp.reproduce.terminal_tables import rows_as_table
from halp.skeleton import KINECT_V2
from halp.training import load_recipe

# the rows of the paper, as they stand there
ROWS = {
    "Table 1": (
        *("ISC", "CrosSCLR-B", "CMD", "HaLP + CMD", "LongT GAN", "MS2L", "P&C", "AS-CAL", "H-Transformer", "SKT"),
        *("GL-Transformer", "SeBiReNet", "AimCLR", "baseline (MoCo)", "HaLP"),
    ),
    "Table 2": ("ISC", "CrosSCLR-B", "CMD", "HaLP + CMD", "LongT GAN", "P&C", "baseline (MoCo)", "HaLP"),
    "Table 3": ("ISC", "CrosSCLR-B", "CMD", "HaLP + CMD", "LongT GAN", "MS2L", "baseline (MoCo)", "HaLP"),
    "Supplement, Table 7": (
        *("ISC", "CrosSCLR-B", "CMD", "HaLP + CMD", "LongT GAN", "MS2L", "ASSL", "AimCLR", "baseline (MoCo)", "HaLP"),
    ),
    "Supplement, Table 13": ("3s-CrosSCLR", "3s-AimCLR", "3s-CrosSCLR-B", "3s-CMD", "3s-HaLP + CMD"),
    "Supplement, Table 14": ("GraphCL", "GraphCL + HaLP"),
}


@pytest.mark.parametrize("source", ROWS)
def test_every_row_of_the_paper_is_known(source: str) -> None:
    assert {status.row for status in list_rows() if status.source == source} == set(ROWS[source])


def test_a_row_runs_exactly_if_one_of_its_recipes_exists() -> None:
    assert set(AS_CAL.recipes()) == {"ntu60-ascal", "ntu120-ascal", "small-ascal"}
    assert OtherSystem("nobody's", "no-such-system", "because").recipes() == []
    for status in list_rows():
        if not status.runs:
            assert len(status.how.split()) > 1, f"{status.row} says why"
        else:
            command = status.how.removeprefix("halp reproduce ")
            assert command in {*list_tables(), "graphs"}
    for table in list_tables().values():
        for row in table.rows:
            assert row.method != "recipe" or any(name.endswith(f"-{row.recipe}") for name in list_recipes())


def test_published_figures_are_those_of_the_paper() -> None:
    figures = {(status.source, status.row): status.paper for status in list_rows()}
    assert figures["Table 1", "AS-CAL"] == (58.5, 64.8, 48.6, 49.2, None)
    assert figures["Table 1", "SeBiReNet"] == (None, 79.7, None, None, None)
    assert figures["Table 2", "P&C"] == (50.7, 76.3, 39.5, 41.8)
    assert figures["Table 3", "MS2L"] == (45.8, None)
    assert figures["Supplement, Table 7", "ASSL"] == (None, 63.6, 69.8, 74.7, None, 57.3, 64.3, 68.0)
    assert figures["Supplement, Table 13", "3s-AimCLR"] == (78.9, 83.8, 68.2, 68.8, 39.5)


def test_other_systems_run_by_their_own_recipes_without_a_warm_up(store: Store) -> None:
    row = TableRow("AS-CAL", "recipe", recipe="ascal")
    assert PAPER.recipe("ntu120", "xset", 2, row) == load_recipe("ntu120-ascal", ["seed=2", "split=xset"])
    assert PAPER.recipe("pku2", "xsub", 0, row).name == "ntu60-ascal", "where a data set has no recipe of its own"
    assert SMALL.recipe("mine", "xsub", 0, row) == load_recipe("small-ascal")
    quick = QUICK.recipe("mine", "xsub", 0, row)
    assert (quick.epochs, quick.optimiser.milestones) == (22, (11,))
    table = list_tables()["knn-others"]
    plan = make_schedule(table, TINY, [DataSource("mine", store)])
    others = [job for job in plan.jobs.values() if re.search(r"/(longt-gan|predict-cluster)-seed0", job.name)]
    assert len(others) == len(table.rows)
    assert all(job.parent is None and job.first == 0 for job in others)


def test_a_scale_without_a_recipe_leaves_the_row_out() -> None:
    lonely = TableRow("nobody's", "recipe", recipe="no-such-system")
    assert not PAPER.runs("ntu60", lonely)
    assert TINY.runs("ntu60", TableRow("HaLP"))
    with pytest.raises(InputError, match="has no recipe for scale 'tiny'"):
        TINY.recipe("ntu60", "xsub", 0, lonely)
    with pytest.raises(InputError, match="has to name the recipe"):
        TableRow("nameless", "recipe")


def test_cost_of_systems_without_a_gru_is_guessed_from_a_few_clips() -> None:
    recipe = TINY.recipe("ntu60", "xsub", 0, TableRow("SKT", "recipe", recipe="skeletonbt"))
    assert seconds_per_step(recipe, KINECT_V2, 1) > 0


def test_the_list_as_a_table_has_a_line_per_row_of_the_paper() -> None:
    shown = rows_as_table()
    assert shown.row_count == len(list_rows())
    columns = [list(column.cells) for column in shown.columns]
    assert columns[0][0] == "Table 1"
    assert set(columns[3]) == {"yes", "quoted"}
