"""Every promise of SECURITY.md names a test, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
TEXT = (TESTS.parent / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def rows() -> list[list[str]]:
    """Rows of all tables, without their heads."""
    lines = [line.strip("|").split(" | ") for line in TEXT.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if "---" not in cells[0] and cells[-1].strip() != "test"]


def test_every_named_test_exists() -> None:
    named = NAMED.findall(TEXT)
    assert len(named) > 40
    for path, name in named:
        tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (
            f"{path}::{name}"
        )


def test_every_promise_has_a_test_beside_it() -> None:
    assert len(rows()) > 40
    for cells in rows():
        assert NAMED.search(cells[-1]), cells
