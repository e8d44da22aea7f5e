"""Counts drawn so that they fit any screen: a histogram with a real axis, and bars with their names beside them."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.reports.drawing import format_number, tag

_WIDTH, _HEIGHT = 400.0, 210.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 10.0, 8.0, 40.0
_MOST_BARS = 30


def histogram(values: npt.ArrayLike, *, x_label: str, y_label: str = "clips") -> str:
    """How often values fall into equal intervals, on axes with round numbers; as narrow as a telephone where it has to be."""
    numbers = np.asarray(values, dtype=np.float64).ravel()
    edges = _edges(numbers)
    counts, _ = np.histogram(numbers, edges)
    highest = max(int(counts.max(initial=0)), 1)
    y_ticks = _ticks(0, highest, 4, whole=True)
    x_ticks = _ticks(float(edges[0]), float(edges[-1]), 6, whole=bool((numbers == np.round(numbers)).all()))
    top = max(float(y_ticks[-1]), float(highest))

    def x(value: float) -> float:
        return _LEFT + (value - edges[0]) / (edges[-1] - edges[0]) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)

    body = []
    for tick in y_ticks:
        body.append(tag("path", d=f"M{_LEFT:.1f},{y(tick):.1f}H{_WIDTH - _RIGHT:.1f}", class_="grid"))
        body.append(tag("text", format_number(tick), x=_LEFT - 6, y=y(tick) + 4, text_anchor="end"))
    for count, low, high in zip(counts.tolist(), edges[:-1], edges[1:]):
        tip = tag("title", html.escape(f"{low:g} to {high:g}: {count}"))
        box = {"x": x(low) + 0.5, "width": max(x(high) - x(low) - 1, 1), "y": y(count), "height": y(0) - y(count)}
        body.append(tag("rect", tip, class_="bar", **box))
    for tick in x_ticks:
        body.append(tag("text", format_number(tick), x=x(tick), y=_HEIGHT - _BOTTOM + 16, text_anchor="middle"))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    body.append(tag("path", d=f"M{_LEFT:.1f},{y(0):.1f}H{_WIDTH - _RIGHT:.1f}", class_="axis"))
    body.append(tag("text", html.escape(x_label), x=middle, y=_HEIGHT - 6, text_anchor="middle"))
    body.append(tag("text", html.escape(y_label), x=4, y=_TOP + 4, text_anchor="start"))
    style = (
        "display:block;width:100%;max-width:640px;min-width:0;height:auto;color:inherit;"
        "font:11px system-ui,sans-serif;fill:currentColor"
    )
    rules = (
        "<style>.halp-counts .grid{stroke:currentColor;opacity:.15;fill:none}.halp-counts .axis{stroke:currentColor;"
        "opacity:.6;fill:none}.halp-counts .bar{fill:#2f7fc1}</style>"
    )
    view = f"0 0 {_WIDTH:g} {_HEIGHT:g}"
    label = html.escape(f"histogram of {x_label}", quote=True)
    opening = f'<svg class="halp-counts" viewBox="{view}" role="img" aria-label="{label}" style="{style}">'
    return f"{opening}{rules}{''.join(body)}</svg>"


def _edges(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Borders of at most 30 intervals; whole numbers wide where all values are whole, so that no interval is uneven."""
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
    whole = bool((numbers == np.round(numbers)).all())
    if whole:
        width = max(1.0, float(np.ceil((high - low + 1) / 30)))
        return np.arange(low, high + width + 0.5, width)
    return np.linspace(low, high if high > low else low + 1, 31)


def _ticks(low: float, high: float, count: int, *, whole: bool) -> list[float]:
    """Round numbers between two ends, about `count` of them."""
    rough = max((high - low) / max(count, 1), 1e-9)
    power = 10.0 ** np.floor(np.log10(rough))
    step = float(next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough))
    step = max(1.0, float(np.ceil(step))) if whole else step
    first = np.ceil(low / step - 1e-9) * step
    return [float(tick) + 0.0 for tick in np.arange(first, high + step * 1e-6, step)] or [low]


def named_bars(counts: Mapping[Any, float], *, per_cent: bool = False) -> str:
    """A bar for every name, largest first where there are many; the names stand beside the bars and wrap."""
    entries = list(counts.items())
    left_out: Sequence[tuple[Any, float]] = []
    if len(entries) > _MOST_BARS:
        entries.sort(key=lambda pair: -pair[1])
        entries, left_out = entries[:_MOST_BARS], entries[_MOST_BARS:]
    largest = max((value for _, value in entries), default=0) or 1
    rows = []
    for name, value in entries:
        shown = f"{value:.1%}" if per_cent else f"{value:g}"
        bar = f'<i style="display:block;height:12px;border-radius:2px;background:#2f7fc1;width:{100 * value / largest:.1f}%"></i>'
        rows.append(
            f'<span style="overflow-wrap:anywhere">{html.escape(str(name))}</span><span>{bar}</span>'
            f'<span style="text-align:right">{shown}</span>'
        )
    if left_out:
        total = sum(value for _, value in left_out)
        more = "" if per_cent else f", {total:g} together"
        rows.append(f'<span style="grid-column:1/-1;opacity:.7">and {len(left_out)} more{more}</span>')
    style = (
        "display:grid;grid-template-columns:minmax(70px,34%) 1fr auto;gap:5px 10px;align-items:center;font-size:14px;"
        "font-variant-numeric:tabular-nums;max-width:640px"
    )
    return f'<div style="{style}">{"".join(rows)}</div>'
