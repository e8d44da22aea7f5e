"""Curves over cycles, and the cluster permutation test against brute force, its error rate, and spm1d if it
exists.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, permutations, product
from pathlib import Path

import numpy as np
import pytest
from gait_samples import walk
from scipy import stats

import halp
from halp.cli import main
from halp.core.errors import InputError
from halp.tasks.curves import Cycle, _compare, cycles_of
from halp.tasks.permutation import cluster_permutation
from halp.tasks.pose_files import write_poses


def smooth(rng: np.random.Generator, rows: int, points: int = 40) -> np.ndarray:
    """Noise that is alike in neighbouring moments."""
    kernel = np.exp(-0.5 * (np.arange(-10, 11) / 3.0) ** 2)
    noise = rng.normal(size=(rows, points + 20))
    return np.array([np.convolve(row, kernel, "valid") for row in noise])


def masses(t: np.ndarray, limit: float) -> list[float]:
    """Masses of clusters, moment by moment."""
    found, current, sign = [], 0.0, 0
    for value in [*t, 0.0]:
        here = 0 if abs(value) <= limit else (1 if value > 0 else -1)
        if here != sign:
            if sign:
                found.append(current)
            current, sign = 0.0, here
        current += abs(value) if here else 0.0
    return found


def test_two_groups_have_the_p_values_of_all_exchanges() -> None:
    rng = np.random.default_rng(0)
    one, other = smooth(rng, 4) + np.r_[np.zeros(20), 2.5 * np.ones(20)], smooth(rng, 4)
    found = cluster_permutation(one, other)
    rows, limit = np.concatenate([one, other]), stats.t.ppf(0.975, 6)
    null = []
    for chosen in combinations(range(8), 4):
        rest = [row for row in range(8) if row not in chosen]
        t = stats.ttest_ind(rows[list(chosen)], rows[rest]).statistic
        null.append(max(masses(t, limit), default=0.0))
    expected = masses(stats.ttest_ind(one, other).statistic, limit)
    assert found["exact"]
    assert found["permutations"] == 70
    assert [c["mass"] for c in found["clusters"]] == pytest.approx(expected)
    assert [c["p"] for c in found["clusters"]] == pytest.approx(
        [np.mean(np.array(null) >= m - 1e-9) for m in expected]
    )


def test_paired_curves_have_the_p_values_of_all_signs() -> None:
    rng = np.random.default_rng(1)
    one = smooth(rng, 6)
    other = one + smooth(rng, 6) * 0.5 - np.r_[np.zeros(10), np.ones(15), np.zeros(15)]
    found = cluster_permutation(one, other, paired=True)
    limit = stats.t.ppf(0.975, 5)
    null = [
        max(
            masses(stats.ttest_1samp((one - other) * np.array(signs)[:, None], 0).statistic, limit),
            default=0.0,
        )
        for signs in product((1, -1), repeat=6)
    ]
    expected = masses(stats.ttest_rel(one, other).statistic, limit)
    assert found["permutations"] == 64
    assert [c["p"] for c in found["clusters"]] == pytest.approx(
        [np.mean(np.array(null) >= m - 1e-9) for m in expected]
    )


def test_random_permutations_come_near_to_all_of_them() -> None:
    rng = np.random.default_rng(2)
    one, other = smooth(rng, 5) + 1.0, smooth(rng, 5)
    exact, drawn = cluster_permutation(one, other), cluster_permutation(one, other, resamples=200)
    assert exact["exact"]
    assert not drawn["exact"]
    assert drawn["p"] == pytest.approx(exact["p"], abs=0.08)


def test_the_order_of_people_and_the_name_of_a_group_do_not_matter() -> None:
    rng = np.random.default_rng(3)
    one, other = smooth(rng, 4) + 1, smooth(rng, 5)
    found = cluster_permutation(one, other)
    for order in list(permutations(range(4)))[:3]:
        assert cluster_permutation(one[list(order)], other)["p"] == pytest.approx(found["p"])
    assert cluster_permutation(other, one)["p"] == pytest.approx(found["p"])


@pytest.mark.parametrize("paired", [False, True])
def test_false_alarms_anywhere_in_the_curve_stay_at_five_per_cent(paired: bool) -> None:
    rng = np.random.default_rng(4)
    alarms = [
        cluster_permutation(smooth(rng, 7, 30), smooth(rng, 7, 30), paired=paired, resamples=128, seed=n)["p"]
        <= 0.05
        for n in range(200)
    ]
    assert 0.005 <= np.mean(alarms) <= 0.095


def test_inference_is_like_that_of_spm1d() -> None:
    spm1d = pytest.importorskip("spm1d", reason="spm1d is an oracle only and is not installed with halp")
    rng = np.random.default_rng(5)
    one, other = smooth(rng, 8, 101) + np.r_[np.zeros(40), 9 * np.ones(40), np.zeros(21)], smooth(rng, 8, 101)
    theirs = spm1d.stats.ttest2(one, other)
    found = cluster_permutation(one, other)
    np.testing.assert_allclose(found["t"], theirs.z, rtol=1e-6)
    spans = [cluster.endpoints for cluster in theirs.inference(0.05, two_tailed=True).clusters]
    assert len(spans) == 1
    best = min(found["clusters"], key=lambda c: c["p"])
    assert best["p"] < 0.05
    assert best["start"] <= spans[0][0] + 1
    assert best["stop"] >= spans[0][1] - 1


def test_cycles_of_a_walk_are_its_strides_and_their_mean_has_a_band(tmp_path: Path) -> None:
    poses, contacts, _ = walk(noise=0.002)
    found = cycles_of(poses, "knee_flexion_left", "gait")
    assert len(found) >= len(contacts["left"]) - 2
    assert {len(cycle.values) for cycle in found} == {101}
    spread = np.std([cycle.values for cycle in found], axis=0)
    assert spread.max() < 5  # every stride is the same but for noise
    with pytest.raises(InputError, match="knee_flexion_left"):
        cycles_of(poses, "knee_flexion_leff")


def test_sides_are_compared_within_people_and_groups_between_them() -> None:
    rng = np.random.default_rng(0)

    def cycle(person: int, side: str, shift: float) -> Cycle:
        return Cycle("r", f"p{person}", 0, 1, side, 40 + shift + person + rng.normal(0, 0.5, 101))

    cycles = [
        cycle(person, side, 5.0 * (side == "left")) for person in range(8) for side in ("left", "right")
    ]
    test = _compare(cycles, [c.side for c in cycles], ["left", "right"], "side", 9999, 0)
    assert test is not None
    assert (test["people"], test["p"]) == ([8, 8], pytest.approx(2 / 256))
    # between people the difference of 5 drowns in nothing, since people differ by 1 each only; one person in
    # both is refused
    with pytest.raises(InputError, match="groups need different people"):
        _compare(cycles, [c.side for c in cycles], ["left", "right"], "group", 99, 0)
    alone = [c for c in cycles if c.person == "p0"]
    assert (
        "2 or more people"
        in _compare(alone, [c.side for c in alone], ["left", "right"], "side", 99, 0)["reason"]
    )


def test_a_side_is_not_named_where_sides_are_compared(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without a side: knee"):
        halp.curves(tmp_path, "knee_right", by="side")


def test_the_command_compares_the_sides_of_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        poses, _, _ = walk(seconds=8, fps=50, cycle=1.0 + 0.05 * number, noise=0.002, seed=number)
        write_poses([replace(poses, recording=f"w{number}")], tmp_path / "trc", "trc")
    main(
        [
            "curves",
            str(tmp_path / "trc"),
            "knee_flexion",
            "--by",
            "side",
            "--json",
            "--html",
            str(tmp_path / "c.html"),
        ]
    )
    found = json.loads(capsys.readouterr().out)
    assert [group["group"] for group in found["groups"]] == ["left", "right"]
    assert [group["people"] for group in found["groups"]] == [3, 3]
    assert found["test"]["permutations"] == 8
    assert [len(group["mean"]) for group in found["groups"]] == [101, 101]
    assert all(
        low <= mean <= high
        for g in found["groups"]
        for low, mean, high in zip(g["low"], g["mean"], g["high"], strict=True)
    )
    assert "Difference" in (tmp_path / "c.html").read_text()
