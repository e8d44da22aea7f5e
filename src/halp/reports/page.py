"""The report: sections of text, tables and figures, saved as one self-contained HTML file."""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halp._version import __version__
from halp.core.errors import InputError
from halp.core.files import atomic_path
from halp.reports.drawing import render, trusted, trusted_asset

# The page may use what is inside it and nothing else, whatever markup a figure brings along.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; media-src"
    " 'self' file:"
)
_MOST_ROWS = 500
_NUMERIC = re.compile(r"[-+−]?\d[\d\s,.]*(e[-+]?\d+)?\s*(%|±\s*\d[\d.]*\s*%?)?")


class Report:
    """Builds a page from top to bottom; every text is escaped, only figures' markup is used as it is."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title = title
        self.subtitle = subtitle
        self._parts: list[dict[str, Any]] = []

    def section(self, heading: str, text: str = "") -> None:
        """Start a section; `text` is plain text, a blank line starts a new paragraph."""
        self._add("section", heading=heading, number=self._count("section") + 1)
        self.text(text)

    def text(self, text: str) -> None:
        """Paragraphs of plain text, a blank line between two of them."""
        for part in re.split(r"\n\s*\n", text):
            if part.strip():
                self._add("paragraph", text=part.strip())

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        caption: str = "",
        highlight: int | None = None,
    ) -> None:
        """A table; numbers and (mean, std) pairs are right aligned, with the same decimals down a column.

        `highlight` is the index of the column whose largest number is the best: that cell and its row are
        marked.
        """
        for row in rows:
            if len(row) != len(columns):
                raise InputError(f"a row of {len(row)} cells does not fit {len(columns)} columns")
        if highlight is not None and not -len(columns) <= highlight < len(columns):
            raise InputError(f"there is no column {highlight} to highlight, only {len(columns)}")
        by_column = [[row[c] for row in rows] for c in range(len(columns))]
        shown = [_format_column(column) for column in by_column]
        marked = None if highlight is None else highlight % len(columns)
        best = _best_rows(by_column[marked]) if marked is not None else set()
        self._add(
            "table",
            label=f"Table {self._count('table') + 1}",
            caption=caption,
            columns=list(columns),
            right=[_is_numeric(column) for column in by_column],
            highlight=marked,
            rows=[{"cells": [column[r] for column in shown], "best": r in best} for r in range(len(rows))],
        )

    def rows(self, rows: Sequence[Mapping[str, object]], caption: str = "") -> None:
        """A table of rows with equal keys, without empty columns; of very many rows the first."""
        columns = [
            name for name in (rows[0] if rows else {}) if any(row[name] not in ("", None) for row in rows)
        ]
        more = (
            f" The first {_MOST_ROWS} of {len(rows)} rows; --out writes all."
            if len(rows) > _MOST_ROWS
            else ""
        )
        self.table(
            columns, [[row[name] for name in columns] for row in rows[:_MOST_ROWS]], caption=caption + more
        )

    def figure(self, svg_or_html: str, caption: str = "") -> None:
        """A chart, the player or other markup of our own making; it is inserted as it is."""
        label = f"Figure {self._count('figure') + 1}"
        self._add("figure", label=label, caption=caption, markup=trusted(svg_or_html))

    @property
    def parts(self) -> list[dict[str, Any]]:
        """Sections, paragraphs, tables and figures in their order, every cell as text."""
        return self._parts

    def html(self) -> str:
        """The whole page."""
        moving = any('<div class="halp-' in part.get("markup", "") for part in self._parts)
        return render(
            "page.html",
            policy=trusted(_POLICY),
            title=self.title,
            subtitle=self.subtitle,
            style=trusted_asset("page.css") + (trusted_asset("figures.css") if moving else ""),
            script=trusted_asset("page.js"),
            figures=trusted_asset("figures.js") if moving else "",
            headings=[part["heading"] for part in self._parts if part["kind"] == "section"],
            parts=self._parts,
            version=__version__,
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page atomically."""
        page = self.html()
        try:
            with atomic_path(path) as partial:
                partial.write_text(page, encoding="utf-8", errors="replace")
        except OSError as error:
            raise InputError(
                f"the report '{path}' cannot be written ({error}); choose another path"
            ) from error
        return Path(path)

    def _add(self, kind: str, **values: Any) -> None:
        self._parts.append({"kind": kind, **values})

    def _count(self, kind: str) -> int:
        return sum(part["kind"] == kind for part in self._parts)


def _is_numeric(column: Sequence[object]) -> bool:
    """Whether a column holds numbers and gaps alone."""
    numeric = [_rank(value) is not None for value in column]
    return any(numeric) and all(is_number or _is_gap(value) for is_number, value in zip(numeric, column))


def _is_gap(value: object) -> bool:
    return value is None or value in ("", "-", "–", "—") or (isinstance(value, float) and math.isnan(value))


def _plain(value: object) -> float | None:
    """The value of a number that can be shown with decimals; None for booleans and NaN."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
        return None
    return float(value)


def _rank(value: object) -> float | None:
    """The number compared for "best": itself, the mean of (mean, std), or that at a text's start; or None."""
    if isinstance(value, str) and _NUMERIC.fullmatch(value):
        return float(re.findall(r"^[-+−]?\d+(?:\.\d+)?", value.replace(",", ""))[0].replace("−", "-"))
    if isinstance(value, tuple):
        return _plain(value[0]) if len(value) == 2 and _plain(value[1]) is not None else None
    return _plain(value)


def _best_rows(column: Sequence[object]) -> set[int]:
    ranks = {row: rank for row, value in enumerate(column) if (rank := _rank(value)) is not None}
    best = max(ranks.values(), default=math.inf)
    return {row for row, rank in ranks.items() if rank == best and math.isfinite(best)}


def _format_column(column: Sequence[object]) -> list[str]:
    """Cells as text; all fractions of a column get as many decimals as the one that needs most."""
    singles = [part for value in column for part in (value if isinstance(value, tuple) else (value,))]
    fractions = [float(v) for v in singles if _plain(v) is not None and not isinstance(v, numbers.Integral)]
    fractions = [value for value in fractions if math.isfinite(value)]
    largest = max(map(abs, fractions), default=0.0)
    most = 4 if largest < 1 else 3 if largest < 10 else 2
    decimals = next(
        d for d in range(most + 1) if d == most or all(round(v, d) == round(v, most) for v in fractions)
    )
    tiny = 0 < largest < 1e-3

    def text(value: object) -> str:
        if _is_gap(value):
            return "–"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, tuple) and _rank(value) is not None:
            return f"{text(value[0])} ± {text(value[1])}"
        if isinstance(value, numbers.Integral) or _plain(value) is None:
            return str(value)
        return (f"{value:.3g}" if tiny else f"{value:.{decimals}f}").replace("-", "−")

    return [text(value) for value in column]
