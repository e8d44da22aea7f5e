"""Agreement of two accounts of the same recordings: a person and a model, or two people.

Time is cut into short bins that have one label each; bouts are matched one to one by how much they overlap.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.data.spans import UNSEEN, Event, Events
from halp.tasks.intervals import rounded
from halp.tasks.read_events import EventsLike, read_matched

NONE = "none"  # in confusions: time that an account leaves without a label
Tiers = dict[tuple[str, str], list[Event]]
Matches = tuple[int, int, list[tuple[Event, Event]]]  # bouts of both accounts, and pairs of the same


@dataclass(frozen=True)
class Agreement:
    """How far two accounts of the same recordings agree."""

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
    bin_width: float = 0.1,
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
    bin_width : float
        Seconds of a bin.
    overlap : float
        Intersection over union from which on two bouts are the same.
    gap : float
        Seconds; bouts of a label that are closer are one.
    shortest : float
        Seconds; shorter bouts are then left out.

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
    measured, notes = compare_accounts(
        one, two, bin_width=bin_width, overlap=overlap, gap=gap, shortest=shortest
    )
    for sentence in notes:
        warnings.warn(sentence, stacklevel=2)
    return Agreement(rounded(measured), one, two)


def compare_accounts(
    first: Events,
    second: Events,
    *,
    bin_width: float = 0.1,
    overlap: float = 0.5,
    gap: float = 0.0,
    shortest: float = 0.0,
) -> tuple[dict[str, Any], list[str]]:
    """Cohen's kappa, bout F1, boundary error, confusion and ICC of durations; and sentences about what has no
    partner.

    Parameters
    ----------
    bin_width : seconds; kappa and the confusion count bins.
    overlap : intersection over union from which on two bouts of one label are the same.
    gap, shortest : how events become bouts, as in `halp stats`.
    """
    if bin_width <= 0 or not 0 < overlap <= 1:
        raise InputError(
            f"bins of {bin_width:g} s and an overlap of {overlap:g} cannot be used; give more than 0, overlap"
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
    bins = [_binned(one, two, ends[key[0]], labels, bin_width) for one, two, key in pairs]
    codes = np.concatenate(bins, axis=1)
    names = [*labels, NONE]
    confusion = np.zeros((len(names), len(names)))
    np.add.at(confusion, (codes[0], codes[1]), bin_width)
    movements = [label for label in labels if label not in UNSEEN]
    matches = {label: [_matched(one, two, label, overlap) for one, two, _ in pairs] for label in movements}
    return {
        "kappa": kappa(codes[0], codes[1]),
        "agreement": float((codes[0] == codes[1]).mean()),
        "recordings": [
            {
                "recording": key[0],
                "subject": key[1],
                "kappa": kappa(*row),
                "agreement": float((row[0] == row[1]).mean()),
            }
            for row, (_, _, key) in zip(bins, pairs)
        ],
        "labels": [
            _label_row(label, codes, labels.index(label), matches[label], pairs) for label in movements
        ],
        "confusion": {"labels": names, "seconds": confusion.tolist()},
    }, notes


def _by_person(events: Events, gap: float, shortest: float) -> Tiers:
    """Bouts by recording and subject; that nobody is there holds for everybody who is named in a recording.

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
    """Tiers without subjects, where a recording has one only."""
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
    """The label of every bin up to `end` by its middle, `(2, bins)`; the last number is for no label."""
    middles = (np.arange(math.ceil(end / width - 1e-9)) + 0.5) * width
    codes = np.full((2, len(middles)), len(labels), dtype=np.int64)
    for row, events in enumerate((one, two)):
        for event in events:
            if event.label:
                first, last = np.searchsorted(middles, [event.start, event.stop])
                codes[row, first:last] = labels.index(event.label)
    return codes


def kappa(one: npt.ArrayLike, two: npt.ArrayLike) -> float | None:
    """Cohen's kappa; None where both know one label only, so that chance cannot be told from agreement."""
    from sklearn.metrics import cohen_kappa_score

    if len(np.unique(np.concatenate([np.asarray(one), np.asarray(two)]))) < 2:
        return None
    return float(cohen_kappa_score(one, two))


def _matched(one: Sequence[Event], two: Sequence[Event], label: str, overlap: float) -> Matches:
    """Bouts of a label in both accounts, and the pairs that are the same, so that as much as possible
    overlaps.
    """
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
    }


def icc(values: npt.ArrayLike) -> float | None:
    """Intraclass correlation ICC(2,1) of `(targets, raters)`: absolute agreement of single raters; None where
    undefined.

    Two-way random effects after Shrout and Fleiss (1979).
    """
    table = np.asarray(values, dtype=np.float64)
    n, k = table.shape
    if n < 2 or k < 2:
        return None
    mean = table.mean()
    rows = k * ((table.mean(1) - mean) ** 2).sum() / (n - 1)
    columns = n * ((table.mean(0) - mean) ** 2).sum() / (k - 1)
    rest = ((table - table.mean(1, keepdims=True) - table.mean(0) + mean) ** 2).sum() / ((n - 1) * (k - 1))
    below = rows + (k - 1) * rest + k * (columns - rest) / n
    return float((rows - rest) / below) if below > 0 else None
