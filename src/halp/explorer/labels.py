"""Labels that people give, as events in a CSV table that survives a crash: a journal is appended first, the table follows.

The table `recording,start,stop,label,subject,source,score` is what other commands read; it is always whole. The journal
beside it (`.journal`) holds one line per change, so that everything can be undone. A table that was edited by hand in
between is taken over as a change of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from halp.core.errors import InputError
from halp.core.files import sync_folder
from halp.core.locks import locked
from halp.data.spans import COLUMNS, Event, Events
from halp.tasks.events.formats import read_events, write_csv_events

LONGEST = 200  # characters of a label


def check_label(label: str) -> str:
    """A label without control characters and outer blanks, of a length that can be shown."""
    label = "".join(" " if ord(letter) < 32 or ord(letter) == 127 else letter for letter in label).strip()
    if not label or len(label) > LONGEST:
        raise InputError(f"a label has 1 to {LONGEST} characters, not {len(label)}; choose a shorter name")
    return label


class LabelBook:
    """All events of a table; changes are durable when a method returns. One process at a time holds a table."""

    def __init__(self, path: Path) -> None:
        self.path, self.journal = path, path.with_name(path.name + ".journal")
        self.revision = 0
        self._events: dict[Event, None] = {}
        self._changes: list[dict[str, Any]] = []
        self._undone: set[int] = set()
        self._lock = threading.RLock()
        self._held = ExitStack()

    def __enter__(self) -> LabelBook:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.path.with_name(f".{self.path.name}.lock")
        self._held.enter_context(locked(lock, f"the labels '{self.path}'"))
        try:
            self._load()
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        self._held.close()

    @property
    def events(self) -> list[Event]:
        with self._lock:
            return list(self._events)

    @property
    def undoable(self) -> int:
        """How many changes can be undone."""
        return len(self._changes) - len(self._undone)

    def label(self, spans: Iterable[tuple[str, float, float, str]], label: str) -> int:
        """Give spans (recording, start, stop, subject) a label in place of the one they had; how many changed."""
        label = check_label(label)
        added = [Event(name, _time(start), _time(stop), label, subject) for name, start, stop, subject in spans]
        if bad := next((one for one in added if not one.stop > one.start), None):
            raise InputError(f"a label of '{bad.recording}' ends at {bad.stop:g}, before it starts at {bad.start:g}")
        with self._lock:
            taken = {_span(event) for event in added}
            removed = [one for one in self._events if one.source == "human" and _span(one) in taken]
            return self._change([one for one in added if one not in self._events], set(removed) - set(added))

    def clear(self, spans: Iterable[tuple[str, float, float]]) -> int:
        """Take the labels of these spans away."""
        with self._lock:
            taken = {(name, _time(start), _time(stop)) for name, start, stop in spans}
            return self._change([], [one for one in self._events if one.source == "human" and _span(one) in taken])

    def move(self, before: tuple[str, float, float], start: float, stop: float) -> int:
        """Give a span other edges."""
        start, stop = _time(start), _time(stop)
        if not stop > start:
            raise InputError("a label has to end after it starts")
        with self._lock:
            span = before[0], _time(before[1]), _time(before[2])
            old = [one for one in self._events if one.source == "human" and _span(one) == span]
            return self._change([Event(one.recording, start, stop, one.label, one.subject) for one in old], old)

    def rename(self, before: str, after: str) -> int:
        """Give all events of a label another one; two classes become one where the name exists already."""
        after = check_label(after)
        with self._lock:
            old = [one for one in self._events if one.source == "human" and one.label == before]
            return self._change([Event(*_span(one), after, one.subject) for one in old], old if before != after else [])

    def undo(self) -> int:
        """Take back the latest change that stands; 0 where there is none."""
        with self._lock:
            standing = [number for number in range(len(self._changes)) if number not in self._undone]
            if not standing:
                return 0
            change = self._changes[standing[-1]]
            self._write({"undo": standing[-1]})
            return len(change["add"]) + len(change["remove"])

    def _change(self, add: Sequence[Event], remove: Iterable[Event]) -> int:
        remove = list(remove)
        if add or remove:
            self._write({"add": [_values(one) for one in add], "remove": [_values(one) for one in remove]})
        return max(len(add), len(remove))

    def _write(self, change: dict[str, Any]) -> None:
        """Journal first, table second: a crash in between is mended when the journal is read again."""
        self._apply(change)
        change["table"] = _hash(self._events)
        try:
            with open(self.journal, "ab") as file:
                file.write(json.dumps(change, ensure_ascii=False, allow_nan=False).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            self._write_table()
        except OSError as error:
            raise InputError(
                f"labels cannot be written to '{self.path}' ({error}); make room or choose --labels"
            ) from error
        self.revision += 1

    def _apply(self, change: dict[str, Any]) -> None:
        if "undo" in change:
            done = self._changes[change["undo"]]
            self._undone.add(change["undo"])
            add, remove = done["remove"], done["add"]
        else:
            self._changes.append(change)
            add, remove = change["add"], change["remove"]
        for one in remove:
            self._events.pop(Event(*one), None)
        for one in add:
            self._events[Event(*one)] = None

    def _write_table(self) -> None:
        write_csv_events(self.path, Events(list(self._events), origin=str(self.path)))

    def _load(self) -> None:
        """Replay the journal; then take over a table that somebody else changed, or complete one that lags behind."""
        hashes, good = [_hash([])], 0
        try:
            data = self.journal.read_bytes() if self.journal.exists() else b""
            for line in data.splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break  # cut off by a crash: it was never confirmed
                change = json.loads(line)
                self._apply(change)
                hashes.append(change["table"])
                good += len(line)
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise InputError(
                f"'{self.journal}' is damaged ({error}); move it away, the labels are in '{self.path}'"
            ) from error
        if good < len(data):
            with open(self.journal, "r+b") as file:
                file.truncate(good)
                os.fsync(file.fileno())
            sync_folder(self.journal.parent)
        if not self.path.exists():
            if self._events:
                self._write_table()
            return
        events = dict.fromkeys(read_events(self.path, "csv")[0])
        if _hash(events) == hashes[-1]:
            return
        if _hash(events) in hashes:
            self._write_table()
            return
        self._change(
            [one for one in events if one not in self._events], [one for one in self._events if one not in events]
        )


def _time(value: float) -> float:
    if not math.isfinite(value):
        raise InputError("a time that is not finite cannot be labelled")
    return round(float(value), 3)


def _values(event: Event) -> list[Any]:
    return [*(getattr(event, column) for column in COLUMNS), dict(event.more)]


def _span(event: Event) -> tuple[str, float, float]:
    return event.recording, event.start, event.stop


def _hash(events: Iterable[Event]) -> str:
    rows = sorted(json.dumps(_values(event), ensure_ascii=False) for event in events)
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]
