"""Comparison of conditions within people: before and after, with and without a device, over visits.

The unit is the person: recordings of a person in a condition count together. Two conditions are compared by
flipping the signs of the differences of people, more by permuting conditions within people; `mixed` fits a
linear mixed model with an intercept per person (statsmodels), which also takes people who were not seen in
every condition, and covariates.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np

from halp.core.errors import InputError, check_choice, names_of
from halp.data.spans import Events
from halp.tasks.bouts import Bouts
from halp.tasks.events.cells import needed
from halp.tasks.group_tests import Floats, correct_p, group_row, person_values
from halp.tasks.intervals import bootstrap_interval, mean_interval

TESTS = ("permutation", "mixed")
Values = dict[str, dict[str, dict[str, float]]]  # label → condition → person → value


def conditions_of(events: Events, within: str) -> dict[str, str]:
    """The condition of every recording, from a column of its events."""
    columns = {name for event in events for name in event.more}
    check_choice(f"column of {events.origin}", within, columns)
    found: dict[str, str] = {}
    for event in events:
        value = str(event.more.get(within, ""))
        before = found.setdefault(event.recording, value)
        if value and before and value != before:
            raise InputError(
                f"{events.origin}: recording '{event.recording}' has events of the conditions '{before}' and"
                f" '{value}' of '{within}'; a condition holds for a whole recording: give each its own"
            )
        found[event.recording] = before or value
    return found


def condition_values(
    tiers: Sequence[Bouts], labels: Sequence[str], measure: str, conditions: Mapping[str, str]
) -> Values:
    """A value of the measure for every label, condition and person."""
    parts: dict[str, list[Bouts]] = defaultdict(list)
    for tier in tiers:
        if conditions.get(tier.recording):
            parts[conditions[tier.recording]].append(tier)
    by_condition = {name: person_values(rows, labels, measure) for name, rows in sorted(parts.items())}
    return {label: {name: values[label] for name, values in by_condition.items()} for label in labels}


def compare_conditions(
    values: Values,
    *,
    test: str = "permutation",
    covariates: Mapping[str, Mapping[str, float]] | None = None,
    resamples: int = 9999,
    seed: int = 0,
) -> dict[str, Any]:
    """Differences between conditions within people, label by label.

    Parameters
    ----------
    values
        For every label and condition a value for every person (NaN: undefined).
    test
        `permutation`, or `mixed` for a linear mixed model.
    covariates
        Numbers by name and person; they need the mixed model.
    """
    check_choice("test of conditions within people", test, TESTS)
    if covariates and test != "mixed":
        raise InputError(
            "covariates of conditions within people need --test mixed: a permutation within people has none"
        )
    names = sorted({name for row in values.values() for name in row})
    people = {name: {p for row in values.values() for p in row.get(name, ())} for name in names}
    if len(names) < 2:
        raise InputError(
            f"there is one condition ({names_of(names)}); two or more are compared: name them in a column of"
            " the events"
        )
    everywhere = set.intersection(*people.values())
    if test == "permutation" and len(everywhere) < 2:
        raise InputError(
            f"{len(everywhere)} people were seen in all of {names_of(names)}; a comparison within people"
            " needs two or more: name people by the column subject, compare different people with --by, or"
            " use --test mixed"
        )
    rows = [
        _compare_label(label, row, names, test, covariates or {}, resamples, seed)
        for label, row in values.items()
    ]
    correct_p(rows)
    return {
        "design": "within people",
        "test": test,
        "persons": {name: len(people[name]) for name in names},
        "left_out": len(set.union(*people.values()) - everywhere) if test == "permutation" else 0,
        "labels": rows,
    }


def _compare_label(
    label: str,
    by_condition: Mapping[str, Mapping[str, float]],
    names: Sequence[str],
    test: str,
    covariates: Mapping[str, Mapping[str, float]],
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    known = {
        name: {p: v for p, v in by_condition.get(name, {}).items() if math.isfinite(v)} for name in names
    }
    both = sorted(set.intersection(*(set(row) for row in known.values())))
    table = np.array([[known[name][person] for name in names] for person in both]).reshape(
        len(both), len(names)
    )
    row: dict[str, Any] = {
        "label": label,
        "groups": [group_row(name, np.array(list(known[name].values()))) for name in names],
        "complete": len(both),
        "p": None,
        "p_corrected": None,
        "pairs": [],
    }
    if test == "mixed":
        return row | _mixed(known, names, covariates)
    if len(both) < 2:
        return row | {"reason": f"{len(both)} people have a value in every condition; two or more are needed"}
    row["p"] = (
        _flipped_p(table[:, 0] - table[:, 1], resamples, seed)
        if len(names) == 2
        else _permuted_p(table, resamples, seed)
    )
    for a, b in combinations(range(len(names)), 2):
        row["pairs"].append(
            {"first": names[a], "second": names[b], **_paired(table[:, a] - table[:, b], seed)}
        )
    return row


def _paired(difference: Floats, seed: int) -> dict[str, Any]:
    """Mean difference with Student's interval, Cohen's dz, and the share who rose minus the share who fell."""
    spread = float(difference.std(ddof=1))

    def dz(rows: Floats) -> Floats:
        return rows.mean(1) / np.maximum(rows.std(1, ddof=1), 1e-12)

    return {
        "difference": float(difference.mean()),
        "difference_interval": mean_interval(difference),
        "effect": float(difference.mean() / spread) if spread > 0 else None,
        "effect_name": "Cohen's dz",
        "effect_interval": (
            bootstrap_interval(difference, dz, seed=seed) if spread > 0 and len(difference) > 4 else None
        ),
        "delta": float(np.sign(difference).mean()),
        "delta_interval": bootstrap_interval(difference, lambda rows: np.sign(rows).mean(1), seed=seed),
    }


def _flipped_p(difference: Floats, resamples: int, seed: int) -> float:
    """Share of sign flips at least as far from zero: all flips if people are few."""
    observed = abs(float(difference.mean()))
    if 2 ** len(difference) <= resamples:
        signs = np.array(list(product((1.0, -1.0), repeat=len(difference))))
        return float(
            (np.abs(signs @ difference / len(difference)) >= observed - 1e-12 * max(observed, 1.0)).mean()
        )
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (resamples, len(difference)))
    drawn = np.abs(signs @ difference / len(difference))
    return float((1 + (drawn >= observed - 1e-12 * max(observed, 1.0)).sum()) / (resamples + 1))


def _permuted_p(table: Floats, resamples: int, seed: int) -> float:
    """How often permuted conditions within people spread as much: mean ranks, as in Friedman's test."""
    from scipy.stats import rankdata

    ranks = np.asarray(rankdata(table, axis=1))
    middle = ranks.mean()

    def spread(rows: Floats) -> Floats:
        return ((rows.mean(-2) - middle) ** 2).sum(-1)

    rng = np.random.default_rng(seed)
    drawn = np.array([spread(rng.permuted(ranks, axis=1)) for _ in range(resamples)])
    return float((1 + (drawn >= spread(ranks) - 1e-12).sum()) / (resamples + 1))


