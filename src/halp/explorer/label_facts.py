"""Immutable facts about labels: classes, labels of a revision, changes of an act, contradictions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from halp.core.errors import InputError
from halp.data.spans import Event
from halp.explorer.label_table import SLACK, bouts, event_text
from halp.explorer.ledger import Change, Ledger

LONGEST = 200  # characters of a label

Span = tuple[str, float, float, str]  # recording, start, stop, subject


@dataclass(frozen=True)
class LabelClass:
    """A class; its place (colour, and key − 1) stays as long as it exists."""

    id: int
    name: str
    place: int


@dataclass(frozen=True)
class Labels:
    """The labels of a revision, immutable: readers take one and work on it."""

    revision: int = 0
    events: tuple[tuple[int, Event], ...] = ()
    classes: tuple[LabelClass, ...] = ()
    undo: tuple[tuple[int, str], ...] = ()
    redo: tuple[tuple[int, str], ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of classes by place; empty if a place is free."""
        names = [""] * (1 + max((one.place for one in self.classes), default=-1))
        for one in self.classes:
            names[one.place] = one.name
        return names

    @property
    def human(self) -> list[tuple[int, Event]]:
        """Events with a class, and their ids."""
        return [(number, event) for number, event in self.events if event.source == "human" and event.label]


@dataclass(frozen=True)
class Outcome:
    """The result of an act: labels changed, spans left unchanged, and the class given."""

    changed: int = 0
    left: int = 0
    label_class: LabelClass | None = None
    act: int | None = None


def check_label(label: str) -> str:
    """A label without control characters or surrounding blanks, short enough to be shown."""
    label = "".join(" " if ord(letter) < 32 or ord(letter) == 127 else letter for letter in label).strip()
    if not label or len(label) > LONGEST:
        raise InputError(
            f"a label must have 1 to {LONGEST} characters, not {len(label)}; choose a shorter name"
        )
    if any(0xD800 <= ord(letter) < 0xE000 for letter in label):
        raise InputError("the label contains an invalid character; type it again")
    return label


def check_time(value: float) -> float:
    if not math.isfinite(value):
        raise InputError("a time that is not finite cannot be labelled")
    return round(float(value), 3)


def overlap(values: Sequence[Any], span: Sequence[Any]) -> bool:
    return bool(values[0] == span[0] and values[1] < span[2] - SLACK and span[1] < values[2] - SLACK)


def contradiction(span: Span, others: dict[str, list[tuple[float, float, str, str]]]) -> str:
    """Why a span cannot have a class: it overlaps one of another class. Empty if it can."""
    name, start, stop, who = span
    for low, high, subject, label in others.get(name, ()):
        if low < stop - SLACK and start < high - SLACK and (not who or not subject or who == subject):
            return (
                f"{start:g} – {stop:g} of '{name}' overlaps {low:g} – {high:g}, which is labelled '{label}'; "
                "take that label off first, or draw a span beside it"
            )
    return ""


def title_of(spans: Sequence[Sequence[Any]]) -> str:
    return str(spans[0][0]) if len(spans) == 1 else f"{len(spans)} movements"


def changes_to(events: Iterable[Event], now: Labels, ledger: Ledger) -> tuple[list[Change], int, int]:
    """The changes that make labels those of a table, and how many are added and removed."""
    wanted = {event_text(event): event for event in events}
    there = {event_text(event): rows for event, rows in bouts(now.events)}
    gone = [row for key, rows in there.items() if key not in wanted for row in rows]
    new = [event for key, event in wanted.items() if key not in there]
    changes: list[Change] = [("event", row, ledger.rows["event"][row], None) for row in gone]
    ids = {one.name: one.id for one in now.classes}
    places = {one.place for one in now.classes}
    next_class, next_event = ledger.next_id("class"), ledger.next_id("event")
    for event in new:
        classed = event.source == "human" and event.label
        if classed and event.label not in ids:
            place = free_place(places)
            changes.append(("class", next_class, None, (event.label, place)))
            ids[event.label] = next_class
            places.add(place)
            next_class += 1
        given = (ids[event.label], None) if classed else (None, event.label)
        span = (event.recording, round(event.start, 6), round(event.stop, 6))
        more = (event.subject, event.source, event.score, json.dumps(dict(event.more)))
        changes.append(("event", next_event, None, (*span, *given, *more)))
        next_event += 1
    return changes, len(new), sum(key not in wanted for key in there)


def free_place(taken: set[int]) -> int:
    """The lowest place that no class has."""
    return next(number for number in range(len(taken) + 1) if number not in taken)
