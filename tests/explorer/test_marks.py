"""Marks of categories: colours that everybody tells apart, and shapes if there are more categories than
colours.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer.conftest import Explorer
from explorer.test_page import WHERE, visit

from halp.data.clip import Clip
from halp.data.store import Store
from halp.data.store_writer import StoreWriter
from halp.reports.player import MARKS, order_by_frequency

COLOURS = (Path(__file__).parents[2] / "page" / "src" / "colours.js").read_text(encoding="utf-8")
# linear RGB as people with little or none of one kind of cone see it (Machado, Oliveira and Fernandes, 2009)
VISION = {
    "all cones": np.eye(3),
    "no long": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no middle": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no short": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
BACK = {"LIGHT": "#f3f5f8", "DARK": "#0f1419"}


def palette(name: str) -> list[str]:
    return re.findall(r"#[0-9a-f]{6}", re.search(rf"const {name} = \[(.*)\]", COLOURS).group(1))


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Coordinates in which distances are as large as they look (Ottosson, 2020)."""
    cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    axes = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    return np.array(axes) @ np.cbrt(np.array(cones) @ np.clip(rgb, 0, 1))


@pytest.mark.parametrize("scheme", ["LIGHT", "DARK"])
def test_colours_are_told_apart_by_everybody_and_stand_out_from_the_page(scheme: str) -> None:
    colours, weights = palette(scheme), np.array([0.2126, 0.7152, 0.0722])
    assert len(colours) == 7
    for vision, cones in VISION.items():
        seen = {colour: oklab(cones @ linear(colour)) for colour in colours}
        for one, other in itertools.combinations(colours, 2):
            distance = np.linalg.norm(seen[one] - seen[other])
            assert distance > 0.08, (
                vision,
                one,
                other,
                distance,
            )  # a just noticeable difference is about 0.02
    for colour in colours:
        dim, bright = sorted((linear(colour) @ weights, linear(BACK[scheme]) @ weights))
        assert (bright + 0.05) / (dim + 0.05) > 2.5, colour


def test_marks_of_python_and_of_the_page_are_as_many() -> None:
    shapes = re.findall(r'^  "M.*",$', COLOURS, re.MULTILINE)
    assert len(set(shapes)) == len(shapes)
    assert len(palette("LIGHT")) * len(shapes) == len(palette("DARK")) * len(shapes) == MARKS


def test_of_too_many_categories_the_most_frequent_have_marks() -> None:
    values = np.concatenate([np.arange(80), np.full(5, 77), [-1]]).astype(np.int16)
    names, places = order_by_frequency([f"n{number}" for number in range(80)], values)
    assert names[0] == "n77"
    assert [names[place] if place >= 0 else "" for place in places] == [
        f"n{v}" if v >= 0 else "" for v in values
    ]
    assert places.dtype == np.int16


def test_thirty_classes_have_thirty_marks_and_the_legend_begins_with_the_most_frequent(
    browser: Any, launch: Callable[..., Explorer], store: Store, tmp_path: Path
) -> None:
    names = [f"class {number:02}" for number in range(30)]
    with StoreWriter(tmp_path / "many", store.topology, persons=store.persons, class_names=names) as writer:
        for number in range(90):
            label = 17 if number >= 70 else number % 30
            writer.add(Clip(store.clip(number), f"clip {number:03}", label, extra={"fps": 30.0}))
    explorer = launch(tmp_path / "labels.csv", source=tmp_path / "many")
    with visit(browser, explorer) as page:
        page.wait_for_selector(".legend li:first-child:has-text('class 17')")
        keys = page.evaluate("""[...document.querySelectorAll('.legend .dot')].map((one) =>
              [one.dataset.shape, getComputedStyle(one.firstElementChild).fill].join(' '))""")
        assert len(set(keys)) == len(keys) == 30
        seen = page.evaluate(
            "[...halpMap.shapes].map((s, i) => [s, ...halpMap.colours.slice(4 * i, 4 * i + 3)].join())"
        )
        assert len(set(seen)) == 30, "points are marked as the legend says"
        assert page.evaluate("halpMap.gl.getError()") == 0
        page.mouse.move(*page.evaluate(WHERE, 80))
        page.wait_for_selector(".hover-card:has-text('class ')")
