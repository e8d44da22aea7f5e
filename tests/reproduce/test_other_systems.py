"""Every row of the paper's tables is known and runs by a recipe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from halp.cli.results import rows_as_table
from halp.core.errors import InputError
from halp.core.recipe_list import list_recipes
from halp.data.store import Store
from halp.evaluation.protocols.ensemble import EnsembleSettings
from halp.reproduce import list_rows, list_tables
from halp.reproduce.runner import SweepRunner, seconds_per_step
from halp.reproduce.scales import SCALES
from halp.reproduce.scheduler import DataSet, make_schedule
from halp.reproduce.summary import TableSummary, summarise_rows
from halp.reproduce.tables import TableRow
from halp.skeleton import KINECT_V2
from halp.training import load_recipe

# the rows of the paper, as they stand there
ROWS = {
    "Table 1": (
        *(
            "ISC",
            "CrosSCLR-B",
            "CMD",
            "HaLP + CMD",
            "LongT GAN",
            "MS2L",
            "P&C",
            "AS-CAL",
            "H-Transformer",
            "SKT",
        ),
        *("GL-Transformer", "SeBiReNet", "AimCLR", "baseline (MoCo)", "HaLP"),
    ),
    "Table 2": ("ISC", "CrosSCLR-B", "CMD", "HaLP + CMD", "LongT GAN", "P&C", "baseline (MoCo)", "HaLP"),
    "Table 3": ("ISC", "CrosSCLR-B", "CMD", "HaLP + CMD", "LongT GAN", "MS2L", "baseline (MoCo)", "HaLP"),
    "Supplement, Table 7": (
        *(
            "ISC",
            "CrosSCLR-B",
            "CMD",
            "HaLP + CMD",
            "LongT GAN",
            "MS2L",
            "ASSL",
            "AimCLR",
            "baseline (MoCo)",
            "HaLP",
        ),
    ),
    "Supplement, Table 13": ("3s-CrosSCLR", "3s-AimCLR", "3s-CrosSCLR-B", "3s-CMD", "3s-HaLP + CMD"),
    "Supplement, Table 14": ("GraphCL", "GraphCL + HaLP"),
}


@pytest.mark.parametrize("source", ROWS)
def test_every_row_of_the_paper_is_known(source: str) -> None:
    assert {status.row for status in list_rows() if status.source == source} == set(ROWS[source])


def test_a_row_runs_exactly_if_one_of_its_recipes_exists() -> None:
    assert len(list_rows()) >= sum(map(len, ROWS.values()))
    for status in list_rows():
        table = list_tables()[status.how.removeprefix("halp reproduce ")]
        assert status.row in {row.name for row in table.rows}
    assert any(row.method == "recipe" for table in list_tables().values() for row in table.rows)
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
    assert SCALES["paper"].recipe("ntu120", "xset", 2, row) == load_recipe(
        "ntu120-ascal", ["seed=2", "split=xset"]
    )
    assert SCALES["paper"].recipe("pku2", "xsub", 0, row).name == "ntu60-ascal", (
        "where a data set has no recipe of its own"
    )
    assert SCALES["small"].recipe("mine", "xsub", 0, row) == load_recipe("small-ascal")
    quick = SCALES["quick"].recipe("mine", "xsub", 0, row)
    assert (quick.epochs, quick.optimiser.milestones) == (22, (11,))
    table = list_tables()["knn-others"]
    plan = make_schedule(table, SCALES["tiny"], [DataSet("mine", store)])
    others = [job for job in plan.jobs.values() if re.search(r"/(longt-gan|predict-cluster)-seed0", job.name)]
    assert len(others) == len(table.rows) == len(plan.jobs) > 0
    assert all(job.parent is None and job.first == 0 for job in others)


def test_untrained_rows_of_other_systems_are_their_own_encoders_and_train_nothing(
    tmp_path: Path, store: Store
) -> None:
    plan = make_schedule(list_tables()["linear-others"], SCALES["tiny"], [DataSet("mine", store)])
    untrained = [cell for cell in plan.cells if not cell.row.trained]
    assert untrained
    assert all(cell.run is None for cell in untrained)
    runner = SweepRunner(tmp_path, progress=False)
    names = {}
    for cell in untrained:
        run = runner.run_of(SCALES["tiny"], cell)
        assert run is not None
        names[cell.row.name] = run.encoder(run.recipe.streams[0], trained=False).architecture["name"]
    assert names["AimCLR, untrained"] == "stgcn"
    assert names["AS-CAL, untrained"] == "lstm"
    assert len(set(names.values())) > 4
    assert not list(tmp_path.rglob("*"))


@pytest.mark.heavy
def test_other_systems_run_where_the_paper_has_a_figure_or_on_request() -> None:
    table, sources = (list_tables()["linear-others"], [DataSet("ntu60"), DataSet("ntu120"), DataSet("pku2")])
    asked = make_schedule(table, SCALES["paper"], sources)
    published = sum(value is not None for row in table.rows for value in row.paper)
    assert len(asked.jobs) == published == 27
    assert len(make_schedule(table, SCALES["paper"], sources, all_cells=True).jobs) == len(table.rows) * len(
        table.columns
    )


@pytest.mark.heavy
def test_a_recipe_can_have_a_store_of_its_own() -> None:
    sources = [DataSet("ntu60"), DataSet("ntu60:aimclr")]
    plan = make_schedule(list_tables()["linear-others"], SCALES["paper"], [sources[0]])
    assert {job.dataset.key for job in plan.jobs.values()} == {"ntu60"}
    with pytest.raises(InputError, match="not known"):  # its size is that of a store which must be there
        _ = [
            job.steps
            for job in make_schedule(list_tables()["linear-others"], SCALES["paper"], sources).jobs.values()
        ]


def test_systems_are_evaluated_by_their_own_linear_protocol() -> None:
    table = list_tables()["ensemble-others"]
    aimclr = next(row for row in table.rows if row.name == "3s-AimCLR")
    settings = EnsembleSettings(**SCALES["paper"].protocol_settings(table.columns[0], aimclr, {}))
    assert (settings.learning_rate, settings.epochs, list(settings.milestones)) == (3.0, 100, [80])
    assert list(settings.weights) == [0.6, 0.4, 0.6], "joint, motion, bone"


def test_notes_and_borrowed_recipes_stand_in_every_output() -> None:
    plan = make_schedule(list_tables()["linear-others"], SCALES["paper"], [DataSet("ntu60"), DataSet("pku2")])
    rows = summarise_rows(plan, {})
    notes = {row.name: row.note for row in rows}
    assert "kNN type" in notes["LongT GAN"]
    assert "pku2 has no recipe of its own: run by ntu60-ms2l" in notes["MS2L"]
    summary = TableSummary("t", "T", "Table 1", "c", "paper", [0], {}, "halp", rows=rows)
    assert "kNN type" in summary.markdown()
    assert summary.table()[0][-1] == "note"


def test_a_scale_without_a_recipe_leaves_the_row_out() -> None:
    lonely = TableRow("nobody's", "recipe", recipe="no-such-system")
    assert not SCALES["paper"].runs("ntu60", lonely)
    assert SCALES["tiny"].runs("ntu60", TableRow("HaLP"))
    with pytest.raises(InputError, match="has no recipe for scale 'tiny'"):
        SCALES["tiny"].recipe("ntu60", "xsub", 0, lonely)
    with pytest.raises(InputError, match="must name another recipe"):
        TableRow("nameless", "recipe")


def test_cost_of_systems_without_a_gru_is_guessed_from_a_few_clips() -> None:
    recipe = SCALES["tiny"].recipe("ntu60", "xsub", 0, TableRow("SKT", "recipe", recipe="skeletonbt"))
    assert seconds_per_step(recipe, KINECT_V2, 1) > 0


def test_the_list_as_a_table_has_a_line_per_row_of_the_paper() -> None:
    shown = rows_as_table(list_rows())
    assert shown.row_count == len(list_rows())
    columns = [list(column.cells) for column in shown.columns]
    assert columns[0][0] == "Table 1"
    assert all(command.startswith("halp reproduce ") for command in columns[3])
    page = (Path(__file__).parents[2] / "docs" / "paper.md").read_text(encoding="utf-8")
    own = [row for row in list_rows() if row.table in ("guide", "ntu10", "ntu10-streams")]
    assert f"all {len(list_rows())} rows" in page
    assert f"{len(list_rows()) - len(own)} of the paper and {len(own)} of ours" in page


def test_assl_runs_by_its_own_protocol_with_the_share_of_the_column() -> None:
    table = list_tables()["semi-network-others"]
    row = next(row for row in table.rows if row.name == "ASSL")
    settings = SCALES["paper"].protocol_settings(table.columns[1], row, {})
    assert row.protocol_of(table.columns[1]) == "assl"
    assert settings == {"share": 0.05}
    assert not any(other.name == "ASSL, untrained" for other in table.all_rows())
