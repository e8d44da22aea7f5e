"""Deviation: percentiles of held-out people are uniform, unusual people stand out, with the joint and the moment."""

from __future__ import annotations

import numpy as np
import pytest

from halp.core.errors import InputError
from halp.tasks.deviation import Windows, deviation, make_reference


def people(count: int, seed: int, *, odd: float = 0.0, name: str = "p", windows: int = 8) -> Windows:
    """Windows whose vectors and poses vary from person to person; `odd` moves joint 2 and vectors of the last half."""
    rng = np.random.default_rng(seed)
    vectors, poses, names = [], [], []
    for number in range(count):
        manner, posture = rng.normal(0, 0.6, 10), rng.normal(0, 0.1, (3, 3))
        for window in range(windows):
            phase = 2 * np.pi * window / windows
            base = np.r_[3 * np.cos(phase), 3 * np.sin(phase), np.zeros(8)]
            late = odd * (window >= windows // 2)
            vectors.append(base + manner + rng.normal(0, 0.2, 10) + np.r_[0, 0, 4 * late, np.zeros(7)])
            pose = np.tile(posture + rng.normal(0, 0.02, (3, 3)), (6, 1, 1))
            pose[:, 2] += late
            poses.append(pose)
            names.append(f"{name}{number}")
    start = np.tile(np.arange(windows, dtype=float), count)
    shape = np.array(poses, dtype=np.float32)
    joints = ("hip_left", "knee_left", "ankle_left")
    return Windows([f"{n}-visit" for n in names], names, start, start + 1, np.array(vectors, np.float32), shape, joints)


def test_percentiles_of_held_out_people_are_uniform() -> None:
    """200 people like the reference: a tenth of them lies above the 90th percentile, half above the 50th."""
    percentiles = []
    for seed in range(10):
        reference = make_reference(people(20, seed))
        percentiles += [row["percentile"] for row in deviation(reference, people(20, 100 + seed, name="q"))]
    high, half = np.mean(np.array(percentiles) >= 90), np.mean(np.array(percentiles) > 50)
    assert 0.04 < high < 0.2
    assert 0.38 < half < 0.62


def test_an_unusual_person_stands_out_with_the_joint_and_the_moment() -> None:
    reference = make_reference(people(20, 0))
    (row,) = deviation(reference, people(1, 5, odd=1.0, name="q"))
    assert row["percentile"] >= 90
    assert row["moments"][0]["start"] >= 4.0
    assert row["moments"][0]["joint"] == "ankle_left"
    assert row["joints"][0]["joint"] == "ankle_left"
    assert row["people"] == 20


def test_somebody_of_the_reference_is_compared_with_the_others() -> None:
    group = people(12, 3)
    rows = deviation(make_reference(group), group)
    assert {row["people"] for row in rows} == {11}
    assert 20 < np.mean([row["percentile"] for row in rows]) < 80


def test_a_reference_of_few_people_is_refused() -> None:
    with pytest.raises(InputError, match="the reference has 3 people; 5 or more are needed"):
        make_reference(people(3, 0))
