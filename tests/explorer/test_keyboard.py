"""The page by keyboard alone: every key does something or says why not, and a whole session needs no mouse."""

from __future__ import annotations

import csv
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


def tab_to(page: Any, selector: str) -> None:
    """Press Tab until something has the keyboard."""
    for _ in range(120):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
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
        until(page, "() => document.querySelector('option[value=label]')")
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


def test_a_session_without_a_mouse(browser: Any, fresh: Explorer, tmp_path: Path) -> None:
    with visit(browser, fresh) as page:
        press = page.keyboard.press
        tab_to(page, "canvas.over")
        press("ArrowRight")
        press("ArrowRight")
        first = page.evaluate("halpMap.marks.focus")
        tab_to(page, "input[name=label]")
        page.keyboard.type("squat")
        press("Enter")
        settled(page)
        assert given(fresh) == {first: "squat"}
        for _ in range(5):  # a span: five frames on, from there, five frames further
            press("ArrowRight")
        press("i")
        for _ in range(5):
            press("ArrowRight")
        press("o")
        until(page, "() => document.querySelector('.time-head').textContent.includes('find similar')")
        press("Escape")
        press("n")
        until(page, "first => halpMap.marks.focus !== first", first)
        second = page.evaluate("halpMap.marks.focus")
        press("1")
        settled(page)
        assert given(fresh) == {first: "squat", second: "squat"}
        press("u")
        settled(page)
        assert given(fresh) == {first: "squat"}
        tab_to(page, "[role=tab][aria-selected=true]")
        for name in ("similar", "label", "groups"):
            press("ArrowRight")
            until(page, "id => document.activeElement.id === id", f"tab-{name}")
        tab_to(page, ".groups .acts button")  # Show
        press("Enter")
        page.wait_for_selector(".chosen .mini canvas[data-frame]")
        tab_to(page, ".chosen input[name=label]")
        page.keyboard.type("bow")
        press("Enter")
        settled(page)
        rows = [int(one.get_attribute("data-row")) for one in page.locator(".chosen .mini").all()]
        assert dict.fromkeys(rows, "bow") == {row: given(fresh)[row] for row in rows}
        tab_to(page, "[role=tab][aria-selected=true]")
        for _ in range(2):
            press("ArrowRight")
        page.wait_for_selector("text=Download table")
        tab_to(page, "section.card button")
        press("Tab")
        press("Tab")
        with page.expect_download() as saved:
            press("Enter")
        saved.value.save_as(tmp_path / "table.csv")
    with open(tmp_path / "table.csv", encoding="utf-8", newline="") as file:
        assert sum(line["label"] == "bow" for line in csv.DictReader(file)) == len(rows)
