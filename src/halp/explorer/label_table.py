"""The CSV table of the explorer's labels: written after every act, and read after an outside edit."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from halp.core.errors import InputError
from halp.core.files import sha256
from halp.data.spans import Event, Events
from halp.explorer.ledger import Ledger
from halp.tasks.events.formats import read_events, write_csv_events

SLACK = 1e-6  # seconds that rounding may let two events overlap by

Rows = Iterable[tuple[int, Event]]


class LabelTable:
    """Remembers its last written state, to recognise outside edits."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self.path, self.ledger = path, ledger
        self._unreadable = self._unwritten = ""
        self._seen: tuple[int, ...] | None = None  # the file as it was last looked at

    @property
    def trouble(self) -> str:
        """Why the table does not match the database; empty if it does."""
        return self._unreadable or self._unwritten

    def look(self, *, first: bool = False) -> tuple[bool, list[Event] | None]:
        """Whether the table must be written again, and an outside edit of it, if any.

        Raises if there are no labels but those of a table that cannot be read.
        """
        found = _fingerprint(self.path)
        if found == self._seen and not first:
            return False, None
        self._seen, self._unreadable = found, ""
        ours, at = self.ledger.setting("exported", ("", 0))
        try:
            if found is None or sha256(self.path) == ours:
                return self.ledger.revision > (0 if found is None else at), None
            return False, list(read_events(self.path, "csv")[0])
        except (InputError, OSError) as error:
            if first and not self.ledger.revision:
                raise InputError(f"{error}; choose another file with --labels") from error
            kept = f"'{self.path.name}' is left as it is, labels are kept in '{self.ledger.path.name}'"
            self._unreadable = f"{error}; {kept}"
            return False, None

    def remove_leftovers(self) -> None:
        """Remove files of killed processes; the caller holds the lock."""
        for leftover in self.path.parent.glob(f".{self.path.stem}.*.partial{self.path.suffix}"):
            leftover.unlink(missing_ok=True)

    def write(self, rows: Rows) -> None:
        """Write the table. A failure is only a warning: labels are safe in the database."""
        if self._unreadable:
            return
        try:
            write_csv_events(self.path, Events([event for event, _ in bouts(rows)], origin=str(self.path)))
            self._seen = _fingerprint(self.path)
            self.ledger.set("exported", (sha256(self.path), self.ledger.revision))
            self._unwritten = ""
        except (InputError, OSError) as error:
            self._unwritten = (
                f"the table was not written ({error}); labels are kept in '{self.ledger.path.name}'"
            )


def bouts(rows: Rows) -> list[tuple[Event, list[int]]]:
    """Events of the table with the ids of their parts: overlapping ones with the same label are merged."""
    tiers: dict[Any, list[tuple[Event, list[int]]]] = defaultdict(list)
    for row, event in sorted(rows, key=lambda one: (one[1].start, one[1].stop)):
        more = tuple(sorted(event.more.items()))
        own = tiers[event.recording, event.label, event.subject, event.source, event.score, more]
        if own and event.source == "human" and event.start < own[-1][0].stop - SLACK:
            last, ids = own[-1]
            own[-1] = replace(last, stop=max(last.stop, event.stop)), [*ids, row]
        else:
            own.append((event, [row]))
    return [one for own in tiers.values() for one in own]


def event_text(event: Event) -> str:
    """All columns of an event, to compare it with others."""
    return json.dumps(event.to_json(), sort_keys=True)


def _fingerprint(path: Path) -> tuple[int, ...] | None:
    """A value that changes when the file is written; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
