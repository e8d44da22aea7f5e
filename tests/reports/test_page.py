"""A report is one escaped, self-contained file that is there whole or not at all."""

from __future__ import annotations

import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from halp.core.errors import InputError
from halp.reports.figures import bars, heatmap, line_chart
from halp.reports.page import Report
from halp.reports.player import PlayerClip, clip_map, player
from halp.skeleton import KINECT_V1

NASTY = "<i>&\"' 動作 \udc80</title><script>alert(1)</script>"


class Page(HTMLParser):
    """Elements, attributes and the cells of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("td", "th"):
            self.cells.append((dict(attrs).get("class") or "", ""))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] in ("td", "th") and self.cells:
            self.cells[-1] = (self.cells[-1][0], self.cells[-1][1] + data.strip("\n"))


def full_report() -> Report:
    report = Report("A run", "seed 0")
    report.section("Results", "First paragraph.\n\nSecond paragraph.")
    report.table(["method", "kNN"], [["MoCo", 70.5], ["HaLP", 75.25]], caption="Top-1", highlight=1)
    report.figure(line_chart({"a": ([1, 2], [1, 2])}), "A curve")
    report.section("More")
    report.figure(clip_map([[0, 0], [1, 1]], ["a", "b"]))
    report.figure(heatmap(np.eye(3), list("abc"), list("abc")))
    report.figure(bars({"knn": {"moco": (1.0, 0.1)}}))
    frames = np.random.default_rng(0).normal(size=(4, 1, len(KINECT_V1), 3))
    report.figure(player([[PlayerClip(frames, "q"), PlayerClip(frames, "n", True)]], KINECT_V1))
    return report


def test_page_refers_to_nothing_outside_itself() -> None:
    page = full_report().html()
    assert not re.search(r"https?://", re.sub(r"http://www\.w3\.org/[\w/]+", "", page))  # names of XML
    assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|import\(", page)
    elements = Page(page).elements
    assert {"svg", "table"} <= dict(elements).keys()
    for element, attributes in elements:
        assert "src" not in attributes
        assert element not in ("link", "iframe", "object", "embed", "base")
        assert (attributes.get("href") or "#").startswith("#")


def test_every_text_is_escaped() -> None:
    report = Report(NASTY, NASTY)
    report.section(NASTY, NASTY)
    report.section(NASTY)
    report.table([NASTY], [[NASTY]], caption=NASTY)
    report.figure("", NASTY)
    page = report.html()
    assert "<script>alert" not in page
    assert "<i>" not in page
    assert "&lt;i&gt;&amp;&#34;&#39; 動作 \ufffd&lt;/title&gt;" in page


def test_sections_tables_and_figures_are_numbered_and_linked() -> None:
    page = full_report().html()
    assert 'href="#section-2"' in page
    assert 'id="section-2"' in page
    assert "<p>First paragraph.</p>\n<p>Second paragraph.</p>" in page
    assert "<b>Table 1</b> Top-1" in page
    assert re.findall(r"<b>Figure (\d)</b>", page) == ["1", "2", "3", "4", "5"]


def cells(
    columns: list[str], rows: list[list[object]], highlight: int | None = None
) -> list[tuple[str, str]]:
    report = Report("t")
    report.table(columns, rows, highlight=highlight)
    return Page(report.html()).cells[len(columns) :]


def test_numbers_are_right_aligned_with_the_same_decimals_down_a_column() -> None:
    shown = cells(["a", "b", "c"], [["x", 1.5, (70.0, 0.25)], ["y", 2, (69.5, 1.0)], ["z", None, math.nan]])
    assert shown == [
        ("", "x"), ("right", "1.5"), ("right", "70.00 ± 0.25"),
        ("", "y"), ("right", "2"), ("right", "69.50 ± 1.00"),
        ("", "z"), ("right", "–"), ("right", "–"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"), (False, "no"), (0.12345, "0.1235"), (-1.5, "−1.5"), (1e-5, "1e−05"), (np.float32(2.5), "2.5"),
        (np.int64(3), "3"), (math.inf, "inf"), ("78.3 ± 0.4", "78.3 ± 0.4"), ((1, 2, 3), "(1, 2, 3)"), ("", "–"),
    ],
)  # fmt: skip
def test_cell_is_shown_as_a_reader_expects(value: object, text: str) -> None:
    assert cells(["a"], [[value]])[0][1] == text


def test_best_of_the_highlighted_column_is_marked_with_its_ties() -> None:
    rows: list[list[object]] = [["a", (70.0, 1.0)], ["b", "75.0 ± 0.2"], ["c", 75.0], ["d", None]]
    marked = [text for kind, text in cells(["m", "knn"], rows, highlight=1) if "best" in kind]
    assert marked == ["75.0 ± 0.2", "75"]
    assert cells(["m", "knn"], rows, highlight=-1) == cells(["m", "knn"], rows, highlight=1)
    assert not [kind for kind, _ in cells(["m", "knn"], [["a", None]], highlight=1) if "best" in kind]


def test_table_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="row of 1 cells"):
        Report("t").table(["a", "b"], [["x"]])
    with pytest.raises(InputError, match="no column 2"):
        Report("t").table(["a", "b"], [], highlight=2)


def test_saved_file_is_the_page_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    report = full_report()
    path = report.save(tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8") == report.html()
    assert os.listdir(path.parent) == ["report.html"]


def test_failed_save_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"report\.html' cannot be written \(disk full\)"):
        full_report().save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


def test_same_calls_make_the_same_file() -> None:
    assert full_report().html() == full_report().html()


def test_empty_report_is_a_page() -> None:
    assert "<h1>t</h1>" in Report("t").html()
