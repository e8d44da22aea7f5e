"""The explorer in a real browser: what a person sees and does, and what is left when the server is killed."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forked as subprocess
import pytest
from explorer.conftest import Explorer

from halp.data.clip import Clip
from halp.data.store import Store
from halp.data.store_writer import StoreWriter

ROOT = Path(__file__).parents[2]
PANELS = ("watch", "similar", "label", "groups", "compare", "method", "camera")
WHERE = """row => { const m = halpMap, [x, y] = m.toPixels(...m.placeOf(row)), b = m.overlay.getBoundingClientRect();
  return [b.left + x / m.dense, b.top + y / m.dense]; }"""


NOTHING_UNDER_LEGEND = """rows => { const m = halpMap, legend = document.querySelector(".legend").getBoundingClientRect();
  const {left, top} = m.overlay.getBoundingClientRect();
  return [...Array(rows).keys()].every(row => { const [x, y] = m.toPixels(...m.placeOf(row));
    return left + x / m.dense > legend.right - 20 || top + y / m.dense < legend.top + 20; }); }"""


@contextmanager
def visit(
    browser: Any, explorer: Explorer, width: int = 1280, height: int = 800, **options: Any
) -> Iterator[Any]:
    """A page that is ready, its map laid out for good; errors in its console fail the test while the server
    runs.
    """
    explorer.wait(lambda state: state["group"])
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(explorer.address)
    page.wait_for_selector("html[data-ready=true]")
    page.problems = problems
    yield page
    context.close()
    ended = explorer.process.poll() is not None
    assert [one for one in problems if not (ended and ("net::ERR_" in one or "403" in one))] == []


def until(page: Any, expression: str, value: Any = None) -> None:
    """Wait for an expression of the page; the page's own rules forbid to send it there as a text to evaluate
    again.
    """
    end = time.monotonic() + 180
    while not page.evaluate(expression, value):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


def counted(page: Any, selector: str, count: int) -> None:
    """Wait for so many elements; whatever the page does last comes after what a test waited for."""
    until(page, "([it, count]) => document.querySelectorAll(it).length === count", [selector, count])


def drawn(page: Any) -> None:
    """Wait until the page has drawn what it knows."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def pause(page: Any) -> None:
    """Stop the player and wait for its last frame."""
    page.keyboard.press("Space")
    page.wait_for_selector("button[aria-label='play (space)']")
    drawn(page)


def look_at(page: Any, row: int) -> None:
    """Click a point of the map and wait for its player."""
    page.mouse.click(*page.evaluate(WHERE, row))
    page.wait_for_selector(".player[data-mode=recording] canvas[data-frame]")


def test_map_hover_player_and_search(browser: Any, explorer: Explorer) -> None:
    with visit(browser, explorer) as page:
        assert page.evaluate("halpMap.count") == explorer.get("state")["rows"]
        until(page, NOTHING_UNDER_LEGEND, 192)
        page.mouse.move(*page.evaluate(WHERE, 7))
        page.wait_for_selector(".hover-card canvas[data-frame]")
        row = int(page.get_attribute(".hover-card", "data-row"))
        before = page.get_attribute(".hover-card canvas", "data-frame")
        until(page, "before => document.querySelector('.hover-card canvas').dataset.frame !== before", before)
        look_at(page, row)
        pause(page)
        frame = int(page.get_attribute(".player canvas", "data-frame"))
        page.keyboard.press("ArrowRight")
        until(
            page,
            "frame => Number(document.querySelector('.player canvas').dataset.frame) === frame + 1",
            frame,
        )
        page.click("text=Find similar")
        page.wait_for_selector("text=Nearest first")
        first = page.locator(".grid:not(.small) .mini").first.get_attribute("data-row")
        assert int(first) == explorer.post("search", {"rows": [row]})["hits"][0]["row"]
        page.locator("button[aria-label^='no, unlike']").first.click()
        page.wait_for_selector(".mini.bad")
        until(page, "first => document.querySelector('.grid:not(.small) .mini').dataset.row !== first", first)


