"""Statistics of events against values computed by hand and by other packages, and the error rate of the
tests.
"""

from __future__ import annotations

import csv
import json
import tracemalloc
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from halp.cli import main
from halp.core.errors import InputError
from halp.data.spans import NOBODY, Event, Events
from halp.tasks.agreement import compare_accounts
from halp.tasks.bouts import measures, observed_bouts, transitions
from halp.tasks.group_tests import compare_groups, permutation_p
from halp.tasks.stats import entropy, statistics, stats

HAND = Events(
    [
        Event("a", 0, 2, "walk"),
        Event("a", 2, 3, "sit"),
        Event("a", 3, 7, "walk"),
        Event("a", 7, 9, NOBODY),
        Event("a", 9, 10, ""),
        Event("b", 1, 2, "sit"),
    ],
    {"b": 4.0},
)


def test_statistics_of_two_recordings_are_those_computed_by_hand() -> None:
    rows = {(r["recording"], r["label"]): r for r in statistics(HAND, resamples=9).recordings}
    # recording a is observed for 10 − 2 seconds, since nobody was there for two
    assert rows["a", "walk"] == {
        "recording": "a", "subject": "", "label": "walk",
        "count": 2, "total": 6.0, "mean": 3.0, "median": 3.0, "latency": 0.0, "share": 6 / 8, "rate": 60 * 2 / 8,
    }  # fmt: skip
    assert rows["b", "sit"]["share"] == 1 / 4
    assert rows["b", "sit"]["latency"] == 1.0
    none = rows["b", "walk"]
    assert (none["count"], none["share"], none["mean"], none["latency"]) == (0, 0.0, None, None)


def test_one_person_of_every_video_is_counted() -> None:
    names = ("film#1", "film#2", "alone")
    events = Events([Event(name, 0, 1 + at, "walk") for at, name in enumerate(names)], {"film#2": 8.0})

    def counted(person: str | None) -> dict[str, float]:
        return {row["recording"]: row["share"] for row in stats(events, person=person).recordings}

    assert counted("1") == {"alone": 1.0, "film#1": 1.0}
    assert counted("2") == {"film#2": 0.25}
    assert counted("all") == counted(None) == counted("1") | counted("2")
    with pytest.raises(InputError, match="no person 'left'; events know people by their numbers alone: 1, 2"):
        counted("left")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("name", ["gap", "shortest", "start", "stop", "bins"])
def test_times_that_are_no_numbers_of_seconds_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"{name} .*{value:g} s cannot be"):
        statistics(HAND, resamples=9, **{name: value})
    if name in ("gap", "shortest"):
        with pytest.raises(InputError, match=f"{name} = {value:g} s cannot be used"):
            compare_accounts(HAND, HAND, **{name: value})


def test_bins_share_out_bouts_and_time() -> None:
    rows = statistics(HAND, bins=4.0, resamples=9).bins
    walk = [r for r in rows if (r["recording"], r["label"]) == ("a", "walk")]
    assert [(r["start"], r["stop"], r["count"], r["total"]) for r in walk] == [
        (0, 4, 2, 3.0),
        (4, 8, 0, 3.0),
        (8, 10, 0, 0.0),
    ]
    assert [r["share"] for r in walk] == [3 / 4, 3 / 3, 0.0]


def test_statistics_agree_with_pandas() -> None:
    rng = np.random.default_rng(0)
    events = []
    for recording in "abc":
        cuts = np.sort(rng.uniform(0, 60, 41))
        events += [
            Event(recording, float(s), float(e), str(rng.choice(["x", "y", "z"]))) for s, e in pairwise(cuts)
        ]
    table = pd.DataFrame([{"r": e.recording, "l": e.label, "d": e.duration, "s": e.start} for e in events])
    expected = table.groupby(["r", "l"]).agg(
        count=("d", "size"),
        total=("d", "sum"),
        mean=("d", "mean"),
        median=("d", "median"),
        latency=("s", "min"),
    )
    for (recording, label), row in expected.iterrows():
        own = [e for e in events if (e.recording, e.label) == (recording, label)]
        found = measures([e.duration for e in own], [e.start for e in own], 60.0)
        np.testing.assert_allclose([found[name] for name in row.index], row.to_numpy(float))


