"""Charts of events: the ethogram and the transition graph, each a stand-alone SVG string."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.data.spans import UNSEEN, Event
from halp.reports.axes import RIGHT, AxisScale, x_axis
from halp.reports.drawing import WIDTH, escape_text, legend, series_style, shorten, svg_image, tag, text_width

_ROW = 22.0
_LONGEST = 170.0


def ethogram(
    rows: Mapping[str, Sequence[Event]], labels: Sequence[str], *, end: float, start: float = 0.0
) -> str:
    """A row per recording or person, with its events as coloured bars; `nobody` is hatched grey."""
    paints = {label: series_style(number) for number, label in enumerate(labels)}
    keys, tall = legend(list(labels), list(paints.values()), 0)
    left = 12 + min(_LONGEST, max((text_width(name, 12) for name in rows), default=0.0))
    top = tall + 10
    bottom = top + _ROW * max(len(rows), 1)
    x = AxisScale.fit(np.array([start, end]), left, RIGHT, count=8)
    body = [keys, x_axis(x, bottom, "seconds")]
    for number, (name, events) in enumerate(rows.items()):
        y = top + number * _ROW
        shown = escape_text(shorten(name, _LONGEST)) + tag("title", escape_text(name))
        body.append(tag("text", shown, x=left - 8, y=y + _ROW / 2 + 4, text_anchor="end"))
        body.append(tag("path", d=f"M{left:.1f},{y + _ROW / 2:.1f}H{RIGHT:.1f}", class_="grid"))
        for event in events:
            if not event.label:
                continue
            tip = f"{name}\n{event.label}, {event.start:.2f} – {event.stop:.2f} s"
            paint = {"style": "fill:currentColor;opacity:.18"} if event.label in UNSEEN else {}
            bar = tag(
                "rect",
                tag("title", escape_text(tip)),
                class_="bar",
                x=x(event.start),
                y=y + 3,
                width=max(x(event.stop) - x(event.start), 0.6),
                height=_ROW - 6,
                **paint,
            )
            body.append(bar if event.label in UNSEEN else tag("g", bar, style=paints[event.label]))
    return svg_image(body, bottom + 46, "", "ethogram")


def transition_graph(rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> str:
    """Labels on a circle, arrows for transitions: thicker is likelier, faint not significant (p ≥ 0.05)."""
    centre, radius, height = (WIDTH / 2, 190.0), 150.0, 380.0
    place = {
        label: (
            centre[0] + radius * math.sin(2 * math.pi * number / len(labels)),
            centre[1] - radius * math.cos(2 * math.pi * number / len(labels)),
        )
        for number, label in enumerate(labels)
    }
    body = []
    for row in rows:
        if not row["count"] or row["from"] == row["to"]:
            continue
        more = row["count"] > row["expected"] and row["p_corrected"] < 0.05
        paint = series_style(list(labels).index(row["from"]))
        tip = (
            f"{row['from']} → {row['to']}: {row['count']} times, probability {row['probability']:.2f}, "
            f"{row['expected']:.1f} by chance, corrected p {row['p_corrected']:.3f}"
        )
        body.append(_arrow(place[row["from"]], place[row["to"]], row["probability"], more, paint, tip))
    for number, (label, (x, y)) in enumerate(place.items()):
        circle = tag("circle", tag("title", escape_text(label)), cx=x, cy=y, r=13.0, style="fill:var(--c)")
        body.append(tag("g", circle, style=series_style(number)))
        side = "middle" if abs(x - centre[0]) < 20 else "start" if x > centre[0] else "end"
        shift = {"middle": 0, "start": 20, "end": -20}[side]
        above = 0 if shift else (-20 if y < centre[1] else 30)
        body.append(
            tag("text", escape_text(shorten(label, 150)), x=x + shift, y=y + 4 + above, text_anchor=side)
        )
    return svg_image(body, height + 20, "", "transitions")


def dendrogram(tree: npt.NDArray[np.float64], names: Sequence[str]) -> str:
    """A merge tree of `scipy.cluster.hierarchy`, its leaves below each other and distances to the right."""
    from scipy.cluster.hierarchy import dendrogram as layout

    drawn = layout(tree, labels=list(names), no_plot=True)
    left = 16 + min(_LONGEST, max(text_width(name, 12) for name in names))
    bottom = 8 + 24.0 * len(names)
    x = AxisScale.fit(np.array([0.0, float(tree[:, 2].max())]), left, RIGHT, count=6)
    body = [x_axis(x, bottom, "distance")]
    for number, name in enumerate(drawn["ivl"]):
        body.append(
            tag(
                "text",
                escape_text(shorten(name, _LONGEST)),
                x=left - 8,
                y=24 * number + 20,
                text_anchor="end",
            )
        )
    for places, heights in zip(drawn["icoord"], drawn["dcoord"]):
        points = [f"{x(height):.1f},{2.4 * place + 4:.1f}" for place, height in zip(places, heights)]
        body.append(tag("path", d="M" + "L".join(points), class_="line"))
    return svg_image([tag("g", "".join(body), style=series_style(0))], bottom + 46, "", "dendrogram")


def _arrow(
    start: tuple[float, float], end: tuple[float, float], weight: float, more: bool, paint: str, tip: str
) -> str:
    """A curved arrow, so that opposite transitions do not overlap."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy)
    ux, uy = dx / length, dy / length
    first, last = (start[0] + 16 * ux, start[1] + 16 * uy), (end[0] - 20 * ux, end[1] - 20 * uy)
    bend = ((start[0] + end[0]) / 2 - 0.14 * dy, (start[1] + end[1]) / 2 + 0.14 * dx)
    angle = math.atan2(last[1] - bend[1], last[0] - bend[0])
    wide = 1 + 5 * weight
    head = 6 + wide
    corners = [
        (
            last[0] + turn[0] * head * math.cos(angle + turn[1]),
            last[1] + turn[0] * head * math.sin(angle + turn[1]),
        )
        for turn in ((0.6, 0.0), (-0.7, 0.5), (-0.7, -0.5))
    ]
    line = tag(
        "path",
        tag("title", escape_text(tip)),
        d=f"M{first[0]:.1f},{first[1]:.1f}Q{bend[0]:.1f},{bend[1]:.1f} {last[0]:.1f},{last[1]:.1f}",
        style=f"fill:none;stroke:var(--c);stroke-width:{wide:.1f}",
    )
    point = tag("path", d="M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in corners) + "z", style="fill:var(--c)")
    return tag("g", line + point, style=f"{paint};opacity:{0.9 if more else 0.25}")
