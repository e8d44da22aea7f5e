"""What the page asks of a session, each request a method: over HTTP, from a notebook, or written into a
static folder.
"""

from __future__ import annotations

import base64
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.explorer.described import (
    describe_groups,
    describe_model,
    describe_row,
    describe_state,
    label_state,
    recording_table,
    result_table,
)
from halp.explorer.labels import Outcome
from halp.explorer.ledger import NO_GROUND, Ground
from halp.explorer.packing import pack
from halp.explorer.session import Session

ASSETS = {"index.html": "text/html", "app.js": "text/javascript", "app.css": "text/css"}
MOST_HITS = 200
MOST_CLIPS = 64  # frames of this many rows in one answer


def asset(name: str) -> bytes:
    """A file of the built page."""
    return (files("halp.explorer") / "static" / name).read_bytes()


class Api:
    """Requests of the page, each a method: what it gives back is sent as JSON, bytes as they are."""

    def __init__(self, session: Session) -> None:
        self.session = session

    # -- looking
    # -------------------------------------------------------------------------------------------------------

    def pulse(self, given: dict[str, Any]) -> Any:
        return self.session.pulse()

    def state(self, given: dict[str, Any]) -> Any:
        return describe_state(self.session)

    def map(self, given: dict[str, Any]) -> Any:
        method = _text(given, "method")
        collection = self.session.collection
        places = collection.lay_out(method) if method == "umap" else collection.maps.get(method)
        if places is None:
            raise InputError(f"the map '{method[:20]}' is not laid out yet")
        return pack({"method": method}, {"places": places})

    def rows(self, given: dict[str, Any]) -> Any:
        collection = self.session.collection
        arrays = {
            "recording": collection.recording,
            "start": collection.table.starts,
            "stop": collection.table.stops,
        }
        return pack({"rows": len(collection)}, arrays)

    def names(self, given: dict[str, Any]) -> Any:
        return self.session.collection.recordings

    def column(self, given: dict[str, Any]) -> Any:
        name, now = _text(given, "name"), self.session.groups.now
        if name == "label":
            labels = self.session.label_column()
            facts = {"title": name, "categories": labels.names, "revision": labels.labels.revision}
            return pack(facts, {"values": labels.values})
        if name == "group" and now is not None:
            facts = {"title": name, "categories": list(now.names), "ids": now.ids, "revision": now.revision}
            return pack(facts, {"values": now.clusters.group.astype(np.int16)})
        column = self.session.column(name)
        return pack({"title": column.title, "categories": column.categories}, {"values": column.values})

    def clips(self, given: dict[str, Any]) -> Any:
        facts, arrays = [], {}
        for number, row in enumerate(self._rows(given, "rows", MOST_CLIPS)):
            arrays[str(number)], about = self.session.collection.packed(row)
            facts.append(about)
        return pack({"clips": facts}, arrays)

    def chunk(self, given: dict[str, Any]) -> Any:
        recording = self._recording(given)
        frames = self.session.collection.extent(recording)["frames"]
        joints, facts = self.session.collection.packed_chunk(
            recording,
            _whole(given, "chunk", -(-frames // self.session.collection.extent(recording)["chunk"])),
        )
        return pack(facts, {"joints": joints})

    def film(self, given: dict[str, Any]) -> Path:
        """The film of a recording, which the server sends by parts."""
        recording = self._recording(given)
        path = self.session.collection.film(recording)
        if path is None:
            raise InputError(f"recording {recording} is not of a film")
        return path

    def events(self, given: dict[str, Any]) -> Any:
        """All labels of people, for a figure."""
        found = [event for _, event in self.session.labels.now.human]
        return [asdict(event) for event in sorted(found, key=lambda one: (one.recording, one.start))[:20_000]]

    def about(self, given: dict[str, Any]) -> Any:
        return describe_row(self.session, _whole(given, "row", len(self.session.collection)))

    def find(self, given: dict[str, Any]) -> Any:
        collection = self.session.collection
        return [collection.describe(row) for row in collection.find(_text(given, "text")[:200])]

    # -- asking
    # --------------------------------------------------------------------------------------------------------

    def search(self, given: dict[str, Any]) -> Any:
        from halp.explorer.answers import search

        spans = [
            (self._recording(one), _number(one, "start"), _number(one, "stop")) for one in _objects(given, 20)
        ]
        rows, against = self._rows(given, "rows", 200), self._rows(given, "against", 200)
        count = _whole(given, "k", MOST_HITS + 1) if "k" in given else 24
        passing = self._passing(given)
        return search(
            self.session.collection, rows, spans=spans, against=against, k=max(1, count), passing=passing
        )

    def _passing(self, given: dict[str, Any]) -> npt.NDArray[np.bool_] | None:
        """Rows that the filter of the page lets through: those without a category that is hidden; None:
        all.
        """
        if "hidden" not in given:
            return None
        column = self.session.column(_text(given, "column"))
        return ~np.isin(
            column.values, [one for one in _list(given, "hidden", 10_000) if isinstance(one, int)]
        )

    def timeline(self, given: dict[str, Any]) -> Any:
        from halp.explorer.answers import timeline

        session, recording = self.session, self._recording(given)
        model, name = session.model, session.collection.recordings[recording]
        prediction, classes = (None, ()) if model is None else (model.prediction, model.classifier.classes)
        labels, grouping = session.labels.now, session.groups.now
        facts, arrays = timeline(session.collection, recording, prediction, classes, grouping)
        facts["labels"] = labels.revision
        facts["tiers"]["human"] = [
            {"id": number, "start": event.start, "stop": event.stop, "label": event.label, "score": None}
            for number, event in labels.human
            if event.recording == name
        ]
        return pack(facts, arrays)

    def compare(self, given: dict[str, Any]) -> Any:
        from halp.explorer.answers import compare

        first, second = self._rows(given, "rows", 2, least=2)
        return pack(*compare(self.session.collection, first, second))

    def understand(self, given: dict[str, Any]) -> Any:
        from halp.explorer.answers import understand

        rows = self._rows(given, "rows", 1, least=1)
        return pack(*understand(self.session.collection, rows[0], self.session.key_space))

    def runs(self, given: dict[str, Any]) -> Any:
        """Runs side by side: sections, tables, and figures as SVG."""
        from halp.reports.run_report import compare_runs

        return compare_runs(self.session.runs).parts

    def camera(self, given: dict[str, Any]) -> Any:
        """A picture of a camera: who is in it, and what it is like."""
        from halp.explorer.camera import LARGEST_PICTURE, picture_of

        width, height = (_whole(given, name, LARGEST_PICTURE + 1) for name in ("width", "height"))
        try:
            data = base64.b64decode(_text(given, "picture"), validate=True)
        except ValueError as error:
            raise InputError("'picture' must be base64") from error
        session = self.session
        picture = picture_of(data, width, height)
        return session.camera.look(session.collection, session.model, picture, _number(given, "time"))

    # -- labelling
    # -----------------------------------------------------------------------------------------------------

    def label(self, given: dict[str, Any]) -> Any:
        """Give rows, a group or spans a class, by id or by name; an empty name takes the label off."""
        session, ground = self.session, _ground(given)
        rows = self._rows(given, "rows", len(session.collection))
        if "group" in given:
            rows += self._members(given)
        spans = session.row_spans(rows)
        for one in _objects(given, 1000):
            name = session.collection.recordings[self._recording(one)]
            spans.append((name, _number(one, "start"), _number(one, "stop"), ""))
        if not spans:
            raise InputError("nothing was chosen to be labelled")
        if "class" in given:
            return self._changed(session.labels.label(spans, _id(given, "class"), ground=ground))
        if label := _text(given, "label"):
            return self._changed(session.labels.label(spans, label, ground=ground))
        return self._changed(session.labels.clear([span[:3] for span in spans], ground=ground))

    def _members(self, given: dict[str, Any]) -> list[int]:
        now = self.session.groups.now
        if now is None:
            raise InputError("groups are still being found; wait a moment")
        return np.flatnonzero(now.clusters.group == now.place(_id(given, "group"))).tolist()

    def move(self, given: dict[str, Any]) -> Any:
        start, stop = _number(given, "start"), _number(given, "stop")
        return self._changed(
            self.session.labels.move(_id(given, "event"), start, stop, ground=_ground(given))
        )

    def rename(self, given: dict[str, Any]) -> Any:
        ground = _ground(given)
        return self._changed(
            self.session.labels.rename(_id(given, "class"), _text(given, "name"), ground=ground)
        )

    def remove(self, given: dict[str, Any]) -> Any:
        return self._changed(self.session.labels.remove(_id(given, "class"), ground=_ground(given)))

    def undo(self, given: dict[str, Any]) -> Any:
        return self._changed(self.session.labels.undo(_meant(given), ground=_ground(given)))

    def redo(self, given: dict[str, Any]) -> Any:
        return self._changed(self.session.labels.redo(_meant(given), ground=_ground(given)))

    def settings(self, given: dict[str, Any]) -> Any:
        """Keep settings of the page."""
        kept: dict[str, Any] = {"researcher": given["researcher"] is True} if "researcher" in given else {}
        kept |= {"pattern": _text(given, "pattern")[:200].strip()} if "pattern" in given else {}
        self.session.set(**kept)
        return kept

    def skip(self, given: dict[str, Any]) -> Any:
        """Never propose rows again."""
        self.session.skip(self._rows(given, "rows", 200))
        return {"skipped": self.session.skipped}

    def _changed(self, done: Outcome) -> Any:
        self.session.touch()
        own = done.label_class
        facts = {"changed": done.changed, "left": done.left, "act": done.act}
        return {**facts, "class": None if own is None else asdict(own), **label_state(self.session)}

    def groups(self, given: dict[str, Any]) -> Any:
        session, action = self.session, _text(given, "action")
        groups = [_checked(one, 1 << 53, "group") for one in _list(given, "groups", 60)]
        count = _whole(given, "count", 61) or None if action == "count" else None
        name = _text(given, "name") if "name" in given else ""
        session.groups.act(action, groups, name=name, count=count, ground=_ground(given))
        session.touch()
        return {"group": describe_groups(session)}

    def counts(self, given: dict[str, Any]) -> Any:
        """How far groups are apart for 2 to 12 of them, and the largest number that is nearly as good as the
        best.
        """
        found = self.session.collection.silhouettes()
        good = [count for count, value in found.items() if value >= 0.9 * max(found.values())]
        return {
            "counts": [[count, round(value, 3)] for count, value in found.items()],
            "suggested": max(good, default=1),
        }

    def model(self, given: dict[str, Any]) -> Any:
        return describe_model(self.session)

    def table(self, given: dict[str, Any]) -> Any:
        """All rows with label, group and prediction as CSV, or one line for each recording."""
        make = recording_table if given.get("by") == "recording" else result_table
        return make(self.session).encode()

    # -- checks
    # --------------------------------------------------------------------------------------------------------

    def _rows(self, given: dict[str, Any], name: str, most: int, *, least: int = 0) -> list[int]:
        rows = [_checked(one, len(self.session.collection), "row") for one in _list(given, name, most)]
        if len(rows) < least:
            raise InputError(f"'{name}' needs {least} rows")
        return rows

    def _recording(self, given: dict[str, Any]) -> int:
        return _whole(given, "recording", len(self.session.collection.recordings))


LOOKING = (
    "pulse",
    "state",
    "map",
    "rows",
    "names",
    "column",
    "clips",
    "chunk",
    "film",
    "events",
    "about",
    "find",
    "timeline",
    "model",
    "counts",
    "runs",
    "table",
)
ACTING = (
    "search",
    "compare",
    "understand",
    "camera",
    "label",
    "move",
    "rename",
    "remove",
    "undo",
    "redo",
    "skip",
    "settings",
    "groups",
)


def answer(api: Api, name: Any, given: Any) -> Any:
    """What a request is answered, one that there is not included."""
    if name not in (*LOOKING, *ACTING):
        raise InputError(f"there is no request '{str(name)[:20]}'")
    if not isinstance(given, dict):
        raise InputError("send a JSON object")
    return getattr(api, name)(given)


def _checked(value: Any, limit: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise InputError(f"there is no {what} {str(value)[:20]}; there are {limit}")
    return value


def _whole(given: dict[str, Any], name: str, limit: int) -> int:
    value = given.get(name)
    return _checked(
        int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value, limit, name
    )


def _id(given: dict[str, Any], name: str) -> int:
    return _whole(given, name, 1 << 53)


def _meant(given: dict[str, Any]) -> int | None:
    return _id(given, "act") if given.get("act") is not None else None


def _ground(given: dict[str, Any]) -> Ground:
    """What the act of a request stands on; nothing for scripts, which do not look first."""
    if "client" not in given:
        return NO_GROUND
    return Ground(_id(given, "based"), _text(given, "client")[:40], _id(given, "number"))


def _number(given: dict[str, Any], name: str) -> float:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e12:
        raise InputError(f"'{name}' must be a number")
    return float(value)


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise InputError(f"'{name}' must be a text")
    return value


def _list(given: dict[str, Any], name: str, most: int) -> list[Any]:
    value = given.get(name, [])
    if isinstance(value, str):  # of an address: rows=3,5,8
        parts = value.split(",") if value else []
        value = [int(part) if part.isascii() and part.isdigit() else part for part in parts[: most + 1]]
    if not isinstance(value, list) or len(value) > most:
        raise InputError(f"'{name}' must be a list of up to {most}")
    return value


def _objects(given: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """Spans of recordings."""
    spans = _list(given, "spans", most)
    if not all(isinstance(one, dict) for one in spans):
        raise InputError("'spans' must be a list of objects with recording, start and stop")
    return spans