def test_diversity_is_the_entropy_of_scipy() -> None:
    assert entropy([3.0, 1.0, 0.0]) == pytest.approx(scipy_stats.entropy([3, 1], base=2))
    assert entropy([5.0]) == 0.0
    assert entropy([0.0]) is None


def test_transitions_are_counted_within_recordings_and_not_across_nobody() -> None:
    events = Events(
        [
            Event("a", 0, 1, "x"),
            Event("a", 1, 2, "y"),
            Event("a", 2, 3, NOBODY),
            Event("a", 3, 4, "x"),
            Event("a", 4, 5, "y"),
            Event("b", 0, 1, "y"),
            Event("b", 1, 2, "x"),
        ]
    )
    rows = {(r["from"], r["to"]): r for r in transitions(observed_bouts(events), ["x", "y"], resamples=99)}
    assert {pair: row["count"] for pair, row in rows.items()} == {("x", "y"): 2, ("y", "x"): 1}
    assert rows["x", "y"]["probability"] == 1.0


def test_a_fixed_order_stands_out_from_chance_and_a_random_one_does_not() -> None:
    def sequence(labels: list[str]) -> Events:
        return Events([Event("a", float(i), i + 1.0, label) for i, label in enumerate(labels)])

    fixed = transitions(observed_bouts(sequence(list("xyz") * 20)), list("xyz"), resamples=199)
    assert sum(r["count"] for r in fixed) == 59
    assert all(r["p_corrected"] < 0.05 for r in fixed if r["count"])
    rng = np.random.default_rng(0)
    order = ["x"]
    while len(order) < 60:
        order.append(str(rng.choice([label for label in "xyz" if label != order[-1]])))
    drawn = transitions(observed_bouts(sequence(order)), list("xyz"), resamples=199)
    assert sum(r["count"] for r in drawn) == 59
    assert all(r["p_corrected"] > 0.05 for r in drawn)


def test_chance_without_repeats_is_that_of_all_orders() -> None:
    """Five bouts have few orders: the expected counts are means over all that have no label twice in a
    row.
    """

    events = Events([Event("a", float(i), i + 1.0, label) for i, label in enumerate("xyxzx"[:4])])
    orders = {p for p in permutations("xyxz") if all(a != b for a, b in pairwise(p))}
    expected = np.mean([sum((a, b) == ("x", "y") for a, b in pairwise(p)) for p in orders])
    rows = {
        (r["from"], r["to"]): r
        for r in transitions(observed_bouts(events), ["x", "y", "z"], resamples=4000, seed=1)
    }
    assert rows["x", "y"]["expected"] == pytest.approx(expected, abs=0.03)


def test_the_permutation_test_agrees_with_scipy() -> None:
    rng = np.random.default_rng(3)
    values, group = rng.normal(size=14) + np.repeat([0, 1], 7), np.repeat([0, 1], 7)
    exact = scipy_stats.permutation_test(
        (values[:7], values[7:]),
        lambda a, b: a.mean() - b.mean(),
        n_resamples=np.inf,
        alternative="two-sided",
    ).pvalue
    assert permutation_p(values, group, 9999, rng) == pytest.approx(exact, abs=0.015)
    three = np.repeat([0, 1, 2], 5)
    values = rng.normal(size=15) + 0.8 * three
    asymptotic = scipy_stats.kruskal(*(values[three == g] for g in range(3))).pvalue
    assert permutation_p(values, three, 9999, rng) == pytest.approx(asymptotic, abs=0.05)


def test_effect_sizes_are_those_computed_by_hand() -> None:
    values = {"walk": {"p1": 1.0, "p2": 3.0, "p3": 2.0, "p4": 6.0}}
    found = compare_groups(values, {"p1": "a", "p2": "a", "p3": "b", "p4": "b"}, resamples=99)
    pair = found["labels"][0]["pairs"][0]
    assert pair["difference"] == -2.0
    assert pair["delta"] == -0.5  # of four pairs, three are smaller and one is larger
    low, high = pair["difference_interval"]
    assert low <= -2 <= high


