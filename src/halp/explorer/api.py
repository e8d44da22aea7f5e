"""Requests of the page to a session, one method each: over HTTP, in a notebook, or for a static folder."""

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
from halp.explorer.given import checked, ground_of, identity, listed, meant_act, number, objects, text, whole
from halp.explorer.groups import suggest_count
from halp.explorer.imports import import_sklearn
from halp.explorer.label_facts import Outcome
from halp.explorer.packing import pack
from halp.explorer.session import Session

ASSETS = {"index.html": "text/html", "app.js": "text/javascript", "app.css": "text/css"}
MOST_HITS = 200
MOST_CLIPS = 64  # frames of this many rows in one answer


def asset(name: str) -> bytes:
    """A file of the built page."""
    return (files("halp.explorer") / "static" / name).read_bytes()


class Api:
    """Requests of the page, each a method; the return value is sent as JSON, bytes unchanged."""

    def __init__(self, session: Session) -> None:
        self.session = session

    # -- looking

    def pulse(self, given: dict[str, Any]) -> Any:
        return self.session.pulse()

    def state(self, given: dict[str, Any]) -> Any:
        return describe_state(self.session)

    def preview(self, given: dict[str, Any]) -> Any:
        """Positions of the rows embedded so far, while the collection is being read."""
        return pack(*self.session.preview.look()) if self.session.preview else pack({"names": []}, {})

    def map(self, given: dict[str, Any]) -> Any:
        method = text(given, "method")
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
        name, now = text(given, "name"), self.session.groups.now
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
        for place, row in enumerate(self._rows(given, "rows", MOST_CLIPS)):
            arrays[str(place)], about = self.session.collection.packed(row)
            facts.append(about)
        return pack({"clips": facts}, arrays)

    def chunk(self, given: dict[str, Any]) -> Any:
        recording = self._recording(given)
        frames = self.session.collection.extent(recording)["frames"]
        joints, facts = self.session.collection.packed_chunk(
            recording, whole(given, "chunk", -(-frames // self.session.collection.extent(recording)["chunk"]))
        )
        return pack(facts, {"joints": joints})

    def film(self, given: dict[str, Any]) -> Path:
        """The video of a recording, sent in parts by the server."""
        recording = self._recording(given)
        path = self.session.collection.film(recording)
        if path is None:
            raise InputError(f"recording {recording} is not a video")
        return path

    def people(self, given: dict[str, Any]) -> Any:
        """Positions of each person in a recording's video, to be chosen by a click."""
        from halp.explorer.film_people import people_of

        reading = self.session.settings.reading
        return people_of(self.session.collection, self._recording(given), reading)

    def events(self, given: dict[str, Any]) -> Any:
        """All labels given by people, for a figure."""
        found = [event for _, event in self.session.labels.now.human]
        return [asdict(event) for event in sorted(found, key=lambda one: (one.recording, one.start))[:20_000]]

    def about(self, given: dict[str, Any]) -> Any:
        return describe_row(self.session, whole(given, "row", len(self.session.collection)))

    def find(self, given: dict[str, Any]) -> Any:
        collection = self.session.collection
        return [collection.describe(row) for row in collection.find(text(given, "text")[:200])]

    # -- asking

    def search(self, given: dict[str, Any]) -> Any:
        from halp.explorer.answers import search

        import_sklearn()
        spans = [
            (self._recording(one), number(one, "start"), number(one, "stop"))
            for one in objects(given, "spans", 20)
        ]
        rows, against = self._rows(given, "rows", 200), self._rows(given, "against", 200)
        count = whole(given, "k", MOST_HITS + 1) if "k" in given else 24
        passing = self._passing(given)
        return search(
            self.session.collection, rows, spans=spans, against=against, k=max(1, count), passing=passing
        )

    def _passing(self, given: dict[str, Any]) -> npt.NDArray[np.bool_] | None:
        """Rows that pass the page's filters (no hidden category); None: all."""
        passing = None
        for one in objects(given, "filters", 20):
            values = self.session.column(text(one, "column")).values
            hidden = [number for number in listed(one, "hidden", 10_000) if isinstance(number, int)]
            passing = ~np.isin(values, hidden) & (True if passing is None else passing)
        return passing

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
        """A camera picture: the people in it and similar movements."""
        from halp.explorer.camera import LARGEST_PICTURE, picture_of

        width, height = (whole(given, name, LARGEST_PICTURE + 1) for name in ("width", "height"))
        try:
            data = base64.b64decode(text(given, "picture"), validate=True)
        except ValueError as error:
            raise InputError("'picture' must be base64") from error
        session = self.session
        picture = picture_of(data, width, height)
        return session.camera.look(session.collection, session.model, picture, number(given, "time"))

    # -- labelling

    def label(self, given: dict[str, Any]) -> Any:
        """Give rows, a group or spans a class, by id or by name; an empty name takes the label off."""
        session, ground = self.session, ground_of(given)
        rows = self._rows(given, "rows", len(session.collection))
        if "group" in given:
            rows += self._members(given)
        spans = session.row_spans(rows)
        for one in objects(given, "spans", 1000):
            name = session.collection.recordings[self._recording(one)]
            spans.append((name, number(one, "start"), number(one, "stop"), ""))
        if not spans:
            raise InputError("no clip or span was selected; select one to label it")
        if "class" in given:
            return self._changed(session.labels.label(spans, identity(given, "class"), ground=ground))
        if label := text(given, "label"):
            return self._changed(session.labels.label(spans, label, ground=ground))
        return self._changed(session.labels.clear([span[:3] for span in spans], ground=ground))

    def _members(self, given: dict[str, Any]) -> list[int]:
        now = self.session.groups.now
        if now is None:
            raise InputError("groups are still being found; wait a moment")
        return np.flatnonzero(now.clusters.group == now.place(identity(given, "group"))).tolist()

    def move(self, given: dict[str, Any]) -> Any:
        start, stop = number(given, "start"), number(given, "stop")
        return self._changed(
            self.session.labels.move(identity(given, "event"), start, stop, ground=ground_of(given))
        )

    def rename(self, given: dict[str, Any]) -> Any:
        ground = ground_of(given)
        return self._changed(
            self.session.labels.rename(identity(given, "class"), text(given, "name"), ground=ground)
        )

    def remove(self, given: dict[str, Any]) -> Any:
        return self._changed(self.session.labels.remove(identity(given, "class"), ground=ground_of(given)))

    def undo(self, given: dict[str, Any]) -> Any:
        return self._changed(self.session.labels.undo(meant_act(given), ground=ground_of(given)))

    def redo(self, given: dict[str, Any]) -> Any:
        return self._changed(self.session.labels.redo(meant_act(given), ground=ground_of(given)))

    def settings(self, given: dict[str, Any]) -> Any:
        """Keep settings of the page."""
        kept: dict[str, Any] = {"researcher": given["researcher"] is True} if "researcher" in given else {}
        kept |= {"pattern": text(given, "pattern")[:200].strip()} if "pattern" in given else {}
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
        session, action = self.session, text(given, "action")
        groups = [checked(one, 1 << 53, "group") for one in listed(given, "groups", 60)]
        count = whole(given, "count", 61) or None if action == "count" else None
        name = text(given, "name") if "name" in given else ""
        session.groups.act(action, groups, name=name, count=count, ground=ground_of(given))
        session.touch()
        return {"group": describe_groups(session)}

    def counts(self, given: dict[str, Any]) -> Any:
        """Silhouettes of 2 to 12 groups, and the largest number that is nearly as good as the best."""
        found = self.session.collection.silhouettes()
        counts = [[count, round(value, 3)] for count, value in found.items()]
        return {"counts": counts, "suggested": suggest_count(found)}

    def model(self, given: dict[str, Any]) -> Any:
        return describe_model(self.session)

    def table(self, given: dict[str, Any]) -> Any:
        """All rows with label, group and prediction as CSV, or one line for each recording."""
        make = recording_table if given.get("by") == "recording" else result_table
        return make(self.session).encode()

    # -- checks

    def _rows(self, given: dict[str, Any], name: str, most: int, *, least: int = 0) -> list[int]:
        rows = [checked(one, len(self.session.collection), "row") for one in listed(given, name, most)]
        if len(rows) < least:
            raise InputError(f"'{name}' needs {least} rows")
        return rows

    def _recording(self, given: dict[str, Any]) -> int:
        return whole(given, "recording", len(self.session.collection.recordings))


LOOKING = tuple(
    "pulse state preview map rows names column clips chunk film people events about find timeline model counts"
    " runs table".split()
)
ACTING = tuple(
    "search compare understand camera label move rename remove undo redo skip settings groups".split()
)


def answer(api: Api, name: Any, given: Any) -> Any:
    """The response to a request, including unknown ones."""
    if name not in (*LOOKING, *ACTING):
        raise InputError(f"there is no request '{str(name)[:20]}'")
    if not isinstance(given, dict):
        raise InputError("send a JSON object")
    return getattr(api, name)(given)
