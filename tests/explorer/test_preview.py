"""The map while recordings are still being embedded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer.conftest import Explorer
from explorer.test_page import until

from halp.data.clip import Clip
from halp.data.store import Store
from halp.data.store_writer import StoreWriter
from halp.explorer.preview import Preview
from halp.features.embed import embed_table
from halp.features.loading import load_encoder
from halp.features.opening import open_source

CLIPS = 4_200  # three shards


@pytest.fixture(scope="module")
def large(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "store"
    with StoreWriter(path, store.topology, persons=store.persons) as writer:
        for number in range(CLIPS):
            writer.add(Clip(store.clip(number % len(store))[:6] + number * 1e-5, f"clip {number:04}"))
    return path


def test_rows_of_shards_that_are_done_are_shown_and_stay_where_they_are(
    large: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path))
    encoder, source = load_encoder(package), open_source(large)
    assert Preview(encoder, source).look()[0]["names"] == []
    embed_table(encoder, source, progress=False)
    preview = Preview(encoder, source)
    whole = {part.key: part for part in source.shards}
    assert len(whole) == 3
    last = list(whole)[-1]
    folder = next(tmp_path.rglob(last))
    shutil.move(folder, tmp_path / "away")
    facts, arrays = preview.look()
    assert facts["names"] == [f"clip {number:04}" for number in range(4096)]
    assert arrays["recording"].tolist() == list(range(4096))
    axes = preview._axes
    shutil.move(tmp_path / "away", folder)
    facts, after = preview.look()
    assert len(facts["names"]) == len(after["places"]) == CLIPS
    assert preview._axes is axes
    assert np.isfinite(after["places"]).all()
    assert np.abs(after["places"]).max() <= 1


def test_the_page_shows_what_is_done_before_everything_is(
    browser: Any, launch: Callable[..., Explorer], tmp_path: Path
) -> None:
    explorer = launch(tmp_path / "labels.csv")
    page = browser.new_page()
    waiting = {"rows": 0, "source": "store", "progress": {"title": "embedding", "done": 96, "total": 192}}
    page.route("**/api/state*", lambda route: route.fulfill(body=json.dumps(waiting)))
    page.goto(explorer.address)
    page.wait_for_selector(".preview canvas")
    until(page, "() => window.halpPreview?.count === 192")
    page.wait_for_selector(".preview figcaption:has-text('192 movements')")
    page.unroute("**/api/state*")
    page.wait_for_selector("html[data-ready=true]")
    assert page.locator(".preview").count() == 0
    page.close()


def test_threads_that_import_at_once_see_all_of_a_package() -> None:
    code = """
import threading
from halp.explorer.imports import import_sklearn
wrong = []
def work():
    try:
        import_sklearn()
        from sklearn.manifold import TSNE
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        wrong.append(error)
threads = [threading.Thread(target=work) for _ in range(8)]
[one.start() for one in threads]
[one.join() for one in threads]
assert not wrong, wrong
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