@pytest.mark.heavy
def test_people_without_a_true_difference_are_rarely_called_different() -> None:
    """Type-I error at 5 %: 120 experiments without an effect, windows of a person alike, persons as units."""
    rng = np.random.default_rng(0)
    wrong = {"permutation": 0, "kruskal": 0}
    for seed in range(120):
        people = rng.gamma(1.0, 1.0, 16)  # skewed, as shares of time are
        for test in wrong:
            found = compare_groups(
                {"x": {f"p{i}": float(v) for i, v in enumerate(people)}},
                {f"p{i}": "ab"[i % 2] for i in range(16)},
                test=test,
                resamples=199,
                seed=seed,
            )
            wrong[test] += found["labels"][0]["p"] <= 0.05
    # 5 % of 120 is 6; more than 12 has a probability below 1 % where the error is nominal
    assert max(wrong.values()) <= 12, wrong


@pytest.mark.parametrize(
    ("membership", "sentence"),
    [
        ({"p0": "a", "p1": "a"}, "one group"),
        ({"p0": "a", "p1": "a", "p2": "b"}, "group 'b' has one person"),
        ({"p0": "a", "p1": "a", "p2": "b", "p3": "b", "p9": "c"}, "group 'c' has nobody"),
        ({}, "no groups"),
    ],
)
def test_groups_that_cannot_be_compared_are_refused(membership: dict[str, str], sentence: str) -> None:
    values = {"x": {f"p{i}": float(i) for i in range(4)}}
    with pytest.raises(InputError, match=sentence):
        compare_groups(values, membership)


def test_the_only_possible_order_is_no_surprise() -> None:
    events = Events([Event("a", float(at), at + 1.0, label) for at, label in enumerate("xyx")])
    found = transitions(observed_bouts(events), ["x", "y"], resamples=199)
    assert [(row["count"], row["expected"], row["p"]) for row in found] == [(1, 1.0, 1.0)] * 2


def test_a_person_in_two_groups_and_mixed_sources_are_refused() -> None:
    rows = [
        Event("a", 0, 1, "x", "P", more={"arm": "left"}),
        Event("b", 0, 1, "x", "P", more={"arm": "right"}),
    ]
    with pytest.raises(InputError, match="person 'P' is in the groups 'left' and 'right'"):
        statistics(Events(rows), by="arm")
    with pytest.raises(InputError, match="of people and of a model"):
        statistics(Events([Event("a", 0, 1, "x"), Event("b", 0, 1, "x", source="model")]))
    with pytest.raises(InputError, match="holds no event"):
        statistics(Events([]))
    with pytest.raises(InputError, match=r"no event of .* has a label"):
        statistics(Events([Event("a", 0, 1, "")]))  # hits of a search


def test_stats_command_prints_the_contract_and_writes_page_and_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["recording,start,stop,label,subject,source,score"]
    rows += [f"r{i},0,{1 + i},walk,P{i},human,\nr{i},{1 + i},8,sit,P{i},human," for i in range(4)]
    (tmp_path / "events.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "people.csv").write_text("subject,arm\nP0,a\nP1,a\nP2,b\nP3,b\n")
    out, page = tmp_path / "tables", tmp_path / "page.html"
    main(
        f"stats {tmp_path}/events.csv --by arm --people {tmp_path}/people.csv --bins 4 --resamples 99 --out"
        f" {out} --html {page} --json".split()
    )
    answer = json.loads(capsys.readouterr().out)
    first = answer["recordings"][1]
    assert {"recording", "label", "count", "total", "mean", "median", "latency", "share"} <= first.keys()
    assert (first["recording"], first["label"], first["share"]) == ("r0", "walk", 0.125)
    assert answer["groups"]["persons"] == {"a": 2, "b": 2}
    with open(out / "recordings.csv") as file:
        assert len(list(csv.DictReader(file))) == 8
    assert {p.name for p in out.iterdir()} == {
        "recordings.csv",
        "observed.csv",
        "bins.csv",
        "summary.csv",
        "transitions.csv",
        "groups.csv",
        "intervals.md",
    }
    text = page.read_text()
    assert all(word in text for word in ("Ethogram", "What follows what", "Groups", "Over time", "<svg"))


def test_wrong_use_of_stats_ends_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "e.csv").write_text("recording,start,stop,label\na,0,2,walk\na,1,3,sit\n")
    with pytest.raises(SystemExit) as end:
        main(["stats", str(tmp_path / "e.csv")])
    assert end.value.code == 2
    assert "overlap in recording 'a'" in capsys.readouterr().err


