"""A page about a store: what is in it, counted and drawn, with a player of one clip per class."""

from __future__ import annotations

import numpy as np

from halp.clips.inspect import Inspection
from halp.clips.store import Store
from halp.reports.figures import bars
from halp.reports.page import Report
from halp.reports.player import PlayerClip, player

SHOWN = 24  # clips in the player


def store_page(store: Store, found: Inspection) -> Report:
    """The inspection of a store as one self-contained HTML page."""
    report = Report(f"Store {store.path.name}", f"{len(store)} clips of topology {store.topology.name}")
    data = found.to_json()
    report.section("At a glance")
    plain: list[list[object]] = [[key, value] for key, value in data.items() if isinstance(value, (int, float, str))]
    report.table(["what", "value"], plain)
    for key, value in data.items():
        if isinstance(value, dict) and value and all(isinstance(entry, (int, float)) for entry in value.values()):
            report.section(key.replace("_", " ").capitalize())
            if 1 < len(value) <= 60:
                report.figure(
                    bars({str(name): {"": (float(count), 0.0)} for name, count in value.items()}, y_label="count")
                )
            else:
                report.table([key, "count"], [[str(name), count] for name, count in value.items()])
        elif isinstance(value, dict) and value:
            report.section(key.replace("_", " ").capitalize())
            columns = list(dict.fromkeys(name for entry in value.values() if isinstance(entry, dict) for name in entry))
            rows: list[list[object]] = [
                [str(name), *(entry.get(column) if isinstance(entry, dict) else None for column in columns)]
                for name, entry in value.items()
            ]
            report.table([key, *columns], rows)
    _, first = np.unique(store.labels, return_index=True)
    names = store.class_names
    rows_of_clips = []
    for clip in first[:SHOWN]:
        label = int(store.labels[clip])
        title = names[label] if 0 <= label < len(names) else "no label"
        rows_of_clips.append([PlayerClip(store.clip(int(clip)), f"{title}: {store.names[clip]}")])
    report.section("Clips", "One clip of each class. Drag to turn.")
    upright = "rotate-first" in store.normalisation or "rotate-mean" in store.normalisation
    report.figure(player(rows_of_clips, store.topology, up_axis=2 if upright and store.topology.dimensions == 3 else 1))
    return report
