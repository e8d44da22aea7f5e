"""Comparison of study groups: the person is the unit; effect sizes, intervals, corrected tests."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, check_choice
from halp.data.spans import Events
from halp.tasks.bouts import Bouts, false_discovery, measures
from halp.tasks.intervals import described, median_interval, welch_interval

Floats = npt.NDArray[np.float64]
MEASURES = ("share", "rate", "mean", "count", "total", "latency")
TESTS = ("permutation", "kruskal")


def groups_of(events: Events, by: str) -> dict[str, str]:
    """The study group of every person, from a column of the events; a person belongs to one."""
    membership: dict[str, str] = {}
    columns = {name for event in events for name in event.more}
    if by not in columns and by not in ("recording", "subject", "source"):
        check_choice(f"column of {events.origin}", by, columns | {"recording", "subject"})
    for event in events:
        person = event.subject or event.recording
        group = str(event.more.get(by, "") if by in columns else getattr(event, by))
        before = membership.setdefault(person, group)
        if before != group and before and group:
            raise InputError(
                f"{events.origin}: person '{person}' is in the groups '{before}' and '{group}' of '{by}';"
                f" groups need different people: compare conditions of the same people with --within {by}"
            )
        membership[person] = before or group
    return membership


def person_values(tiers: Sequence[Bouts], labels: Sequence[str], measure: str) -> dict[str, dict[str, float]]:
    """A value per label and person, over all of the person's recordings; NaN where undefined."""
    by_person: dict[str, list[Bouts]] = defaultdict(list)
    for tier in tiers:
        by_person[tier.person].append(tier)
    observed = {person: sum(tier.observed for tier in parts) for person, parts in by_person.items()}
    values: dict[str, dict[str, float]] = {}
    for label in labels:
        values[label] = {}
        for person, parts in by_person.items():
            bouts = [e for tier in parts for e in tier.by_label.get(label, ())]
            row = measures([e.duration for e in bouts], [0.0], observed[person])
            firsts = [min(e.start for e in t.by_label[label]) - t.begin for t in parts if label in t.by_label]
            row["latency"] = float(np.mean(firsts)) if firsts else None
            values[label][person] = math.nan if row[measure] is None else float(row[measure])
    return values


def compare_groups(
    values: Mapping[str, Mapping[str, float]],
    membership: Mapping[str, str],
    *,
    test: str = "permutation",
    covariates: Mapping[str, Mapping[str, float]] | None = None,
    resamples: int = 9999,
    seed: int = 0,
) -> dict[str, Any]:
    """Differences between study groups, label by label.

    Parameters
    ----------
    values
        For every label a value for every person (NaN: undefined, the person does not count for this label).
    membership
        The group of every person; people without one are left out and counted.
    test
        `permutation` of people between groups (difference of means for two groups, of mean ranks for more),
        or `kruskal` (Kruskal–Wallis, asymptotic).
    covariates
        Numbers by name and person that are taken out of the difference of two groups (Freedman and Lane,
        1983).

    Returns
    -------
    Persons per group, people left out, and a row per label with means, `p`, `p_corrected` over labels
    (Benjamini–Hochberg), and for every pair of groups the difference of means (Welch's 95 % interval),
    Hedges' g, and Cliff's delta (bootstrap interval over people, too narrow where these are few).
    """
    check_choice("test", test, TESTS)
    persons = sorted({person for row in values.values() for person in row})
    known = [person for person in persons if membership.get(person)]
    names = sorted({membership[person] for person in known})
    sizes = {name: sum(membership[person] == name for person in known) for name in names}
    empty = sorted({group for group in membership.values() if group} - set(names))
    if empty:
        raise InputError(
            f"group '{empty[0]}' has nobody with events; leave the group out or check the names of its people"
        )
    if len(names) < 2:
        raise InputError(
            f"there {'is one group' if names else 'are no groups'} ({', '.join(names)}); two or more are"
            " compared"
        )
    if covariates and (len(names) != 2 or test != "permutation"):
        raise InputError(
            f"covariates adjust the difference of two groups in a permutation test; there are {len(names)}"
            f" groups, and the test is {test}"
        )
    for name, size in sizes.items():
        if size < 2:
            raise InputError(f"group '{name}' has one person; groups need two or more people to be compared")
    rows = []
    for label, by_person in values.items():
        numbers = np.array([by_person.get(person, math.nan) for person in known])
        group = np.array([names.index(membership[person]) for person in known])
        there = np.isfinite(numbers)
        row = _compare_label(label, numbers[there], group[there], names, test, resamples, seed)
        if covariates:
            kept = [person for person, ok in zip(known, there) if ok]
            row |= _adjusted(row, numbers[there], group[there], kept, covariates, resamples, seed)
        rows.append(row)
    correct_p(rows)
    facts = {"test": test, "persons": sizes, "left_out": len(persons) - len(known), "labels": rows}
    return {"design": "between people", "covariates": sorted(covariates or ()), **facts}


