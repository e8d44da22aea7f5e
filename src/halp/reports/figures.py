"""Charts as pure functions, data → markup: lines, bars and histogram as SVG, a heat map as a table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.reports.axes import RIGHT, AxisScale, legend_above, no_data_label, x_axis, y_axis, y_axis_width
from halp.reports.drawing import (
    COLOURS,
    Floats,
    escape_text,
    format_number,
    numbers,
    series_style,
    shorten,
    svg_image,
    tag,
    text_width,
)

_MOST_POINTS = 1500
_MOST_NUMBERS = 20  # columns of a heat map whose cells have room for numbers


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

    `series` maps a name to its xs and ys, both `(n,)`; NaN or None leaves a gap. `styles` may name a CSS
    colour a series;
    `var(--c0)` … `var(--c11)` are the colours of the palette, which fit light and dark paper (2 is green, 3
    is red).
    """
    data = {name: _curve(name, xs, ys) for name, (xs, ys) in series.items()}
    paints = [series_style(position, (styles or {}).get(name)) for position, name in enumerate(data)]
    keys, top = legend_above(list(data), paints, title, lines=True)
    all_x = np.concatenate([xs for xs, _ in data.values()] or [np.zeros(0)])
    all_y = np.concatenate([ys for _, ys in data.values()] or [np.zeros(0)])
    known = all_x[np.isfinite(all_x)]
    y = AxisScale.fit(all_y, top + 290, top, limits=y_range, rounded=True)
    left = y_axis_width(y, y_label)
    x = AxisScale.fit(
        known, left, RIGHT, whole=bool(len(known)) and bool((known == np.round(known)).all()), count=8
    )
    body = [keys, y_axis(y, left, y_label), x_axis(x, y.start, x_label)]
    curves = []
    for position, (xs, ys) in enumerate(data.values()):
        marks = "".join(_path(xs, ys, x, y, position))
        points = json.dumps(
            [[_digits(a), _digits(b)] for a, b in zip(xs, ys) if math.isfinite(b)], separators=(",", ":")
        )
        curves.append(tag("g", marks, data_series=position, data_points=points, style=paints[position]))
    # A nested image clips what a given y_range leaves out, without an id that two charts of one page could
    # share.
    frame = (left - 6, y.end - 6, RIGHT - left + 12, y.start - y.end + 12)
    place = {"x": frame[0], "y": frame[1], "width": frame[2], "height": frame[3]}
    body.append(
        tag("svg", "".join(curves), viewBox=" ".join(f"{side:.2f}" for side in frame), **place)
        if curves
        else ""
    )
    if not np.isfinite(all_y).any():
        body.append(no_data_label((left + RIGHT) / 2, (y.start + y.end) / 2))
    plot = json.dumps([x.low, x.high, x.start, x.end, y.low, y.high, y.start, y.end])
    return svg_image(body, y.start + (44 if x_label else 26), title, "lines", data_plot=plot, data_x=x_label)


def _curve(name: str, xs: Sequence[float | None], ys: Sequence[float | None]) -> tuple[Floats, Floats]:
    """Both coordinates as floats, NaN in both if either is unknown, thinned to screen resolution."""
    if len(xs) != len(ys):
        raise InputError(f"series '{name}' has {len(xs)} xs and {len(ys)} ys; give one y for every x")
    x, y = numbers(xs), numbers(ys)
    x[np.isnan(y)] = y[np.isnan(x)] = math.nan
    if len(x) <= _MOST_POINTS:
        return x, y
    # The lowest and the highest point of every stretch stay, so no peak is lost, and one gap if there is any.
    kept: list[int] = []
    for part in np.array_split(np.arange(len(x)), _MOST_POINTS // 3):
        known, gaps = part[np.isfinite(y[part])], part[np.isnan(y[part])]
        ends = [known[y[known].argmin()], known[y[known].argmax()]] if len(known) else []
        kept += sorted({int(i) for i in [*ends, *gaps[:1]]})
    return x[kept], y[kept]


def _path(xs: Floats, ys: Floats, x: AxisScale, y: AxisScale, position: int) -> list[str]:
    """One path for each stretch without a gap; dots if there are few points, and for a point alone."""
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
            marks.append(
                tag("g", "".join(tag("circle", cx=a, cy=b, r=3.2) for a, b in places), class_="mark")
            )
    return marks


def bars(
    values: Mapping[str, Mapping[str, tuple[float, float]]], *, title: str = "", y_label: str = ""
) -> str:
    """Grouped bars from zero with error bars: group → series → (mean, standard deviation); NaN is a gap."""
    names = list(dict.fromkeys(name for group in values.values() for name in group))
    paints = [series_style(position) for position in range(len(names))]
    keys, top = legend_above(names, paints, title)
    table = {
        (group, name): numbers(pair) for group, series in values.items() for name, pair in series.items()
    }
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
                    "text",
                    format_number(float(f"{mean:.3g}")),
                    x=middle,
                    y=edge,
                    text_anchor="middle",
                    class_="value",
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
            tag(
                "text",
                label + tag("title", escape_text(group)),
                x=x,
                y=y.start + 18,
                text_anchor=anchor,
                **turn,
            )
        )
    if np.isnan(reached).all():
        body.append(no_data_label((left + RIGHT) / 2, (y.start + y.end) / 2))
    return svg_image(body, y.start + (86 if tilted else 28), title, "bars")


