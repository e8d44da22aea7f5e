"""The benchmark of HaLP's gain: what varies in its cells, shared runs, corrected intervals, and the tables it writes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

from benchmarks.halp_gain import CELLS, SWEEPS, Cell
from benchmarks.halp_gain_report import interval, markdown, paired_gain, similarity_figure


def test_around_the_base_cell_one_setting_varies_at_a_time() -> None:
    base = dataclasses.asdict(CELLS["base"])
    for name, cell in CELLS.items():
        differing = [key for key, value in dataclasses.asdict(cell).items() if value != base[key]]
        assert len(differing) == (name != "base")
    for key, values in SWEEPS.items():
        assert getattr(Cell(), key) in values


def test_cells_that_differ_in_halp_alone_share_the_run_without_it() -> None:
    base, heavy, long = Cell(), Cell(weight=3), Cell(epochs=20)
    assert base.folder(1, None) == heavy.folder(1, None) != long.folder(1, None)
    assert len({cell.folder(1, "paper") for cell in (base, heavy, long)}) == 3
    assert len({cell.folder(0, pull) for cell in CELLS.values() for pull in ("paper", "balanced")}) == 2 * len(CELLS)


def test_the_interval_is_students_with_bonferronis_correction() -> None:
    ours, other = [71.0, 74.0, 72.5, 70.0], [70.0, 71.5, 72.0, 70.5]
    mean, half = interval(ours, other, 5)
    found = stats.ttest_rel(ours, other).confidence_interval(1 - 0.05 / 5)
    assert (mean - half, mean + half) == pytest.approx((found.low, found.high))
    assert np.isnan(interval([1.0], [0.0], 1)[1])


def made_up(gain: float) -> dict[str, object]:
    def accuracies(shift: float) -> dict[str, object]:
        return {"joint": {"a": {"knn": [50 + shift, 51 + shift], "ridge": [60 + shift, 62 + shift]}}}

    def entry(shift: float) -> dict[str, object]:
        curves = {"similarity_key_query": [None, 0.8, 0.9], "similarity_positive_query": [None, None, 0.7]}
        curves |= {"similarity_key_queue": [0.1, 0.2, None], "similarity_positive_queue": [None, None, None]}
        quality = {"purity": 0.5, "false_positives": 0.3, "false_keys": 0.2, "kept": 0.9}
        return {"accuracies": accuracies(shift), "curves": curves, "quality": quality}

    methods = {"MoCo": entry(0), "HaLP": entry(gain), "HaLP, balanced": entry(0)}
    cell = {"baseline": "MoCo", "methods": methods}
    cell["differences"] = paired_gain(cell)
    return cell


def test_tables_print_a_difference_beyond_its_interval_in_bold() -> None:
    cells = {"base": made_up(2.0)}
    baseline = {"a": {"knn": [40.0, 42.0], "ridge": [45.0, 46.0]}}
    found = {"command": "c", "baselines": {"raw coordinates": baseline, "untrained encoder": baseline}, "cells": cells}
    text = markdown(found)
    assert "| HaLP − MoCo | **+2.0 ± 0.0** |" in text
    assert "| HaLP, balanced − MoCo | +0.0 ± 0.0 |" in text
    assert "| raw coordinates | 41.0 |" in text
    assert "| base | 50.5 | **+2.0 ± 0.0** |" in text
    assert "mean over 2 seeds" in text
    assert "0.20" in text  # the last similarity that was logged


def test_the_figure_has_a_curve_per_method_and_similarity() -> None:
    figure = similarity_figure(made_up(0.0))
    assert figure.startswith("<svg")
    assert figure.count("data-points") == 3 * 3
