"""Pages of answers: a function per type of answer, from the charts, players and tables of `halp.reports`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from halp.reports.page import Report


def page_of(answer: Any, path: Path | None = None) -> Report:
    """The page of an answer, by its type; `path` is its file, for relative links to videos."""
    from halp.tasks.intervals import without_interval

    pages = _pages()
    for kind in type(answer).__mro__:
        if kind in pages:
            report = pages[kind](answer, path)
            if reasons := without_interval(answer):
                report.section("Intervals", reasons)
            return report
    raise TypeError(f"there is no page of {type(answer).__name__}")


def has_page(kind: type) -> bool:
    """Whether answers of a type have a page."""
    return any(each in _pages() for each in kind.__mro__)


def _pages() -> dict[type, Callable[[Any, Path | None], Report]]:
    from halp.reports.pages import answers, findings, movements

    return {**answers.PAGES, **findings.PAGES, **movements.PAGES}