def _compare_label(
    label: str,
    values: Floats,
    group: npt.NDArray[np.int64],
    names: Sequence[str],
    test: str,
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    parts = [values[group == number] for number in range(len(names))]
    row: dict[str, Any] = {
        "label": label,
        "groups": [group_row(name, part) for name, part in zip(names, parts)],
        "p": None,
        "p_corrected": None,
        "pairs": [],
    }
    if min(map(len, parts)) < 2:
        return row
    rng = np.random.default_rng(seed)
    row["p"] = _kruskal(parts) if test == "kruskal" else permutation_p(values, group, resamples, rng)
    for a, b in combinations(range(len(names)), 2):
        drawn = [part[rng.integers(0, len(part), (2000, len(part)))] for part in (parts[a], parts[b])]
        deltas = np.sign(drawn[0][:, :, None] - drawn[1][:, None, :]).mean((1, 2))
        row["pairs"].append(
            {
                "first": names[a],
                "second": names[b],
                "difference": float(parts[a].mean() - parts[b].mean()),
                "difference_interval": welch_interval(parts[a], parts[b]),
                "effect_name": "Hedges' g",
                **_hedges(parts[a], parts[b]),
                "delta": cliffs_delta(parts[a], parts[b]),
                "delta_interval": [float(v) for v in np.percentile(deltas, [2.5, 97.5])],
            }
        )
    return row


def group_row(name: str, values: Floats) -> dict[str, Any]:
    """The people of a group: mean and median of their values with intervals."""
    facts = described(values)
    return {
        "group": name,
        "persons": len(values),
        "mean": facts["mean"],
        "median": float(np.median(values)) if len(values) else None,
        "median_interval": median_interval(values),
        "std": facts["std"],
        "interval": facts["interval"],
    }


def correct_p(rows: Sequence[dict[str, Any]]) -> None:
    """Add `p_corrected` over labels (Benjamini-Hochberg) to the rows that have a p."""
    tested = [row for row in rows if row["p"] is not None]
    for row, corrected in zip(tested, false_discovery([row["p"] for row in tested])):
        row["p_corrected"] = corrected


def _hedges(first: Floats, second: Floats) -> dict[str, Any]:
    """Hedges' g, the difference of means in standard deviations, with its usual large-sample interval."""
    n, m = len(first), len(second)
    pooled = ((n - 1) * first.var(ddof=1) + (m - 1) * second.var(ddof=1)) / (n + m - 2)
    if not pooled > 0:
        return {"effect": None, "effect_interval": None}
    g = float((first.mean() - second.mean()) / math.sqrt(pooled)) * (1 - 3 / (4 * (n + m) - 9))
    reach = 1.959964 * math.sqrt((n + m) / (n * m) + g**2 / (2 * (n + m)))
    return {"effect": g, "effect_interval": [g - reach, g + reach]}


def _adjusted(
    row: dict[str, Any],
    values: Floats,
    group: npt.NDArray[np.int64],
    people: Sequence[str],
    covariates: Mapping[str, Mapping[str, float]],
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """The covariate-adjusted difference of two groups, its interval, and p (Freedman-Lane)."""
    from scipy.stats import t as student

    columns = np.array(
        [[column.get(person, math.nan) for column in covariates.values()] for person in people]
    )
    there = np.isfinite(columns).all(1)
    values, group, columns = values[there], group[there], columns[there]
    free = len(values) - columns.shape[1] - 2
    if free < 1 or len(np.unique(group)) < 2:
        return {"p": None, "pairs": [], "reason": f"{len(values)} people with all covariates are too few"}
    base = np.column_stack([np.ones(len(values)), columns - columns.mean(0)])
    one = (group == 0).astype(float)
    # what is left of the groups once covariates are taken out; its product with residuals is the adjusted
    # difference
    left = one - base @ np.linalg.lstsq(base, one, rcond=None)[0]
    size = float(left @ left)
    if size < 1e-9:
        return {"p": None, "pairs": [], "reason": "a covariate is identical to the groups"}
    residual = values - base @ np.linalg.lstsq(base, values, rcond=None)[0]

    def ratio(rest: Floats) -> Floats:
        difference = rest @ left / size
        inner = ((rest - difference[:, None] * left) ** 2).sum(1)
        return np.abs(difference) / np.sqrt(np.maximum(inner, 1e-300) / free / size)

    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(np.tile(residual, (resamples, 1)), axis=1)
    shuffled -= shuffled @ base @ np.linalg.pinv(base.T @ base) @ base.T
    observed = ratio(residual[None])[0]
    p = float((1 + (ratio(shuffled) >= observed * (1 - 1e-9)).sum()) / (resamples + 1))
    difference = float(residual @ left / size)
    error = math.sqrt(float(((residual - difference * left) ** 2).sum()) / free / size)
    reach = float(student.ppf(0.975, free)) * error
    adjusted = {
        "adjusted_difference": difference,
        "adjusted_difference_interval": [difference - reach, difference + reach],
    }
    return {
        "p": p,
        "pairs": [pair | adjusted for pair in row["pairs"]],
        "people_with_covariates": len(values),
    }


def permutation_p(
    values: Floats, group: npt.NDArray[np.int64], resamples: int, rng: np.random.Generator
) -> float:
    """p by permuting people: differences of means for two groups, of mean ranks for more."""
    from scipy.stats import rankdata

    count = int(group.max()) + 1
    numbers = values if count == 2 else rankdata(values)
    numbers = numbers - numbers.mean()
    sizes = np.bincount(group)

    def spread(order: npt.NDArray[np.int64]) -> Floats:
        """Squared means of groups, weighted by size: for two groups ordered as the absolute difference."""
        sums = np.stack([np.where(order == number, numbers, 0.0).sum(1) for number in range(count)], axis=1)
        return (sums**2 / sizes).sum(1)

    observed = spread(group[None])[0]
    drawn = np.concatenate(
        [
            spread(rng.permuted(np.tile(group, (min(1000, resamples - at), 1)), axis=1))
            for at in range(0, resamples, 1000)
        ]
    )
    return float((1 + (drawn >= observed - 1e-12 * max(observed, 1e-12)).sum()) / (resamples + 1))


def _kruskal(parts: Sequence[Floats]) -> float:
    from scipy.stats import kruskal

    if len(np.unique(np.concatenate(list(parts)))) < 2:
        return 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(kruskal(*parts).pvalue)


def cliffs_delta(first: Floats, second: Floats) -> float:
    """P(first > second) − P(first < second) for values of two groups, −1 … 1.

    >>> cliffs_delta(np.array([3.0, 4.0]), np.array([1.0, 2.0]))
    1.0
    """
    return float(np.sign(first[:, None] - second[None]).mean())
