"""The reference of the site has every command, every public name, every format and recipe, under the pages
that its navigation lists.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import halp
from halp.cli.app import app

ROOT = Path(__file__).parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "docs_pages.py"))


def test_every_command_stands_on_one_page_with_its_arguments() -> None:
    pages = TOOL["commands"]()
    text = "\n".join(pages.values())
    heads = re.findall(r"^## halp (\S+)", text, flags=re.M)
    assert set(app.commands) == set(heads)
    assert "| `--window` | float |" in pages["commands-use"]
    assert "| `--in` | Path |" in pages["commands-use"]
    assert "| `--k, -k` | int | `10` |" in pages["commands-use"]
    rows = re.findall(r"^\| `.*$", text, flags=re.M)
    assert not [row for row in rows if "Suppress" in row or row.endswith("|  |")]  # hidden, or undescribed


def test_every_public_name_stands_on_one_page() -> None:
    names = re.findall(r"^::: (halp\.\w+)$", "\n".join(TOOL["python"]().values()), flags=re.M)
    assert sorted(names) == sorted(
        [*(f"halp.{name}" for name in halp.__all__ if name[0] != "_"), "halp.extend"]
    )


def test_the_navigation_lists_the_pages_that_are_made() -> None:
    listed = re.findall(r"reference/([\w-]+)\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(["formats", "recipes", *TOOL["commands"](), *TOOL["python"]()])
