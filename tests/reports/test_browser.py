"""A saved report runs in a real browser: no script fails, hovering works and the player moves."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from halp.reports.figures import bars, heatmap, line_chart, scatter
from halp.reports.page import Report
from halp.reports.player import PlayerClip, player
from halp.skeleton import KINECT_V1

# What a reader does with mouse and keyboard; the page then says what it saw.
_READER = """<script>setTimeout(() => {
  const seen = [];
  for (const chart of document.querySelectorAll("svg.halp-chart")) {
    const mark = chart.querySelector("[data-points] .line, rect.cell, rect.bar, .mark[data-series] circle");
    const box = mark.getBoundingClientRect();
    const place = { bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
    for (const target of [mark, chart]) {
      target.dispatchEvent(new PointerEvent("pointermove", place));
      if (!document.querySelector(".tip").hidden) break;
    }
    seen.push(document.querySelector(".tip").innerText.replaceAll("\\n", "|"));
    chart.querySelector(".key")?.dispatchEvent(new PointerEvent("click", { bubbles: true }));
  }
  document.documentElement.dataset.tips = seen.join(" ## ");
  document.querySelector("[aria-label='next query']").click();
  document.querySelector(".halp-player canvas").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
  document.documentElement.dataset.row = window.__player[0].row;
  document.documentElement.dataset.yaw = window.__player[0].yaw;
}, 1200)</script>"""


def browse(path: Path, profile: Path) -> str:
    """The document after three seconds of the page's own time."""
    command = (
        "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --window-size=1200,4000 --virtual-time-budget=3000 --dump-dom"
    ).split()
    done = subprocess.run(
        [*command, f"--user-data-dir={profile}", path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium on the path")
def test_report_runs_in_a_browser_without_an_error_and_its_player_moves(tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    walk = np.cumsum(g.normal(0, 0.02, (60, 2, len(KINECT_V1), 3)), axis=0) + g.normal(size=(len(KINECT_V1), 3))
    absent = np.zeros((1, 1, len(KINECT_V1), 3))
    report = Report("Browser", "<&\"'>")
    report.section("Charts")
    report.figure(line_chart({"real": ([1, 2, 3], [0.5, 0.7, 0.8]), "empty": ([], [])}, x_label="epoch"))
    report.figure(scatter(g.normal(size=(30, 2)), [f"class {i % 15}" for i in range(30)]))
    report.figure(heatmap([[5, 1], [0, 7]], ["sit", "run"], ["sit", "run"]))
    report.figure(bars({"knn": {"moco": (70.0, 1.0), "halp": (75.0, 0.5)}}))
    report.section("Player")
    row = [PlayerClip(walk, "query"), PlayerClip(walk[:7], "near", True), PlayerClip(absent, "nobody", False)]
    report.figure(player([row, row[:1], [PlayerClip(walk[..., :2], "flat")]], KINECT_V1))
    report.figure(player([], KINECT_V1))
    path = report.save(tmp_path / "report.html")
    first = re.search(
        r'class="halp-player"[^>]*data-frame="(\d+)" data-steps="(\d+)"', browse(path, tmp_path / "first")
    )
    assert first
    assert int(first.group(1)) > 0
    assert int(first.group(2)) > 10

    path.write_text(report.html().replace("</body>", f"{_READER}</body>"), encoding="utf-8")
    page = browse(path, tmp_path / "second")
    root = re.search(r"<html[^>]*>", page)
    assert root
    assert "data-error" not in root.group()
    assert "epoch 2|real: 0.7 ## " in root.group()
    assert "true: sit|predicted: sit|5 (83.3% of the row) ## knn|moco: 70 ± 1" in root.group()
    assert 'data-row="1"' in root.group()
    assert 'data-yaw="-0.3' in root.group()
    assert page.count("no clips to show") > 1
