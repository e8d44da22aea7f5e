"""The heat map: a matrix, such as the confusions of a classifier, as one stand-alone SVG string."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from halp.errors import InputError
from halp.reports.axes import RIGHT, no_data_label, rotated_label
from halp.reports.drawing import Floats, escape_text, format_number, numbers, shorten, svg_image, tag, text_width

_LONGEST = 170.0
_SHADES = 32


def heatmap(
    matrix: npt.ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    x_label: str = "predicted",
    y_label: str = "true",
) -> str:
    """A matrix `(R, C)` as shaded cells; NaN and zero stay blank, values below zero have a colour of their own.

    Whole numbers from zero up are counts: they are shaded by their share of the row, so that rare classes show as well.
    """
    values = np.nan_to_num(_checked(matrix, rows, columns))
    counts = bool((values >= 0).all() and (values == np.round(values)).all())
    highest = float(np.abs(values).max(initial=0.0))
    total = values.sum(axis=1, keepdims=True) if counts else np.full((len(rows), 1), highest)
    share = np.abs(values) / np.where(total > 0, total, 1)

    longest = min(_LONGEST, max((text_width(str(name), 12) for name in rows), default=0.0))
    # Labels shrink with the cells and leave them more room: two passes settle it.
    cell = size = 12.0
    for _ in range(2):
        cell = max(7.0, min(44.0, (RIGHT - longest * size / 12 - 34) / max(len(columns), 1)))
        size = max(6.0, min(12.0, cell * 0.85))
    left, top = longest * size / 12 + 34, 34.0 if title else 10.0
    across, down = left + cell * len(columns), top + cell * len(rows)

    body = [tag("rect", x=left, y=top, width=across - left, height=down - top, class_="grid")]
    for r, row in enumerate(rows):
        y = top + (r + 0.5) * cell
        body.append(_label(row, f"translate({left - 6:.1f} {y + size * 0.36:.1f})", size))
        for c, column in enumerate(columns):
            if not values[r, c]:
                continue
            part = f" ({share[r, c]:.1%} of the row)" if counts else ""
            tip = f"{y_label}: {row}\n{x_label}: {column}\n{format_number(values[r, c])}{part}"
            body.append(_cell(left + (c + 0.5) * cell, y, cell, share[r, c], values[r, c] < 0, tip))
            if cell >= 26:
                number = shorten(
                    format_number(values[r, c]) if counts else f"{values[r, c]:.2f}".replace("-", "−"), cell + 4, 11
                )
                body.append(_number(number, left + (c + 0.5) * cell, y + 4, share[r, c]))

    turn = 90 if cell < 18 else 45
    for c, column in enumerate(columns):
        x = left + (c + 0.5) * cell + size * 0.3
        body.append(_label(column, f"translate({x:.1f} {down + size * 0.6 + 3:.1f}) rotate(-{turn})", size))
    reach = max((text_width(shorten(name, _LONGEST, size), size) for name in columns), default=0.0)
    bottom = down + reach * math.sin(math.radians(turn)) + 30
    body.append(tag("text", escape_text(x_label), x=(left + across) / 2, y=bottom, text_anchor="middle"))
    body.append(rotated_label(y_label, 12, (top + down) / 2))
    if not values.size:
        body.append(no_data_label(RIGHT / 2, top + 12))
    meaning = "share of the row" if counts else "size (red: below zero)" if (values < 0).any() else "value"
    body.append(_key(meaning, "100 %" if counts else format_number(float(f"{highest:.3g}")), bottom + 14))
    return svg_image(body, bottom + 36, title, "heatmap")


def _checked(matrix: npt.ArrayLike, rows: Sequence[str], columns: Sequence[str]) -> Floats:
    values = np.asarray(matrix, dtype=np.float64)
    wanted = (len(rows), len(columns))
    if values.shape != wanted and not (values.size == 0 and 0 in wanted):
        raise InputError(f"a matrix {values.shape} does not fit {wanted[0]} row names and {wanted[1]} column names")
    return numbers(values.ravel()).reshape(wanted)


def _depth(share: float) -> float:
    """Opacity of a cell; the 0.6th power lets a confusion of one in twenty be seen."""
    return float(share**0.6)


def _cell(x: float, y: float, side: float, share: float, minus: bool, tip: str) -> str:
    corner = {"x": x - side / 2 + 0.5, "y": y - side / 2 + 0.5, "width": side - 1, "height": side - 1}
    kind = "cell minus" if minus else "cell"
    return tag("rect", tag("title", escape_text(tip)), class_=kind, fill_opacity=_depth(share), **corner)


def _number(text: str, x: float, y: float, share: float) -> str:
    kind = "count on" if _depth(share) > 0.55 else "count"
    return tag("text", escape_text(text), class_=kind, x=x, y=y, text_anchor="middle", pointer_events="none")


def _label(name: str, place: str, size: float) -> str:
    shown = escape_text(shorten(name, _LONGEST * size / 12, size)) + tag("title", escape_text(name))
    return tag("text", shown, transform=place, text_anchor="end", style=f"font-size:{size:.1f}px")


def _key(label: str, highest: str, y: float) -> str:
    """The key of the shades: from nothing to the strongest."""
    left, step = RIGHT - 190, 4.0
    shades = [
        tag(
            "rect",
            x=left + i * step,
            y=y,
            width=step,
            height=9,
            class_="cell shade",
            fill_opacity=_depth(i / (_SHADES - 1)),
        )
        for i in range(_SHADES)
    ]
    words = tag("text", escape_text(f"{label}   0"), x=left - 8, y=y + 9, text_anchor="end")
    return words + "".join(shades) + tag("text", escape_text(highest), x=left + _SHADES * step + 8, y=y + 9)
