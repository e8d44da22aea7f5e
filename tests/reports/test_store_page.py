"""The page about a store: what to look at, real axes, no empty charts, every clip within reach."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from clip_samples import make_store

from halp.data.clip import Clip
from halp.data.inspect import inspect
from halp.data.store import Store, open_store
from halp.data.store_writer import StoreWriter
from halp.reports.figures import histogram
from halp.reports.store_page import named_bars, player_share, store_page
from halp.skeleton import KINECT_V1


def page(store: Store) -> str:
    return store_page(inspect(store)).html()


def anonymous(path: Path, clips: int = 30, frames: int = 20) -> Store:
    """Clips without subject, camera, label and splits."""
    draw = np.random.default_rng(0)
    with StoreWriter(path, KINECT_V1, persons=1) as writer:
        for number in range(clips):
            writer.add(Clip(draw.uniform(0.5, 1, (frames, 1, 20, 3)), f"take {number}"))
    return open_store(path)


def test_every_clip_is_in_the_player_under_its_name(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    text = page(store)
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', text, re.S)[1])
    assert [row[0]["title"].split(": ")[1] for row in data["rows"]] == store.names.tolist()
    assert data["rows"][0][0]["role"] == "3 frames"
    assert "All clips" in text
    assert "Clips by subject" in text


def test_the_page_stays_within_its_budget(tmp_path: Path) -> None:
    store = anonymous(tmp_path / "store", clips=30, frames=50)
    chosen, frames = player_share(store)
    assert (len(chosen), frames) == (30, 50)
    size = 20 * 3 * 2 * 4 / 3
    for budget in (size * 30 * 25, size * 30 * 12, size * 5 * 12):
        chosen, frames = player_share(store, int(budget))
        assert len(chosen) * frames * size <= budget
        assert frames >= 12
    assert len(chosen) == 5


def test_what_is_not_known_is_not_drawn(tmp_path: Path) -> None:
    text = page(anonymous(tmp_path / "store"))
    assert "Clips by subject" not in text
    assert not re.search(r">\s*-1\s*<", text)
    assert "No joints are missing" in text
    assert "have no label" in text
    assert "no splits" in text


def test_lengths_are_a_histogram_of_frames(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    text = page(store)
    assert "frames per clip" in text
    assert "Shortest 3, median 8.5, longest 14 frames" in text
    figures = re.findall(r"<figcaption>(.*?)</figcaption>", text, re.S)
    assert figures
    assert all(len(re.sub("<[^>]+>", "", figure).strip()) > len("Figure 1") for figure in figures)


@pytest.mark.parametrize("values", [[5], [5, 5, 5], [1, 2, 3], list(range(1000)), [0.5, 1.5], [30, 30000]])
def test_a_histogram_counts_every_value_once(values: list[float]) -> None:
    drawn = histogram(values, x_label="frames")
    counts = [int(count) for count in re.findall(r"<title>[^<]*: (\d+)</title>", drawn)]
    assert sum(counts) == len(values)
    assert len(counts) <= 31
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_names_in_bars_are_escaped_and_many_are_summed_up() -> None:
    assert "<b>" not in named_bars({"<b>x</b>": 3})
    drawn = named_bars(dict.fromkeys(range(50), 1))
    assert "and 20 more, 20 together" in drawn
    assert "25.0%" in named_bars({"knee": 0.25}, per_cent=True)
