"""What others do between a key and its answer: another tab, another program, an editor, a second start."""

from __future__ import annotations

import csv
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from explorer.conftest import Explorer
from explorer.test_page import look_at, until, visit
from explorer.test_races import given, settled, stopped
from reader_samples import body, write_utdmhad


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "labels.csv"


@pytest.fixture
def fresh(launch: Callable[..., Explorer], table: Path) -> Explorer:
    explorer = launch(table)
    for row, label in ((0, "one"), (40, "two")):
        explorer.post("label", {"rows": [row], "label": label})
    return explorer


def drag(page: Any, low: float, high: float) -> None:
    """Draw a span on the timeline, from one share of its width to another."""
    line = page.locator(".line").bounding_box()
    page.mouse.move(line["x"] + line["width"] * low, line["y"] + 31)
    page.mouse.down()
    page.mouse.move(line["x"] + line["width"] * high, line["y"] + 31, steps=4)
    page.mouse.up()


def test_what_was_chosen_last_is_labelled_and_the_page_says_which(browser: Any, fresh: Explorer) -> None:
    with visit(browser, fresh) as page:
        look_at(page, 3)
        drag(page, 0.3, 0.6)
        page.evaluate("halpChoose([5, 7], 'two of them')")
        page.wait_for_selector(".chosen p:has-text('all 2 of these')")
        page.keyboard.press("1")
        settled(page)
        assert given(fresh) == {0: "one", 40: "two", 5: "one", 7: "one"}
        drag(page, 0.3, 0.6)
        page.wait_for_selector(".chosen p:has-text('the span that is drawn')")
        page.keyboard.press("2")
        settled(page)
        assert [given(fresh)[row] for row in (5, 7)] == ["one", "one"]
        assert next(one["given"] for one in fresh.get("state")["classes"] if one["name"] == "two") == 2


def test_keys_for_a_class_just_made_mean_it_although_another_tab_renames_it(
    browser: Any, fresh: Explorer
) -> None:
    renamed: list[Any] = []

    def rename_first(route: Any) -> None:
        new = [one for one in fresh.get("state")["classes"] if one["name"] == "kick"]
        renamed.extend(fresh.post("rename", {"class": one["id"], "name": "punch"}) for one in new)
        route.continue_()

    with visit(browser, fresh) as page:
        page.route("**/api/label", rename_first)
        page.evaluate("halpLook(12)")
        page.fill(".panel input[name=label]", "kick")
        page.keyboard.press("Enter")
        page.evaluate("halpLook(20)")
        page.keyboard.press("3")
        settled(page)
        assert len(renamed) == 1
        assert given(fresh) == {0: "one", 40: "two", 12: "punch", 20: "punch"}
        until(page, "() => document.querySelectorAll('.chip').length === 3")


def test_an_undo_in_one_tab_and_keys_in_another_are_done_or_refused_while_the_server_stands_still(
    browser: Any, fresh: Explorer
) -> None:
    with visit(browser, fresh) as first, visit(browser, fresh) as second:
        first.evaluate("halpLook(12)")
        with stopped(fresh):
            first.keyboard.press("1")
            first.evaluate("halpLook(14)")
            first.keyboard.press("2")
            second.keyboard.press("u")  # of the label of row 40
        settled(first)
        settled(second)
        refused = second.evaluate("halpRefused.value.map((one) => one.reason)")
        assert len(refused) < 2
        assert all("changed in another tab" in one for one in refused)
        kept = {0: "one", 12: "one", 14: "two"}
        undone = not refused
        if undone:  # the class goes with the label that made it: a key that means it is refused, not guessed
            told = first.evaluate("halpRefused.value.map((one) => one.reason)")
            kept = kept if not told else {0: "one", 12: "one"}
        assert given(fresh) == (kept if undone else {**kept, 40: "two"})
        for page in (first, second):
            page.problems.clear()


