"""No number without its error: every number that a verb reports has an interval or a stated reason why not."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

import halp
from halp import Event, Events
from halp.tasks.agreement import compare_accounts
from halp.tasks.angles import Angles
from halp.tasks.curves import Curves, _compare, _group, cycles_of
from halp.tasks.deviation import compare_with, make_reference
from halp.tasks.find_motifs import NO_INTERVAL as MOTIF_REASONS
from halp.tasks.find_motifs import motif_rows
from halp.tasks.gait import Gaits, find_gait
from halp.tasks.intervals import (
    asymmetry_interval,
    mean_interval,
    median_interval,
    share_interval,
    sums_interval,
)
from halp.tasks.reliability import kappas
from halp.tasks.repetitions import RepetitionCounts, find_repetitions
from halp.tasks.stats import statistics
from tests.gait_samples import walk
from tests.tasks.test_deviation import people

#: What tells where, when, how many were asked, or how sure: no estimates.
NOT_ESTIMATED = {
    "n", "person", "persons", "people", "points", "start", "stop", "end", "window", "groups.people", "cycles",
    "p", "p_corrected", "complete", "left_out", "reference", "group", "suggested", "permutations",
    "other_start", "other_end", "people_with_covariates", "low", "high",
}  # fmt: skip


def unstated(document: Any, path: tuple[str, ...] = (), reasons: tuple[Any, ...] = ()) -> Iterator[str]:
    """Places of numbers without an interval or a reason."""
    if isinstance(document, dict):
        given = document.get("no_interval", {})
        reasons = (*reasons, (len(path), given))
        for key, value in document.items():
            if key == "no_interval" or key in NOT_ESTIMATED or key.endswith("interval"):
                continue
            own = document.get(f"{key.removesuffix('_mean')}_interval")
            if own is None and key in ("mean", "share"):
                own = document.get("interval")
            if own is None and key == "mean" and document.get("low") is not None:
                own = document["low"], document["high"]
            if own is None:
                yield from unstated(value, (*path, key), (*reasons, (len(path), _reason(document))))
    elif isinstance(document, list):
        for value in document:
            yield from unstated(value, path, reasons)
    elif isinstance(document, (int, float)) and not isinstance(document, bool):
        ends = [(depth, end) for depth in range(len(path)) for end in range(depth + 1, len(path) + 1)]
        given = [(depth, place) for depth, places in reasons for place in places]
        if not any(d == depth and fnmatch(".".join(path[d:end]), p) for d, end in ends for depth, p in given):
            yield ".".join(path)


def _reason(document: dict[str, Any]) -> dict[str, str]:
    """A reason that is given beside an interval holds for all numbers of the row."""
    return {"*": document["interval_reason"]} if document.get("interval_reason") else {}


def accounts(recordings: int) -> tuple[Events, Events]:
    """Two accounts of recordings that differ by up to a second."""
    rng = np.random.default_rng(recordings)
    rows: tuple[list[Event], list[Event]] = [], []
    for number in range(recordings):
        middle = 5 + 3 * rng.random()
        for account, late in zip(rows, (0.0, rng.normal(0, 0.5))):
            for label, start, stop in (("walk", 0, middle + late), ("sit", middle + late, 12)):
                account.append(Event(f"r{number}", start, stop, label, f"p{number}", "human"))
    return Events(rows[0]), Events(rows[1])


def visits(persons: int) -> Events:
    """Every person before and after, each with a condition and a group."""
    rng = np.random.default_rng(persons)
    return Events([
        Event(f"r{person}{visit}", start, start + 1 + rng.random(), label, f"p{person}", "human", None,
              {"visit": visit, "group": "ab"[person % 2]})
        for person in range(persons) for visit in ("before", "after")
        for start, label in ((0, "walk"), (3, "sit"), (6, "walk"), (9, "sit"))
    ])  # fmt: skip


def answers() -> dict[str, Any]:
    """What verbs say of made recordings: with few and with enough of what intervals are over."""
    found: dict[str, Any] = {}
    for count in (2, 8):
        found[f"stats of {count} people"] = statistics(visits(count), bins=4.0, resamples=49).to_json()
        found[f"agreement of {count} recordings"] = compare_accounts(*accounts(count))[0]
    found["stats by group"] = statistics(visits(8), by="group", resamples=49).to_json()
    found["stats within people"] = statistics(visits(8), within="visit", resamples=49).to_json()
    found["stats of one person"] = statistics(Events([Event("r", 0, 2, "walk")]), resamples=49).to_json()
    walks = {"long": walk()[0], "short": walk(seconds=3)[0], "treadmill": walk(treadmill=True)[0]}
    for name, poses in walks.items():
        found[f"gait, {name}"] = find_gait(poses).to_json()
        found[f"repetitions, {name}"] = find_repetitions(poses).to_json()
        for convention in ("interior", "clinical"):
            found[f"angles, {convention}, {name}"] = Angles([poses], "made", convention).to_json()
    cycles = [c for side in ("left", "right") for c in cycles_of(walks["long"], f"knee_flexion_{side}")]
    sides = [cycle.side for cycle in cycles]
    groups = [_group(side, [c for c in cycles if c.side == side]) for side in ("left", "right")]
    found["curves, one person"] = Curves("knee", cycles, groups, None, "made", "side").to_json()
    rows = [
        type(c)(c.recording, f"p{n // 2}", c.start, c.stop, "lr"[n % 2], c.values)
        for n, c in enumerate(cycles)
    ]
    test = _compare(rows, [c.side for c in rows], ["l", "r"], "side", 49, 0)
    found["curves, people"] = Curves("knee", rows, [_group("l", rows)], test, "made", "side").to_json()
    assert sides.count("left") > 3
    found["deviation"] = compare_with(make_reference(people(8, 0)), people(2, 1, name="q"))
    return found


def test_every_number_of_a_verb_has_an_interval_or_a_reason() -> None:
    missing = {name: sorted(set(unstated(document))) for name, document in answers().items()}
    assert not {name: places for name, places in missing.items() if places}


def test_times_that_are_alike_to_the_frame_have_an_interval_as_wide_as_frames_allow() -> None:
    """Steps of 19 and a half frames, as a camera of 30 frames per second tells them."""
    assert mean_interval([0.6, 0.6]) == [0.6, 0.6]
    low, high = mean_interval([0.6, 0.6], 1 / 30) or (0, 0)
    assert np.log(high / low) == pytest.approx(2 * 12.706 / 0.6 / 30 / np.sqrt(6) / np.sqrt(2), rel=1e-3)
    rng = np.random.default_rng(0)
    starts = rng.random(2000)
    times = [np.round(30 * (start + 0.65 * np.arange(6))) / 30 for start in starts]
    inside = [
        low <= 0.65 <= high for t in times for low, high in [mean_interval(np.diff(t), 1 / 30) or (0, 0)]
    ]
    assert np.mean(inside) > 0.95
    measured = find_gait(walk()[0]).to_json()["measures"]["step_time"]
    assert measured["interval"][1] - measured["interval"][0] > 0.5 / walk()[0].fps / np.sqrt(measured["n"])


def test_intervals_of_durations_are_positive_and_wider_where_neighbours_are_alike() -> None:
    assert (mean_interval([0.4, 2.6], 1 / 30) or [0])[0] > 0 > (mean_interval([0.4, 2.6]) or [0])[0]
    assert (mean_interval([0.0, 0.0], 1 / 30) or [1])[0] == 0
    rng = np.random.default_rng(0)
    own = rng.normal(1.5, 0.12, (3000, 9))
    cycles = own[:, :-1] + 0.1 * np.diff(own)  # starts a tenth after where a cycle begins
    held = {
        serial: np.mean(
            [low <= 1.5 <= high for row in cycles for low, high in [mean_interval(row, serial=serial) or ()]]
        )
        for serial in (False, True)
    }
    assert held[False] < 0.935 < held[True] < 0.97


def test_console_and_page_say_which_numbers_have_no_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from halp.cli.verbs import finish

    poses = walk()[0]
    for answer, words in (
        (Gaits([find_gait(poses)], "made"), "strides (counted;"),
        (Angles([poses], "made"), "one recording does not tell the error"),
        (statistics(visits(8), resamples=49), "bins"),
    ):
        finish(answer, html=tmp_path / "page.html")
        console = " ".join(capsys.readouterr().err.split())
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        if words == "bins":  # there are none: nothing is said of them
            assert "recordings, observed (one recording is counted completely" in console
            continue
        assert words in console
        assert words in page


def test_files_have_a_text_that_says_which_numbers_have_no_interval_and_why(tmp_path: Path) -> None:
    from halp.cli.verbs import finish

    poses = walk()[0]
    for name, answer, words in (
        ("walks/strides.csv", Gaits([find_gait(poses)], "made"), "details (single strides"),
        (
            "cycles.csv",
            RepetitionCounts([find_repetitions(poses)], "made"),
            "repetitions (single repetitions",
        ),
        ("angles.csv", Angles([poses], "made"), "one recording does not tell the error"),
        ("stats", statistics(visits(8), resamples=49), "recordings, observed (one recording is counted"),
    ):
        finish(answer, out=tmp_path / name)
        beside = f"{name}/intervals.md" if name == "stats" else f"{name}.intervals.md"
        assert words in (tmp_path / beside).read_text(encoding="utf-8")
    assert len(halp.events(tmp_path / "walks", concurrent=True)) > 3  # the text beside is not read as events


def test_shares_of_motifs_have_an_interval_over_recordings() -> None:
    rng = np.random.default_rng(0)
    bouts = [
        Event(f"r{n}", start, stop, label)
        for n, middle in enumerate(rng.uniform(2, 4, 8))
        for start, stop, label in ((0.0, middle, "motif 1"), (middle, 10.0, "motif 2"))
    ]
    for count in (2, 8):
        rows = motif_rows(Events(bouts[: 2 * count]), np.eye(2))
        document = {"motifs": rows, "no_interval": MOTIF_REASONS}
        assert not set(unstated(document))
        shares = [event.duration / 10 for event in bouts[: 2 * count : 2]]
        low, high = rows[0]["share_interval"] or (0, 0)
        assert (low, high) == (0, 0) if count == 2 else low < np.mean(shares) < high
        if count == 8:
            assert [low, high] == pytest.approx(mean_interval(shares), abs=0.005)


@pytest.mark.heavy
def test_so_have_numbers_of_comparisons_and_groups() -> None:
    rng = np.random.default_rng(0)
    still = rng.normal(size=(1, 25, 3))
    clips = [still + np.cumsum(rng.normal(0, 0.05, (40, 25, 3)), axis=0) for _ in range(8)]
    how: Any = {"topology": "kinect-v2", "fps": 30, "progress": False}
    for count in (3, 8):
        shares = halp.cluster("halp-base", clips[:count], groups=2, cache=False, **how).to_json()
        assert not set(unstated(shares))
        assert (shares["groups"][0]["share_interval"] is None) == (count == 3)
    assert not set(unstated(halp.compare("halp-base", clips[0], clips[1], **how).to_json()))


def test_the_search_for_numbers_finds_one_without_an_interval() -> None:
    document = {"count": 3, "no_interval": {"count": "counted"}, "rows": [{"start": 1.0, "size": 2.0}]}
    assert list(unstated(document)) == ["rows.size"]
    document["no_interval"] = {"count": "counted", "rows": "counted"}
    assert not list(unstated(document))
    assert list(unstated({"mean": 1.0, "interval": None})) == ["mean"]


def test_the_share_interval_is_the_exact_one_of_scipy() -> None:
    from scipy.stats import binomtest

    for count, total in ((0, 5), (3, 17), (40, 40)):
        exact = binomtest(count, total).proportion_ci(method="exact")
        assert share_interval(count, total) == pytest.approx([exact.low, exact.high])


def test_the_median_interval_holds_at_least_95_per_cent_by_counting_heads() -> None:
    """Of n throws of a coin, the order statistics leave out fewer than 2.5 % on either side."""
    from math import comb

    for n in (6, 9, 20, 51):
        low, high = median_interval(range(n)) or (0, 0)
        inside = sum(comb(n, k) for k in range(int(low) + 1, int(high) + 1)) / 2**n
        assert inside >= 0.95
        one_less = sum(comb(n, k) for k in range(int(low) + 2, int(high))) / 2**n
        assert one_less < 0.95


def test_kappas_of_tables_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.integers(0, 3, (2, 200))
    two = np.where(rng.random(200) < 0.6, one, two)
    table = np.zeros((3, 3))
    np.add.at(table, (one, two), 1)
    assert kappas(table.reshape(1, 9))[0] == pytest.approx(cohen_kappa_score(one, two))


def test_the_interval_of_a_mean_by_leaving_one_out_is_that_of_student() -> None:
    values = np.random.default_rng(0).normal(3, 1, 12)
    rows = np.column_stack([values, np.ones(12)])
    assert sums_interval(rows, lambda s: s[:, 0] / s[:, 1]) == pytest.approx(mean_interval(values))


def test_intervals_of_ratios_contain_them_and_are_narrow_where_recordings_agree() -> None:
    rng = np.random.default_rng(0)
    alike = np.column_stack([rng.integers(9, 12, 30), np.full(30, 20)])
    unlike = np.column_stack([rng.integers(0, 21, 30), np.full(30, 20)])
    ends = [sums_interval(rows, lambda s: s[:, 0] / s[:, 1], "share") or [0, 0] for rows in (alike, unlike)]
    assert ends[0][0] < alike[:, 0].sum() / 600 < ends[0][1]
    assert ends[1][1] - ends[1][0] > 3 * (ends[0][1] - ends[0][0])
    assert sums_interval(alike[:4], lambda s: s[:, 0]) is None
    assert sums_interval(np.ones((9, 2)), lambda s: s[:, 0] / s[:, 1], "share") is None
    low, high = asymmetry_interval([1.0, 1.1, 0.9, 1.0, 1.05], [0.5, 0.55, 0.45, 0.5, 0.5]) or [0, 0]
    assert 50 < low < 200 / 3 < high < 80
