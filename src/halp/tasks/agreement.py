"""Agreement of two accounts of the same recordings: a person and a model, or two people.

Time is cut into short bins that have one label each; bouts are matched one to one by how much they overlap.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, check_seconds
from halp.data.spans import UNSEEN, Event, Events
from halp.tasks.intervals import COUNTED, FEWEST_DRAWN, Floats, rounded, sums_interval
from halp.tasks.read_events import EventsLike, read_matched
from halp.tasks.reliability import icc, icc_interval, kappa, kappas

#: Why numbers have no interval, by their place in the answer.
FEW = f"below {FEWEST_DRAWN} recordings, or if all of them are alike, it has none"
NO_INTERVAL = {
    "recordings": COUNTED,
    "confusion": "seconds, counted completely",
    **dict.fromkeys(("labels.bouts_first", "labels.bouts_second", "labels.matched"), "counted completely"),
    "kappa": FEW,
    "agreement": FEW,
    "labels": FEW,
}
NONE = "none"  # in confusions: time that an account leaves without a label
Tiers = dict[tuple[str, str], list[Event]]
Matches = tuple[int, int, list[tuple[Event, Event]]]  # bouts of both accounts, and pairs of the same


@dataclass(frozen=True)
class Agreement:
    """Agreement of two accounts of the same recordings."""

    measured: dict[str, Any]
    first: Events
    second: Events

    def __getitem__(self, name: str) -> Any:
        return self.measured[name]

    def events(self) -> Events:
        """The events of the first account."""
        return self.first

    def to_json(self) -> dict[str, Any]:
        """Kappa, agreement, recordings, labels and confusion."""
        return self.measured


def agreement(
    first: EventsLike,
    second: EventsLike,
    *,
    bins: float = 0.1,
    overlap: float = 0.5,
    gap: float = 0.0,
    shortest: float = 0.0,
) -> Agreement:
    """Compare two accounts of the same recordings: a person and a model, or two people.

    Cohen's kappa and confusion of short bins of time, F1 of bouts, errors of their boundaries, and the
    intraclass correlation of durations. Recordings are matched by name without endings.

    Parameters
    ----------
    first : path or Events
        Events in any format, the reference of precision and recall.
    second : path or Events
        The other account.
    bins : float
        Seconds of a bin.
    overlap : float
        Intersection over union at which two bouts count as the same.
    gap : float
        Seconds; closer bouts of a label are merged.
    shortest : float
        Seconds; shorter bouts are then dropped.

    Returns
    -------
    Agreement
        `answer["kappa"]`, `answer["labels"]`, …

    Examples
    --------
    >>> from halp import Event, Events
    >>> one = Events([Event("a", 0, 2, "walk"), Event("a", 2, 4, "sit")])
    >>> agreement(one, one)["kappa"]
    1.0
    """
    one, two = read_matched(first), read_matched(second)
    measured, notes = compare_accounts(one, two, bins=bins, overlap=overlap, gap=gap, shortest=shortest)
    for sentence in notes:
        warnings.warn(sentence, stacklevel=2)
    return Agreement(rounded(measured), one, two)


def compare_accounts(
    first: Events,
    second: Events,
    *,
    bins: float = 0.1,
    overlap: float = 0.5,
    gap: float = 0.0,
    shortest: float = 0.0,
) -> tuple[dict[str, Any], list[str]]:
    """Cohen's kappa, bout F1, boundary error, confusion, ICC of durations; notes on missing partners.

    Parameters
    ----------
    bins : seconds; kappa and the confusion count bins.
    overlap : intersection over union at which two bouts of one label count as the same.
    gap, shortest : how events become bouts, as in `halp stats`.
    """
    check_seconds(gap=gap, shortest=shortest)
    if not 0 < bins < math.inf or not 0 < overlap <= 1:
        raise InputError(
            f"bins of {bins:g} s and an overlap of {overlap:g} cannot be used; give more than 0, overlap"
            " up to 1"
        )
    second, missed, _ = second.matched(sorted({event.recording for event in first}))
    ends = first.ends
    ends |= {name: max(ends.get(name, 0.0), end) for name, end in second.ends.items()}
    tiers, others = (_by_person(events.check(), gap, shortest) for events in (first, second))
    if not tiers.keys() & others.keys():  # one of the two does not name people
        tiers, others = _nameless(tiers), _nameless(others)
    notes = [f"'{name}' of {second.origin} has no partner in {first.origin}" for name in missed]
    notes += [
        f"{' of '.join(filter(None, key[::-1]))} is in one of the two only"
        for key in sorted(tiers.keys() ^ others.keys())
    ]
    pairs = [(tiers[key], others[key], key) for key in sorted(tiers.keys() & others.keys())]
    if not pairs:
        raise InputError(f"{first.origin} and {second.origin} have no recording in common; names must match")
    labels = sorted({e.label for one, two, _ in pairs for e in (*one, *two)} - {""})
    binned = [_binned(one, two, ends[key[0]], labels, bins) for one, two, key in pairs]
    codes = np.concatenate(binned, axis=1)
    names = [*labels, NONE]
    confusion = np.zeros((len(names), len(names)))
    np.add.at(confusion, (codes[0], codes[1]), bins)
    movements = [label for label in labels if label not in UNSEEN]
    matches = {label: [_matched(one, two, label, overlap) for one, two, _ in pairs] for label in movements}
    tables = np.array([_table(row, len(names)) for row in binned])
    return {
        "kappa": kappa(codes[0], codes[1]),
        "kappa_interval": sums_interval(tables.reshape(len(binned), -1), kappas, "correlation"),
        "agreement": float((codes[0] == codes[1]).mean()),
        "agreement_interval": sums_interval(
            np.array([[np.trace(table), table.sum()] for table in tables]),
            lambda s: s[:, 0] / s[:, 1],
            "share",
        ),
        "recordings": [
            {
                "recording": key[0],
                "subject": key[1],
                "kappa": kappa(*row),
                "agreement": float((row[0] == row[1]).mean()),
            }
            for row, (_, _, key) in zip(binned, pairs)
        ],
        "labels": [
            _label_row(label, codes, labels.index(label), matches[label], pairs)
            | _label_intervals(tables, labels.index(label), matches[label])
            for label in movements
        ],
        "confusion": {"labels": names, "seconds": confusion.tolist()},
        "no_interval": NO_INTERVAL,
    }, notes


def _by_person(events: Events, gap: float, shortest: float) -> Tiers:
    """Bouts by recording and subject; `nobody` applies to every subject named in a recording.

    Somebody whose bouts are all too short stays, without any.
    """
    tiers: Tiers = {(event.recording, event.subject): [] for event in events}
    for bout in events.merged(gap, shortest):
        tiers[bout.recording, bout.subject].append(bout)
    named: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for key in tiers:
        if key[1]:
            named[key[0]].append(key)
    for recording, keys in named.items():
        unnamed = tiers.get((recording, ""), [])
        if unnamed and all(event.label in ("", *UNSEEN) for event in unnamed):
            for key in keys:
                tiers[key] += unnamed
            del tiers[recording, ""]
    return tiers


def _nameless(tiers: Tiers) -> Tiers:
    """Tiers without subjects, in recordings that have only one."""
    result: Tiers = {}
    for (recording, subject), events in tiers.items():
        if (recording, "") in result:
            raise InputError(
                f"recording '{recording}' has several subjects that are not named alike in both accounts;"
                " rename them"
            )
        result[recording, ""] = [replace(event, subject="") for event in events] if subject else events
    return result


def _binned(
    one: Sequence[Event], two: Sequence[Event], end: float, labels: Sequence[str], width: float
) -> npt.NDArray[np.int64]:
    """The label at the middle of every bin up to `end`, `(2, bins)`; the last number means no label."""
    middles = (np.arange(math.ceil(end / width - 1e-9)) + 0.5) * width
    codes = np.full((2, len(middles)), len(labels), dtype=np.int64)
    for row, events in enumerate((one, two)):
        for event in events:
            if event.label:
                first, last = np.searchsorted(middles, [event.start, event.stop])
                codes[row, first:last] = labels.index(event.label)
    return codes


def _matched(one: Sequence[Event], two: Sequence[Event], label: str, overlap: float) -> Matches:
    """Bouts of a label in both accounts, and the pairs of matching bouts with the largest total overlap."""
    from scipy.optimize import linear_sum_assignment

    mine, others = ([e for e in events if e.label == label] for events in (one, two))
    if not mine or not others:
        return len(mine), len(others), []
    a, b = (np.array([[e.start, e.stop] for e in events]) for events in (mine, others))
    common = np.minimum(a[:, None, 1], b[None, :, 1]) - np.maximum(a[:, None, 0], b[None, :, 0])
    union = np.maximum(a[:, None, 1], b[None, :, 1]) - np.minimum(a[:, None, 0], b[None, :, 0])
    share = np.where(common > 0, common / union, 0.0)
    rows, columns = linear_sum_assignment(-np.where(share >= overlap, share, 0.0))
    return (
        len(mine),
        len(others),
        [(mine[r], others[c]) for r, c in zip(rows, columns) if share[r, c] >= overlap],
    )


def _label_row(
    label: str,
    codes: npt.NDArray[np.int64],
    place: int,
    matches: Sequence[Matches],
    pairs: Sequence[tuple[list[Event], list[Event], tuple[str, str]]],
) -> dict[str, Any]:
    count, other_count = sum(row[0] for row in matches), sum(row[1] for row in matches)
    same = [pair for _, _, pairs_ in matches for pair in pairs_]
    starts, stops = (
        np.array([getattr(b, end) - getattr(a, end) for a, b in same]) for end in ("start", "stop")
    )
    totals = np.array(
        [[sum(e.duration for e in events if e.label == label) for events in row[:2]] for row in pairs]
    )
    return {
        "label": label,
        "kappa": kappa(codes[0] == place, codes[1] == place),
        "bouts_first": count,
        "bouts_second": other_count,
        "matched": len(same),
        "precision": len(same) / other_count if other_count else None,
        "recall": len(same) / count if count else None,
        "f1": 2 * len(same) / (count + other_count) if count + other_count else None,
        "start_error": float(np.abs(starts).mean()) if same else None,
        "stop_error": float(np.abs(stops).mean()) if same else None,
        "start_bias": float(starts.mean()) if same else None,
        "stop_bias": float(stops.mean()) if same else None,
        "icc": icc(totals),
        "icc_interval": icc_interval(totals),
    }


def _table(codes: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """How many bins of one recording have each label in the first and in the second account."""
    return np.bincount(codes[0] * size + codes[1], minlength=size * size).reshape(size, size)


def _label_intervals(
    tables: npt.NDArray[np.int64], place: int, matches: Sequence[Matches]
) -> dict[str, list[float] | None]:
    """Intervals over recordings of what `_label_row` reports."""
    here, both = tables[:, place].sum(1), tables[:, place, place]
    there, whole = tables[:, :, place].sum(1), tables.sum((1, 2))
    two = np.column_stack([both, here - both, there - both, whole - here - there + both])
    rows = []
    for count, other, same in matches:
        late = [np.array([getattr(b, end) - getattr(a, end) for a, b in same]) for end in ("start", "stop")]
        rows.append([len(same), count, other, *(np.abs(d).sum() for d in late), *(d.sum() for d in late)])
    ratios: dict[str, Callable[[Floats], Floats]] = {
        "precision": lambda s: s[:, 0] / s[:, 2],
        "recall": lambda s: s[:, 0] / s[:, 1],
        "f1": lambda s: 2 * s[:, 0] / (s[:, 1] + s[:, 2]),
        "start_error": lambda s: s[:, 3] / s[:, 0],
        "stop_error": lambda s: s[:, 4] / s[:, 0],
        "start_bias": lambda s: s[:, 5] / s[:, 0],
        "stop_bias": lambda s: s[:, 6] / s[:, 0],
    }
    intervals = {
        f"{name}_interval": sums_interval(rows, ratio, "plain" if name.startswith("st") else "share")
        for name, ratio in ratios.items()
    }
    return {"kappa_interval": sums_interval(two, kappas, "correlation")} | intervals
