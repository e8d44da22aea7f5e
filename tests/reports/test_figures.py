"""Charts are well-formed XML, put data where they belong and survive whatever they are given."""

from __future__ import annotations

import json
import math
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halp.core.errors import InputError
from halp.reports.axes import AxisScale
from halp.reports.figures import bars, heatmap, line_chart
from halp.reports.player import clip_map

NASTY = "<b>&\"' 動作 \x00\udc80 ]]> </svg><script>alert(1)</script>"


def parse(svg: str) -> ElementTree.Element:
    """Read a chart as XML, which fails if it is not well formed, and forget the namespace of its elements."""
    root = ElementTree.fromstring(svg)  # noqa: S314  # our own output
    for element in root.iter():
        element.tag = element.tag.removeprefix("{http://www.w3.org/2000/svg}")
    return root


def circles(root: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in root.iter("circle")]


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter("text")]


def plot(root: ElementTree.Element) -> list[float]:
    return [float(number) for number in re.findall(r"[-\d.e+]+", root.get("data-plot", ""))]


def test_points_of_a_line_lie_where_its_axes_say() -> None:
    root = parse(line_chart({"loss": ([0, 5, 10], [1.0, 3.0, 2.0])}, y_range=(0, 4)))
    x0, x1, left, right, y0, y1, bottom, top = plot(root)
    assert (x0, x1, y0, y1) == (0, 10, 0, 4)
    expected = [(left, 0.25), ((left + right) / 2, 0.75), (right, 0.5)]
    for (cx, cy), (px, share) in zip(circles(root), expected, strict=True):
        assert cx == pytest.approx(px, abs=0.02)
        assert cy == pytest.approx(bottom + share * (top - bottom), abs=0.02)


def test_path_of_a_line_rises_where_its_values_rise() -> None:
    root = parse(line_chart({"up": (range(100), np.arange(100) ** 2)}))
    path = next(
        e for e in root.iter("path") if e.get("class", "").startswith("line") and "L" in e.get("d", "")
    )
    places = np.array([pair.split(",") for pair in path.get("d", "")[1:].split("L")], dtype=float)
    assert (np.diff(places[:, 0]) > 0).all()
    assert (np.diff(places[:, 1]) <= 0).all()


def test_nan_and_none_split_a_line() -> None:
    root = parse(line_chart({"a": ([0, 1, 2, 3, 4, 5, 6], [1, 2, None, 3, 4, math.nan, 5])}))
    assert len([e for e in root.iter("path") if "L" in e.get("d", "")]) == 2
    assert len(circles(root)) == 5


def test_long_series_is_thinned_and_keeps_its_peak_and_its_gap() -> None:
    ys = np.sin(np.arange(100_000) / 5000)
    ys[4321], ys[50_000:60_000] = 9.0, math.nan
    root = parse(line_chart({"a": (np.arange(100_000), ys)}))
    group = next(e for e in root.iter("g") if e.get("data-points"))
    assert group.get("data-points", "").count("[") < 2000
    assert "[4321.0,9.0]" in group.get("data-points", "")
    assert len([e for e in root.iter("path") if "L" in e.get("d", "")]) == 2


@pytest.mark.parametrize(
    "series",
    [
        {},
        {"empty": ([], [])},
        {"nothing": ([1, 2], [None, math.nan])},
        {"infinite": ([1, 2], [math.inf, -math.inf])},
    ],
)
def test_line_chart_without_a_value_says_so(series: dict[str, tuple[list[float], list[float]]]) -> None:
    assert "no data" in texts(parse(line_chart(series)))


@pytest.mark.parametrize("value", [0.0, 5.0, -3e9, 1e-12, 1e90])
def test_constant_series_runs_through_the_middle(value: float) -> None:
    root = parse(line_chart({"a": ([1, 2, 3], [value] * 3)}))
    *_, bottom, top = plot(root)
    assert len(circles(root)) == 3
    assert all(top < cy < bottom for _, cy in circles(root))


def test_one_point_is_drawn_as_a_dot() -> None:
    assert len(circles(parse(line_chart({"a": ([7], [7])})))) == 1


def test_epochs_have_whole_ticks() -> None:
    shown = texts(parse(line_chart({"a": ([1, 2, 3], [0.1, 0.2, 0.3])}, x_label="epoch")))
    assert {"1", "2", "3"} <= set(shown)
    assert "1.5" not in shown


def test_series_has_the_colour_that_was_asked_for() -> None:
    svg = line_chart({"a": ([1], [1]), "b": ([1], [2])}, styles={"b": "crimson"})
    assert "--c:crimson" in svg
    assert "--c:var(--c0)" in svg


@pytest.mark.parametrize(
    "style", ["red;fill:url(x)", "url(https://example.org)", '"><script>', "expression(1)", ""]
)
def test_what_is_no_colour_is_refused(style: str) -> None:
    with pytest.raises(InputError, match="not a CSS colour"):
        line_chart({"a": ([1], [1])}, styles={"a": style})


def test_series_of_unequal_lengths_is_refused() -> None:
    with pytest.raises(InputError, match="'a' has 2 xs and 1 ys"):
        line_chart({"a": ([1, 2], [1])})


def map_data(markup: str) -> dict[str, Any]:
    return json.loads(re.search(r"<script[^>]*>(.*)</script>", markup, re.S)[1])  # type: ignore[index]


def test_map_keeps_directions_and_one_scale() -> None:
    data = map_data(clip_map([[0, 0], [2, 0], [0, 1]], ["b", "a", "b"]))
    assert data["places"] == [-1, -0.5, 1, -0.5, -1, 0.5]
    assert [data["categories"][value] for value in data["values"]] == ["b", "a", "b"]