def _mixed(
    known: Mapping[str, Mapping[str, float]],
    names: Sequence[str],
    covariates: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """A linear mixed model with an intercept per person: every condition against the first one.

    Restricted maximum likelihood; intervals are Student's and `p` is that of the F test, with the degrees of
    freedom that are left within people (as in R's nlme).
    """
    from scipy.stats import f as fisher
    from scipy.stats import t as student

    models = needed("statsmodels.regression.mixed_linear_model", "statistics")
    rows = [
        (value, number, person)
        for number, name in enumerate(names)
        for person, value in known[name].items()
        if all(math.isfinite(column.get(person, math.nan)) for column in covariates.values())
    ]
    people = sorted({person for _, _, person in rows})
    freedom = len(rows) - len(people) - (len(names) - 1)
    if len(rows) < len(names) + len(covariates) + 3 or len(people) < 3 or freedom < 1:
        return {
            "reason": (
                f"{len(rows)} values of {len(people)} people are too few for a mixed model, or nobody was"
                " seen twice"
            )
        }
    values = np.array([value for value, _, _ in rows])
    condition = np.array([number for _, number, _ in rows])
    groups = np.array([people.index(person) for _, _, person in rows])
    dummies = np.stack([condition == number for number in range(1, len(names))], axis=1).astype(float)
    more = np.array([[column[person] for column in covariates.values()] for _, _, person in rows]).reshape(
        len(rows), -1
    )
    base = np.column_stack([np.ones(len(rows)), more - more.mean(0)])
    if np.ptp(values) == 0:
        return {"p": 1.0, "pairs": []}
    full, tested = np.column_stack([base, dummies]), slice(base.shape[1], base.shape[1] + len(names) - 1)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            fitted = models.MixedLM(values, full, groups=groups).fit(reml=True)
            effects = np.asarray(fitted.fe_params)[tested]
            covariance = np.asarray(fitted.cov_params())[tested, tested]
            ratio = float(effects @ np.linalg.solve(covariance, effects)) / len(effects)
        except (np.linalg.LinAlgError, ValueError) as error:
            return {"reason": f"the mixed model cannot be fitted ({error})"}
    reach = float(student.ppf(0.975, freedom))
    pairs = []
    for name, effect, variance in zip(names[1:], effects.tolist(), np.diag(covariance).tolist()):
        half = reach * math.sqrt(variance)
        # as in other tables a difference is that of the first less the second
        interval = [-effect - half, -effect + half]
        pairs.append(
            {"first": names[0], "second": name, "difference": -effect, "difference_interval": interval}
        )
    spread = {
        "between": math.sqrt(max(float(np.asarray(fitted.cov_re)[0, 0]), 0.0)),
        "within": math.sqrt(float(fitted.scale)),
    }
    slopes = {name: float(np.asarray(fitted.fe_params)[1 + at]) for at, name in enumerate(covariates)}
    return {
        "p": float(fisher.sf(ratio, len(effects), freedom)),
        "pairs": pairs,
        "std": spread,
        "covariates": slopes,
    }
