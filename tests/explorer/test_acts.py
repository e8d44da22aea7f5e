"""What the issue of the explorer promises and no other test holds, each tried in a browser as a person
would.
"""

from __future__ import annotations

import csv
import io
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer.conftest import Explorer
from explorer.test_page import WHERE, drawn, look_at, pause, until, visit

from halp.cli import main
from halp.data.clip import Clip
from halp.data.store import Store
from halp.data.store_writer import StoreWriter
from halp.tasks.events.formats import read_events


@pytest.fixture(scope="module")
def long_store(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of four clips, after the second of which nobody is there for a second; with further
    columns.
    """
    path = tmp_path_factory.mktemp("long") / "sessions"
    empty = np.zeros((30, *store.clip(0).shape[1:]), dtype=np.float32)
    with StoreWriter(path, store.topology, persons=store.persons) as writer:
        for number in range(8):
            own = [store.clip(4 * number + part) for part in range(4)]
            more = {"fps": 30.0, "room": ["hall", "lab"][number % 2], "age": 20.0 + number}
            writer.add(
                Clip(
                    np.concatenate([*own[:2], empty, *own[2:]]), f"long {number}", subject=number, extra=more
                )
            )
    return path


@pytest.fixture(scope="module")
def windows(
    launch: Callable[..., Explorer], long_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Explorer:
    labels = tmp_path_factory.mktemp("labels") / "labels.csv"
    return launch(labels, "--window", "1", "--stride", "0.5", source=long_store)


def test_a_point_is_shown_after_an_eighth_of_a_second_within_fourteen_pixels(
    browser: Any, explorer: Explorer
) -> None:
    with visit(browser, explorer) as page:
        # the point that is furthest from all others, brought closer, so that nothing else is meant
        row = page.evaluate(
            """() => { const at = (row) => halpMap.toPixels(...halpMap.placeOf(row)); let best = [0, 0];
              for (let row = 0; row < halpMap.count; row++) { let near = 1e9;
                for (let other = 0; other < halpMap.count; other++) if (other !== row)
                  near = Math.min(near, Math.hypot(at(row)[0] - at(other)[0], at(row)[1] - at(other)[1]));
                if (near > best[1]) best = [row, near]; }
              halpMap.zoomAt(...at(best[0]), 40 / best[1]);
              return best[0]; }"""
        )
        x, y = page.evaluate(WHERE, row)
        pick = (
            "([x, y]) => { const b = halpMap.overlay.getBoundingClientRect(); return halpMap.pick(x - b.left,"
            " y - b.top); }"
        )
        assert page.evaluate(pick, [x, y]) == row
        assert page.evaluate(pick, [x + 13, y]) == row
        assert page.evaluate(pick, [x + 15, y]) != row
        page.evaluate("""() => { const hover = halpMap.act.hover; let came = 0;
              halpMap.overlay.addEventListener('pointermove', () => (came ||= performance.now()));
              halpMap.act.hover = (row, ...rest) => {
                hover(row, ...rest);
                if (row >= 0) window.waited ??= performance.now() - came;
              }; }""")
        page.mouse.move(x, y)
        until(page, "() => window.waited")
        assert page.evaluate("waited") >= 120
        page.wait_for_selector(f".hover-card[data-row='{row}'] canvas[data-frame]")
        page.mouse.move(5, 5)
        page.wait_for_selector(".hover-card", state="detached")


def test_search_shows_quantiles_and_follows_yes_and_no(browser: Any, explorer: Explorer) -> None:
    with visit(browser, explorer) as page:
        look_at(page, 11)
        page.keyboard.press("f")
        page.wait_for_selector("text=How alike is alike?")
        titles = page.locator(".grid.small .mini-name").all_inner_texts()
        assert [title for title in titles if title.startswith("top")] == [
            f"top {n} %" for n in (1, 5, 10, 25, 50)
        ]
        first = int(
            page.locator("h2:has-text('Nearest first') + .grid .mini").first.get_attribute("data-row")
        )
        page.locator("button[aria-label^='yes, like']").first.click()
        page.wait_for_selector("h2:has-text('Like these 2')")
        wanted = [hit["row"] for hit in explorer.post("search", {"rows": [11, first]})["hits"]]
        shown = (
            "() => [...document.querySelectorAll('h2 + .grid:not(.small) .mini')].map((one) =>"
            " Number(one.dataset.row))"
        )
        until(page, f"wanted => JSON.stringify(({shown})()) === JSON.stringify(wanted)", wanted)
        page.locator("button[aria-label='no longer an example']").nth(1).click()
        page.wait_for_selector("h2:text-is('Like this')")


def test_a_drawn_span_plays_in_a_loop_and_is_searched_for(browser: Any, windows: Explorer) -> None:
    with visit(browser, windows) as page:
        look_at(page, 5)
        line = page.locator(".line").bounding_box()
        page.mouse.move(line["x"] + line["width"] * 0.4, line["y"] + 31)
        page.mouse.down()
        page.mouse.move(line["x"] + line["width"] * 0.45, line["y"] + 31, steps=4)
        page.mouse.up()
        span = page.evaluate("halpLine.span")
        seen = [page.evaluate("halpLine.time")]
        while seen[-1] >= max(seen):  # until it begins again
            assert len(seen) < 500
            page.wait_for_timeout(40)
            seen.append(page.evaluate("halpLine.time"))
        assert min(seen) >= span["start"] - 1e-6
        assert max(seen) <= span["stop"] + 1e-6
        page.click(".time-head >> text=find similar")
        page.wait_for_selector("text=Nearest first")
        page.locator(".grid .mini:has-text('a span')").wait_for()


def test_timeline_has_tiers_probabilities_and_nobody(browser: Any, windows: Explorer) -> None:
    for number, label in enumerate(("calm", "wild", "calm", "wild")):
        name, start = f"long {number}", 0.0
        recording = windows.get("names").index(name)
        windows.post(
            "label", {"spans": [{"recording": recording, "start": start, "stop": 3.0}], "label": label}
        )
    windows.wait(lambda state: state["few"] and state["group"])
    with visit(browser, windows) as page:
        look_at(page, 5)
        until(
            page, "() => halpLine.tiers.join() === 'human,model,group' && halpLine.facts.arrays.probabilities"
        )
        facts = page.evaluate(
            "({...halpLine.facts, arrays: 0, windows: halpLine.facts.arrays.starts.length})"
        )
        assert len(facts["nobody"]) == 1
        start, stop = facts["nobody"][0]
        assert stop - start == pytest.approx(1.0, abs=0.05)
        for name in ("model", "group"):
            assert all(
                part["stop"] <= start + 0.51 or part["start"] >= stop - 0.51 for part in facts["tiers"][name]
            )
        assert facts["classes"] == ["calm", "wild"]
        assert page.evaluate("halpLine.facts.arrays.probabilities.length") == 2 * facts["windows"]
        line = page.locator(".line").bounding_box()
        page.mouse.click(line["x"] + line["width"] / 2, line["y"] + 6)  # scrubbing
        until(page, "middle => Math.abs(halpLine.time - middle) < 1", (facts["start"] + facts["stop"]) / 2)


def test_further_columns_of_a_store_colour_the_map(browser: Any, windows: Explorer) -> None:
    with visit(browser, windows) as page:
        page.select_option(".field select", "room")
        page.wait_for_selector(".legend li:has-text('hall')")
        page.locator(".legend li button:has-text('hall')").click()  # alone
        until(page, "() => new Set([...halpMap.colours].filter((_, i) => i % 4 === 3)).size === 2")
        page.select_option(".field select", "age")
        page.wait_for_selector(".legend .ramp")


def test_groups_are_merged_split_and_named_in_the_page(
    browser: Any, launch: Callable[..., Explorer], tmp_path: Path
) -> None:
    explorer = launch(tmp_path / "labels.csv")
    before = explorer.wait(lambda state: state["group"])["group"]["groups"]
    with visit(browser, explorer) as page:
        page.click("#tab-groups")
        marks = page.locator(".groups input[type=checkbox]")
        marks.nth(0).check()
        marks.nth(2).check()
        page.click("text=Merge marked")
        until(page, "count => document.querySelectorAll('.groups li').length === count", len(before) - 1)
        sizes = [one["size"] for one in explorer.get("state")["group"]["groups"]]
        assert sizes[0] == before[0]["size"] + before[2]["size"]
        page.locator(".groups button:text-is('Split')").first.click()
        until(page, "count => document.querySelectorAll('.groups li').length === count", len(before))
        again = [one["size"] for one in explorer.get("state")["group"]["groups"]]
        assert again[0] + again[-1] == sizes[0]
        fields = page.locator(".groups input[maxlength]")
        for number, name in enumerate(("walking", "running", "jumping")):  # faster than answers come
            fields.nth(number).fill(name)
            fields.nth(number).press("Enter")
        explorer.wait(
            lambda state: (
                [one["name"] for one in state["group"]["groups"]][:3] == ["walking", "running", "jumping"]
            )
        )
        shown = (
            "[...document.querySelectorAll('.groups input[maxlength]')].slice(0, 3).map((one) =>"
            " one.value).join()"
        )
        until(page, f"() => {shown} === 'walking,running,jumping'")
        explorer.stop(signal.SIGKILL)
        page.wait_for_selector(".gone")
    explorer = launch(tmp_path / "labels.csv")
    state = explorer.wait(lambda state: state["group"])
    assert [one["name"] for one in state["group"]["groups"]][:3] == ["walking", "running", "jumping"]
    with visit(browser, explorer) as page:
        page.click("#tab-groups")
        page.locator("h2 .link:has-text('undo')").click()
        until(page, "() => document.querySelectorAll('.groups input[maxlength]')[2].value !== 'jumping'")


def test_a_label_of_one_tab_appears_in_the_other_and_n_leads_on(
    browser: Any, launch: Callable[..., Explorer], tmp_path: Path
) -> None:
    explorer = launch(tmp_path / "labels.csv")
    explorer.wait(lambda state: state["group"])
    with visit(browser, explorer) as page, visit(browser, explorer) as second:
        second.click("#tab-label")
        page.click("#tab-label")
        for label in ("one", "two", "one", "two"):
            before = page.evaluate("halpMap.marks.focus")
            page.keyboard.press("n")
            until(page, "before => halpMap.marks.focus !== before", before)
            page.fill(".panel input[name=label]", label)
            page.keyboard.press("Enter")
            page.wait_for_selector(f".notice:has-text(': {label}')")
        second.wait_for_selector(".classes li:nth-child(2):has-text('two')")
        state = explorer.wait(lambda state: state["few"] and sum(state["few"]["counts"].values()) == 4)
        labelled = {
            int(line) for line in np.flatnonzero(explorer.arrays("column?name=label")[1]["values"] >= 0)
        }
        assert len(labelled) == 4
        assert not labelled & {one["row"] for one in state["few"]["suggestions"]}
        page.wait_for_selector("text=where a label helps most")


def test_labels_are_exported_to_boris_and_elan(windows: Explorer, tmp_path: Path) -> None:
    recording = windows.get("names").index("long 6")
    windows.post(
        "label", {"spans": [{"recording": recording, "start": 1.0, "stop": 2.5}], "label": "turn, left"}
    )
    table = Path(windows.process.args[windows.process.args.index("--labels") + 1])
    line = next(one for one in csv.DictReader(io.StringIO(table.read_text())) if one["label"] == "turn, left")
    assert (line["recording"], line["start"], line["stop"], line["source"]) == (
        "long 6",
        "1.0",
        "2.5",
        "human",
    )
    for name, more in (("labels.boris", ()), ("elan", ("--to", "elan"))):
        if more:
            pytest.importorskip("pympi", reason="ELAN files need `pip install 'halp-motion[findings]'`")
        main(["events", str(table), str(tmp_path / name), *more])
        path = tmp_path / name if not more else tmp_path / name / "long 6.eaf"
        events = list(read_events(path, "auto")[0])
        assert ("turn, left", 1.0, 2.5) in [(one.label, one.start, one.stop) for one in events]


def test_trail_speed_point_of_view_and_steps_have_keys_and_buttons(browser: Any, explorer: Explorer) -> None:
    with visit(browser, explorer) as page:
        look_at(page, 3)
        pause(page)
        page.keyboard.press("]")
        until(page, "() => document.querySelector('select[aria-label=speed]').value === '1.5'")
        for _ in range(20):
            page.keyboard.press("ArrowRight")
        picture = "document.querySelector('.player canvas').toDataURL()"
        drawn(page)
        plain = page.evaluate(picture)
        page.keyboard.press("t")
        until(page, f"plain => {picture} !== plain", plain)
        ghosts = page.evaluate(picture)
        page.click("button:text-is('side')")
        until(page, f"ghosts => {picture} !== ghosts", ghosts)
        page.keyboard.press("?")
        page.wait_for_selector("dialog[open] >> text=Keyboard")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog[open]", state="detached")
