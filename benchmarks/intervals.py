"""`python -m benchmarks.intervals [--trials N]`: whether 95 % intervals hold 95 %, and tests call 5 % of
nothing something.

People are drawn from populations whose mean is known: normal, skewed (shares of time, times to the first
bout) and of unequal spread. For every kind of interval that `halp` gives, the share of trials in which it
holds the truth; for every test, the share of trials without a difference in which p is 0.05 or less. The
cycle time of repetitions is measured in made recordings whose cycles vary from one to the next around a known
mean. Written to `results/intervals.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness import RESULTS
from halp.evaluation.results import versions
from halp.skeleton import topology_for
from halp.tasks.group_tests import compare_groups
from halp.tasks.intervals import (
    asymmetry,
    asymmetry_interval,
    mean_interval,
    median_interval,
    share_interval,
    sums_interval,
)
from halp.tasks.permutation import cluster_permutation
from halp.tasks.pose_tracks import Floats, PoseTrack
from halp.tasks.reliability import icc_interval, kappas
from halp.tasks.repetitions import find_repetitions
from halp.tasks.within import compare_conditions

Draw = Callable[[np.random.Generator, int], Floats]
POPULATIONS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, n: rng.normal(3, 1, n), 3.0),
    "shares of time": (lambda rng, n: rng.beta(1.2, 4, n), 1.2 / 5.2),
    "times to the first bout": (lambda rng, n: rng.exponential(4, n), 4.0),
}
DELTA = 0.5  # the true Cliff's delta of the trials of it: two exponentials whose rates are 3 and 1


def holds(interval: list[float] | None, truth: float) -> bool:
    return interval is not None and interval[0] <= truth <= interval[1]


def means(rng: np.random.Generator, trials: int) -> dict[str, float]:
    return {
        f"mean of {n} people, {name}": float(
            np.mean([holds(mean_interval(draw(rng, n)), truth) for _ in range(trials)])
        )
        for name, (draw, truth) in POPULATIONS.items()
        for n in (6, 12, 30)
    }


def between(rng: np.random.Generator, trials: int) -> tuple[dict[str, float], dict[str, float]]:
    """Differences of two groups of people: intervals, and p without a difference."""
    coverage, alarms = {}, {}
    for name, (draw, _) in POPULATIONS.items():
        for n, m in ((6, 6), (8, 20)):
            found = []
            for trial in range(trials):
                one, other = (
                    draw(rng, n),
                    2 * draw(rng, m) - draw(rng, m),
                )  # the same mean, another spread and shape
                group = {f"{k}": "a" if k < n else "b" for k in range(n + m)}
                values = {"x": {f"{k}": float(v) for k, v in enumerate(np.r_[one, other])}}
                row = compare_groups(values, group, resamples=199, seed=trial)["labels"][0]
                found.append(holds(row["pairs"][0]["difference_interval"], 0.0))
            coverage[f"difference of {n} and {m} people, unequal spread, {name}"] = float(np.mean(found))
        p = []
        for trial in range(trials):
            values = {"x": {f"{k}": float(v) for k, v in enumerate(draw(rng, 16))}}
            group = {f"{k}": "a" if k < 8 else "b" for k in range(16)}
            p.append(compare_groups(values, group, resamples=199, seed=trial)["labels"][0]["p"])
        alarms[f"permutation of 8 and 8 people, {name}"] = float(np.mean(np.array(p) <= 0.05))
    for n in (8, 20):
        found = []
        for trial in range(trials):
            one, other = rng.exponential(3.0, n), rng.exponential(1.0, n)
            group = {f"{k}": "a" if k < n else "b" for k in range(2 * n)}
            values = {"x": {f"{k}": float(v) for k, v in enumerate(np.r_[one, other])}}
            pair = compare_groups(values, group, resamples=9, seed=trial)["labels"][0]["pairs"][0]
            found.append(holds(pair["delta_interval"], DELTA))
        coverage[f"Cliff's delta of {n} and {n} people (bootstrap)"] = float(np.mean(found))
    return coverage, alarms


def paired(rng: np.random.Generator, trials: int) -> tuple[dict[str, float], dict[str, float]]:
    """Two conditions of the same people: a difference of 0.5 in truth, or none."""
    coverage, alarms = {}, {}
    for test in ("permutation", "mixed"):
        for n in (8, 20):
            found: list[float] = []
            p: list[float] = []
            for trial in range(trials):
                base = rng.exponential(3, n)
                one, other = base + 0.5 + rng.normal(0, 1, n), base + rng.normal(0, 1, n)
                for shift, kept in ((0.0, found), (0.5, p)):
                    values = {"a": dict(enumerate(one - shift)), "b": dict(enumerate(other))}
                    named = {
                        "x": {c: {f"{k}": float(v) for k, v in row.items()} for c, row in values.items()}
                    }
                    row = compare_conditions(named, test=test, resamples=255, seed=trial)["labels"][0]
                    kept.append(
                        holds(row["pairs"][0]["difference_interval"], 0.5) if kept is found else row["p"]
                    )
            coverage[f"difference within {n} people, {test}"] = float(np.mean(found))
            alarms[f"conditions within {n} people, {test}"] = float(np.mean(np.array(p) <= 0.05))
    return coverage, alarms


def curve_alarms(rng: np.random.Generator, trials: int) -> dict[str, float]:
    """False alarms anywhere in a smooth curve of 50 moments."""
    kernel = np.exp(-0.5 * (np.arange(-10, 11) / 4.0) ** 2)

    def smooth(rows: int) -> Floats:
        return np.array([np.convolve(row, kernel, "valid") for row in rng.normal(size=(rows, 70))])

    rates = {}
    for kind in (False, True):
        p = [
            cluster_permutation(smooth(7), smooth(7), paired=kind, resamples=128, seed=n)["p"]
            for n in range(trials)
        ]
        rates[f"curves of 7 {'pairs' if kind else 'and 7 people'}, cluster permutation"] = float(
            np.mean(np.array(p) <= 0.05)
        )
    return rates


def cycles(rng: np.random.Generator, trials: int, repetitions: int) -> float:
    """The cycle time of a knee that bends again and again, whose cycles vary by 8 % around 1.5 s, with sensor
    noise.
    """
    names = ["hip_left", "knee_left", "ankle_left", "hip_right", "knee_right", "ankle_right"]
    found = []
    for _ in range(trials):
        parts = [
            np.sin(np.pi * np.linspace(0, 1, round(30 * rng.normal(1.5, 0.12)), endpoint=False)) ** 2
            for _ in range(repetitions)
        ]
        angle = np.radians(70 * np.concatenate(parts))
        joints = np.zeros((len(angle), 6, 3))
        for first, x in ((0, -0.2), (3, 0.2)):
            joints[:, first : first + 3, 0] = x
            joints[:, first, 1] = 1.0
            joints[:, first + 2, 1], joints[:, first + 2, 2] = -np.cos(angle), np.sin(angle)
        joints += rng.normal(0, 0.01, joints.shape)
        row = find_repetitions(
            PoseTrack("made", 0, joints, topology_for(names, 3), 30.0), angle="knee_left"
        ).to_json()
        found.append(holds(row["cycle_interval"], 1.5))
    return float(np.mean(found))


def counted(rng: np.random.Generator, trials: int) -> dict[str, float]:
    """Shares, medians, left against right, and what is drawn over recordings."""
    coverage: dict[str, float] = {}

    def add(name: str, intervals: list[list[float] | None], truth: float) -> None:
        coverage[name] = float(np.mean([holds(interval, truth) for interval in intervals]))

    rounds = range(trials)
    for n in (8, 20):
        add(f"probability 0.3 of {n} transitions",
            [share_interval(int(rng.binomial(n, 0.3)), n) for _ in rounds], 0.3)  # fmt: skip
        for name, (draw, _) in POPULATIONS.items():
            truth = float(np.median(draw(rng, 10**6)))
            add(f"median of {n} people, {name}", [median_interval(draw(rng, n)) for _ in rounds], truth)
        sides = [(rng.normal(1.2, 0.06, n), rng.normal(1.0, 0.06, n)) for _ in rounds]
        add(f"asymmetry of {n} strides a side", [asymmetry_interval(*pair) for pair in sides],
            asymmetry(1.2, 1.0) or 0.0)  # fmt: skip
        rated = [
            rng.normal(0, 2, (n, 1)) + rng.normal(0, 0.5, (1, 2)) + rng.normal(0, 1, (n, 2)) for _ in rounds
        ]
        add(f"ICC of {n} recordings", [icc_interval(table) for table in rated], 4 / 5.25)
        add(f"share of a group in {n} recordings",
            [sums_interval(_shares(rng, n), lambda s: s[:, 0] / s[:, 1], "share") for _ in rounds], 0.25)  # fmt: skip
        truth = float(kappas(_tables(rng, 50_000).sum(0)[None])[0])
        add(
            f"kappa of {n} recordings",
            [sums_interval(_tables(rng, n), kappas, "correlation") for _ in rounds],
            truth,
        )
    return coverage


def _shares(rng: np.random.Generator, recordings: int) -> Floats:
    """Windows of a group and of all groups in each recording: a quarter on average, which varies a lot."""
    windows = rng.integers(20, 60, recordings)
    return np.column_stack([rng.binomial(windows, rng.beta(1, 3, recordings)), windows])


def _tables(rng: np.random.Generator, recordings: int) -> Floats:
    """Bins of two accounts and two labels in each recording; agreement and the share of a label vary."""
    share, same = rng.beta(4, 4, recordings), rng.beta(8, 2, recordings)
    cells = np.stack([share * same, share * (1 - same), (1 - share) * (1 - same), (1 - share) * same], axis=1)
    return rng.multinomial(rng.integers(100, 400, recordings), cells).astype(float)


def measure(trials: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    coverage, alarms = between(rng, trials)
    more, further = paired(rng, trials)
    coverage = means(rng, 4 * trials) | coverage | more
    coverage |= {
        f"cycle time of {n} repetitions": cycles(np.random.default_rng(seed + n), trials, n) for n in (4, 9)
    }
    coverage |= counted(np.random.default_rng(seed + 1), trials)
    return {
        "trials": trials,
        "coverage of 95 % intervals": coverage,
        "false alarms at 5 %": alarms | further | curve_alarms(rng, trials),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=600)
    result = measure(parser.parse_args().trials)
    for heading in ("coverage of 95 % intervals", "false alarms at 5 %"):
        table = Table(heading, "share")
        for name, share in result[heading].items():
            table.add_row(name, f"{share:.1%}")
        Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "intervals.json").write_text(json.dumps({**result, "versions": versions()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