def test_a_key_waits_until_another_program_lets_go_of_the_database(
    browser: Any, fresh: Explorer, table: Path
) -> None:
    with visit(browser, fresh) as page:
        page.evaluate("halpLook(12)")
        other = sqlite3.connect(table.with_suffix(".sqlite"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        page.keyboard.press("1")
        page.evaluate("halpLook(14)")
        page.keyboard.press("2")
        page.wait_for_selector(".gone:has-text('Another program is using the file')")
        page.wait_for_selector(".gone:has-text('Not kept yet')")
        assert given(fresh) == {0: "one", 40: "two"}
        other.execute("ROLLBACK")
        other.close()
        settled(page)
        assert given(fresh) == {0: "one", 40: "two", 12: "one", 14: "two"}
        assert page.evaluate("halpRefused.value") == []
        page.wait_for_selector(".gone", state="detached")
        page.problems.clear()  # the answers that told to wait


def test_keys_of_an_explorer_that_was_started_again_are_named_not_dropped(
    browser: Any, launch: Callable[..., Explorer], fresh: Explorer, table: Path
) -> None:
    port = fresh.base.rsplit(":", 1)[1]
    with visit(browser, fresh) as page:
        page.evaluate("halpLook(12)")
        os.kill(fresh.process.pid, signal.SIGSTOP)
        page.keyboard.press("1")
        page.evaluate("halpLook(14)")
        page.keyboard.press("2")
        fresh.stop(signal.SIGKILL)
        again = launch(table, "--port", port)
        page.wait_for_selector(".gone:has-text('started again')")
        text = page.locator(".gone").inner_text()
        assert text.count(": one") == text.count(": two") == 1
        assert given(again) == {0: "one", 40: "two"}


def test_an_edit_of_the_table_while_keys_wait_is_not_overwritten(
    browser: Any, fresh: Explorer, table: Path
) -> None:
    with visit(browser, fresh) as page:
        page.evaluate("halpLook(0)")
        with stopped(fresh):
            page.keyboard.press("2")  # was one
            page.evaluate("halpLook(12)")
            page.keyboard.press("1")
            rows = list(csv.DictReader(table.read_text().splitlines()))
            next(one for one in rows if one["label"] == "one")["label"] = "three"
            with table.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        settled(page)
        page.wait_for_selector(".refused:has-text('changed in the table meanwhile')")
        assert sorted(given(fresh).values()) in (["one", "three", "two"], ["three", "two"])
        assert given(fresh)[0] == "three"
        page.problems.clear()


@pytest.mark.parametrize("start", ["first", "second"])
def test_a_recording_that_comes_while_the_page_is_open_changes_nothing_and_is_told(
    browser: Any, launch: Callable[..., Explorer], tmp_path: Path, start: str
) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    for number in range(8):
        write_utdmhad(folder, f"a1_s{number + 2}_t1", body(12 + number, seed=number))
        path = next(folder.glob(f"a1_s{number + 2}_t1*"))
        os.utime(path, (1e9, 1e9))
    more = {"encoder": Path("halp-base"), "HALP_CACHE": str(tmp_path / "cache")}
    explorer = launch(tmp_path / "labels.csv", source=folder, **more)
    if start == "second":
        explorer.wait(lambda state: state["group"])
        explorer.stop()
        explorer = launch(tmp_path / "labels.csv", source=folder, **more)
    with visit(browser, explorer) as page:
        write_utdmhad(folder, "a1_s1_t1", body(30, seed=40))  # the first by name
        page.wait_for_selector(".warnings:has-text('since the start: 1 new')")
        names = explorer.get("names")
        for row in (0, 7):
            page.evaluate("row => halpLook(row)", row)
            until(page, "row => document.querySelector('.details')?.dataset.row === String(row)", row)
            assert page.locator(".details dd").first.inner_text() == names[row]
            page.fill(".panel input[name=label]", f"of {names[row]}")
            page.keyboard.press("Enter")
            settled(page)
        rows = list(csv.DictReader((tmp_path / "labels.csv").read_text().splitlines()))
        assert {one["recording"]: one["label"] for one in rows} == {
            names[i]: f"of {names[i]}" for i in (0, 7)
        }
