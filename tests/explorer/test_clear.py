"""What a person who has never heard of embeddings sees: warnings, names that differ, few points, filters,
figures, links.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer.conftest import Explorer
from explorer.test_page import look_at, until, visit
from explorer.test_races import given, settled

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.store import Store
from halp.data.store_writer import StoreWriter
from halp.explorer.columns import name_parts
from halp.reports.player import describe_body
from halp.skeleton import get_topology

NAMED = [
    f"dataset-1_{action}_{style}_{n:03}"
    for action in ("walk", "kick-low", "bow")
    for style in ("sad", "old")
    for n in (1, 2)
]


@pytest.fixture(scope="module")
def named(
    launch: Callable[..., Explorer], store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Explorer:
    """Twelve recordings with telling names, one of which is long."""
    folder = tmp_path_factory.mktemp("named")
    with StoreWriter(folder / "people", store.topology, persons=store.persons) as writer:
        for number, name in enumerate(NAMED):
            frames = np.concatenate([store.clip(number)] * (30 if number == 0 else 1))
            writer.add(Clip(frames, name, extra={"fps": 30.0}))
    return launch(folder / "labels.csv", "--window", "1", "--stride", "0.5", source=folder / "people")


def test_parts_of_names_are_columns() -> None:
    parts = name_parts(NAMED)
    assert parts["name, part 2"][::4] == ["walk", "kick-low", "bow"]
    assert name_parts([*NAMED, "other"]) == {}
    parts = name_parts([*NAMED, "other"], "{set}_{action}_{style}_{n}")
    assert (parts["action"][4], parts["style"][2], parts["n"][1], parts["n"][-1]) == (
        "kick-low",
        "old",
        "002",
        "",
    )
    for pattern in ("plain", "{a}_{a}"):
        with pytest.raises(InputError, match="names no part, or one twice"):
            name_parts(NAMED, pattern)


def test_films_have_a_whole_trunk() -> None:
    topology = get_topology("mediapipe-33")
    bones = {frozenset(topology.joints[joint] for joint in bone) for bone in describe_body(topology)["bones"]}
    assert {
        frozenset(pair)
        for pair in (
            ("shoulder_right", "hip_right"),
            ("shoulder_left", "hip_left"),
            ("hip_left", "hip_right"),
        )
    } <= bones
    spine = get_topology("kinect-v2")
    assert describe_body(spine)["bones"] == list(spine.bones)


def test_a_long_recording_does_not_make_most_of_the_groups(named: Explorer) -> None:
    group = named.wait(lambda state: state["group"])["group"]["groups"]
    recordings = named.arrays("rows")[1]["recording"]
    windows = np.bincount(recordings)
    assert windows.max() > 10 * np.median(windows)
    alone = [one for one in group if one["recordings"] == 1]
    assert len(alone) <= len(group) / 2
    assert [one["size"] for one in group] == sorted((one["size"] for one in group), reverse=True)


def test_names_filters_and_columns_in_the_page(browser: Any, named: Explorer) -> None:
    with visit(browser, named) as page:
        assert page.locator("#tab-method").count() == 0  # for researchers only
        page.select_option("header select", "name, part 2")
        page.wait_for_selector(".legend li:has-text('kick-low')")
        page.keyboard.press("?")
        page.fill("input[name=pattern]", "{set}_{action}_{style}_{n}")
        named.post("label", {"rows": [40], "label": "elsewhere"})  # news do not wipe what is being typed
        page.wait_for_selector("select option:text-is('label')", state="attached")
        page.click("text=Use as columns")
        until(
            page,
            "() => [...document.querySelectorAll('header option')].some((one) => one.textContent ==="
            " 'style')",
        )
        page.keyboard.press("Escape")
        page.select_option("header select", "style")
        page.locator(".legend li button:has-text('old')").click()  # alone
        page.fill("#find", "bow old")
        page.wait_for_selector("#find-list li")
        page.keyboard.press("Enter")
        page.keyboard.press("f")  # not into the field
        page.wait_for_selector("text=Nearest first")
        names = page.locator("h2:has-text('Nearest first') + .grid .mini-name")
        until(
            page,
            "() => document.querySelectorAll('h2 + .grid:not(.small) .mini canvas[data-frame]').length > 1",
        )
        shown = names.all_inner_texts()
        assert shown
        assert all("_old_" in name for name in shown), shown
        assert all(name.startswith("…") for name in shown)  # what all names begin with is left out
        assert (
            page.locator("h2:has-text('Nearest first') + .grid figcaption .soft")
            .first.inner_text()
            .count("s")
            == 1
        )
        assert page.input_value("#find") == ""  # cleared by the choice; f went to the page
        page.click("#tab-compare")
        until(
            page,
            "() => { const names = [...document.querySelectorAll('.panel .mini-name')].map((one) => one.title);"
            " return names.length > 1 && names.every((name) => name.includes('_old_')); }",
        )
        page.select_option("header select", "action")  # the filter stays when the colours change
        page.wait_for_selector(".legend p:has-text('only style: old')")
        page.locator(".legend li button:has-text('bow')").click()
        page.click("text=choose these")
        names = [name for name in NAMED if "_bow_old_" in name]
        page.wait_for_selector(".chosen h2:has-text('what the filter shows')")
        chosen = [int(one.get_attribute("data-row")) for one in page.locator(".chosen .mini").all()]
        rows, recordings = named.arrays("rows")[1]["recording"], named.get("names")
        shown = [row for row, number in enumerate(rows) if recordings[number] in names]
        assert chosen == shown[:12]
        page.click("text=use as labels")
        settled(page)
        after = given(named)
        assert {row for row, label in after.items() if label == "bow"} == set(shown)
        page.locator(".legend p button:has-text('show all')").click()
        page.wait_for_selector(".legend p", state="detached")
        page.keyboard.press("u")
        settled(page)
    named.post("undo", {})


def test_a_whole_recording_is_labelled_at_once(browser: Any, named: Explorer) -> None:
    with visit(browser, named) as page:
        page.evaluate("halpLook(0)")
        until(page, "() => halpLine.facts?.recording === 0")
        page.click("text=whole recording")
        page.fill(".panel input[name=label]", "all of it")
        page.keyboard.press("Enter")
        settled(page)
        recordings = named.arrays("rows")[1]["recording"]
        assert set(given(named)) == set(np.flatnonzero(recordings == 0).tolist())
        page.keyboard.press("u")
        settled(page)


def test_what_was_skipped_is_not_proposed_again(
    browser: Any, launch: Callable[..., Explorer], tmp_path: Path
) -> None:
    explorer = launch(tmp_path / "labels.csv")
    with visit(browser, explorer) as page:
        page.click("#tab-label")
        seen = []
        for _ in range(5):
            page.keyboard.press("n")
            seen.append(page.evaluate("halpMap.marks.focus"))
        assert len(set(seen)) == 5
        until(page, "() => document.querySelector('.notice') !== null")
        explorer.wait(lambda state: len(state["skipped"]) == 4)
    explorer.post("label", {"rows": [100], "label": "one"})
    explorer.post("label", {"rows": [101], "label": "two"})
    explorer.wait(lambda state: state["few"])
    explorer.stop()
    explorer = launch(tmp_path / "labels.csv")
    state = explorer.wait(lambda state: state["few"])
    assert sorted(state["skipped"]) == sorted(seen[:4])
    assert not {one["row"] for one in state["few"]["suggestions"]} & set(seen[:4])


def test_of_few_points_none_lies_under_a_name(
    browser: Any, launch: Callable[..., Explorer], store: Store, tmp_path: Path
) -> None:
    with StoreWriter(tmp_path / "few", store.topology, persons=store.persons) as writer:
        for number in range(4):
            writer.add(Clip(store.clip(number), f"clip {number}", extra={"fps": 30.0}))
    explorer = launch(tmp_path / "labels.csv", source=tmp_path / "few")
    assert len(explorer.wait(lambda state: state["group"])["group"]["groups"]) == 2
    with visit(browser, explorer) as page:
        covered = page.evaluate(
            """() => halpMap.marks.words.map(([x, y, text]) => { const half = 4 * text.length * halpMap.dense;
              const at = halpMap.besidePoints(...halpMap.toPixels(x, y), half, () => true);
              return at && [...Array(halpMap.count).keys()].filter((row) => {
                const [px, py] = halpMap.toPixels(...halpMap.placeOf(row));
                return Math.abs(px - at[0]) < half && Math.abs(py - at[1]) < 8 * halpMap.dense; }).length; })"""
        )
        assert covered == [0, 0]


def test_warnings_stay_in_sight(browser: Any, launch: Callable[..., Explorer], tmp_path: Path) -> None:
    explorer = launch(tmp_path / "labels.csv")
    with visit(browser, explorer) as page:
        assert page.locator(".warnings").count() == 0
        look_at(page, 3)
        page.fill(".panel input[name=label]", "one")
        page.keyboard.press("Enter")
        settled(page)
        (tmp_path / "labels.csv").write_text("recording,start,stop,label\na,5,1,run\n")
        page.wait_for_selector(".warnings:has-text('stop must come after start')")
    with visit(browser, explorer) as page:
        page.wait_for_selector(".warnings:has-text('labels are kept in')")


def test_figures_are_saved_and_a_link_opens_the_same_view(browser: Any, explorer: Explorer) -> None:
    with visit(browser, explorer) as page:
        page.select_option("header select", "subject")
        page.wait_for_selector(".legend summary:text-is('subject')")
        page.evaluate("halpLook(17)")
        until(page, "() => halpLine.facts?.recording >= 0")
        page.click(".figures summary")
        with page.expect_download() as saved:
            page.click(".figures p:has-text('map') >> text=SVG")
        svg = ET.parse(saved.value.path()).getroot()  # noqa: S314
        names = len(page.locator(".legend li").all())
        assert len(svg.findall(".//{*}path")) == 192 + names
        with page.expect_download() as saved:
            page.click(".figures p:has-text('map') >> text=PNG")
        assert Path(saved.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        page.click("text=Link to this view")
        link = page.url
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(link)
    until(page, "() => document.documentElement.dataset.ready === 'true' && halpMap.marks.focus === 17")
    page.wait_for_selector(".legend summary:text-is('subject')")
    context.close()


def test_map_and_legend_have_the_same_colours_when_the_scheme_changes(
    browser: Any, explorer: Explorer
) -> None:
    with visit(browser, explorer) as page:
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            until(
                page,
                """() => { const path = document.querySelector('.legend .dot path'), name = path.closest('button').textContent;
                  const [r, g, b] = getComputedStyle(path).fill.match(/[0-9]+/g).map(Number);
                  for (let row = 0; row < halpMap.count; row++) { const own = halpMap.colours.slice(4 * row, 4 * row + 3);
                    if (own[0] === r && own[1] === g && own[2] === b) return true; } return false; }""",
            )
