"""Charts as pure functions, data → one stand-alone SVG string: line chart, heat map, bars; a report adds hovering."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np

from halp.errors import InputError
from halp.reports.axes import RIGHT, AxisScale, legend_above, no_data_label, x_axis, y_axis, y_axis_width
from halp.reports.drawing import (
    COLOURS,
    Floats,
    escape_text,
    format_number,
    marker,
    numbers,
    series_style,
    shorten,
    svg_image,
    tag,
    text_width,
)
from halp.reports.heat import heatmap

__all__ = ["bars", "heatmap", "line_chart"]

_MOST_POINTS = 1500


def line_chart(
    series: Mapping[str, tuple[Sequence[float | None], Sequence[float | None]]],
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    y_range: tuple[float, float] | None = None,
    styles: Mapping[str, str] | None = None,
) -> str:
    """Curves over a common axis.

    `series` maps a name to its xs and ys, both `(n,)`; NaN or None leaves a gap. `styles` may name a CSS colour a series;
    `var(--c0)` … `var(--c11)` are the colours of the palette, which fit light and dark paper (2 is green, 3 is red).
    """
    data = {name: _curve(name, xs, ys) for name, (xs, ys) in series.items()}
    paints = [series_style(position, (styles or {}).get(name)) for position, name in enumerate(data)]
    keys, top = legend_above(list(data), paints, title, lines=True)
    all_x = np.concatenate([xs for xs, _ in data.values()] or [np.zeros(0)])
    all_y = np.concatenate([ys for _, ys in data.values()] or [np.zeros(0)])
    known = all_x[np.isfinite(all_x)]
    y = AxisScale.fit(all_y, top + 290, top, limits=y_range, rounded=True)
    left = y_axis_width(y, y_label)
    x = AxisScale.fit(known, left, RIGHT, whole=bool(len(known)) and bool((known == np.round(known)).all()), count=8)
    body = [keys, y_axis(y, left, y_label), x_axis(x, y.start, x_label)]
    curves = []
    for position, (xs, ys) in enumerate(data.values()):
        marks = "".join(_path(xs, ys, x, y, position))
        points = json.dumps(
            [[_digits(a), _digits(b)] for a, b in zip(xs, ys) if math.isfinite(b)], separators=(",", ":")
        )
        curves.append(tag("g", marks, data_series=position, data_points=points, style=paints[position]))
    # A nested image clips what a given y_range leaves out, without an id that two charts of one page could share.
    frame = (left - 6, y.end - 6, RIGHT - left + 12, y.start - y.end + 12)
    place = {"x": frame[0], "y": frame[1], "width": frame[2], "height": frame[3]}
    body.append(
        tag("svg", "".join(curves), viewBox=" ".join(f"{side:.2f}" for side in frame), **place) if curves else ""
    )
    if not np.isfinite(all_y).any():
        body.append(no_data_label((left + RIGHT) / 2, (y.start + y.end) / 2))
    plot = json.dumps([x.low, x.high, x.start, x.end, y.low, y.high, y.start, y.end])
    return svg_image(body, y.start + (44 if x_label else 26), title, "lines", data_plot=plot, data_x=x_label)


def _curve(name: str, xs: Sequence[float | None], ys: Sequence[float | None]) -> tuple[Floats, Floats]:
    """Both coordinates as floats, NaN in both where one is unknown, thinned to what a screen can show."""
    if len(xs) != len(ys):
        raise InputError(f"series '{name}' has {len(xs)} xs and {len(ys)} ys; give one y for every x")
    x, y = numbers(xs), numbers(ys)
    x[np.isnan(y)] = y[np.isnan(x)] = math.nan
    if len(x) <= _MOST_POINTS:
        return x, y
    # The lowest and the highest point of every stretch stay, so no peak is lost, and one gap where there is any.
    kept: list[int] = []
    for part in np.array_split(np.arange(len(x)), _MOST_POINTS // 3):
        known, gaps = part[np.isfinite(y[part])], part[np.isnan(y[part])]
        ends = [known[y[known].argmin()], known[y[known].argmax()]] if len(known) else []
        kept += sorted({int(i) for i in [*ends, *gaps[:1]]})
    return x[kept], y[kept]


def _path(xs: Floats, ys: Floats, x: AxisScale, y: AxisScale, position: int) -> list[str]:
    """One path for each stretch without a gap; dots where there are few points, and for a point alone."""
    known = np.isfinite(ys)
    stretches = np.split(np.arange(len(ys)), np.flatnonzero(np.diff(known)) + 1) if len(ys) else []
    few, marks = known.sum() <= 24, []
    for stretch in stretches:
        if not known[stretch[0]]:
            continue
        places = [(x(xs[i]), y(ys[i])) for i in stretch]
        if len(places) > 1:
            path = "M" + "L".join(f"{a:.2f},{b:.2f}" for a, b in places)
            marks.append(tag("path", d=path, class_=f"line d{position // COLOURS % 4}"))
        if few or len(places) == 1:
            marks.append(tag("g", "".join(marker(0, a, b, 3.2) for a, b in places), class_="mark"))
    return marks


def bars(values: Mapping[str, Mapping[str, tuple[float, float]]], *, title: str = "", y_label: str = "") -> str:
    """Grouped bars from zero with error bars: group → series → (mean, standard deviation); NaN or nothing leaves a gap."""
    names = list(dict.fromkeys(name for group in values.values() for name in group))
    paints = [series_style(position) for position in range(len(names))]
    keys, top = legend_above(names, paints, title)
    table = {(group, name): numbers(pair) for group, series in values.items() for name, pair in series.items()}
    reached = [mean + side * np.nan_to_num(std) for mean, std in table.values() for side in (-1, 1)]
    y = AxisScale.fit(np.array([0.0, *reached]), top + 270, top + 8, rounded=True)
    left = y_axis_width(y, y_label)
    band = (RIGHT - left) / max(len(values), 1)
    thick = min(54.0, band * 0.76 / max(len(names), 1))
    body = [keys, y_axis(y, left, y_label)]
    numbered = thick >= 26
    for g, group in enumerate(values):
        start = left + (g + 0.5) * band - thick * len(names) / 2
        for s, name in enumerate(names):
            mean, std = (float(part) for part in table.get((group, name), (math.nan, math.nan)))
            if math.isnan(mean):
                continue
            middle, spread = start + (s + 0.5) * thick, "" if math.isnan(std) else f" ± {format_number(std)}"
            tip = tag("title", escape_text(f"{group}\n{name}: {format_number(mean)}{spread}"))
            box = {
                "x": middle - thick * 0.43,
                "width": thick * 0.86,
                "y": min(y(mean), y(0)),
                "height": abs(y(mean) - y(0)),
            }
            marks = tag("rect", tip, class_="bar", rx=2, **box)
            reach = std if std > 0 else 0.0
            if reach:
                arm, high, low = min(6.0, thick * 0.2), y(mean + reach), y(mean - reach)
                ends = "".join(f"M{middle - arm:.2f},{end:.2f}h{2 * arm:.2f}" for end in (high, low))
                path = f"M{middle:.2f},{high:.2f}V{low:.2f}{ends}"
                marks += tag("path", d=path, class_="whisker")
            if numbered:
                edge = y(mean + reach) - 5 if mean >= 0 else y(mean - reach) + 14
                marks += tag(
                    "text", format_number(float(f"{mean:.3g}")), x=middle, y=edge, text_anchor="middle", class_="value"
                )
            body.append(tag("g", marks, data_series=s, style=paints[s]))
    body.append(tag("path", d=f"M{left:.2f},{y(0):.2f}H{RIGHT:.2f}", class_="axis"))
    tilted = any(text_width(str(group), 12) > band - 8 for group in values)
    for g, group in enumerate(values):
        x = left + (g + 0.5) * band
        label = escape_text(shorten(group, min(120, x / 0.85) if tilted else band, 12))
        turn = {"transform": f"rotate(-35 {x:.1f} {y.start + 16:.1f})"} if tilted else {}
        anchor = "end" if tilted else "middle"
        body.append(
            tag("text", label + tag("title", escape_text(group)), x=x, y=y.start + 18, text_anchor=anchor, **turn)
        )
    if np.isnan(reached).all():
        body.append(no_data_label((left + RIGHT) / 2, (y.start + y.end) / 2))
    return svg_image(body, y.start + (86 if tilted else 28), title, "bars")


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
