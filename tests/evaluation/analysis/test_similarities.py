"""Similarities over training and to prototypes, as tables and as curves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from halp.data.store import Store
from halp.evaluation.analysis.prototypes import prototype_similarities, prototype_table
from halp.evaluation.analysis.similarities import evenly_chosen, similarities_by_epoch, smooth_curve
from halp.training import Run, load_recipe, pretrain


@pytest.fixture(scope="module")
def run(store: Store, tmp_path_factory: pytest.TempPathFactory, tiny: tuple[str, ...]) -> Run:
    """A run that has hallucinated positives."""
    return pretrain(
        load_recipe("small", tiny), store, tmp_path_factory.mktemp("similarities") / "run", progress=False
    )


def test_rows_are_the_means_of_the_steps_of_an_epoch_over_the_runs(run: Run) -> None:
    columns, rows = similarities_by_epoch([run, run])
    assert columns[:3] == ["epoch", "key – query", "positive – query"]
    lines = [line for line in run.metrics() if "joint/similarity_positive_query" in line]
    assert [row[0] for row in rows] == sorted({line["epoch"] + 1 for line in lines})
    first = [line["joint/similarity_key_query"] for line in lines if line["epoch"] + 1 == rows[0][0]]
    assert rows[0][1] == pytest.approx(np.mean(first), abs=1e-4)


def test_a_run_without_positives_has_no_rows(store: Store, tmp_path: Path, tiny: tuple[str, ...]) -> None:
    recipe = load_recipe("small", (*tiny, "epochs=1", 'terms=["infonce"]'))
    run = pretrain(recipe, store, tmp_path / "run", progress=False)
    assert similarities_by_epoch([run])[1] == []
    assert prototype_similarities(run, store) == {}
    assert prototype_table(run, store) == (["prototype"], [])


def test_kept_positives_rank_the_keys_closest_prototype_first_and_dropped_ones_do_not(
    run: Run, store: Store
) -> None:
    series = prototype_similarities(run, store)
    key = series["key"][1]
    assert key == sorted(key, reverse=True)
    assert {"kept positive 1", "dropped positive"} <= set(series)
    for name, (ranks, values) in series.items():
        assert ranks == list(range(1, len(key) + 1))
        if name.startswith("kept"):
            assert values[0] == max(values)
        elif name.startswith("dropped"):
            assert values[0] < max(values)
    columns, rows = prototype_table(run, store)
    assert columns == ["prototype", *series]
    assert [row[1] for row in rows] == [round(value, 4) for value in key]


@pytest.mark.parametrize("count", [0, 3, 20])
def test_a_smooth_curve_equals_the_slow_running_mean(run: Run, tmp_path: Path, count: int) -> None:
    values = np.random.default_rng(count).normal(size=count).tolist()
    copy = Run(tmp_path, run.recipe, run.info)
    lines = [{"step": step, "joint/loss": value} for step, value in enumerate(values)]
    copy.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    steps, smooth = smooth_curve(copy, "loss")
    assert steps == list(range(count))
    padded = [values[0]] * 2 + values + [values[-1]] * 2 if count else []
    expected = values if count <= 5 else [sum(padded[i : i + 5]) / 5 for i in range(count)]
    assert smooth == pytest.approx(expected)


def test_rows_for_a_page_are_evenly_chosen_with_both_ends() -> None:
    rows: list[list[object]] = [[number] for number in range(100)]
    assert evenly_chosen(rows[:5]) == rows[:5]
    chosen = [row[0] for row in evenly_chosen(rows)]
    assert (chosen[0], chosen[-1], len(chosen)) == (0, 99, 12)
