"""The page by keyboard alone: every key does something or says why not, and a whole session needs no mouse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from explorer.conftest import Explorer
from explorer.test_page import until, visit
from explorer.test_races import given, settled


@pytest.fixture
def fresh(launch: Callable[..., Explorer], tmp_path: Path) -> Explorer:
    return launch(tmp_path / "labels.csv")


def tab_to(page: Any, selector: str, key: str = "Tab") -> None:
    """Press Tab until something has the keyboard."""
    for _ in range(200):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press(key)
    raise AssertionError(f"no way to {selector} by Tab")


def says(page: Any, words: str) -> None:
    until(page, "words => document.querySelector('.notice').textContent.includes(words)", words)


def test_a_key_that_does_nothing_says_why(browser: Any, fresh: Explorer) -> None:
    with visit(browser, fresh) as page:
        for key, words in (
            ("1", "No class has the key 1"),
            ("f", "Choose a movement first"),
            ("0", "1 to 9"),
            ("ArrowRight", "Choose a movement first"),
            ("u", "nothing to undo"),
            ("i", "Choose a movement first"),
            ("r", "nothing to redo"),
            ("x", "no meaning"),
        ):
            page.keyboard.press(key)
            says(page, words)
        page.evaluate("halpLook(3)")
        until(page, "() => document.querySelector('.details')?.dataset.row === '3'")
        page.keyboard.press("Backspace")
        says(page, "no label to take off")
        page.keyboard.press("?")
        page.keyboard.press("1")
        says(page, "Close the window first")
        page.keyboard.press("Escape")
        assert page.locator("dialog[open]").count() == 0
        assert fresh.get("state")["classes"] == []


def test_keys_reach_the_movement_from_boxes_sliders_and_lists(browser: Any, fresh: Explorer) -> None:
    fresh.post("label", {"rows": [100], "label": "one"})
    with visit(browser, fresh) as page:
        until(page, "() => [...document.querySelectorAll('option')].some((one) => one.value === 'label')")
        for row, control in enumerate(
            (".views input", ".controls input", ".controls select", "header select")
        ):
            page.evaluate("row => halpLook(row)", row)
            until(page, "row => document.querySelector('.details')?.dataset.row === String(row)", row)
            page.focus(control)
            page.keyboard.press("1")
        settled(page)
        assert given(fresh) == dict.fromkeys([0, 1, 2, 3, 100], "one")
        page.focus("#find")
        page.keyboard.press("1")
        assert page.input_value("#find") == "1"


def test_a_class_is_renamed_by_keys_in_one_act(browser: Any, fresh: Explorer) -> None:
    fresh.post("label", {"rows": [0], "label": "one"})
    with visit(browser, fresh) as page:
        page.click("#tab-label")
        page.click(".classes >> text=rename")
        page.keyboard.type("two")
        page.keyboard.press("Enter")
        page.wait_for_selector(".classes li:has-text('two')")
        settled(page)
        assert page.evaluate("halpActs.last") == 1
        assert given(fresh) == {0: "two"}
