"""Labels by people: classes and events in the explorer's database, exported as a CSV table of events.

The database (`NAME.sqlite`) is the truth. The table (`NAME.csv`) is what other commands read; it is written
after every act. A table that somebody else changed is taken over as an act, which can be undone like any
other.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from halp.core.errors import InputError
from halp.core.locks import locked
from halp.data.spans import Event
from halp.explorer.label_facts import (
    LabelClass,
    Labels,
    Outcome,
    Span,
    changes_to,
    check_label,
    check_time,
    contradiction,
    free_place,
    overlap,
    title_of,
)
from halp.explorer.label_table import LabelTable
from halp.explorer.ledger import COLUMNS, NO_GROUND, Act, Change, Ground, Ledger, Stacks, Values

SHOWN = 50  # acts that a page is told it can undo
TOPIC = "labels"
_RECORDING, _START, _STOP, _CLASS, _LABEL, _SUBJECT, _SOURCE, _SCORE, _MORE = range(len(COLUMNS["event"]))

P = ParamSpec("P")


def _act(
    method: Callable[Concatenate[LabelBook, P], Outcome],
) -> Callable[Concatenate[LabelBook, P], Outcome]:
    """Apply one act at a time, after outside edits of the table; a repeated act is not applied again."""

    @wraps(method)
    def acting(book: LabelBook, *args: P.args, **given: P.kwargs) -> Outcome:
        with book.lock:
            book.look_at_table()
            done = book.ledger.repeated(given.get("ground", NO_GROUND))  # type: ignore[arg-type]
            return method(book, *args, **given) if done is None else book.outcome_of(done)

    return acting


class LabelBook:
    """All labels of a table. An act is on disk when its method returns; one process holds a table."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_suffix(".csv") if path.suffix == ".sqlite" else path
        name = self.path.name
        self.ledger = Ledger(
            path.with_name(name[:-4] + ".sqlite" if name.endswith(".csv") else name + ".sqlite")
        )
        self.now = Labels()
        self.news: tuple[int, str] = (0, "")  # the latest change from outside: its revision, and what it was
        self.lock = threading.RLock()
        self._table = LabelTable(self.path, self.ledger)
        self._made: dict[int, tuple[Values, Event]] = {}
        self._held = ExitStack()

    def __enter__(self) -> LabelBook:
        lock = self.path.with_name(f".{self.path.name}.lock")
        self._held.enter_context(locked(lock, f"the label file '{self.path}' (another one: --labels)"))
        self._held.callback(self.ledger.close)
        try:
            self.ledger.load()
            self._table.remove_leftovers()
            self._publish()
            self.look_at_table(first=True)
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        with self.lock:
            self._held.close()

    @property
    def revision(self) -> int:
        return self.now.revision

    # -- acts

    @_act
    def label(self, spans: Iterable[Span], label: str | int, *, ground: Ground = NO_GROUND) -> Outcome:
        """Give spans a class, by id or by name, instead of the one they had.

        A span that overlaps a label of another class is left as it is; where that holds for all of them, the
        act is refused.
        """
        new = list(
            dict.fromkeys(
                (name, check_time(start), check_time(stop), who) for name, start, stop, who in spans
            )
        )
        if bad := next((one for one in new if not one[2] > one[1]), None):
            raise InputError(f"a label of '{bad[0]}' ends at {bad[2]:g}, before it starts at {bad[1]:g}")
        self._check_ground(ground, new)
        given, changes = self._class(label)
        taken = self._by_span()
        free, refused = self._without_contradictions(new, given.id, taken)
        if new and not free:
            raise InputError(refused)
        count, next_id = 0, self.ledger.next_id("event")
        for name, start, stop, who in free:
            olds = taken.get((name, start, stop), [])
            row = self.ledger.rows["event"]
            values = (name, start, stop, given.id, None, who, "human", None, "{}")
            if len(olds) == 1 and row[olds[0]][_CLASS] == given.id:
                continue
            changes += [("event", old, row[old], None) for old in olds[1:]]
            changes.append(("event", olds[0] if olds else next_id, row[olds[0]] if olds else None, values))
            next_id += not olds
            count += 1
        if count == 0:
            return Outcome(0, len(new) - len(free), given if given.id in self.ledger.rows["class"] else None)
        title = f"{title_of(free)}: {given.name}"
        return self._write(title, changes, ground, Outcome(count, len(new) - len(free), given))

    @_act
    def clear(self, spans: Iterable[tuple[str, float, float]], *, ground: Ground = NO_GROUND) -> Outcome:
        """Remove the labels of exactly these spans."""
        spans = [(name, check_time(start), check_time(stop)) for name, start, stop in spans]
        self._check_ground(ground, spans)
        taken, rows = self._by_span(), self.ledger.rows["event"]
        found = list(dict.fromkeys(row for span in spans for row in taken.get(span, ())))
        if not found:
            raise InputError(self._explain_missing(spans))
        return self._write(
            f"{title_of(spans)}: label taken off",
            [("event", row, rows[row], None) for row in found],
            ground,
            Outcome(len(found)),
        )

    @_act
    def move(self, number: int, start: float, stop: float, *, ground: Ground = NO_GROUND) -> Outcome:
        """Change the start and stop of an event."""
        start, stop = check_time(start), check_time(stop)
        if not stop > start:
            raise InputError("a label must end after it starts")
        old = self.ledger.rows["event"].get(number)
        if old is None:
            raise InputError("this label was removed in another tab; nothing was moved")
        self._check_ground(ground, [old[:3]])
        span = (old[_RECORDING], start, stop, old[_SUBJECT])
        if words := contradiction(span, self._others(old[_CLASS], {number})):
            raise InputError(words)
        new = (old[_RECORDING], start, stop, *old[_STOP + 1 :])
        return self._write(
            f"{title_of([span])}: edge moved", [("event", number, old, new)], ground, Outcome(1)
        )

    @_act
    def rename(self, number: int, name: str, *, ground: Ground = NO_GROUND) -> Outcome:
        """Rename a class; if a class of that name exists, the two are merged."""
        name, old = check_label(name), self._known_class(number)
        if name == old.name:
            return Outcome()
        other = next((one for one in self.now.classes if one.name == name), None)
        if other is None:
            changes: list[Change] = [("class", number, (old.name, old.place), (name, old.place))]
            return self._write(f"{old.name} is now called {name}", changes, ground, Outcome(1))
        changes = [
            ("event", row, values, (*values[:_CLASS], other.id, *values[_CLASS + 1 :]))
            for row, values in self._of(number)
        ]
        changes.append(("class", number, (old.name, old.place), None))
        return self._write(f"{old.name} became part of {name}", changes, ground, Outcome(len(changes)))

    @_act
    def remove(self, number: int, *, ground: Ground = NO_GROUND) -> Outcome:
        """Remove a class with all its labels."""
        old = self._known_class(number)
        changes: list[Change] = [("event", row, values, None) for row, values in self._of(number)]
        changes.append(("class", number, (old.name, old.place), None))
        return self._write(f"class {old.name} removed", changes, ground, Outcome(len(changes)))

    def undo(self, act: int | None = None, *, ground: Ground = NO_GROUND) -> Outcome:
        """Undo the latest act, which must be `act` if given; does nothing without one."""
        return self._turn("undo", act, ground=ground)

    def redo(self, act: int | None = None, *, ground: Ground = NO_GROUND) -> Outcome:
        """Redo the last undone act."""
        return self._turn("redo", act, ground=ground)

    @_act
    def _turn(self, kind: str, act: int | None, *, ground: Ground) -> Outcome:
        done = self.ledger.turn(TOPIC, kind, act, ground)
        if done is None:
            return Outcome()
        self._publish()
        self._table.write(self.now.events)
        return Outcome(len(done.body["changes"]), act=done.revision)

    # -- the parts of an act

    def _write(self, title: str, changes: Sequence[Change], ground: Ground, outcome: Outcome) -> Outcome:
        told = [outcome.changed, outcome.left, outcome.label_class and outcome.label_class.id]
        act = self.ledger.write(TOPIC, title, changes, ground=ground, told=told)
        self._publish()
        self._table.write(self.now.events)
        return Outcome(outcome.changed, outcome.left, outcome.label_class, act.revision)

    def outcome_of(self, act: Act) -> Outcome:
        """The response to an act."""
        changed, left, number = act.body.get("told", (len(act.body["changes"]), 0, None))
        return Outcome(
            changed, left, next((one for one in self.now.classes if one.id == number), None), act.revision
        )

    def _publish(self) -> None:
        classes = tuple(LabelClass(row, *values) for row, values in self.ledger.rows["class"].items())
        names = {one.id: one.name for one in classes}
        events = tuple(
            (row, self._event(row, values, names)) for row, values in self.ledger.rows["event"].items()
        )
        stacks = self.ledger.stacks.get(TOPIC, Stacks())
        undo, redo = (
            tuple((act.revision, act.title) for act in part[: -SHOWN - 1 : -1])
            for part in (stacks.done, stacks.undone)
        )
        in_order = tuple(sorted(classes, key=lambda one: one.place))
        self.now = Labels(self.ledger.revision, events, in_order, undo, redo)

    def _event(self, row: int, values: Values, names: dict[int, str]) -> Event:
        """A row as an event, created once."""
        label = values[_LABEL] if values[_CLASS] is None else names[values[_CLASS]]
        kept = self._made.get(row)
        if kept is None or kept[0] is not values or kept[1].label != label:
            more = json.loads(values[_MORE])
            name, start, stop = values[:_CLASS]
            event = Event(name, start, stop, label, values[_SUBJECT], values[_SOURCE], values[_SCORE], more)
            self._made[row] = kept = values, event
        return kept[1]

    def _class(self, label: str | int) -> tuple[LabelClass, list[Change]]:
        """A class by id or name, and the change that makes it where the name is new."""
        if isinstance(label, int):
            return self._known_class(label), []
        label = check_label(label)
        if known := next((one for one in self.now.classes if one.name == label), None):
            return known, []
        place = free_place({one.place for one in self.now.classes})
        new = LabelClass(self.ledger.next_id("class"), label, place)
        return new, [("class", new.id, None, (label, place))]

    def _known_class(self, number: int) -> LabelClass:
        if known := next((one for one in self.now.classes if one.id == number), None):
            return known
        raise InputError("this class was removed or merged in another tab; check the classes first")

    def _of(self, number: int) -> list[tuple[int, Values]]:
        return [
            (row, values) for row, values in self.ledger.rows["event"].items() if values[_CLASS] == number
        ]

    def _by_span(self) -> dict[tuple[str, float, float], list[int]]:
        found: dict[tuple[str, float, float], list[int]] = defaultdict(list)
        for row, values in self.ledger.rows["event"].items():
            if values[_CLASS] is not None:
                found[values[:3]].append(row)
        return found

    def _without_contradictions(
        self, spans: list[Span], number: int, taken: dict[tuple[str, float, float], list[int]]
    ) -> tuple[list[Span], str]:
        """Spans that can have a class, and the reason why the first of the others cannot."""
        refused = ""
        while True:  # what is left as it is may contradict others
            others = self._others(number, {row for span in spans for row in taken.get(span[:3], ())})
            words = {span: contradiction(span, others) for span in spans}
            if not any(words.values()):
                return spans, refused
            refused = refused or next(filter(None, words.values()))
            spans = [span for span in spans if not words[span]]

    def _others(
        self, number: int | None, apart_from: set[int]
    ) -> dict[str, list[tuple[float, float, str, str]]]:
        """Spans, subjects and labels of all other classes, by recording."""
        found: dict[str, list[tuple[float, float, str, str]]] = defaultdict(list)
        for row, event in self.now.human:
            if row not in apart_from and self.ledger.rows["event"][row][_CLASS] != number:
                found[event.recording].append((event.start, event.stop, event.subject, event.label))
        return found

    def _explain_missing(self, spans: Sequence[tuple[str, float, float]]) -> str:
        for span in spans:
            for _, event in self.now.human:
                if overlap((event.recording, event.start, event.stop), span):
                    where = f"{event.start:g} – {event.stop:g} of '{event.recording}'"
                    return f"its label comes from {where}; click that span on the timeline, then take it off"
        return "there is no label to take off"

    def _check_ground(self, ground: Ground, spans: Sequence[Sequence[Any]]) -> None:
        """Refuse an act on spans that another tab labelled after its client last looked."""
        for act in self.ledger.since(ground):
            for table, _, before, after in act.body["changes"]:
                for values in (before, after):
                    if table == "event" and values and any(overlap(values, span) for span in spans):
                        raise InputError(
                            f"'{values[_RECORDING]}' was changed {act.where} meanwhile ({act.title}); look"
                            " again"
                        )

    # -- the table

    @property
    def trouble(self) -> str:
        """Why the table does not match the database; empty if it does."""
        return self._table.trouble

    def look_at_table(self, *, first: bool = False) -> None:
        """Import an outside edit of the table, or write a table that is missing or out of date."""
        with self.lock:
            stale, events = self._table.look(first=first)
            if events is not None:
                self._take_over(events)
            elif stale:
                self._table.write(self.now.events)

    def _take_over(self, events: Iterable[Event]) -> None:
        """Replace the labels with those of a table, as one act."""
        changes, added, removed = changes_to(events, self.now, self.ledger)
        if not changes:
            self._table.write(self.now.events)
            return
        title = f"imported from {self.path.name}: {added} labels added, {removed} removed"
        act = self.ledger.write(TOPIC, title, changes, kind="import")
        self._publish()
        self.news = act.revision, title
        self._table.write(self.now.events)
