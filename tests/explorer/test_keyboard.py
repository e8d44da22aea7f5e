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
        until(page, "() => !document.querySelector('dialog[open]')")
        assert fresh.get("state")["classes"] == []


def test_a_window_is_open_and_closed_before_the_next_key(browser: Any, fresh: Explorer) -> None:
    """Keys without a pause between them: none is lost while the page draws."""
    with visit(browser, fresh) as page:
        for _ in range(20):
            page.evaluate("""() => ["?", "Escape", "?"].forEach((key) =>
              document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })))""")
            until(page, "() => document.querySelector('dialog[open]')")
            page.keyboard.press("Escape")
            until(page, "() => !document.querySelector('dialog[open]')")


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


def panel(page: Any, name: str) -> None:
    """Reach a panel by Tab and arrow keys."""
    tab_to(page, "[role=tab][aria-selected=true]", "Shift+Tab")
    for _ in range(8):
        if page.evaluate("document.activeElement.id") == f"tab-{name}":
            return
        page.keyboard.press("ArrowRight")
    raise AssertionError(f"no way to the panel {name}")


def type_label(page: Any, label: str) -> None:
    tab_to(page, ".panel input[name=label]")
    page.keyboard.type(label)
    page.keyboard.press("Enter")
    settled(page)


def test_a_session_from_the_map_to_the_table_needs_no_mouse(browser: Any, fresh: Explorer) -> None:
    names, wanted = fresh.get("names"), {}
    with visit(browser, fresh) as page:
        focused = "halpMap.marks.focus"
        tab_to(page, "canvas.over")
        page.keyboard.press("ArrowRight")  # the first movement, then its neighbour
        page.keyboard.press("ArrowRight")
        wanted[page.evaluate(focused)] = "bend"
        type_label(page, "bend")

        page.keyboard.press("/")  # by name, and what is similar
        page.keyboard.type(names[30])
        page.wait_for_selector("#find-list li")
        page.keyboard.press("Enter")
        until(page, "row => halpMap.marks.focus === row", 30)
        wanted[30] = "turn"
        type_label(page, "turn")
        page.keyboard.press("f")
        page.wait_for_selector("text=Nearest first")
        tab_to(page, "button[aria-label^='yes, like']")
        page.keyboard.press("Enter")
        page.wait_for_selector("h2:has-text('Like these 2')")

        panel(page, "groups")  # members of a group, one after the other
        tab_to(page, ".group-facts .acts button")
        page.keyboard.press("Enter")
        page.wait_for_selector(".chosen .mini canvas[data-frame]")
        rows = [int(one.get_attribute("data-row")) for one in page.locator(".chosen .mini").all()]
        tab_to(page, ".chosen .mini-stage")
        page.keyboard.press("Enter")
        for row, key, label in zip(rows, "121", ("bend", "turn", "bend")):
            until(page, "row => document.activeElement.closest('.mini')?.dataset.row === row", str(row))
            page.keyboard.press(key)
            wanted[row] = label
        page.keyboard.press("Escape")
        settled(page)
        assert given(fresh) == wanted

        page.keyboard.press("n")  # what to label next; undo and redo
        proposed = page.evaluate(focused)
        page.keyboard.press("2")
        page.keyboard.press("u")
        settled(page)
        assert given(fresh) == wanted
        page.keyboard.press("r")
        settled(page)
        assert given(fresh) == {**wanted, proposed: "turn"}

        page.evaluate("document.activeElement.blur()")
        panel(page, "label")  # the table
        page.wait_for_selector("text=Download table")
        tab_to(page, ".card .acts button:nth-of-type(3)")
        with page.expect_download() as saved:
            page.keyboard.press("Enter")
        lines = Path(saved.value.path()).read_text(encoding="utf-8").splitlines()
        assert sum(line.split(",")[3] == "bend" for line in lines[1:]) == list(wanted.values()).count("bend")