def histogram(values: npt.ArrayLike, *, x_label: str, y_label: str = "clips") -> str:
    """A histogram of values in equal intervals, on axes with round numbers."""
    known = np.asarray(values, dtype=np.float64).ravel()
    whole = bool((known == np.round(known)).all())
    edges = _edges(known, whole)
    counts = np.histogram(known, edges)[0].tolist()
    y = AxisScale.fit(np.array([0, max(*counts, 1)]), 220, 14, rounded=True, whole=True, count=4)
    left = y_axis_width(y, y_label)
    x = AxisScale.fit(edges, left, RIGHT, whole=whole)
    body = [y_axis(y, left, y_label)]
    for count, low, high in zip(counts, edges[:-1], edges[1:]):
        tip = tag("title", escape_text(f"{low:g} to {high:g}: {count}"))
        box = {
            "x": x(low) + 0.5,
            "width": max(x(high) - x(low) - 1, 1.0),
            "y": y(count),
            "height": y(0) - y(count),
        }
        body.append(tag("rect", tip, class_="bar", style=series_style(0), **box))
    return svg_image([*body, x_axis(x, y.start, x_label)], y.start + 44, "", "histogram")


def _edges(values: Floats, whole: bool) -> Floats:
    """Borders of at most 30 intervals; integers wide if all values are integers, so that they are even."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if whole:
        width = max(1.0, float(np.ceil((high - low + 1) / 30)))
        return np.arange(low, high + width + 0.5, width)
    return np.linspace(low, high if high > low else low + 1, 31)


def heatmap(
    matrix: npt.ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    x_label: str = "predicted",
    y_label: str = "true",
) -> str:
    """A matrix `(R, C)` as a table of shaded cells; NaN and zero are blank, negatives of another colour.

    Whole numbers from zero up are counts: they are shaded by their share of the row, so that rare classes
    show as well.
    """
    values, wanted = np.asarray(matrix, dtype=np.float64), (len(rows), len(columns))
    if values.shape != wanted and not (values.size == 0 and 0 in wanted):
        raise InputError(
            f"a matrix {values.shape} does not fit {wanted[0]} row names and {wanted[1]} column names"
        )
    values = np.nan_to_num(numbers(values.ravel()).reshape(wanted))
    counts = bool((values >= 0).all() and (values == np.round(values)).all())
    total = (
        values.sum(axis=1, keepdims=True)
        if counts
        else np.full((len(rows), 1), np.abs(values).max(initial=0.0))
    )
    share = np.abs(values) / np.where(total > 0, total, 1)

    def cell(r: int, c: int) -> str:
        value, depth = values[r, c], float(share[r, c] ** 0.6)  # a confusion of one in twenty can be seen
        if not value:
            return tag("td")
        part = f" ({share[r, c]:.1%} of the row)" if counts else ""
        tip = f"{y_label}: {rows[r]}\n{x_label}: {columns[c]}\n{format_number(value)}{part}"
        number = format_number(value) if counts else f"{value:.2f}".replace("-", "−")
        kind = ("minus" if value < 0 else "cell") + (" on" if depth > 0.55 else "")
        shown = number if len(columns) <= _MOST_NUMBERS else ""
        return tag("td", shown, class_=kind, title=tip, style=f"--depth:{depth:.2f}")

    names = [tag("th", tag("span", escape_text(name), title=name), scope="col") for name in columns]
    lines = [
        tag(
            "tr", tag("th", escape_text(name), scope="row") + "".join(cell(r, c) for c in range(len(columns)))
        )
        for r, name in enumerate(rows)
    ]
    head = tag("thead", tag("tr", tag("th", escape_text(f"{y_label} ↓ {x_label} →")) + "".join(names)))
    meaning = "darker: a larger share of the row" if counts else f"darker: up to {total.max(initial=0.0):.3g}"
    meaning += "; red: below zero" if (values < 0).any() else ""
    said = tag(
        "caption", escape_text(title) + tag("small", escape_text(meaning if values.size else "no data"))
    )
    return tag("table", said + head + tag("tbody", "".join(lines)), class_="halp-chart heat")


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
