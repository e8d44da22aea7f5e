"""Statistics of events: how often, how long, in what order; per recording and between groups.

Time in which nobody was there (`nobody`) is no part of the observed time, so a share is a share of the time
with somebody. A recording is observed from 0 to its length if it is known, else to the stop of its last
event.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, check_choice, check_seconds
from halp.data.spans import Events, person_of
from halp.data.text_files import point_number
from halp.features.source import AnySource
from halp.tasks.bouts import Bouts, covered, measures, observed_bouts, transitions
from halp.tasks.group_tests import MEASURES, TESTS, compare_groups, groups_of, person_values
from halp.tasks.intervals import COUNTED, described, rounded
from halp.tasks.read_events import EventsLike, of_source, read_matched, read_people
from halp.tasks.within import compare_conditions, condition_values, conditions_of

#: Why numbers have no interval, by their place in the answer.
NO_INTERVAL = {
    **dict.fromkeys(("recordings", "observed", "bins"), COUNTED),
    "summary.std": "it describes the spread of people",
    "transitions.count": "counted completely",
    "transitions.expected": "the count expected by chance; p compares with it",
    "groups.labels.groups.median": "below six people it has none",
    "groups.labels.groups.mean": "one person has no spread",
    "groups.labels.groups.std": "it describes the spread of people",
    "groups.labels.std": "standard deviations of the mixed model; statsmodels gives no interval",
    "groups.labels.covariates": "slopes that are subtracted, not results",
}


@dataclass(frozen=True)
class Statistics:
    """Tables of measures; each is a list of rows."""

    recordings: list[dict[str, Any]]
    observed: list[dict[str, Any]]
    bins: list[dict[str, Any]] = field(default_factory=list)
    transitions: list[dict[str, Any]] = field(default_factory=list)
    groups: dict[str, Any] = field(default_factory=dict)
    summary: list[dict[str, Any]] = field(default_factory=list)
    tiers: Sequence[Bouts] = field(default=(), repr=False)
    labels: Sequence[str] = field(default=(), repr=False)
    origin: str = field(default="", repr=False)

    def events(self) -> Events:
        """The bouts that were counted."""
        return Events([bout for tier in self.tiers for bout in tier.bouts])

    def to_json(self) -> dict[str, Any]:
        tables = {
            name: getattr(self, name)
            for name in ("recordings", "observed", "summary", "bins", "transitions", "groups")
        }
        shown = {
            name: rounded(rows) for name, rows in tables.items() if rows or name in ("recordings", "observed")
        }
        return shown | {"no_interval": NO_INTERVAL}


def stats(
    events: EventsLike,
    *,
    by: str | None = None,
    within: str | None = None,
    people: str | os.PathLike[str] | Mapping[str, str] | None = None,
    covariates: tuple[str, ...] = (),
    bins: float | None = None,
    gap: float = 0.0,
    shortest: float = 0.0,
    start: float = 0.0,
    stop: float | None = None,
    measure: str = "share",
    test: str = "permutation",
    annotator: str | None = None,
    person: str | None = None,
    recordings: AnySource | None = None,
    concurrent: bool = False,
    from_format: str = "auto",
    resamples: int = 9999,
    seed: int = 0,
    progress: bool = True,
) -> Statistics:
    """Count events: how often, how long, in what order; per recording, and between study groups.

    Shares refer to the time in which somebody was there, from 0 to the end of the recording (of its last
    event, where the length is not known). A person is a subject, or a recording where subjects are not given.

    Parameters
    ----------
    events : path or Events
        A file with events in any format, or a folder of them.
    by : str, optional
        A column of the events, or of `people`, that names the study group of a person.
    within : str, optional
        A column of the events that names the condition of a recording: conditions are compared within people.
    people : path or mapping, optional
        A CSV table with a column subject (or recording) and one of study groups.
    covariates : tuple of str
        Numeric columns of `people` to adjust for, such as age.
    bins : float, optional
        Also count per this many seconds.
    gap : float
        Seconds; closer bouts of a label are merged.
    shortest : float
        Seconds; shorter bouts are then dropped.
    start : float
        Seconds; where in every recording counting begins.
    stop : float, optional
        Seconds; where it ends.
    measure : str
        What groups are compared by: share, rate, mean, count, total or latency.
    test : str
        permutation, kruskal (between people), or mixed (within people: a linear mixed model, with
        statsmodels).
    annotator : str, optional
        Count events of human or model only (the column source of events).
    person : str, optional
        Where a video shows several people, count the one with this number (see `halp people`), or all.
    recordings : source, optional
        A store or recordings: names are matched, lengths are known.
    concurrent : bool
        Allow events of different labels to overlap.
    from_format : str
        Format of the events (default: by the ending).
    resamples : int
        Of permutation tests.
    seed : int
        Of permutations and bootstrap.
    progress : bool
        Whether progress is shown.

    Returns
    -------
    Statistics
        Tables of recordings, observed time, bins, transitions and groups.

    Examples
    --------
    >>> from halp import Event, Events
    >>> counted = stats(Events([Event("a", 0, 2, "walk"), Event("a", 2, 4, "sit")]), progress=False)
    >>> [(row["label"], row["share"]) for row in counted.recordings]
    [('sit', 0.5), ('walk', 0.5)]
    """
    chosen = of_source(read_matched(events, from_format, recordings), annotator)
    if person not in (None, "all"):
        chosen = _of_person(chosen, str(person))
    table = None if people is None or isinstance(people, Mapping) else people
    if covariates and table is None:
        raise InputError("covariates are columns of a table of people; give it with --people")
    groups = (
        people
        if isinstance(people, Mapping)
        else None
        if table is None or by is None
        else read_people(table, by)
    )
    if table is not None and by is None and within is None:
        read_people(table, by)  # says that --by is missing
    numbers = (
        {name: _numbers(read_people(table, name), name) for name in covariates} if table is not None else {}
    )
    return statistics(
        chosen,
        gap=gap,
        shortest=shortest,
        start=start,
        stop=stop,
        bins=bins,
        concurrent=concurrent,
        by=by,
        within=within,
        groups=groups,
        covariates=numbers,
        measure=measure,
        test=test,
        resamples=resamples,
        seed=seed,
        progress=progress,
    )


def _of_person(events: Events, person: str) -> Events:
    """Events of one person of every video; who is alone in a recording is its first."""
    number = {name: str(person_of(name) or 1) for name in events.recordings}
    if person not in number.values():
        known = ", ".join(sorted({*number.values()}, key=int))
        raise InputError(
            f"{events.origin} has no person '{person}'; events know people by their numbers alone: {known} (see"
            " `halp people`)"
        )
    lengths = {name: length for name, length in events.lengths.items() if number[name] == person}
    kept = [event for event in events if number[event.recording] == person]
    return replace(events, events=kept, lengths=lengths)


def _numbers(column: Mapping[str, str], name: str) -> dict[str, float]:
    """A column of a table of people as numbers; empty cells are unknown."""
    try:
        return {person: float(point_number(cell)) if cell else math.nan for person, cell in column.items()}
    except ValueError as error:
        raise InputError(
            f"covariate '{name}' is not a column of numbers ({error}); give numbers, or use it as --by"
        ) from None


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
    within: str | None = None,
    groups: Mapping[str, str] | None = None,
    covariates: Mapping[str, Mapping[str, float]] | None = None,
    measure: str = "share",
    test: str = "permutation",
    resamples: int = 9999,
    seed: int = 0,
    progress: bool = False,
) -> Statistics:
    """Compute all statistics of events.

    Parameters
    ----------
    gap, shortest, start, stop, bins, within, concurrent, measure, test
        See `stats`.
    by, groups
        A column of the events that names the study group of a person, or a group for every subject or
        recording.
    covariates
        Numbers by name and person to adjust for.
    """
    if not len(events):
        raise InputError(f"{events.origin} holds no event; there is nothing to count")
    if not any(event.label for event in events):
        raise InputError(f"no event of {events.origin} has a label; there is nothing to count")
    if len({event.source for event in events}) > 1:
        raise InputError(
            f"{events.origin} holds events of people and of a model; choose one with --annotator human or model"
        )
    check_choice("measure", measure, MEASURES)
    check_choice("test", test, (*TESTS, "mixed"))
    if by is not None and within is not None:
        raise InputError(
            "groups (--by) and conditions within people (--within) are compared separately; leave one out"
        )
    if test == "mixed" and within is None:
        raise InputError(
            "a mixed model needs people who were seen several times; name their conditions with --within"
            " COLUMN"
        )
    check_seconds(gap=gap, shortest=shortest, start=start, stop=stop)
    if bins is not None and not 0 < bins < math.inf:
        raise InputError(f"bins of {bins:g} s cannot be made; give more than 0 seconds")
    tiers = observed_bouts(events.check(concurrent=concurrent).merged(gap, shortest), start, stop)
    labels = events.labels
    result = Statistics(
        [row for tier in tiers for row in _bout_rows(tier, labels)],
        [_observed_row(tier, labels) for tier in tiers],
        [row for tier in tiers for row in _bin_rows(tier, labels, bins)] if bins else [],
        transitions(tiers, labels, resamples=min(resamples, 1999), seed=seed, progress=progress),
        tiers=tiers,
        summary=_summary(person_values(tiers, labels, measure), measure),
        labels=labels,
        origin=events.origin,
    )
    if within is not None:
        values = condition_values(tiers, labels, measure, conditions_of(events, within))
        compared = compare_conditions(
            values, test=test, covariates=covariates, resamples=resamples, seed=seed
        )
        return replace(result, groups={"by": within, "measure": measure} | compared)
    if by is None and groups is None:
        return result
    membership = dict(groups) if groups is not None else groups_of(events, by or "")
    persons = person_values(tiers, labels, measure)
    return replace(
        result, groups={"by": by, "measure": measure}
        | compare_groups(persons, membership, test=test, covariates=covariates, resamples=resamples, seed=seed),
    )  # fmt: skip


def _summary(values: Mapping[str, Mapping[str, float]], measure: str) -> list[dict[str, Any]]:
    """A row per label: the measure over people, with Student's 95 % interval of its mean.

    Counts and shares of one recording have no interval: it was counted completely, and is not a sample of
    anything.
    """
    rows = []
    for label, persons in values.items():
        facts = described([value for value in persons.values() if math.isfinite(value)])
        reason = None if facts["interval"] is not None else "one person has no spread"
        rows.append({"label": label, "measure": measure, **facts, "interval_reason": reason})
    return rows


def _bout_rows(tier: Bouts, labels: Sequence[str]) -> list[dict[str, Any]]:
    rows, observed = [], tier.observed
    for label in labels:
        bouts = tier.by_label.get(label, [])
        durations = [e.duration for e in bouts]
        rows.append(
            {**_whose(tier), "label": label}
            | measures(durations, [e.start for e in bouts], observed, tier.begin)
        )
    return rows


def _whose(tier: Bouts) -> dict[str, Any]:
    """Recording and subject, and the person if a video shows several."""
    person = person_of(tier.recording)
    return {
        "recording": tier.recording,
        **({} if person is None else {"person": person}),
        "subject": tier.subject,
    }


def _observed_row(tier: Bouts, labels: Sequence[str]) -> dict[str, Any]:
    totals = np.array([sum(e.duration for e in tier.by_label.get(label, ())) for label in labels])
    return {
        **_whose(tier),
        "observed": tier.observed,
        "nobody": tier.end - tier.begin - tier.observed,
        "labelled": float(totals.sum()),
        "bouts": len(tier.bouts),
        "diversity": entropy(totals),
    }


def entropy(totals: npt.ArrayLike) -> float | None:
    """Shannon entropy of time shares in bits: 0 for one label, log2(n) for n labels of equal time."""
    from scipy import stats

    values = np.asarray(totals, dtype=np.float64)
    return float(stats.entropy(values, base=2)) if values.any() else None


def _bin_rows(tier: Bouts, labels: Sequence[str], width: float) -> list[dict[str, Any]]:
    """Per bin: bouts that begin in it, seconds, share of observed time; the last may be shorter."""
    count = math.ceil((tier.end - tier.begin) / width - 1e-9)
    if count > 100_000:
        raise InputError(f"bins of {width:g} s cut '{tier.recording}' into {count} parts; choose longer ones")
    edges = np.minimum(tier.begin + np.arange(count + 1) * width, tier.end)
    seen = np.diff(edges) - np.diff(covered([(e.start, e.stop) for e in tier.absent], edges))
    by_label = {label: [(e.start, e.stop) for e in tier.by_label.get(label, ())] for label in labels}
    totals = {label: np.diff(covered(spans, edges)) for label, spans in by_label.items()}
    counts = {label: np.histogram([s for s, _ in spans], edges)[0] for label, spans in by_label.items()}
    return [
        {
            "recording": tier.recording,
            "subject": tier.subject,
            "label": label,
            "start": float(edges[number]),
            "stop": float(edges[number + 1]),
            "count": int(counts[label][number]),
            "total": float(totals[label][number]),
            "share": float(totals[label][number] / seen[number]) if seen[number] > 1e-9 else None,
        }
        for number in range(count)
        for label in labels
    ]
