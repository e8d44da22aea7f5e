"""The explorer's database: acts with their inverses, one transaction each, and the page's settings.

An act is a list of changed rows, each with the values before and after. Undo writes the values before, redo
those after, and both are acts of their own. The number of the last act is the revision of the state.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halp.core.errors import InputError

VERSION = 1
SCHEMA = """
CREATE TABLE class (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, place INTEGER NOT NULL UNIQUE);
CREATE TABLE event (
  id INTEGER PRIMARY KEY AUTOINCREMENT, recording TEXT NOT NULL, start REAL NOT NULL, stop REAL NOT NULL,
  class INTEGER REFERENCES class (id), label TEXT, subject TEXT NOT NULL, source TEXT NOT NULL, score REAL, more TEXT NOT NULL,
  CHECK (stop > start), CHECK ((class IS NULL) <> (label IS NULL)));
CREATE TABLE act (
  revision INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, kind TEXT NOT NULL, of INTEGER REFERENCES act (revision),
  title TEXT NOT NULL, body TEXT NOT NULL, client TEXT, number INTEGER, made REAL NOT NULL, UNIQUE (client, number));
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
COLUMNS = {
    "class": ("name", "place"),
    "event": ("recording", "start", "stop", "class", "label", "subject", "source", "score", "more"),
}

Values = tuple[Any, ...]
Change = tuple[str, int, Values | None, Values | None]  # table, id, before, after


@dataclass(frozen=True)
class Ground:
    """The basis of an act: the revision seen and the client, whose number makes repeats idempotent."""

    based: int | None = None
    client: str | None = None
    number: int | None = None


NO_GROUND = Ground()


@dataclass(frozen=True)
class Act:
    """A row of the table `act`; `body` holds its changes and the response."""

    revision: int
    kind: str
    title: str
    body: dict[str, Any]
    client: str | None = None

    @property
    def where(self) -> str:
        """Where the act was made: another tab, or outside the page."""
        return "in the table" if self.kind == "import" else "in another tab"

    @property
    def changes(self) -> list[Change]:
        return [
            (table, row, before and tuple(before), after and tuple(after))
            for table, row, before, after in self.body["changes"]
        ]


@dataclass
class Stacks:
    """Acts of a topic in effect, and undone ones that can be redone."""

    done: list[Act] = field(default_factory=list)
    undone: list[Act] = field(default_factory=list)

    def push(self, act: Act) -> None:
        if act.kind == "undo":
            self.undone.append(self.done.pop())
        elif act.kind == "redo":
            self.done.append(self.undone.pop())
        else:
            self.done.append(act)
            self.undone.clear()


class Locked(InputError):
    """Raised while another program locks the database; the same act may succeed later."""


