"""The share of kept positives has one definition, and the report's curve ends at it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from halp.data.store import Store
from halp.evaluation.analysis.similarities import kept_curve, kept_share, trailing_mean
from halp.reports.run_report import report_runs
from halp.training import Run, load_recipe, pretrain


@pytest.fixture
def run(store: Store, tmp_path: Path, tiny: tuple[str, ...]) -> Run:
    return pretrain(load_recipe("small", (*tiny, "epochs=1")), store, tmp_path / "run", progress=False)


def log(run: Run, shares: list[float], warm_up: int = 30) -> None:
    """Metrics of a run that logs every fifth step and hallucinates after the warm-up."""
    lines: list[dict[str, float]] = [
        {"step": 5 * i, "epoch": 0, "joint/loss_contrast": 1.0} for i in range(warm_up)
    ]
    lines += [{"step": 5 * (warm_up + i), "epoch": 1, "joint/kept": share} for i, share in enumerate(shares)]
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_kept_share_is_the_mean_of_the_last_tenth_of_the_logged_steps_since_halp_started(run: Run) -> None:
    shares = np.random.default_rng(0).uniform(size=40).tolist()
    log(run, shares)
    assert kept_share(run) == pytest.approx(np.mean(shares[36:]))
    log(run, shares, warm_up=400)
    assert kept_share(run) == pytest.approx(np.mean(shares[36:])), "steps before HaLP starts do not count"


@pytest.mark.parametrize("count", [1, 3, 9])
def test_few_logged_steps_leave_at_least_one(run: Run, count: int) -> None:
    log(run, [0.1 * i for i in range(count)])
    assert kept_share(run) == pytest.approx(0.1 * (count - 1))


def test_a_run_without_hallucinated_positives_has_no_share(run: Run) -> None:
    log(run, [])
    assert kept_share(run) is None
    assert kept_curve(run) == ([], [])


@pytest.mark.parametrize("count", [1, 12, 77])
def test_the_curve_ends_at_the_share_that_the_caption_says(run: Run, count: int) -> None:
    log(run, np.random.default_rng(count).uniform(size=count).tolist())
    steps, shares = kept_curve(run)
    assert len(steps) == len(shares) == count
    assert shares[-1] == pytest.approx(kept_share(run))
    assert f"HaLP keeps {shares[-1]:.1%}" in report_runs({"HaLP": run}, None).html()


def test_trailing_mean_equals_the_slow_formula() -> None:
    values = np.random.default_rng(3).normal(size=20).tolist()
    for window in (1, 4, 50):
        expected = [
            sum(part) / len(part) for i in range(20) if (part := values[max(0, i + 1 - window) : i + 1])
        ]
        assert trailing_mean(values, window) == pytest.approx(expected)
