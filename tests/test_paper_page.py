"""What docs/paper.md names exists: functions, settings, tests and tables; and every table of the paper is on
the page.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from halp.reproduce.tables import list_tables
from halp.training import load_recipe

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(halp\.[\w.]+)`", PAGE)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))
COMMANDS = [row for row in PAGE.splitlines() if row.startswith("| ") and "`halp reproduce" in row]


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        try:
            return hasattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError:
            return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_function_or_setting_that_the_page_names_exists(name: str) -> None:
    assert exists(name) or name in load_recipe("ntu60-halp").flat()


@pytest.mark.parametrize(("path", "test"), TESTS)
def test_test_that_the_page_names_exists(path: str, test: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert not test or f"\ndef {test}(" in text


def test_every_table_that_can_be_reproduced_is_on_the_page_and_no_other() -> None:
    named = {
        word
        for row in COMMANDS
        for word in re.findall(r"`(?:halp reproduce )?([a-z][a-z-]*)`", row.split("|")[2])
    }
    assert named <= {*list_tables(), "graphs"}
    assert set(list_tables()) - named <= {"guide", "ntu10", "ntu10-streams"}  # ours, not the paper's


def test_every_row_has_a_function_and_a_test() -> None:
    rows = [
        row.strip("|").split(" | ")
        for row in PAGE.splitlines()
        if re.match(r"\| (Eq|Alg|Table|Figure|Sec)", row)
    ]
    assert len([row for row in rows if len(row) == 4]) > 20
    for row in rows:
        if len(row) == 4:
            assert "tests/" in row[3] or "the same" in row[3], row
            assert "`halp." in row[2], row
