"""Statistics of events: how often, how long, in what order; per recording, and between groups with the person as unit.

Time in which nobody was there (`nobody`) is no part of the observed time, so a share is a share of the time with somebody.
A recording is observed from 0 to its length where that is known, else to the stop of its last event.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, check_choice
from halp.data.spans import Events, person_of
from halp.tasks.bouts import Bouts, measures, observed_bouts, overlap, transitions
from halp.tasks.group_tests import MEASURES, TESTS, compare_groups, groups_of, person_values


@dataclass(frozen=True)
class Statistics:
    """Tables of what was measured; every one is a list of rows."""

    recordings: list[dict[str, Any]]
    observed: list[dict[str, Any]]
    bins: list[dict[str, Any]] = field(default_factory=list)
    transitions: list[dict[str, Any]] = field(default_factory=list)
    groups: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            name: rounded(value) for name, value in vars(self).items() if value or name in ("recordings", "observed")
        }


def statistics(
    events: Events,
    *,
    gap: float = 0.0,
    shortest: float = 0.0,
    start: float = 0.0,
    stop: float | None = None,
    bins: float | None = None,
    concurrent: bool = False,
    by: str | None = None,
    groups: Mapping[str, str] | None = None,
    measure: str = "share",
    test: str = "permutation",
    resamples: int = 9999,
    seed: int = 0,
) -> Statistics:
    """All statistics of events.

    Parameters
    ----------
    gap, shortest : bouts of a label up to `gap` seconds apart are one; then bouts shorter than `shortest` are left out.
    start, stop : the part of every recording that counts, in seconds.
    bins : also count per so many seconds.
    concurrent : events of different labels may overlap.
    by : a column of the events that names the group of a person; or `groups`, a group for every subject or recording.
    measure, test : what is compared between groups, and how (`permutation` or `kruskal`).
    """
    if not len(events):
        raise InputError(f"{events.origin} holds no event; there is nothing to count")
    if len({event.source for event in events}) > 1:
        raise InputError(
            f"{events.origin} holds events of people and of a model; choose one with --source human or model"
        )
    check_choice("measure", measure, MEASURES)
    check_choice("test", test, TESTS)
    for name, value in {"gap": gap, "shortest": shortest, "start": start}.items():
        if value < 0:
            raise InputError(f"{name} = {value:g} s is below zero; give 0 or more seconds")
    if bins is not None and bins <= 0:
        raise InputError(f"bins of {bins:g} s cannot be made; give more than 0 seconds")
    tiers = observed_bouts(events.check(concurrent=concurrent).merged(gap, shortest), start, stop)
    labels = events.labels
    result = Statistics(
        [row for tier in tiers for row in _bout_rows(tier, labels)],
        [_observed_row(tier, labels) for tier in tiers],
        [row for tier in tiers for row in _bin_rows(tier, labels, bins)] if bins else [],
        transitions(tiers, labels, resamples=min(resamples, 1999), seed=seed),
    )
    if by is None and groups is None:
        return result
    membership = dict(groups) if groups is not None else groups_of(events, by or "")
    persons = person_values(tiers, labels, measure)
    return replace(
        result, groups={"by": by, "measure": measure}
        | compare_groups(persons, membership, test=test, resamples=resamples, seed=seed),
    )  # fmt: skip


def _bout_rows(tier: Bouts, labels: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for label in labels:
        bouts = [e for e in tier.bouts if e.label == label]
        durations = [e.duration for e in bouts]
        rows.append(
            {**_whose(tier), "label": label} | measures(durations, [e.start for e in bouts], tier.observed, tier.begin)
        )
    return rows


def _whose(tier: Bouts) -> dict[str, Any]:
    """Recording and subject, and the person where a video shows several."""
    person = person_of(tier.recording)
    return {"recording": tier.recording, **({} if person is None else {"person": person}), "subject": tier.subject}


def _observed_row(tier: Bouts, labels: Sequence[str]) -> dict[str, Any]:
    totals = np.array([sum(e.duration for e in tier.bouts if e.label == label) for label in labels])
    return {
        **_whose(tier),
        "observed": tier.observed,
        "nobody": tier.end - tier.begin - tier.observed,
        "labelled": float(totals.sum()),
        "bouts": len(tier.bouts),
        "diversity": entropy(totals),
    }


def entropy(totals: npt.ArrayLike) -> float | None:
    """Shannon entropy in bits of how time is shared out: 0 for one label alone, log2(n) for n labels of equal time."""
    from scipy import stats

    values = np.asarray(totals, dtype=np.float64)
    return float(stats.entropy(values, base=2)) if values.any() else None


def _bin_rows(tier: Bouts, labels: Sequence[str], width: float) -> list[dict[str, Any]]:
    """Per bin: bouts that begin in it, seconds and share of what was observed of it; the last bin may be shorter."""
    count = math.ceil((tier.end - tier.begin) / width - 1e-9)
    if count > 100_000:
        raise InputError(f"bins of {width:g} s cut '{tier.recording}' into {count} parts; choose longer ones")
    rows = []
    for number in range(count):
        start = tier.begin + number * width
        stop = min(start + width, tier.end)
        seen = tier.seen(start, stop)
        for label in labels:
            bouts = [e for e in tier.bouts if e.label == label]
            total = sum(overlap(e, start, stop) for e in bouts)
            rows.append(
                {
                    "recording": tier.recording,
                    "subject": tier.subject,
                    "label": label,
                    "start": start,
                    "stop": stop,
                    "count": sum(start <= e.start < stop for e in bouts),
                    "total": total,
                    "share": total / seen if seen > 0 else None,
                }
            )
    return rows


def rounded(value: Any) -> Any:
    """Numbers of nested tables with six decimals."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value
