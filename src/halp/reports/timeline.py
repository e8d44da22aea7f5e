"""A timeline: segments of a recording as a coloured bar that is tied to the player before it; a click seeks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from halp.reports.drawing import COLOURS
from halp.reports.templating import render, trusted, trusted_asset


@dataclass(frozen=True)
class TimelinePart:
    """A stretch from `start` to `end` with its label; parts of one label have one colour."""

    start: float
    end: float
    label: str
    note: str = ""


def timeline(
    parts: Sequence[TimelinePart], *, end: float, start: float = 0.0, faint: Sequence[str] = (), unit: str = "s"
) -> str:
    """The bar of one recording from `start` to `end`; labels in `faint` are drawn without a colour."""
    labels = list(dict.fromkeys(part.label for part in parts if part.label not in faint))
    data = {
        "start": start,
        "end": end,
        "unit": unit,
        "labels": [*labels, *(label for label in faint if any(part.label == label for part in parts))],
        "colours": [number % COLOURS for number in range(len(labels))],
        "parts": [[part.start, part.end, part.label, part.note] for part in parts],
    }
    # A script element ends at the first "</", wherever it stands, so no "<" may be left in the data.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    style, script = trusted_asset("timeline.css"), trusted_asset("timeline.js")
    return render("timeline.html", style=style, script=script, data=trusted(text)).rstrip("\n")