def test_map_names_every_point_and_leaves_unknown_places_out() -> None:
    data = map_data(clip_map([[0, 0], [math.nan, 1], [2, 2]], ["a", "b", "b"], names=["x", "y", "z"]))
    assert data["names"] == ["x", "z"]
    assert data["categories"] == ["a", "b"]


@pytest.mark.parametrize(
    "points", [np.zeros((0, 2)), np.zeros((1, 2)), np.full((3, 2), 7.0), np.full((2, 2), np.nan)]
)
def test_map_survives_few_equal_or_unknown_points(points: np.ndarray) -> None:
    found = map_data(clip_map(points, ["a"] * len(points)))["places"]
    assert found == [0] * int(np.isfinite(points).sum())


def test_map_without_a_group_for_every_point_is_refused() -> None:
    with pytest.raises(InputError, match="2 points"):
        clip_map([[0, 0], [1, 1]], ["a"])


def test_counts_of_a_confusion_matrix_are_on_hover_and_shaded_by_row() -> None:
    root = parse(heatmap([[8, 2], [0, 100]], ["sit", "run"], ["sit", "run"]))
    cells = [cell for cell in root.iter("td") if cell.get("class")]
    assert [cell.get("title") for cell in cells] == [
        "true: sit predicted: sit 8 (80.0% of the row)",
        "true: sit predicted: run 2 (20.0% of the row)",
        "true: run predicted: run 100 (100.0% of the row)",
    ]
    shades = [float(cell.get("style", "").removeprefix("--depth:")) for cell in cells]
    assert shades[2] == 1 > shades[0] > shades[1]


def test_values_below_zero_have_a_colour_of_their_own() -> None:
    root = parse(heatmap([[-1.0, 0.5]], ["a"], ["x", "y"]))
    assert [cell.get("class") for cell in root.iter("td")] == ["minus on", "cell on"]


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (2, 0), (3, 70)])
def test_heatmap_survives_every_shape_and_nan(shape: tuple[int, int]) -> None:
    parse(heatmap(np.full(shape, np.nan), ["r"] * shape[0], ["c"] * shape[1]))


def test_heatmap_with_names_that_do_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="does not fit 1 row names and 2 column names"):
        heatmap(np.eye(2), ["a"], ["a", "b"])


def test_height_of_a_bar_is_its_mean_and_the_whisker_its_deviation() -> None:
    root = parse(bars({"knn": {"moco": (50.0, 0.0), "halp": (100.0, 10.0)}}))
    low, high = (float(r.get("height", "")) for r in root.iter("rect") if r.get("class") == "bar")
    assert high == pytest.approx(2 * low, abs=0.05)
    whiskers = [e.get("d", "") for e in root.iter("path") if e.get("class") == "whisker"]
    top, bottom = (float(end) for end in re.match(r"M[\d.]+,([\d.]+)V([\d.]+)", whiskers[0]).groups())  # type: ignore[union-attr]
    assert len(whiskers) == 1
    assert bottom - top == pytest.approx(high * 0.2, abs=0.05)


def test_bars_leave_gaps_for_what_is_missing_and_hang_below_zero() -> None:
    root = parse(bars({"a": {"x": (math.nan, 1.0), "y": (-2.0, math.nan)}, "b": {"x": (1.0, 0.0)}}))
    boxes = [r for r in root.iter("rect") if r.get("class") == "bar"]
    assert len(boxes) == 2
    below, above = ({side: float(box.get(side, "")) for side in ("y", "height")} for box in boxes)
    assert below["y"] == pytest.approx(above["y"] + above["height"], abs=0.05)


@pytest.mark.parametrize("values", [{}, {"a": {}}, {"a": {"x": (math.nan, 0.0)}}])
def test_bars_without_a_value_say_so(values: dict[str, dict[str, tuple[float, float]]]) -> None:
    assert "no data" in texts(parse(bars(values)))


def test_every_chart_escapes_every_name() -> None:
    charts = [
        line_chart({NASTY: ([1, 2], [1, 2])}, title=NASTY, x_label=NASTY, y_label=NASTY),
        heatmap([[1]], [NASTY], [NASTY], title=NASTY, x_label=NASTY, y_label=NASTY),
        bars({NASTY: {NASTY: (1.0, 0.1)}}, title=NASTY, y_label=NASTY),
    ]
    for chart in charts:
        root = parse(chart)
        assert not list(root.iter("script"))
        assert "動作" in "".join(root.itertext())


@given(
    st.lists(st.one_of(st.none(), st.floats()), max_size=30),
    st.lists(st.one_of(st.none(), st.floats()), max_size=30),
)
def test_line_chart_of_any_numbers_is_well_formed(xs: list[float | None], ys: list[float | None]) -> None:
    count = min(len(xs), len(ys))
    svg = line_chart({"a": (xs[:count], ys[:count])})
    parse(svg)
    assert not re.search(r"\b(nan|inf)\b", svg)


@given(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12), st.integers(2, 12))
def test_ticks_are_few_ordered_and_inside(low: float, high: float, count: int) -> None:
    scale = AxisScale.fit(np.array([low, high]), 0, 100, count=count)
    assert all(-1e-6 <= scale(tick) <= 100 + 1e-6 for tick in scale.ticks)
    assert scale.ticks == sorted(set(scale.ticks))
    assert 1 <= len(scale.ticks) <= count + 2
