"""Bouts: merged events of one person in one recording, with the time that was observed; what is measured about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halp.findings.events import NOBODY, Event, Events


@dataclass(frozen=True)
class Bouts:
    """Bouts of one person in one recording, with what was observed of them, in seconds."""

    recording: str
    subject: str
    bouts: list[Event]
    absent: list[Event]
    begin: float
    end: float

    @property
    def observed(self) -> float:
        return max(self.seen(self.begin, self.end), 0.0)

    @property
    def person(self) -> str:
        return self.subject or self.recording

    def seen(self, start: float, stop: float) -> float:
        """Seconds of a span in which somebody was there."""
        return stop - start - sum(overlap(e, start, stop) for e in self.absent)


def observed_bouts(events: Events, start: float = 0.0, stop: float | None = None) -> list[Bouts]:
    """Bouts by recording and subject, cut to the part that counts."""
    tiers: list[Bouts] = []
    for recording, rows in events.by_recording().items():
        end = events.lengths.get(recording) or max((event.stop for event in rows), default=0.0)
        end = end if stop is None else min(end, stop)
        cut = [replace(e, start=max(e.start, start), stop=min(e.stop, end)) for e in rows if overlap(e, start, end) > 0]
        named = {e.subject for e in cut if e.label not in ("", NOBODY)} or {e.subject for e in cut} or {""}
        for subject in sorted(named):
            bouts = [e for e in cut if e.subject == subject and e.label not in ("", NOBODY)]
            absent = [e for e in cut if e.label == NOBODY and e.subject in ("", subject)]
            tiers.append(
                Bouts(recording, subject, sorted(bouts, key=lambda e: e.start), absent, start, max(end, start))
            )
    return tiers


def overlap(event: Event, start: float, stop: float) -> float:
    """Seconds of an event that lie in a span."""
    return max(0.0, min(event.stop, stop) - max(event.start, start))


def measures(
    durations: Sequence[float], starts: Sequence[float], observed: float, begin: float = 0.0
) -> dict[str, Any]:
    """Count, total, mean, median, latency, share of the observed time, and rate per minute; None where undefined.

    >>> measures([2.0, 4.0], [1.0, 6.0], observed=12.0)["share"]
    0.5
    """
    count, total = len(durations), float(sum(durations))
    return {
        "count": count,
        "total": total,
        "mean": total / count if count else None,
        "median": float(np.median(durations)) if count else None,
        "latency": min(starts) - begin if count else None,
        "share": total / observed if observed > 0 else None,
        "rate": 60 * count / observed if observed > 0 else None,
    }
