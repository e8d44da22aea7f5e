"""HTML by templates: every value is escaped unless it is marked as markup of our own making."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from halp.reports.drawing import read_asset, without_illegal_characters


def render(template: str, **values: Any) -> str:
    """A template of `templates/` filled in; plain texts are escaped, characters that no markup can hold replaced."""
    return _environment().get_template(template).render(**values)


def trusted(markup: str) -> Markup:
    """Markup of our own making, which goes into a page as it is."""
    return Markup(markup)  # noqa: S704  (that is what it is for)


def trusted_asset(name: str) -> Markup:
    """A style sheet or script that comes with halp."""
    return trusted(read_asset(name))


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("halp.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else without_illegal_characters(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
