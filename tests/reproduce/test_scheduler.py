"""The tables as data, the plan of a sweep, its statistics: everything that can be said before training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from clip_samples import write_skeleton
from scipy import stats

from halp.core.errors import InputError
from halp.data.store import Store
from halp.evaluation.analysis.paired_difference import paired_difference
from halp.features.loading import load_encoder
from halp.reproduce import list_tables, prepare_sweep, tables, tables_for
from halp.reproduce.scales import SCALES
from halp.reproduce.scheduler import DataSet, make_schedule
from halp.reproduce.summary import summarise_rows
from halp.reproduce.tables import PaperTable, TableColumn, TableRow

EXPECTED = {
    *(
        "linear",
        "knn",
        "transfer",
        "cost",
        "hardness",
        "prototypes",
        "interpolation",
        "hardest",
        "anchor",
        "semi",
    ),
    *("filter", "weight", "positives", "start", "recent", "similarities", "prototype-similarity", "no-queue"),
}


def test_every_single_stream_table_of_the_paper_is_there() -> None:
    assert set(list_tables()) >= EXPECTED


def test_published_figures_are_those_of_the_paper() -> None:
    by_row = {row.name: row.paper for row in tables.get_table("linear").rows}
    assert by_row["HaLP"] == (79.7, 86.8, 71.1, 72.2, 43.5)
    assert {row.name: row.paper[0] for row in tables.get_table("positives").rows[1:]}["G = 100"] == 79.71
    assert [row.paper for row in tables.get_table("filter").rows[1:]] == [(91, 79.7), (16, 79.5), (100, 79.6)]
    assert tables.get_table("transfer").rows[1].paper == (54.8, 55.4)


@pytest.mark.parametrize(
    "scale", [scale for scale in SCALES if scale != "ntu10"]
)  # which is of its own tables alone
@pytest.mark.slow
def test_every_row_has_a_valid_recipe_at_every_scale(scale: str) -> None:
    seen = set()
    for name, table in list_tables().items():
        for row in table.all_rows():
            if table.kind != "graphs" and row.has_recipe and SCALES[scale].runs("ntu60", row):
                recipe = SCALES[scale].recipe("ntu60", "xsub", 3, row)
                assert recipe.seed == 3, name
                assert ("halp" in recipe.terms) == (row.method == "halp"), name
                seen.add(row.method)
    assert {"moco", "halp", "recipe"} <= seen


def test_baselines_stand_in_every_table() -> None:
    assert sum(table.kind == "table" for table in list_tables().values()) > 30
    for table in list_tables().values():
        if table.kind == "table":
            raw, untrained = table.all_rows()[:2]
            assert (raw.method, untrained.trained) == ("raw", False)


@pytest.mark.heavy
def test_halp_and_its_baseline_fork_from_one_warm_up_of_their_seed(store: Store) -> None:
    plan = make_schedule(tables.get_table("hardness"), SCALES["tiny"], [DataSet("mine", store)], seeds=(0, 1))
    for seed in (0, 1):
        trained = [
            job for job in plan.jobs.values() if job.recipe.seed == seed and job.last == job.recipe.epochs
        ]
        assert len(trained) == 6  # the baseline and five hardnesses
        assert {job.parent for job in trained} == {f"tiny/mine-xsub/warm-epoch4-seed{seed}"}
    order = list(plan.jobs)
    for job in plan.jobs.values():
        assert job.parent is None or order.index(job.parent) < order.index(job.name)


@pytest.mark.heavy
def test_a_table_has_a_scale_of_its_own_and_recordings_are_prepared_once(tmp_path: Path) -> None:
    for name in ("S001C001P001R001A001", "S001C001P003R001A002"):
        write_skeleton(tmp_path / "ten", name)
    for _ in range(2):
        prepared = prepare_sweep(
            "ntu10", data=[f"ntu10={tmp_path / 'ten'}"], splits=["xsub"], out=tmp_path / "out"
        )
        assert prepared.schedule.scale.name == "ntu10"
        assert len(prepared.schedule.store()) == 2
        shipped = next(cell for cell in prepared.schedule.cells if cell.row.method == "shipped")
        assert shipped.dataset.store.normalisation == load_encoder("halp-base").normalisation
    assert {split for *_, split in prepared.schedule.columns} == {"xsub"}


def test_a_difference_is_to_the_baseline_above_and_corrected_where_the_table_says_so(store: Store) -> None:
    rows = [TableRow("MoCo", "moco", baseline=True), TableRow("HaLP"), TableRow("CMD", "moco", baseline=True)]
    table = PaperTable(
        "t", "t", "t", "t", (TableColumn("c"),), (*rows, TableRow("HaLP + CMD")), corrected=True
    )
    plan = make_schedule(table, SCALES["tiny"], [DataSet("mine", store)], seeds=(0, 1))
    values = {"MoCo": [1.0, 2.0], "HaLP": [2.0, 4.0], "CMD": [5.0, 5.0], "HaLP + CMD": [5.0, 7.0]}
    lines = {
        line.name: line
        for line in summarise_rows(plan, {(name, 0, "mine-xsub"): v for name, v in values.items()})
    }
    for name, baseline in (("HaLP", "MoCo"), ("HaLP + CMD", "CMD")):
        assert lines[name].cells[0].difference == paired_difference(
            values[name], values[baseline], comparisons=2
        )
    assert (
        paired_difference([2, 4], [1, 2], comparisons=2).half_width
        > paired_difference([2, 4], [1, 2]).half_width
    )


def test_longer_warm_ups_fork_from_shorter_ones(store: Store) -> None:
    plan = make_schedule(tables.get_table("start"), SCALES["tiny"], [DataSet("mine", store)])
    warm = [job for job in plan.jobs.values() if "warm" in job.name]
    assert [(job.first, job.last) for job in warm] == [(0, 1), (1, 2), (2, 4), (4, 6), (6, 8)]


@pytest.mark.heavy
def test_tables_share_the_runs_of_the_published_settings(store: Store) -> None:
    names = [
        set(make_schedule(tables.get_table(t), SCALES["tiny"], [DataSet("mine", store)]).jobs)
        for t in ("hardness", "weight")
    ]
    shared = {"tiny/mine-xsub/halp-seed0", "tiny/mine-xsub/moco-seed0", "tiny/mine-xsub/warm-epoch4-seed0"}
    assert names[0] & names[1] == shared


@pytest.mark.heavy
def test_a_plan_at_the_papers_scale_needs_no_data(tmp_path: Path) -> None:
    prepared = prepare_sweep("linear", scale="paper", dry=True, out=tmp_path, seeds=2)
    job = prepared.schedule.jobs["paper/ntu60-xsub/halp-seed0"]
    assert (job.first, job.last, job.steps_per_epoch) == (200, 450, 40_091 // 64)
    assert len(prepared.schedule.jobs) == 5 * 3 * 2
    assert not (tmp_path / "runs").exists()
    with pytest.raises(InputError, match="needs data"):
        prepare_sweep("linear", scale="paper", out=tmp_path)


def test_the_papers_scale_is_the_papers_recipe() -> None:
    recipe = SCALES["paper"].recipe("ntu120", "xset", 0, TableRow("HaLP"))
    assert (recipe.epochs, recipe.halp.prototypes, recipe.halp.weight, recipe.split) == (450, 40, 2.0, "xset")


def test_settings_are_carried_over_to_the_scale() -> None:
    assert SCALES["tiny"].carried("halp.start_epoch", 200) == 4
    assert SCALES["tiny"].carried("halp.prototypes", 60) == 12
    assert SCALES["tiny"].carried("halp.hardness", 0.6) == 0.6
    assert SCALES["paper"].carried("halp.recent", 3072) == 3072


def test_transfer_asks_for_a_second_store(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--target"):
        prepare_sweep("transfer", data=[str(store.path)], out=tmp_path)
    assert "transfer" not in tables_for([str(store.path)], None)
    assert "transfer" in tables_for([str(store.path)], "other")
    assert "transfer" in tables_for(["ntu60=a", "pku2=b"], None)
    assert set(tables_for([], None)) == set(list_tables()) - {"graphs"}


def test_unknown_tables_scales_and_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'hardness'"):
        prepare_sweep("hardnes", out=tmp_path)
    with pytest.raises(InputError, match="unknown scale"):
        prepare_sweep("knn", scale="huge", out=tmp_path)
    with pytest.raises(InputError, match="at least one seed"):
        prepare_sweep("knn", seeds=0, out=tmp_path)


def test_a_table_of_ones_own_is_scheduled_like_the_papers(store: Store) -> None:
    streams = {"streams": ["joint", "bone"], "terms": ["infonce", "halp"]}
    rows = (TableRow("two streams", settings=streams, paper=(71.0,)),)
    mine = PaperTable("my-table", "Mine", "beyond the paper", "", (TableColumn("mine"),), rows)
    plan = make_schedule(mine, SCALES["tiny"], [DataSet("mine", store)])
    assert any("streams=joint+bone" in name for name in plan.jobs)
    with pytest.raises(InputError, match="1 values, 2 columns"):
        PaperTable("x", "", "", "", (TableColumn("a"), TableColumn("b")), (TableRow("r", paper=(1.0,)),))


def test_paired_differences_equal_scipys_interval() -> None:
    rng = np.random.default_rng(0)
    ours, baseline = rng.normal(1, 1, 6), rng.normal(0, 1, 6)
    found = paired_difference(ours.tolist(), baseline.tolist())
    interval = stats.ttest_rel(ours, baseline).confidence_interval(0.95)
    assert found.mean - found.half_width == pytest.approx(interval.low)
    assert found.mean + found.half_width == pytest.approx(interval.high)
    assert paired_difference([2.0], [1.0]).half_width is None
    with pytest.raises(InputError, match="same seeds"):
        paired_difference([1.0], [1.0, 2.0])


def test_fewer_epochs_than_the_warm_up_are_refused_in_the_plan(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"epochs = 4 leaves nothing to train after the warm-up of 4 epochs"):
        prepare_sweep("hardness", scale="tiny", settings=["epochs=4"], out=tmp_path, progress=False)
