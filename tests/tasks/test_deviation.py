"""Deviation: percentiles of held-out people are uniform, unusual people stand out, with the joint and the
moment.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import halp
from halp.cli.present import present
from halp.core.errors import InputError
from halp.tasks.deviation import (
    Deviations,
    PersonWindows,
    compare_with,
    make_reference,
    resampled_poses,
    warnings_about,
)


def people(count: int, seed: int, *, odd: float = 0.0, name: str = "p", windows: int = 8) -> PersonWindows:
    """Windows whose vectors and poses vary from person to person; `odd` moves joint 2 and vectors of the last
    half.
    """
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
    return PersonWindows(
        [f"{n}-visit" for n in names], names, start, start + 1, np.array(vectors, np.float32), shape, joints
    )


def test_percentiles_of_held_out_people_are_uniform() -> None:
    """200 people like the reference: a tenth of them lies above the 90th percentile, half above the 50th."""
    percentiles = []
    for seed in range(10):
        reference = make_reference(people(20, seed))
        percentiles += [
            row["percentile"] for row in compare_with(reference, people(20, 100 + seed, name="q"))
        ]
    high, half = np.mean(np.array(percentiles) >= 90), np.mean(np.array(percentiles) > 50)
    assert 0.04 < high < 0.2
    assert 0.38 < half < 0.62


def test_an_unusual_person_stands_out_with_the_joint_and_the_moment() -> None:
    reference = make_reference(people(20, 0))
    (row,) = compare_with(reference, people(1, 5, odd=1.0, name="q"))
    assert row["percentile"] >= 90
    assert row["moments"][0]["start"] >= 4.0
    assert row["moments"][0]["joint"] == "ankle_left"
    assert row["joints"][0]["joint"] == "ankle_left"
    assert row["people"] == 20


def test_somebody_of_the_reference_is_compared_with_the_others() -> None:
    group = people(12, 3)
    rows = compare_with(make_reference(group), group)
    assert {row["people"] for row in rows} == {11}
    assert 20 < np.mean([row["percentile"] for row in rows]) < 80


def test_a_reference_of_few_people_is_refused() -> None:
    with pytest.raises(InputError, match="the reference has 3 people; at least 5 are needed"):
        make_reference(people(3, 0))


def kinds(count: int, seed: int, kind: int, name: str) -> PersonWindows:
    """Windows of people of one kind of movement: a direction of its own, and a manner of every person."""
    rng = np.random.default_rng(seed)
    group = people(count, seed, name=name, windows=4)
    middle = np.random.default_rng(kind).normal(0, 1, 60)
    manner = np.repeat(rng.normal(0, 0.7, (count, 60)), 4, axis=0)
    return replace(group, vectors=(middle + manner + rng.normal(0, 0.1, manner.shape)).astype(np.float32))


def test_a_movement_of_another_kind_is_unlike_the_whole_reference() -> None:
    """Without their common mean all people are equally far from each other, and so is another movement."""
    reference = make_reference(kinds(12, 0, kind=1, name="p"))
    same = [row for seed in range(1, 9) for row in compare_with(reference, kinds(10, seed, kind=1, name="q"))]
    other = [
        row for seed in range(1, 9) for row in compare_with(reference, kinds(10, seed, kind=2, name="q"))
    ]
    assert np.mean([row["unlike"] for row in same]) <= 0.1
    assert 35 < np.mean([row["percentile"] for row in same]) < 65
    assert all(row["unlike"] and row["percentile"] == 100 for row in other)
    spread = same[0]["reference"]
    assert spread == {k: pytest.approx(v) for k, v in reference.spread.items()}
    assert spread["lowest"] < spread["median"] < spread["highest"] < min(row["score"] for row in other)


def test_the_table_has_the_interval_beside_the_percentile_and_no_nested_values() -> None:
    rows = compare_with(make_reference(people(12, 3)), people(1, 5, name="q"))
    (table,) = present(Deviations(rows, "q")).tables
    cells = {str(column.header): list(column.cells) for column in table.columns}
    (low, high), (row,) = rows[0]["percentile_interval"], rows
    assert cells["percentile"] == [f"{row['percentile']:.1f} [{low:.1f}, {high:.1f}]"]
    assert not [cell for column in cells.values() for cell in column if "{" in cell or "': " in cell]


def test_warnings_name_other_kinds_and_answers_that_depend_on_the_window() -> None:
    usual = {"recording": "a", "percentile": 50.0, "unlike": False}
    near = {"window": 1.0, "percentile": 58.0, "unlike": False}
    assert warnings_about([usual | {"other_windows": [near]}]) == []
    far, strange = near | {"percentile": 92.0}, usual | {"recording": "b", "unlike": True}
    first, second = warnings_about([usual | {"other_windows": [far]}, strange])
    assert first.startswith("'b' is unlike everybody in the reference")
    assert second.startswith("the answer for 'a' depends on the window")


def test_other_actions_of_utkinect_are_unlike_its_walks(shared: Path) -> None:
    """Ten people walk; held out one by one, a walk is like the others and most other actions are not."""
    data = np.load(shared / "data" / "utkinect.npz")
    walk = list(data["class_names"]).index("walk")
    clips = [data["joints"][a:b] for a, b in pairwise(data["offsets"])]
    table = halp.embed_table("halp-base", clips, topology="kinect-v1", cache=False, progress=False)
    poses = resampled_poses(clips)
    names, subjects = (
        np.array([f"r{n}" for n in range(len(clips))]),
        np.array([f"s{s}" for s in data["subjects"]]),
    )

    def windows(rows: np.ndarray) -> PersonWindows:
        people = subjects[rows].tolist()
        spans = np.zeros(len(rows)), np.ones(len(rows))
        return PersonWindows(
            names[rows].tolist(), people, *spans, table.vectors[rows], poses[rows], ("j",) * 20
        )

    walks, others = np.flatnonzero(data["labels"] == walk), np.flatnonzero(data["labels"] != walk)
    rows = compare_with(make_reference(windows(walks)), windows(np.concatenate([walks, others])))
    unlike = np.array([row["unlike"] for row in rows])
    assert unlike[: len(walks)].mean() <= 0.1
    assert unlike[len(walks) :].mean() >= 0.8
