"""Shared by all charts: safe text, SVG elements, colours, markers and the legend."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from halp.core.errors import InputError

WIDTH = 720.0
COLOURS = 12
Floats = npt.NDArray[np.float64]

# XML has no place for these, not even escaped; lone surrogates come from file names that are not UTF-8.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_COLOUR = re.compile(
    r"#[0-9a-fA-F]{3,8}|[a-zA-Z]+|var\(--[\w-]+\)|(rgb|rgba|hsl|hsla|lab|lch|oklab|oklch)\([\w\s.,%/+-]*\)"
)
_BEYOND = 1e100


@cache
def read_asset(name: str) -> str:
    """Text of a style sheet or script in this package."""
    return files("halp.reports").joinpath(name).read_text(encoding="utf-8")


def escape_text(text: object) -> str:
    """Text for markup: escaped for elements and attributes, in HTML as in XML.

    >>> escape_text('a < b & "c"')
    'a &lt; b &amp; &quot;c&quot;'
    """
    return html.escape(without_illegal_characters(text))


def without_illegal_characters(text: object) -> str:
    """Text with characters that XML forbids replaced by the replacement character."""
    return _ILLEGAL.sub("\ufffd", str(text))


def tag(element: str, content: str = "", /, **attributes: object) -> str:
    """One element around markup. `class_` is class, `_` a hyphen; numbers are rounded to hundredths.

    >>> tag("text", "loss", x=1.23456, text_anchor="end")
    '<text x="1.23" text-anchor="end">loss</text>'
    """
    words = [element]
    for key, value in attributes.items():
        shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape_text(value)
        words.append(f'{key.rstrip("_").replace("_", "-")}="{"0" if shown == "-0" else shown}"')
    opening = " ".join(words)
    return f"<{opening}>{content}</{element}>" if content else f"<{opening}/>"


def svg_image(body: Sequence[str], height: float, title: str, kind: str, **attributes: object) -> str:
    """A stand-alone SVG image, light or dark as the reader prefers, of the common width."""
    style = re.sub(r"\s*\n\s*", "", read_asset("chart.css"))
    head = tag("text", escape_text(shorten(title, WIDTH - 8, 14)), x=0, y=16, class_="title") if title else ""
    return tag(
        "svg",
        f"<style>{style}</style>{head}{''.join(body)}",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:g} {height:.0f}",
        class_=f"halp-chart {kind}",
        role="img",
        aria_label=title or kind,
        **attributes,
    )


def numbers(values: Iterable[object]) -> Floats:
    """Values as floats; None and values that are infinite or too large to draw become NaN, a gap."""
    array = np.array([math.nan if value is None else float(value) for value in values], dtype=np.float64)  # type: ignore[arg-type]
    array[~(np.abs(array) < _BEYOND)] = math.nan
    return array


def text_width(text: str, size: float) -> float:
    """Estimated width in pixels of text set in a sans-serif face."""
    return size * sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    if letter in "ijl.,:;'|!()[] ftr-":
        return 0.36
    return 0.9 if letter in "mwMW%@" else 0.7 if letter.isupper() else 0.6


def shorten(text: object, width: float, size: float = 12) -> str:
    """Text cut to a width, with an ellipsis if shortened."""
    words = str(text)
    if text_width(words, size) <= width:
        return words
    while words and text_width(words + "…", size) > width:
        words = words[:-1]
    return words.rstrip() + "…"


def format_number(value: float) -> str:
    """A number for a reader: five significant digits, a real minus sign.

    >>> format_number(0.123456), format_number(-12345.6), format_number(3.0)
    ('0.12346', '−12346', '3')
    """
    text = f"{value:.5g}"
    if "e" in text and 1 <= abs(value) < 1e9:
        text = f"{value:.0f}"
    return text.replace("-", "−")


def series_style(position: int, chosen: str | None = None) -> str:
    """Style of the series at a position: its own series_style, or one of the palette for light and dark."""
    if chosen is not None and not _COLOUR.fullmatch(chosen):
        raise InputError(f"'{chosen}' is not a CSS colour; write a name, '#rrggbb' or 'rgb(…)'")
    return f"--c:{chosen or f'var(--c{position % COLOURS})'}"


def legend(
    names: Sequence[str], styles: Sequence[str], top: float, *, lines: bool = False
) -> tuple[str, float]:
    """Legend from `top` down, as markup with its height; many names are set in compact, aligned columns."""
    many = len(names) > 8
    size, row_height = (11.0, 17.0) if many else (12.0, 20.0)
    mark_width = 26.0 if lines else 16.0
    longest = 200.0 if many else 300.0
    shown = [shorten(name, longest, size) for name in names]
    widths = [mark_width + text_width(name, size) + 16 for name in shown]
    column = WIDTH / max(1, int(WIDTH // max(widths, default=WIDTH)))
    x, y, keys = 0.0, top + row_height / 2, []
    for position, (name, style) in enumerate(zip(names, styles)):
        advance = column if many else widths[position]
        if x and x + advance > WIDTH + 1:
            x, y = 0.0, y + row_height
        mark = (
            tag("path", d=f"M{x:.1f},{y:.1f}h18", class_=f"line d{position // COLOURS % 4}")
            if lines
            else tag("circle", cx=x + 5, cy=y, r=4, class_="mark")
        )
        full = tag("title", escape_text(name)) if shown[position] != name else ""
        label = tag(
            "text",
            escape_text(shown[position]),
            x=x + mark_width,
            y=y + size * 0.36,
            style=f"font-size:{size:g}px",
        )
        keys.append(tag("g", full + mark + label, class_="key", data_series=position, style=style))
        x += advance
    return "".join(keys), (y + row_height / 2 - top if keys else 0.0)


def render(template: str, **values: Any) -> str:
    """A template of `templates/` filled in; texts are escaped, characters not allowed in markup replaced."""
    return _environment().get_template(template).render(**values)


def trusted(markup: str) -> Markup:
    """Markup generated by halp, which is inserted unescaped."""
    return Markup(markup)  # noqa: S704  (that is what it is for)


def trusted_asset(name: str) -> Markup:
    """A style sheet or script that comes with halp."""
    return trusted(read_asset(name))


@cache
def _environment() -> Any:
    import jinja2  # slow to import

    return jinja2.Environment(
        loader=jinja2.PackageLoader("halp.reports"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else without_illegal_characters(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
