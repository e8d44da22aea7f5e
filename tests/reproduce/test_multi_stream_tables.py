"""The tables of several streams: the paper's figures, runs that do not get mixed up, and the ensemble of a
run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from halp.data.store import Store
from halp.reproduce import list_tables, reproduce, tables
from halp.reproduce.scales import SCALES
from halp.reproduce.scheduler import DataSet, make_schedule
from halp.training import load_recipe


def test_every_table_with_several_streams_is_there_with_the_papers_figures() -> None:
    added = {
        "linear-streams",
        "knn-streams",
        "transfer-streams",
        "semi-streams",
        "cost-streams",
        "ensemble",
        "guide",
    }
    assert added <= set(list_tables())

    def last(table: str) -> tuple[float | None, ...]:
        return tables.get_table(table).rows[-1].paper

    assert last("linear-streams") == (82.1, 88.6, 72.6, 73.1, 47.5)
    assert last("knn-streams") == (71.0, 86.4, 59.4, 61.9)
    assert last("transfer-streams") == (56.6, 57.3)
    assert last("semi-streams") == (53.0, 75.3, 80.4, 84.6, 52.6, 71.4, 76.0, 79.2)
    assert last("cost-streams") == (3.32, 1.94, 82.1)
    assert last("ensemble") == (85.1, 91.0, 75.5, 76.8, 53.4)


@pytest.mark.parametrize(
    ("row", "name"),
    [("ISC", "isc"), ("CMD", "cmd"), ("HaLP + CMD", "halp-cmd"), ("CrosSCLR-B", "crossclr-b")],
)
@pytest.mark.parametrize("data", ["ntu60", "ntu120", "pku2"])
def test_rows_at_the_papers_scale_are_the_published_recipes(row: str, name: str, data: str) -> None:
    chosen = next(entry for entry in tables.get_table("linear-streams").rows if entry.name == row)
    recipe, published = SCALES["paper"].recipe(data, "xsub", 0, chosen), load_recipe(f"{data}-{name}")
    ours, theirs = recipe.flat(), published.flat()
    different = {key for key in theirs if ours[key] != theirs[key]} - {"name", "description"}
    assert different <= ({key for key in theirs if key.startswith("halp.")} if "halp" not in name else set())


@pytest.mark.parametrize("data", ["ntu60", "ntu120", "pku2"])
def test_aimclr_rows_at_the_papers_scale_are_the_published_recipes(data: str) -> None:
    for row, name in zip(tables.get_table("aimclr").rows, ("aimclr", "aimclr-halp"), strict=True):
        ours, theirs = (
            SCALES["paper"].recipe(data, "xsub", 0, row).flat(),
            load_recipe(f"{data}-{name}").flat(),
        )
        assert {key for key in theirs if ours[key] != theirs[key]} <= {"name", "description"}
    assert [row.paper[0] for row in tables.get_table("aimclr").rows] == [74.34, 75.24]
    assert tables.get_table("aimclr").all_rows()[1].recipe == "aimclr-halp"


@pytest.mark.heavy
def test_aimclr_and_its_halp_share_their_warm_up_and_have_runs_of_their_own_at_every_scale(
    store: Store,
) -> None:
    for scale in (scale for name, scale in SCALES.items() if name != "ntu10"):  # which has tables of its own
        plan = make_schedule(tables.get_table("aimclr"), scale, [DataSet("mine", store)])
        assert {job.recipe.encoder.name for job in plan.jobs.values()} == {"stgcn"}
        assert {name.rpartition("/")[2].split("-")[0] for name in plan.jobs} == {"aimclr"}
        trained = [job for job in plan.jobs.values() if job.last == job.recipe.epochs]
        assert [job.recipe.terms for job in trained] == [("aimclr",), ("aimclr", "halp")]
        assert len({job.parent for job in trained}) == 1
        assert all(0 < job.recipe.aimclr.mining_epoch < job.recipe.epochs for job in trained)


def test_methods_with_the_same_streams_are_different_runs(store: Store) -> None:
    plan = make_schedule(tables.get_table("linear-streams"), SCALES["tiny"], [DataSet("mine", store)])
    trained = {job.name: job.recipe.terms for job in plan.jobs.values() if job.last == job.recipe.epochs}
    assert len(trained) == 4
    assert sorted(trained.values()) == sorted(
        [("isc",), ("crossclr",), ("infonce", "cmd"), ("infonce", "cmd", "halp")]
    )
    parents = {job.recipe.terms: job.parent for job in plan.jobs.values() if job.name in trained}
    assert parents["infonce", "cmd"] == parents["infonce", "cmd", "halp"], "HaLP and CMD share their warm-up"
    assert len(set(parents.values())) == 3
    assert all(len(part) < 200 for name in plan.jobs for part in name.split("/"))


def test_mining_starts_within_a_run_at_every_scale() -> None:
    row = next(entry for entry in tables.get_table("linear-streams").rows if entry.name == "CrosSCLR-B")
    for scale in (scale for name, scale in SCALES.items() if name != "ntu10"):  # which has tables of its own
        recipe = scale.recipe("ntu60", "xsub", 0, row)
        assert 0 < recipe.crossclr.start_epoch < recipe.epochs


def test_isc_trains_on_ntu120_for_its_own_number_of_epochs_at_every_scale() -> None:
    row = next(entry for entry in tables.get_table("linear-streams").rows if entry.name == "ISC")
    paper = SCALES["paper"].recipe("ntu120", "xsub", 0, row)
    assert (paper.epochs, paper.optimiser.milestones) == (350, (251,))
    for scale in (scale for name, scale in SCALES.items() if name != "ntu10"):  # which has tables of its own
        recipe, usual = (scale.recipe(data, "xsub", 0, row) for data in ("ntu120", "ntu60"))
        assert recipe.epochs == round(usual.epochs * 350 / 450)
        assert 0 < recipe.optimiser.milestones[0] < recipe.epochs


def test_semi_supervision_of_several_streams_is_offered_frozen_and_fine_tuned() -> None:
    frozen, network = (tables.get_table(name) for name in ("semi-streams", "semi-network-streams"))
    assert {column.settings.get("variant", "head") for column in frozen.columns} == {"head"}
    assert {column.settings.get("variant") for column in network.columns} == {"network"}
    assert "frozen" in frozen.title
    assert "whole network" in network.title
    assert [row.paper for row in frozen.rows] == [row.paper for row in network.rows]


@pytest.mark.slow
def test_guided_positives_are_reproduced_beside_their_ensemble(tmp_path: Path) -> None:
    summary = reproduce("guide", out=tmp_path, scale="tiny", progress=False)
    by_name = {line.name: line for line in summary.rows}
    assert {"CMD", "HaLP + CMD, own clusters", "HaLP + CMD, the others' clusters"} <= set(by_name)
    assert all(line.cells for line in summary.rows)
    assert all(cell.values for name, line in by_name.items() if "CMD" in name for cell in line.cells)
    assert list(tmp_path.rglob("results/ensemble-*joint+motion+bone*.json"))