def counted_by_hand(events: list[Event], shortest: float) -> dict[tuple[str, str], tuple[int, float, float]]:
    """Count, share and rate of every recording and label, from 10 ms ticks: an account that shares nothing
    with `halp`.
    """
    result = {}
    labels = sorted({e.label for e in events} - {NOBODY})
    for recording in sorted({e.recording for e in events}):
        own = [e for e in events if e.recording == recording]
        ticks: list[str | None] = [None] * round(100 * max(e.stop for e in own))
        for event in own:
            for tick in range(round(100 * event.start), round(100 * event.stop)):
                ticks[tick] = event.label
        observed = sum(label != NOBODY for label in ticks) / 100
        runs: list[tuple[str | None, int]] = []
        for label in ticks:
            last = runs.pop() if runs and runs[-1][0] == label else (label, 0)
            runs.append((label, last[1] + 1))
        for label in labels:
            kept = [
                length / 100 for name, length in runs if name == label and length / 100 >= shortest - 1e-9
            ]
            shares = (sum(kept) / observed, 60 * len(kept) / observed) if observed else (None, None)
            result[recording, label] = (len(kept), *shares)
    return result


@pytest.mark.parametrize("seed", range(30))
def test_leaving_out_short_bouts_does_not_shorten_the_observed_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    events, label = [], ""
    for recording in "abc"[: rng.integers(1, 4)]:
        time = 0.0
        for _ in range(rng.integers(1, 12)):
            time = round(time + float(rng.choice([0.0, rng.integers(1, 200) / 100])), 2)
            stop = round(time + int(rng.integers(5, 300)) / 100, 2)
            label = str(rng.choice([name for name in ("x", "y", NOBODY) if name != label]))
            events.append(Event(recording, time, stop, label))
            time = stop
    if not {"x", "y"} & {e.label for e in events}:
        events.append(Event("d", 0, 1, "x"))
    shortest = float(rng.choice([0.0, 0.5, 1.0, 5.0]))
    found = statistics(Events(events), shortest=shortest, resamples=9).recordings
    expected = counted_by_hand(events, shortest)
    assert {(r["recording"], r["label"]) for r in found} == set(expected)
    for row in found:
        count, share, rate = expected[row["recording"], row["label"]]
        assert row["count"] == count
        assert row["share"] == (None if share is None else pytest.approx(share))
        assert row["rate"] == (None if rate is None else pytest.approx(rate))


def long_table(recordings: int, bouts: int) -> Events:
    rng = np.random.default_rng(0)
    labels = rng.choice(list("abcd"), (recordings, bouts))
    return Events(
        [
            Event(f"r{r:04}", 2.0 * b, 2.0 * b + 1, str(labels[r, b]))
            for r in range(recordings)
            for b in range(bouts)
        ]
    )


@pytest.mark.parametrize(("recordings", "bouts"), [(200, 100), (1, 20_000)])
def test_transitions_of_many_bouts_need_little_memory(recordings: int, bouts: int) -> None:
    tiers = observed_bouts(long_table(recordings, bouts))
    tracemalloc.start()
    rows = transitions(tiers, list("abcd"), resamples=1999)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(row["count"] for row in rows) == recordings * (bouts - 1)
    assert sum(row["expected"] for row in rows) == pytest.approx(recordings * (bouts - 1))
    assert peak < 150e6  # all orders of all bouts together would be 320e6, several times


def test_bins_are_what_is_left_when_events_are_cut() -> None:
    rng = np.random.default_rng(3)
    times = np.sort(rng.uniform(0, 50, 80)).reshape(-1, 2)
    events = [Event("a", float(s), float(e), str(rng.choice(["x", "y", NOBODY]))) for s, e in times]
    rows = statistics(Events(events), bins=3.7, resamples=9).bins
    assert len(rows) == 2 * 14
    for row in rows:
        start, stop = row["start"], row["stop"]
        inside = {e: max(0.0, min(e.stop, stop) - max(e.start, start)) for e in events}
        own = [e for e in events if e.label == row["label"]]
        seen = stop - start - sum(inside[e] for e in events if e.label == NOBODY)
        assert row["total"] == pytest.approx(sum(inside[e] for e in own), abs=1e-9)
        assert row["share"] == pytest.approx(row["total"] / seen)
        assert row["count"] == sum(start <= e.start < stop for e in own)