class Ledger:
    """Reads and writes the database, which the first act creates; callers hold their own lock."""

    def __init__(self, path: Path) -> None:
        self.path, self.revision = path, 0
        self.stacks: dict[str, Stacks] = {}
        self.recent: list[Act] = []  # acts since the start, for what other tabs did meanwhile
        self.rows: dict[str, dict[int, Values]] = {table: {} for table in COLUMNS}
        self._connection: sqlite3.Connection | None = None

    def load(self) -> None:
        """Read the whole state; nothing if there is no file yet."""
        if not self.path.exists():
            return
        try:
            base = self._connect()
            for table, columns in COLUMNS.items():
                found = base.execute(f"SELECT id, {', '.join(columns)} FROM {table} ORDER BY id")  # noqa: S608
                self.rows[table] = {row[0]: row[1:] for row in found}
            for topic, revision, kind, title, body, client in base.execute(
                "SELECT topic, revision, kind, title, body, client FROM act ORDER BY revision"
            ):
                self.stacks.setdefault(topic, Stacks()).push(
                    Act(revision, kind, title, json.loads(body), client)
                )
                self.revision = revision
        except (sqlite3.Error, ValueError, LookupError) as error:
            self.close()
            raise InputError(
                f"'{self.path}' cannot be read as labels ({error}); move it away, the table beside it holds"
                " the labels"
            ) from error

    def close(self) -> None:
        """Close the file; it holds every acknowledged act."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def next_id(self, table: str) -> int:
        """An id never used in the table."""
        if self._connection is None:
            return 1
        found = self._connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)
        ).fetchone()
        return 1 if found is None else int(found[0]) + 1

    def write(
        self,
        topic: str,
        title: str,
        changes: Sequence[Change] = (),
        *,
        kind: str = "act",
        of: int | None = None,
        ground: Ground = NO_GROUND,
        **more: Any,
    ) -> Act:
        """One atomic act: on disk when this returns, nothing changed when it raises."""
        body = {"changes": changes, **more}
        with self._transaction() as base:
            for change in changes:
                _apply(base, *change)
            values = (topic, kind, of, title, json.dumps(body), ground.client, ground.number, time.time())
            names = "topic, kind, of, title, body, client, number, made"
            cursor = base.execute(f"INSERT INTO act ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)  # noqa: S608
        act = Act(int(cursor.lastrowid or 0), kind, title, body, ground.client)
        self.revision = act.revision
        self.stacks.setdefault(topic, Stacks()).push(act)
        self.recent.append(act)
        for table, row, _, after in changes:
            if after is None:
                self.rows[table].pop(row, None)
            else:
                self.rows[table][row] = after
        return act

    def turn(self, topic: str, kind: str, meant: int | None, ground: Ground) -> Act | None:
        """Undo or redo the latest act of a topic, which must be the expected one; None if there is none."""
        stacks = self.stacks.get(topic, Stacks())
        waiting = stacks.done if kind == "undo" else stacks.undone
        if not waiting:
            return None
        act = waiting[-1]
        if meant is not None and meant != act.revision:
            raise InputError(
                f"something was changed {act.where} ('{act.title}'); check the labels, then {kind} again"
            )
        changes = act.changes
        if kind == "undo":
            changes = [(table, row, after, before) for table, row, before, after in reversed(changes)]
        return self.write(topic, f"{kind}: {act.title}", changes, kind=kind, of=act.revision, ground=ground)

    def repeated(self, ground: Ground) -> Act | None:
        """The act of a request that was sent again because its answer was lost."""
        if ground.client is None or self._connection is None:
            return None
        query = "SELECT revision, kind, title, body, client FROM act WHERE client = ? AND number = ?"
        found = self._connection.execute(query, (ground.client, ground.number)).fetchone()
        if found is None:
            return None
        revision, kind, title, body, client = found
        return Act(revision, kind, title, json.loads(body), client)

    def since(self, ground: Ground) -> Iterator[Act]:
        """Acts of others after the revision that a client saw, latest first."""
        for act in reversed(self.recent):
            if ground.based is None or act.revision <= ground.based:
                return
            if act.client != ground.client:
                yield act

    def setting(self, name: str, default: Any = None) -> Any:
        """A saved setting."""
        if self._connection is None:
            return default
        found = self._connection.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
        return default if found is None else json.loads(found[0])

    def set(self, name: str, value: Any) -> None:
        """Save a setting."""
        with self._transaction() as base:
            base.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, json.dumps(value)))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            base = self._restored()
            base.execute("BEGIN IMMEDIATE")
            try:
                base.execute("PRAGMA defer_foreign_keys = ON")
                yield base
                base.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a failed COMMIT may have ended it already
                    base.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError) as error:
            if "locked" in str(error):
                raise Locked(f"'{self.path}' is being used by another program; close it there") from error
            raise InputError(
                f"nothing was changed: '{self.path}' cannot be written ({error}); "
                "free disk space or choose another file with --labels"
            ) from error

    def _restored(self) -> sqlite3.Connection:
        """The open database; a removed file is written again, so that nothing is lost with the process."""
        base = self._connect()
        if not self.path.exists():
            copy = self.path.with_name(f".{self.path.name}.restored")
            copy.unlink(missing_ok=True)
            base.execute("VACUUM INTO ?", (str(copy),))
            self.close()  # removes what belongs to the lost file
            os.replace(copy, self.path)
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            fresh = not self.path.exists()
            base = sqlite3.connect(self.path, timeout=2, isolation_level=None, check_same_thread=False)
            try:
                base.execute("PRAGMA journal_mode = WAL")
                base.execute("PRAGMA synchronous = FULL")
                base.execute("PRAGMA foreign_keys = ON")
                found = base.execute("PRAGMA user_version").fetchone()[0]
                if found == 0 and (fresh or not base.execute("SELECT 1 FROM sqlite_master").fetchone()):
                    base.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
                elif found != VERSION:
                    raise sqlite3.DatabaseError(f"version {found} of the file is not {VERSION}")
            except BaseException:
                base.close()
                raise
            self._connection = base
        return self._connection


def _apply(
    base: sqlite3.Connection, table: str, row: int, before: Values | None, after: Values | None
) -> None:
    columns = COLUMNS[table]
    if after is None:
        base.execute(f"DELETE FROM {table} WHERE id = ?", (row,))  # noqa: S608
    elif before is None:
        marks = ", ".join("?" * (len(columns) + 1))
        base.execute(f"INSERT INTO {table} (id, {', '.join(columns)}) VALUES ({marks})", (row, *after))  # noqa: S608
    else:
        assignments = ", ".join(f"{name} = ?" for name in columns)
        base.execute(f"UPDATE {table} SET {assignments} WHERE id = ?", (*after, row))  # noqa: S608
