"""Answers that come late, in another order, or not at all: every label stands where it was meant, or is told
to be missing.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from explorer.conftest import Explorer
from explorer.test_page import WHERE, drawn, look_at, until, visit

LABELS = "() => [...document.querySelectorAll('.chip')].map((one) => one.firstChild.nextSibling.textContent)"


class Held:
    """Answers of one request that wait until they are let go, in any order, or never come."""

    def __init__(self, page: Any, name: str, fits: str = "") -> None:
        self.page, self.pattern, self.fits, self.open = page, f"**/api/{name}*", fits, False
        self.waiting: list[tuple[Any, Any]] = []
        page.route(self.pattern, self._take)

    def _take(self, route: Any) -> None:
        if self.open or self.fits not in route.request.url:
            route.continue_()
        else:
            self.waiting.append((route, route.fetch()))

    def wait(self, count: int = 1) -> None:
        until_true(self.page, lambda: len(self.waiting) >= count)

    def release(self) -> None:
        self.open = True
        for route, answer in self.waiting:
            route.fulfill(response=answer)
            route.request.response().finished()
        self.page.unroute(self.pattern)
        drawn(self.page)  # with these answers


def until_true(page: Any, condition: Callable[[], Any], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        page.wait_for_timeout(30)


@contextmanager
def stopped(explorer: Explorer) -> Iterator[None]:
    """A server that answers nothing for a while."""
    os.kill(explorer.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(explorer.process.pid, signal.SIGCONT)


def settled(page: Any) -> None:
    """Nothing is on its way any more."""
    until(page, "() => halpActs.value.length === 0")


@pytest.fixture
def fresh(launch: Callable[..., Explorer], tmp_path: Path) -> Explorer:
    explorer = launch(tmp_path / "labels.csv")
    explorer.names = explorer.get("names")  # type: ignore[attr-defined]
    return explorer


def given(explorer: Explorer) -> dict[int, str]:
    """Labels by row, as the server has them."""
    facts, arrays = explorer.arrays("column?name=label")
    return {
        row: facts["categories"][place] for row, place in enumerate(arrays["values"].tolist()) if place >= 0
    }


def show_twelve(page: Any) -> list[int]:
    page.click("#tab-groups")
    page.locator(".groups button:text-is('Show')").first.click()
    page.wait_for_selector(".chosen .mini canvas[data-frame]")
    return [int(one.get_attribute("data-row")) for one in page.locator(".chosen .mini").all()]


def test_an_older_state_does_not_take_a_new_class_away(browser: Any, fresh: Explorer) -> None:
    fresh.post("label", {"rows": [0], "label": "one"})
    with visit(browser, fresh) as page:
        look_at(page, 10)
        row = page.evaluate("halpMap.marks.focus")
        held = Held(page, "state")
        fresh.post("label", {"rows": [1], "label": "one"})  # the page asks for the state
        held.wait()
        page.fill(".panel input[name=label]", "two")
        page.keyboard.press("Enter")
        settled(page)
        held.release()
        assert page.evaluate(LABELS) == ["one", "two"]
        page.keyboard.press("1")
        page.keyboard.press("2")
        settled(page)
        assert given(fresh) == {0: "one", 1: "one", row: "two"}


@pytest.mark.parametrize("pause", [0, 60])
def test_keys_typed_ahead_of_the_answers_label_one_movement_each(
    browser: Any, fresh: Explorer, pause: int
) -> None:
    fresh.post("label", {"rows": [0], "label": "one"})
    fresh.post("label", {"rows": [0], "label": "two"})
    with visit(browser, fresh) as page:
        shown = show_twelve(page)
        page.locator(".chosen .mini-stage").first.click()
        with stopped(fresh):
            for key in "1212121":
                page.keyboard.press(key)
                page.wait_for_timeout(pause)
            drawn(page)
            dots = page.locator(".chosen .mini-name .dot").count()
            assert dots >= 7  # shown at once
        settled(page)
        wanted = dict(zip(shown, ["one", "two"] * 3 + ["one"]))
        assert {row: label for row, label in given(fresh).items() if row in wanted} == wanted
        assert page.locator(".chosen .mini.is-focus").get_attribute("data-row") == str(shown[7])


def test_n_and_a_number_at_once_label_what_is_proposed(browser: Any, fresh: Explorer) -> None:
    fresh.post("label", {"rows": [20], "label": "one"})
    fresh.post("label", {"rows": [21], "label": "two"})
    fresh.wait(lambda state: state["few"])
    with visit(browser, fresh) as page:
        until(
            page,
            "() => [...document.querySelectorAll('header option')].some((one) => one.value === 'prediction')",
        )
        look_at(page, 20)
        before, rows = given(fresh), []
        with stopped(fresh):
            for key in "212":
                page.keyboard.press("n")
                rows.append(page.evaluate("halpMap.marks.focus"))
                page.keyboard.press(key)
        settled(page)
        assert len({*rows, *before}) == 3 + len(before)
        assert given(fresh) == {**before, **dict(zip(rows, ("two", "one", "two")))}
        until(page, "row => Number(document.querySelector('.details')?.dataset.row) === row", rows[-1])
        until(
            page, "name => document.querySelector('.time-head b').textContent === name", fresh.names[rows[-1]]
        )


def test_the_number_of_a_class_just_made_is_not_lost(browser: Any, fresh: Explorer) -> None:
    with visit(browser, fresh) as page:
        look_at(page, 3)
        wanted = {}
        for number, label in enumerate(("kick", "bow", "walk"), start=1):
            wanted[page.evaluate("halpMap.marks.focus")] = label
            page.fill(".panel input[name=label]", label)
            page.keyboard.press("Enter")
            page.keyboard.press("n")
            wanted[page.evaluate("halpMap.marks.focus")] = label
            page.keyboard.press(str(number))
            page.keyboard.press("n")
        page.keyboard.press("9")
        page.wait_for_selector(".notice:has-text('No class has the key 9')")
        settled(page)
        assert given(fresh) == wanted


def test_a_number_means_the_same_class_after_a_correction_and_an_undo(browser: Any, fresh: Explorer) -> None:
    for row, label in ((0, "walk"), (1, "run"), (2, "walk")):
        fresh.post("label", {"rows": [row], "label": label})
    with visit(browser, fresh) as page:
        look_at(page, 30)
        page.keyboard.press("2")
        page.keyboard.press("u")
        page.keyboard.press("1")
        settled(page)
        row = page.evaluate("halpMap.marks.focus")
        assert given(fresh) == {0: "walk", 1: "run", 2: "walk", row: "walk"}
        fresh.post("label", {"rows": [0, 2], "label": "run"})
        fresh.post("undo", {})
        page.keyboard.press("2")
        settled(page)
        assert given(fresh)[row] == "run"


def test_a_late_timeline_neither_replaces_another_nor_takes_its_span(browser: Any, fresh: Explorer) -> None:
    fresh.post("label", {"rows": [0], "label": "one"})
    with visit(browser, fresh) as page:
        look_at(page, 3)
        first = page.evaluate("halpLine.facts.recording")
        held = Held(page, "timeline", f"recording={first}")
        fresh.post("label", {"rows": [1], "label": "one"})  # the page reads the timeline again
        held.wait()
        page.mouse.click(*page.evaluate(WHERE, 40))
        until(page, "first => halpLine.facts.recording !== first", first)
        second = page.evaluate("halpLine.facts.recording")
        line = page.locator(".line").bounding_box()
        page.mouse.move(line["x"] + line["width"] * 0.3, line["y"] + 31)
        page.mouse.down()
        page.mouse.move(line["x"] + line["width"] * 0.6, line["y"] + 31, steps=4)
        page.mouse.up()
        held.release()
        assert page.evaluate("halpLine.facts.recording") == second
        page.keyboard.press("1")
        settled(page)
        table = Path(fresh.process.args[fresh.process.args.index("--labels") + 1])
        with table.open() as file:
            spans = [row for row in csv.DictReader(file) if row["recording"] == fresh.names[second]]
        assert len(spans) == 1


def test_a_group_that_another_tab_merged_labels_nothing_and_says_so(browser: Any, fresh: Explorer) -> None:
    groups = fresh.wait(lambda state: state["group"])["group"]["groups"]
    with visit(browser, fresh) as page:
        page.click("#tab-groups")
        held = Held(page, "state")
        fresh.post("groups", {"action": "merge", "groups": [groups[0]["id"], groups[4]["id"]]})
        held.wait()  # the page does not know yet
        page.locator(".groups button:text-is('Use as label')").nth(4).click()
        page.wait_for_selector(".refused:has-text('changed in another tab')")
        assert given(fresh) == {}
        page.locator(".groups button:text-is('Use as label')").nth(5).click()  # this one is as it was
        settled(page)
        assert len(given(fresh)) == groups[5]["size"]
        held.release()
        page.problems.clear()  # the refused request


def test_a_label_of_another_tab_is_not_overwritten_unseen(browser: Any, fresh: Explorer) -> None:
    fresh.post("label", {"rows": [0], "label": "one"})
    fresh.post("label", {"rows": [1], "label": "two"})
    with visit(browser, fresh) as page:
        look_at(page, 12)
        row = page.evaluate("halpMap.marks.focus")
        held = Held(page, "state")
        fresh.post("label", {"rows": [row], "label": "one"})
        held.wait()
        page.keyboard.press("2")
        page.wait_for_selector(".refused:has-text('another tab meanwhile')")
        assert given(fresh)[row] == "one"
        held.release()
        until(page, "() => document.querySelector('.chip[aria-pressed=true]')?.textContent.startsWith('one')")
        page.locator(".refused >> text=close").first.click()
        page.keyboard.press("2")  # seen, it can be corrected
        settled(page)
        assert given(fresh)[row] == "two"
        page.problems.clear()


def test_a_name_typed_while_groups_change_stays_and_is_sent(browser: Any, fresh: Explorer) -> None:
    with visit(browser, fresh) as page:
        page.select_option("header select", "group")
        page.click("#tab-groups")
        count = page.locator(".groups li").count()
        held = Held(page, "column", "name=group")
        page.locator(".groups button:text-is('Split')").nth(1).click()
        until(page, "count => document.querySelectorAll('.groups li').length === count", count + 1)
        field = page.locator(".groups input[maxlength]").first
        field.fill("walking")
        held.release()
        page.click("#tab-watch")  # away and back
        page.click("#tab-groups")
        assert field.input_value() == "walking"
        field.press("Enter")
        fresh.wait(lambda state: state["group"]["groups"][0]["name"] == "walking")


def test_an_answer_that_is_lost_is_asked_for_again_and_done_once(browser: Any, fresh: Explorer) -> None:
    lost = []

    def drop(route: Any) -> None:
        if len(lost) % 2 == 0:
            lost.append(route.fetch())  # the server has done it
            route.abort()
        else:
            lost.append(None)
            route.continue_()

    with visit(browser, fresh) as page:
        page.route("**/api/label", drop)
        page.route("**/api/undo", drop)
        look_at(page, 12)
        page.fill(".panel input[name=label]", "one")
        page.keyboard.press("Enter")
        page.keyboard.press("n")
        page.keyboard.press("1")
        row = page.evaluate("halpMap.marks.focus")
        page.keyboard.press("u")
        settled(page)
        assert len(lost) == 6
        assert len(given(fresh)) == 1
        assert row not in given(fresh)
        assert len(fresh.get("state")["undo"]) == 1
        page.problems.clear()  # the aborted requests


def test_what_was_under_way_when_the_server_died_is_reported(browser: Any, fresh: Explorer) -> None:
    with visit(browser, fresh) as page:
        look_at(page, 12)
        page.fill(".panel input[name=label]", "in flight")
        os.kill(fresh.process.pid, signal.SIGSTOP)
        page.keyboard.press("Enter")
        until(page, "() => halpActs.value.length === 1")
        fresh.stop(signal.SIGKILL)
        page.wait_for_selector(".gone:has-text('Not kept yet')")
        assert "in flight" in page.locator(".gone").inner_text()


def test_600_keys_as_fast_as_they_come_label_what_they_were_meant_for(browser: Any, fresh: Explorer) -> None:
    """As many as ten a second for a minute, while the server stands still now and then and answers late."""
    labels = ("one", "two", "three")
    for row, label in enumerate(labels):
        fresh.post("label", {"rows": [row], "label": label})
    chance, wanted = Random(4), {}
    with visit(browser, fresh) as page:
        page.route("**/api/label", lambda route: route.continue_())  # a proxy between page and server
        for turn in range(4):
            rows = list(range(turn, 150 + turn))
            page.evaluate("rows => halpChoose(rows)", rows)
            first = f".chosen .grid .mini:first-child[data-row='{rows[0]}'] .mini-stage"
            until(page, "first => Boolean(document.querySelector(first))", first)
            page.evaluate("first => document.querySelector(first).click()", first)
            for place, row in enumerate(rows):
                key = chance.randrange(3)
                wanted[row] = labels[key]
                page.keyboard.press(str(key + 1))
                if place % 50 == 20:
                    with stopped(fresh):
                        page.wait_for_timeout(300)
        assert page.evaluate("halpActs.last") == 600
        while left := page.evaluate("halpActs.value.length"):  # as long as it takes, if it goes on
            until_true(page, lambda: page.evaluate("halpActs.value.length") < left)
        assert page.evaluate("halpRefused.value") == []
        assert given(fresh) == wanted


def test_random_acts_of_two_tabs_are_done_as_meant_or_refused(browser: Any, fresh: Explorer) -> None:
    """Every press is an act in the database with the row and the class it meant, in order; or its tab says
    that it is not.
    """
    for row, label in enumerate(("one", "two", "three")):
        fresh.post("label", {"rows": [row], "label": label})
    ids = {place: one["id"] for place, one in enumerate(fresh.get("state")["classes"])}
    chance = Random(11)
    with visit(browser, fresh) as first, visit(browser, fresh) as second:
        meant: dict[str, list[tuple[int, int, int]]] = {}
        for turn in range(80):
            page = chance.choice((first, second))
            client = page.evaluate("halpClient")
            kind = chance.random()
            if kind < 0.1:
                page.evaluate("row => halpLook(row)", chance.randrange(192))
                page.keyboard.press("u")
            elif kind < 0.15 and turn > 20:
                with stopped(fresh):
                    page.wait_for_timeout(150)
            else:
                row, key = chance.randrange(12), chance.randrange(3)  # few rows, so that the tabs meet
                page.evaluate("row => halpLook(row)", row)
                page.keyboard.press(str(key + 1))
                meant.setdefault(client, []).append((page.evaluate("halpActs.last"), row, ids[key]))
        for page in (first, second):
            settled(page)
        refused = {
            (page.evaluate("halpClient"), number)
            for page in (first, second)
            for number in page.evaluate("halpRefused.value.map((one) => one.number)")
        }
        with sqlite3.connect(
            Path(fresh.process.args[fresh.process.args.index("--labels") + 1]).with_suffix(".sqlite")
        ) as base:
            done = {
                (client, number): body
                for client, number, body in base.execute("SELECT client, number, body FROM act")
            }
        spans = fresh.arrays("rows")[1]
        kept = 0
        for client, presses in meant.items():
            for number, row, label in presses:
                if (client, number) not in done:
                    continue  # refused, or it had this label
                assert (client, number) not in refused
                ((table, _, _, after),) = json.loads(done[client, number])["changes"]
                assert (table, after[0], after[3]) == ("event", fresh.names[spans["recording"][row]], label)
                kept += 1
        assert kept > 20
        final = given(fresh)
        for page in (first, second):
            page.problems.clear()
            places = {one["name"]: one["place"] for one in fresh.get("state")["classes"]}
            wanted = [places[final[row]] if row in final else -1 for row in range(192)]
            until(page, "wanted => JSON.stringify([...halpLabels.value]) === JSON.stringify(wanted)", wanted)


def test_a_slow_picture_does_not_take_the_keyboard_from_a_field(browser: Any, fresh: Explorer) -> None:
    with visit(browser, fresh) as page:
        page.evaluate("halpChoose([3, 5, 7], 'three')")
        page.wait_for_selector(".chosen .mini-stage")
        page.evaluate(
            """() => { const late = [], now = window.requestAnimationFrame;
              window.requestAnimationFrame = (work) => late.push(work);
              document.querySelector(".chosen .mini-stage").click();
              document.querySelector(".chosen input[name=label]").focus();
              window.requestAnimationFrame = now;
              late.forEach((work) => now(work)); }"""
        )
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.keyboard.type("bend")
        page.keyboard.press("Enter")
        state = fresh.wait(lambda state: state["classes"])
        assert [(one["name"], one["rows"]) for one in state["classes"]] == [("bend", 1)]
        until(page, "() => document.activeElement.closest('.mini')?.dataset.row === '5'")
