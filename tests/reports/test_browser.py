"""A saved report runs in a real browser: no script fails, hovering works and the player moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halp.reports.figures import bars, heatmap, line_chart
from halp.reports.page import Report
from halp.reports.player import PlayerClip, clip_map, player
from halp.skeleton import KINECT_V1

# What the tips of all charts say where a reader rests on a mark of each.
_TIPS = """() => [...document.querySelectorAll(".halp-chart")].map((chart) => {
  const mark = chart.querySelector("[data-points] .line, td.cell, rect.bar, .mark[data-series] circle");
  const box = mark.getBoundingClientRect();
  const place = { bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
  for (const target of [mark, chart]) {
    target.dispatchEvent(new PointerEvent("pointermove", place));
    if (!document.querySelector(".tip").hidden) break;
  }
  chart.querySelector(".key")?.dispatchEvent(new PointerEvent("click", { bubbles: true }));
  return document.querySelector(".tip").innerText.replaceAll("\\n", "|");
})"""


@pytest.mark.slow
def test_report_runs_in_a_browser_without_an_error_and_its_player_moves(browser: Any, tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    walk = np.cumsum(g.normal(0, 0.02, (60, 2, len(KINECT_V1), 3)), axis=0) + g.normal(
        size=(len(KINECT_V1), 3)
    )
    absent = np.zeros((1, 1, len(KINECT_V1), 3))
    report = Report("Browser", "<&\"'>")
    report.section("Charts")
    report.figure(line_chart({"real": ([1, 2, 3], [0.5, 0.7, 0.8]), "empty": ([], [])}, x_label="epoch"))
    report.figure(clip_map(g.normal(size=(30, 2)), [f"class {i % 15}" for i in range(30)]))
    report.figure(heatmap([[5, 1], [0, 7]], ["sit", "run"], ["sit", "run"]))
    report.figure(bars({"knn": {"moco": (70.0, 1.0), "halp": (75.0, 0.5)}}))
    report.section("Player")
    row = [PlayerClip(walk, "query"), PlayerClip(walk[:7], "near", True), PlayerClip(absent, "nobody", False)]
    report.figure(player([row, row[:1], [PlayerClip(walk[..., :2], "flat")]], KINECT_V1))
    report.figure(player([], KINECT_V1))
    path = report.save(tmp_path / "report.html")
    page = browser.new_page(viewport={"width": 1200, "height": 4000})
    page.goto(path.as_uri())
    while (
        int(page.get_attribute(".halp-player canvas[data-frame]", "data-frame")) < 3
    ):  # a busy machine skips frames
        page.wait_for_timeout(20)
    assert page.locator("canvas[data-frame]").count() == 3
    assert page.locator("text=no clips to show").count() == 1
    tips = page.evaluate(_TIPS)
    assert tips[0] == "epoch 2|real: 0.7"
    assert tips[1:] == ["true: sit|predicted: sit|5 (83.3% of the row)", "knn|moco: 70 ± 1"]
    page.keyboard.press("Tab")
    page.locator(".halp-player canvas").first.focus()
    before = page.evaluate("halpView.yaw")
    page.keyboard.press("Alt+ArrowRight")
    assert page.evaluate("halpView.yaw") > before
    page.keyboard.press("Space")
    frame = int(page.get_attribute(".halp-player canvas", "data-frame"))
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(f".halp-player canvas[data-frame='{frame + 1}']")
    page.get_by_role("button", name="next query").click()
    page.wait_for_selector(".halp-player .cards.few")
    assert page.get_by_label("query", exact=True).input_value() == "1"
    assert page.evaluate("document.documentElement.dataset.error ?? null") is None
    page.close()


def test_map_of_a_page_names_what_lies_under_pointer_and_keyboard_and_shows_one_group_alone(
    browser: Any, tmp_path: Path
) -> None:
    report = Report("Groups")
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    names = ["<b>low</b>", "right", "high", "far"]
    report.figure(clip_map(places, ["group 1", "group 1", "group 2", "group 2"], names=names))
    page = browser.new_page(viewport={"width": 900, "height": 800})
    page.goto(report.save(tmp_path / "page.html").as_uri())
    page.wait_for_selector(".halp-map [role=application]")
    while not page.evaluate(
        "window.halpMap?.first"
    ):  # the page's rules forbid to wait for a text that is evaluated
        page.wait_for_timeout(50)
    where = page.evaluate(
        """() => { const m = halpMap, [x, y] = m.toPixels(...m.placeOf(0)), b = m.overlay.getBoundingClientRect();
          return [b.left + x / m.dense, b.top + y / m.dense]; }"""
    )
    page.mouse.move(*where)
    page.wait_for_selector("text=<b>low</b>: group 1")  # as text, whatever stands in it
    page.locator(".halp-map [role=application]").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("text=right: group 1")
    page.get_by_role("button", name="group 2").click()
    assert page.evaluate("[3, 15].map((i) => halpMap.colours[i])") == [18, 230]
    page.get_by_role("button", name="show all").click()
    assert page.evaluate("halpMap.colours[3]") == 230
    page.mouse.wheel(0, 200)  # is the page's
    assert page.evaluate("halpMap.zoom") == 0.92
    assert page.evaluate("document.documentElement.dataset.error ?? null") is None
    page.close()