def test_labels_by_lasso_key_and_second_tab_survive_a_kill(
    browser: Any, launch: Callable[..., Explorer], tmp_path: Path
) -> None:
    explorer = launch(tmp_path / "labels.csv")
    with visit(browser, explorer) as page:
        page.keyboard.press("l")
        box = page.locator(".over").bounding_box()
        left, top, right, bottom = (
            box["x"] + 60,
            box["y"] + 8,
            box["x"] + box["width"] * 0.5,
            box["y"] + box["height"] * 0.9,
        )
        page.mouse.move(left, top)
        page.mouse.down()
        for x, y in [(right, top), (right, bottom), (left, bottom), (left, top + 10)]:
            page.mouse.move(x, y, steps=4)
        page.mouse.up()
        page.wait_for_selector(".notice:has-text('chosen')")
        count = page.evaluate("halpMap.chosen.length")
        assert 1 < count < 192
        page.click("#tab-label")
        page.fill("input[name=label]", "<img src=x onerror=alert(1)>")
        page.keyboard.press("Enter")
        page.wait_for_selector(f".classes li:has-text('{count}')")
        free = next(row for row in range(192) if row not in page.evaluate("[...halpMap.chosen]"))
        page.keyboard.press("Escape")
        page.click("#tab-watch")
        look_at(page, free)
        page.fill(".panel input[name=label]", "other")
        page.keyboard.press("Enter")
        page.wait_for_selector(".chip:has-text('other')")
        with visit(browser, explorer) as second:  # another tab knows both
            second.click("#tab-label")
            counted(second, ".classes li", 2)
            explorer.process.send_signal(signal.SIGKILL)
            explorer.process.wait()
            second.wait_for_selector(".gone")
    again = launch(tmp_path / "labels.csv")
    state = again.wait(lambda state: state["few"] and state["few"]["assessment"])
    assert sorted(one["rows"] for one in state["classes"]) == [1, count]
    with visit(browser, again) as page:
        page.click("#tab-label")
        assert page.locator(".classes img").count() == 0  # a label is text, whatever stands in it
        page.keyboard.press("u")
        until(page, "() => document.querySelectorAll('.classes li').length === 1")
        page.keyboard.press("r")
        until(page, "() => document.querySelectorAll('.classes li').length === 2")


def test_timeline_spans_compare_and_method(browser: Any, explorer: Explorer) -> None:
    with visit(browser, explorer) as page:
        look_at(page, 3)
        line = page.locator(".line").bounding_box()
        y = line["y"] + 31
        page.mouse.move(line["x"] + line["width"] * 0.3, y)
        page.mouse.down()
        page.mouse.move(line["x"] + line["width"] * 0.6, y, steps=5)
        page.mouse.up()
        page.fill(".panel input[name=label]", "span")
        page.keyboard.press("Enter")
        until(page, "() => halpLine.facts.tiers.human.length === 1")
        before = page.evaluate("halpLine.facts.tiers.human[0].stop")
        edge = page.evaluate(
            "halpLine.canvas.getBoundingClientRect().left + halpLine.x(halpLine.facts.tiers.human[0].stop)"
        )
        page.mouse.move(edge, y)
        page.mouse.down()
        page.mouse.move(edge + 60, y, steps=4)
        page.mouse.up()
        until(page, "before => halpLine.facts.tiers.human[0].stop > before", before)
        page.keyboard.press("Escape")
        page.click("button:text-is('Compare')")
        page.locator("#panel .mini-stage").first.click()
        page.wait_for_selector("text=Where they differ")
        until(page, "() => document.querySelectorAll('.pair canvas[data-frame]').length === 2")
        page.click("#tab-method")
        page.click("text=Hallucinate positives")
        page.wait_for_selector(".walks circle")
        until(page, "() => halpMap.marks.spots.length > 100")


