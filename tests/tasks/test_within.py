"""Conditions within people against R's published example, brute force and statsmodels; covariates, and what
is refused.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from halp.cli import main
from halp.core.errors import InputError
from halp.data.spans import Event, Events
from halp.reports.pages.findings import shown_groups
from halp.tasks.group_tests import compare_groups
from halp.tasks.stats import statistics
from halp.tasks.within import compare_conditions

# Student's data of 1908, `sleep` in R: hours of sleep gained by ten patients with two drugs; t.test(paired =
# TRUE) gives t = -4.0621, p = 0.002833, a mean difference of -1.58 and the interval -2.4598858 to -0.7001142
FIRST = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def sleep() -> dict[str, dict[str, dict[str, float]]]:
    drugs = {"drug 1": FIRST, "drug 2": SECOND}
    return {"gain": {drug: {f"p{n}": v for n, v in enumerate(values)} for drug, values in drugs.items()}}


def test_paired_difference_and_interval_are_those_of_r() -> None:
    (row,) = compare_conditions(sleep())["labels"]
    (pair,) = row["pairs"]
    assert pair["difference"] == pytest.approx(-1.58)
    assert pair["difference_interval"] == pytest.approx([-2.4598858, -0.7001142], abs=1e-6)
    difference = np.array(FIRST) - SECOND
    assert pair["effect"] == pytest.approx(difference.mean() / difference.std(ddof=1))
    assert pair["effect_interval"][0] < pair["effect"] < pair["effect_interval"][1]
    signs = np.array(list(product((1, -1), repeat=10)))
    expected = np.mean(np.abs((signs * difference).mean(1)) >= abs(difference.mean()) - 1e-12)
    assert row["p"] == pytest.approx(expected)
    assert pair["delta"] == pytest.approx(-0.9)  # nine of ten gained more with the second, one as much


def test_the_mixed_model_is_the_paired_test_where_everybody_is_seen_twice() -> None:
    pytest.importorskip("statsmodels")
    (row,) = compare_conditions(sleep(), test="mixed")["labels"]
    (pair,) = row["pairs"]
    assert pair["difference"] == pytest.approx(-1.58, abs=1e-6)
    assert pair["difference_interval"] == pytest.approx([-2.4598858, -0.7001142], abs=1e-4)
    assert row["p"] == pytest.approx(0.002833, abs=1e-5)
    error = np.std(np.array(FIRST) - SECOND, ddof=1) / np.sqrt(10)
    assert row["std"]["within"] == pytest.approx(error * np.sqrt(10 / 2), rel=1e-3)


def test_the_mixed_model_is_that_of_the_formula_with_gaps_and_a_covariate() -> None:
    pytest.importorskip("statsmodels")
    import pandas as pd
    from statsmodels.formula.api import mixedlm

    rng = np.random.default_rng(0)
    people = {f"p{n}": rng.normal() for n in range(14)}
    age = {name: float(rng.integers(20, 70)) for name in people}
    rows = [
        {
            "y": 2 + base + 0.5 * v + 0.03 * age[name] + rng.normal(0, 0.4),
            "visit": f"v{v}",
            "person": name,
            "age": age[name],
        }
        for name, base in people.items()
        for v in range(3)
        if rng.random() > 0.2
    ]
    table = pd.DataFrame(rows)
    theirs = mixedlm("y ~ visit + age", table, groups=table["person"]).fit()
    values = {"x": {v: dict(zip(g["person"], g["y"])) for v, g in table.groupby("visit")}}
    (row,) = compare_conditions(values, test="mixed", covariates={"age": age})["labels"]
    assert [pair["second"] for pair in row["pairs"]] == ["v1", "v2"]
    for pair in row["pairs"]:
        assert pair["difference"] == pytest.approx(-theirs.params[f"visit[T.{pair['second']}]"], abs=1e-3)
    assert row["covariates"]["age"] == pytest.approx(theirs.params["age"], abs=1e-3)


# Effort of nine people to stand up from four stools: `ergoStool` of R's nlme (Pinheiro and Bates, 2000)
STOOLS = [[12, 15, 12, 10], [10, 14, 13, 12], [7, 14, 13, 9], [7, 11, 10, 9], [8, 11, 8, 7], [9, 11, 11, 10],
          [8, 12, 12, 11], [7, 11, 8, 7], [9, 13, 10, 8]]  # fmt: skip


def test_the_mixed_model_has_the_published_results_of_nlme() -> None:
    """lme(effort ~ Type, random = ~ 1 | Subject): fixed effects 3.888889, 2.222222 and 0.666667 with a standard
    error of 0.5186838 and 24 degrees of freedom, standard deviations 1.332465 between people and 1.100295
    within; anova: F = 22.35556.
    """
    pytest.importorskip("statsmodels")
    values = {
        "effort": {f"T{n + 1}": {f"p{p}": float(row[n]) for p, row in enumerate(STOOLS)} for n in range(4)}
    }
    (row,) = compare_conditions(values, test="mixed")["labels"]
    against_first = [pair for pair in row["pairs"] if pair["first"] == "T1"]
    assert [pair["second"] for pair in against_first] == ["T2", "T3", "T4"]
    for pair, effect in zip(against_first, (3.888889, 2.222222, 0.666667), strict=True):
        assert pair["difference"] == pytest.approx(-effect, abs=1e-6)
        reach = 2.063899 * 0.5186838
        assert pair["difference_interval"] == pytest.approx([-effect - reach, -effect + reach], abs=1e-4)
    assert row["std"]["between"] == pytest.approx(1.332465, abs=1e-3)
    assert row["std"]["within"] == pytest.approx(1.100295, abs=1e-4)
    assert row["p"] == pytest.approx(scipy_stats.f.sf(22.35556, 3, 24), rel=1e-3)


def test_three_conditions_are_permuted_within_people() -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(8, 3)) + [0, 0.2, 2.0] + 5 * rng.normal(size=(8, 1))
    values = {"x": {name: {f"p{n}": table[n, c] for n in range(8)} for c, name in enumerate("abc")}}
    (row,) = compare_conditions(values, resamples=4999)["labels"]
    assert row["p"] == pytest.approx(scipy_stats.friedmanchisquare(*table.T).pvalue, abs=0.02)
    assert len(row["pairs"]) == 3


def test_false_alarms_within_people_stay_at_five_per_cent() -> None:
    rng = np.random.default_rng(2)
    p = []
    for seed in range(400):
        base = rng.exponential(3, 8)
        values = {"x": {name: dict(zip("abcdefgh", base + rng.normal(size=8))) for name in ("one", "two")}}
        p.append(compare_conditions(values, resamples=255, seed=seed)["labels"][0]["p"])
    assert 0.02 < np.mean(np.array(p) <= 0.05) < 0.085


def test_a_covariate_explains_what_only_seems_to_be_a_difference() -> None:
    """The groups differ by age alone: the plain difference is large, the adjusted one is not."""
    rng = np.random.default_rng(3)
    age = {f"p{n}": float(a) for n, a in enumerate(np.r_[rng.normal(30, 5, 20), rng.normal(60, 5, 20)])}
    group = {f"p{n}": "young" if n < 20 else "old" for n in range(40)}
    values = {"x": {name: 0.1 * years + rng.normal() for name, years in age.items()}}
    plain = compare_groups(values, group)["labels"][0]
    (row,) = compare_groups(values, group, covariates={"age": age}, resamples=1999)["labels"]
    assert plain["p"] < 0.01 < row["p"]
    shown = shown_groups({"labels": [row | {"p_corrected": 1e-4}]})[0]
    assert shown["adjusted_difference"].startswith(f"{row['pairs'][0]['adjusted_difference']:.3f} [")
    assert shown["p_corrected"] == "< 0.001"
    (pair,) = row["pairs"]
    low, high = pair["adjusted_difference_interval"]
    assert low < 0 < high
    sm = pytest.importorskip("statsmodels.api")

    x = np.column_stack([[group[p] == "old" for p in age], list(age.values())]).astype(float)
    theirs = sm.OLS(list(values["x"].values()), sm.add_constant(x)).fit()
    assert pair["adjusted_difference"] == pytest.approx(theirs.params[1])
    assert pair["adjusted_difference_interval"] == pytest.approx(theirs.conf_int()[1])
    assert row["p"] == pytest.approx(theirs.pvalues[1], abs=0.05)


VISITS = [
    Event(f"{person}-{visit}", 0, 10, "", person, more={"visit": visit, "arm": "a"})
    for person in ("ann", "bob", "cat")
    for visit in ("before", "after")
]


def test_refusals_say_which_design_is_needed() -> None:
    walk = [Event(e.recording, 0, 4, "walk", e.subject, more=e.more) for e in VISITS]
    events = Events([*walk, *(Event(e.recording, 4, 10, "sit", e.subject, more=e.more) for e in VISITS)])
    with pytest.raises(
        InputError, match=r"groups need different people: compare conditions of the same people with --within"
    ):
        statistics(events, by="visit", resamples=9)
    with pytest.raises(InputError, match="there is one condition"):
        statistics(events, within="arm", resamples=9)
    with pytest.raises(InputError, match="compared separately"):
        statistics(events, within="visit", by="arm", resamples=9)
    with pytest.raises(InputError, match="a mixed model needs people who were seen several times"):
        statistics(events, by="arm", test="mixed", resamples=9)
    nameless = Events([Event(e.recording, e.start, e.stop, e.label, more=e.more) for e in events])
    with pytest.raises(InputError, match="0 people were seen in all of after, before"):
        statistics(nameless, within="visit", resamples=9)
    mixed = [
        Event("x", 0, 1, "walk", "ann", more={"visit": "a"}),
        Event("x", 1, 2, "sit", "ann", more={"visit": "b"}),
    ]
    with pytest.raises(InputError, match="a condition holds for a whole recording"):
        statistics(Events(mixed), within="visit", resamples=9)


def test_the_command_compares_visits_of_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["recording,start,stop,label,subject,visit"]
    rng = np.random.default_rng(0)
    for person in range(6):
        for visit, walks in (("before", 3.0), ("after", 5.0)):
            stop = walks + rng.uniform(-0.5, 0.5)
            for start, end, label in ((0.0, stop, "walk"), (stop, 10.0, "sit")):
                lines.append(f"r{person}{visit},{start:.3f},{end:.3f},{label},p{person},{visit}")
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    main(
        [
            "stats",
            str(tmp_path / "events.csv"),
            "--within",
            "visit",
            "--html",
            str(tmp_path / "p.html"),
            "--json",
        ]
    )
    found = json.loads(capsys.readouterr().out)
    assert found["groups"]["design"] == "within people"
    walk = next(row for row in found["groups"]["labels"] if row["label"] == "walk")
    assert walk["p"] == pytest.approx(2 / 64)  # all six walk more
    assert walk["pairs"][0]["difference"] == pytest.approx(0.2, abs=0.05)
    assert {row["label"]: row["n"] for row in found["summary"]} == {"sit": 6, "walk": 6}
    low, high = found["summary"][0]["interval"]
    assert low < found["summary"][0]["mean"] < high
    assert "within people" in (tmp_path / "p.html").read_text()
    main(["stats", str(tmp_path / "events.csv"), "--within", "visit", "--out", str(tmp_path / "tables")])
    head = (tmp_path / "tables" / "groups.csv").read_text().splitlines()[0].split(",")
    assert head == ["label", *walk["pairs"][0], "p", "p_corrected"]  # the words of the JSON
    told = capsys.readouterr().out
    assert f"{walk['pairs'][0]['difference']:.3f} [" in told
