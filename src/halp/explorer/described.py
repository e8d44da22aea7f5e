"""A session as text and numbers: state, rows, labels, groups and model for the page, and its tables."""

from __future__ import annotations

import csv
import io
import shlex
from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from halp._version import __version__
from halp.core.errors import InputError
from halp.core.files import spreadsheet_cell
from halp.explorer.session import Session


def describe_state(session: Session) -> dict[str, Any]:
    """The page's initial state; partial until the collection is read."""
    from halp.reports.player import describe_body

    given = session.settings
    facts: dict[str, Any] = {
        "version": __version__,
        "source": given.source.name,
        **session.pulse(),
        "rows": 0,
    }
    if "pca" not in session.progress.ready:
        return facts
    collection = session.collection
    columns = [*collection.columns, "group", "label", "prediction", "confidence"]
    window, stride = collection.source.cutting.window, collection.source.cutting.stride
    return {
        **facts,
        "rows": len(collection),
        "recordings": len(collection.recordings),
        "long": len(collection.recordings) < len(collection),
        "unit": "s" if collection.timed else "frames",
        "encoder": given.encoder,
        "story": collection.story,
        "command": _fit_command(session),
        "window": window,
        "stride": stride,
        "body": describe_body(collection.source.topology),
        "columns": columns,
        "colour": _first_colour(session),
        "example": collection.recordings[0],
        "maps": [method for method in ("pca", "tsne", "umap") if method in collection.maps],
        "label_file": session.labels.path.name,
        "skipped": session.skipped,
        "shared": collection.shared_prefix,
        "pattern": collection.pattern,
        "researcher": session.settings_kept.get("researcher", False),
        "warnings": session.warnings,
        "runs": list(session.runs),
        "static": False,
        **label_state(session),
        "group": describe_groups(session),
        "few": describe_model(session),
    }


def _first_colour(session: Session) -> str | None:
    """The first informative column; the map names up to 30 categories."""
    columns = session.collection.columns
    telling = [
        name
        for name, one in columns.items()
        if name != "recording" and one.categories is not None and 2 <= len(one.categories) <= 30
    ]
    return next(iter([*telling, *columns]), None)


def _fit_command(session: Session) -> str:
    """The command that fits a model to the labels outside the page."""
    given, cutting = session.settings, session.collection.source.cutting
    labels = session.labels.path if given.labels else given.source.with_name(session.labels.path.name)
    words = ["halp", "classify", "fit", given.encoder, str(given.source), "model", "--labels", str(labels)]
    words += [] if given.reading.format == "auto" else ["--format", given.reading.format]
    for name in ("window", "stride", "fps"):
        value = getattr(cutting, name)
        words += [] if value is None else [f"--{name}", f"{value:g}"]
    return shlex.join(words)


def describe_row(session: Session, row: int) -> list[list[Any]]:
    """Name, text and place of every column that has a value for a row."""
    found: list[list[Any]] = []
    for name in (*session.collection.columns, "group", "label", "prediction", "confidence"):
        try:
            column = session.column(name)
        except InputError:  # not there yet
            continue
        value = column.values[row].item()
        if column.categories is None:
            shown = f"{value * 100:.0f} %" if name == "confidence" else f"{value:.3g}"
            found += [[name, shown]] if np.isfinite(value) else []
        elif value >= 0 and name != "recording":
            found.append([name, column.categories[value], value])
        elif name == "prediction":
            found.append([name, "none of these"])
    return found


def label_state(session: Session) -> dict[str, Any]:
    """Classes with counts of labels and rows, acts to undo and redo, and the revision."""
    column = session.label_column()
    counts = np.bincount(column.values[column.values >= 0], minlength=len(column.names))
    labels = column.labels
    given = Counter(event.label for _, event in labels.human)
    return {
        "classes": [
            {**asdict(one), "rows": int(counts[one.place]), "given": given[one.name]}
            for one in labels.classes
        ],
        "undo": labels.undo,
        "redo": labels.redo,
        "labels": labels.revision,
        "news": session.labels.news,
    }


def describe_groups(session: Session) -> dict[str, Any] | None:
    """Ids, names, sizes and typical rows of the groups."""
    now, collection = session.groups.now, session.collection
    if now is None:
        return None
    clusters, count = now.clusters, len(collection.recordings)
    recordings = np.bincount(np.unique(clusters.group * count + collection.recording) // count)
    return {
        "silhouette": round(clusters.silhouette, 3),
        "undo": now.undo,
        "revision": now.revision,
        "groups": [
            {
                "id": number,
                "name": name,
                "size": int(size),
                "recordings": int(own),
                "typical": collection.describe(int(row)),
            }
            for number, name, size, own, row in zip(
                now.ids, now.names, clusters.sizes, recordings, clusters.typical
            )
        ],
    }


def describe_model(session: Session) -> dict[str, Any] | None:
    """The few-label model: classes, accuracy beside the baseline, and rows to label next."""
    model = session.model
    if model is None:
        return None
    return {
        "revision": model.revision,
        "classes": list(model.classifier.classes),
        "counts": model.counts,
        "kind": str(model.classifier.head.candidate),
        "rejects": model.classifier.rejection_rate is not None,
        "seconds": round(model.seconds, 3),
        "assessment": model.assessment,
        "suggestions": model.suggestions,
    }


def result_table(session: Session) -> str:
    """A table of all rows for a spreadsheet."""
    collection, model, now = session.collection, session.model, session.groups.now
    column = session.label_column()
    values, names = column.values, column.names
    lines: list[list[Any]] = []
    for row in range(len(collection)):
        name, start, stop = collection.span(row)
        label = names[values[row]] if values[row] >= 0 else ""
        group = now.names[now.clusters.group[row]] if now is not None else ""
        cells: list[Any] = [name, round(start, 3), round(stop, 3), label, group]
        if model is not None:
            found = model.prediction
            best, probability = model.classifier.classes[int(found.best[row])], float(found.probability[row])
            cells += [best, round(probability, 4), bool(found.rejected[row])]
        lines.append(cells)
    return _spreadsheet("recording start stop label group best probability rejected".split(), lines)


def recording_table(session: Session) -> str:
    """One line per recording: its most frequent label and class, and the share of rows with the class."""
    collection, model, lines = session.collection, session.model, []
    column = session.label_column()
    values, names = column.values, column.names
    order = np.argsort(collection.recording, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(collection.recording[order])) + 1):
        given = values[rows]
        counts = np.bincount(given[given >= 0], minlength=1)
        label = [names[counts.argmax()], round(counts.max() / len(rows), 4)] if counts.any() else ["", 0]
        start, stop = collection.table.starts[rows].min(), collection.table.stops[rows].max()
        name = collection.recordings[collection.recording[rows[0]]]
        cells: list[Any] = [name, round(float(start), 3), round(float(stop), 3), *label]
        if model is not None:
            mean = model.prediction.probabilities[rows].mean(0)
            share = float((model.prediction.best[rows] == mean.argmax()).mean())
            cells += [model.classifier.classes[mean.argmax()], round(share, 4), round(float(mean.max()), 4)]
        lines.append(cells)
    columns = ["recording", "start", "stop", "label", "label share", "best", "best share", "probability"]
    return _spreadsheet(columns, lines)


def _spreadsheet(columns: list[str], lines: list[list[Any]]) -> str:
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(columns)
    table.writerows(
        [spreadsheet_cell(cell) if isinstance(cell, str) else cell for cell in line] for line in lines
    )
    return out.getvalue()