@pytest.mark.parametrize("width", [1280, 1024, 390, 320])
def test_every_tab_is_in_sight_at_every_width_and_nothing_scrolls_sideways(
    browser: Any, explorer: Explorer, width: int
) -> None:
    with visit(browser, explorer, width, 844, has_touch=width < 500, color_scheme="dark") as page:
        until(page, NOTHING_UNDER_LEGEND, 192)
        for name in PANELS:
            box = page.locator(f"#tab-{name}").bounding_box()
            assert box["x"] >= 0, name
            assert box["x"] + box["width"] <= width, name
            assert box["height"] >= 24, name
        rows = len({round(page.locator(f"#tab-{name}").bounding_box()["y"]) for name in PANELS})
        assert rows == (2 if width == 320 else 1)
        for name in PANELS:
            page.click(f"#tab-{name}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name


def test_members_of_a_group_are_shown_in_random_order_and_labelled_one_by_one_or_together(
    browser: Any, launch: Callable[..., Explorer], tmp_path: Path
) -> None:
    explorer = launch(tmp_path / "labels.csv")
    explorer.wait(lambda state: state["group"])
    with visit(browser, explorer) as page:
        page.click("#tab-groups")
        page.locator(".groups button:text-is('Show')").first.click()
        page.wait_for_selector(".chosen .mini canvas[data-frame]")
        shown = [int(one.get_attribute("data-row")) for one in page.locator(".chosen .mini").all()]
        assert len(shown) == len(set(shown)) == 12
        assert shown != sorted(shown)
        page.locator(".chosen button[aria-label='take out of the choice']").nth(1).click()
        until(page, "() => document.querySelectorAll('.chosen .mini').length === 11")
        page.fill(".chosen input[name=label]", "together")
        page.keyboard.press("Enter")
        page.wait_for_selector(".chip:has-text('together')")
        state = explorer.wait(lambda state: state["classes"])
        assert [(one["name"], one["rows"]) for one in state["classes"]] == [("together", 11)]
        page.click("text=12 others of")
        until(page, "row => document.querySelector('.chosen .mini').dataset.row !== String(row)", shown[0])
        page.locator(".chosen .mini-stage").nth(2).click()
        page.keyboard.press("1")
        explorer.wait(lambda state: state["classes"][0]["rows"] == 12)
        until(page, "() => document.querySelectorAll('.chosen .mini-name .dot').length === 1")
        third = page.locator(".chosen .mini").nth(3).get_attribute("data-row")
        until(page, "row => document.querySelector('.chosen .mini.is-focus')?.dataset.row === row", third)
        page.fill(
            ".chosen input[name=label]", "new class"
        )  # the first label of a class, to one of them alone
        page.keyboard.press("Enter")
        state = explorer.wait(lambda state: len(state["classes"]) == 2)
        assert (state["classes"][1]["name"], state["classes"][1]["rows"]) == ("new class", 1)
        counted(page, ".chosen .mini", 12)
        until(page, "row => document.querySelector('.chosen .mini.is-focus')?.dataset.row !== row", third)
        page.keyboard.press("2")
        explorer.wait(lambda state: state["classes"][1]["rows"] == 2)
        counted(page, ".chosen .mini.is-focus", 1)
        page.click("text=/to all 12 together/")
        page.wait_for_selector("text=A label goes to all 12 of these")
        page.click("text=Next: group 2")
        page.wait_for_selector(".chosen h2:has-text('group 2:')")


def test_a_class_of_one_recording_does_not_hide_the_accuracy_of_the_others(
    browser: Any, launch: Callable[..., Explorer], tmp_path: Path
) -> None:
    explorer = launch(tmp_path / "labels.csv")
    explorer.post("label", {"rows": [0, 1, 2, 3], "label": "wave"})
    explorer.post("label", {"rows": [4, 5, 6, 7], "label": "kick"})
    explorer.post("label", {"rows": [8], "label": "rare"})
    explorer.wait(lambda state: state["few"] and state["few"]["assessment"] and len(state["classes"]) == 3)
    with visit(browser, explorer) as page:
        page.click("#tab-label")
        page.wait_for_selector(".accuracy.best")
        page.wait_for_selector("text=/Not tested yet, because there is only one \\w+: rare/")


def test_a_name_typed_a_moment_ago_is_the_label_of_its_group(
    browser: Any, launch: Callable[..., Explorer], tmp_path: Path
) -> None:
    explorer = launch(tmp_path / "labels.csv")
    size = explorer.wait(lambda state: state["group"])["group"]["groups"][0]["size"]
    with visit(browser, explorer) as page:
        page.click("#tab-groups")
        page.locator(".groups input[maxlength]").first.fill("squats")
        page.locator(".groups button:text-is('Use as label')").first.click()
        state = explorer.wait(lambda state: state["classes"])
        assert [(one["name"], one["rows"]) for one in state["classes"]] == [("squats", size)]
        explorer.wait(lambda state: state["group"]["groups"][0]["name"] == "squats")


def test_arrow_keys_step_through_frames_after_a_click_on_the_map(browser: Any, explorer: Explorer) -> None:
    with visit(browser, explorer) as page:
        look_at(page, 7)
        pause(page)
        row = page.evaluate("halpMap.marks.focus")
        frame = int(page.get_attribute(".player canvas", "data-frame"))
        page.keyboard.press("ArrowRight")
        until(
            page,
            "frame => Number(document.querySelector('.player canvas').dataset.frame) === frame + 1",
            frame,
        )
        assert page.evaluate("halpMap.marks.focus") == row
        page.locator(".over").focus()  # who tabs to the map walks on it
        page.keyboard.press("ArrowRight")
        until(page, "row => halpMap.marks.focus !== row", row)


def test_names_of_recordings_are_text_whatever_stands_in_them(
    browser: Any, launch: Callable[..., Explorer], store: Store, tmp_path: Path
) -> None:
    with StoreWriter(tmp_path / "hostile", store.topology, persons=store.persons) as writer:
        for number in range(12):
            name = f"<img src=x onerror=document.title='{number}'>"
            writer.add(Clip(store.clip(number), name, extra={"fps": 30.0}))
    explorer = launch(tmp_path / "labels.csv", source=tmp_path / "hostile")
    with visit(browser, explorer) as page:
        look_at(page, 3)
        page.fill("#find", "onerror")
        page.wait_for_selector("#find-list li:has-text('<img')")
        page.keyboard.press("Enter")
        page.click("#tab-similar")
        page.click("text=Find similar")
        page.wait_for_selector(".grid:not(.small) .mini canvas[data-frame]")
        assert page.locator("img").count() == 0
        assert page.title() == "hostile – halp explore"


def test_an_address_without_its_token_says_so(browser: Any, explorer: Explorer) -> None:
    page = browser.new_page()
    page.goto(explorer.base)
    page.wait_for_selector("text=no valid token")
    page.close()


def serious(page: Any, rules: str = "{}") -> list[tuple[str, list[str]]]:
    """What axe-core finds that stands in somebody's way."""
    script = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        pytest.skip("axe-core is not installed; `npm ci` in page/ brings it")
    page.evaluate(script.read_text(encoding="utf-8"))
    found = page.evaluate(f"async () => (await axe.run({rules})).violations")
    return [
        (one["id"], [node["html"] for node in one["nodes"]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def test_nothing_serious_stands_in_the_way_of_a_screen_reader(browser: Any, explorer: Explorer) -> None:
    rules = {
        "light": "{}",
        "dark": "{runOnly: ['color-contrast']}",
    }  # colours are all that the schemes differ in
    for scheme, chosen in rules.items():
        with visit(browser, explorer, color_scheme=scheme) as page:
            look_at(page, 3)
            for name in PANELS:
                page.click(f"#tab-{name}")
                assert serious(page, chosen) == [], (scheme, name)


def test_a_static_folder_opens_from_disk(browser: Any, store: Store, package: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "recording,start,stop,label\n" + "".join(f"{name},0,1000,{name[:4]}\n" for name in store.names[:9])
    )
    command = [sys.executable, "-m", "halp", "explore", str(store.path), "--encoder", str(package)]
    subprocess.run(
        [*command, "--labels", str(labels), "--static", str(tmp_path / "shown")], check=True, timeout=300
    )
    again = subprocess.run(
        [*command, "--static", str(tmp_path / "shown")], capture_output=True, text=True, timeout=300
    )
    assert again.returncode == 2
    assert "exists already" in again.stderr
    page = browser.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((tmp_path / "shown" / "index.html").as_uri())
    page.wait_for_selector("html[data-ready=true]")
    page.mouse.click(*page.evaluate(WHERE, 5))
    page.wait_for_selector(".player canvas[data-frame]")
    page.click("text=Find similar")
    page.wait_for_selector("text=Nearest first")
    page.click("#tab-groups")
    page.locator("button:text-is('Show')").first.click()
    page.wait_for_selector("text=clear (Esc)")
    page.fill("#find", str(store.names[7]))
    page.wait_for_selector("#find-list li")
    assert page.locator("#tab-label").count() == 0
    assert problems == []
    page.close()
