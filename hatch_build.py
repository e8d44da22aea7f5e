"""Refuses to make a wheel or a source distribution without the built page of the explorer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface):
    """The page is committed built, so that installing needs no node; `node page/build.mjs` makes it again."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        home = Path(self.root) / "src" / "halp"
        page = [
            home / "explorer" / "static" / name
            for name in ("index.html", "app.js", "app.css", "widget.js", "LICENSES.txt")
        ]
        for path in [*page, home / "reports" / "figures.js", home / "reports" / "figures.css"]:
            if not path.is_file() or not path.stat().st_size:
                raise RuntimeError(
                    f"'{path}' is missing or empty; build the page with `npm ci && npm run build` in page/"
                )
