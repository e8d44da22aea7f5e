"""Hallucinated positives of a clip, and trainings side by side, as the explorer shows them."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from explorer.conftest import Explorer
from explorer.test_page import WHERE, counted, look_at, serious, visit

from halp.core.errors import InputError
from halp.data.store import Store
from halp.evaluation.analysis.prototypes import key_space
from halp.explorer.answers import understand
from halp.explorer.api import Api
from halp.explorer.session import Session, Settings
from halp.explorer.static_page import write_static
from halp.reports.run_report import compare_runs, open_runs
from halp.training import Run, load_recipe, pretrain


@pytest.fixture(scope="module")
def runs(store: Store, tmp_path_factory: pytest.TempPathFactory, tiny: tuple[str, ...]) -> dict[str, Run]:
    """One run that hallucinates positives and one that does not."""
    folder = tmp_path_factory.mktemp("runs")
    recipes = {"halp": load_recipe("small", tiny), "moco": load_recipe("small", (*tiny, 'terms=["infonce"]'))}
    return {name: pretrain(recipe, store, folder / name, progress=False) for name, recipe in recipes.items()}


@pytest.fixture(scope="module")
def session(
    runs: dict[str, Run], store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("method")
    session = Session(Settings(store.path, str(runs["halp"].path), folder / "labels.csv"))
    with session.labels, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALP_CACHE", str(folder / "cache"))
        session.load()
        yield session


def test_positives_of_a_run_are_made_in_its_projection_head_with_its_prototypes(
    session: Session, runs: dict[str, Run]
) -> None:
    space = key_space(runs["halp"])
    assert space is not None
    facts, arrays = understand(session.collection, 5, session.key_space)
    assert facts["trained"]
    assert facts["count"] == space.settings["count"]
    keys = session.collection.keys(space, np.arange(len(session.collection)))
    assert np.linalg.norm(keys, axis=1) == pytest.approx(1, abs=1e-5)
    cosine = torch.from_numpy(keys[5]) @ space.centres.T
    assert facts["closest"] == int(cosine.argmax())
    assert arrays["reach"] == pytest.approx(torch.rad2deg(torch.acos(cosine)).numpy(), abs=0.1)
    assert (arrays["target"] != facts["closest"]).all()
    assert (arrays["angle"] <= arrays["reach"][arrays["target"]] + 1e-3).all(), (
        "on the way, not beyond its end"
    )
    assert facts["kept"] == pytest.approx(arrays["keep"].mean(), abs=1e-4)
    assert "Similarity to every prototype" in facts["chart"]["markup"]


def test_without_a_run_positives_are_made_of_the_vectors(session: Session) -> None:
    facts, arrays = understand(session.collection, 5)
    assert not facts["trained"]
    assert len(arrays["angle"]) == facts["count"] == 100


def test_the_run_of_the_encoder_is_shown_where_none_is_named(session: Session, runs: dict[str, Run]) -> None:
    assert Api(session).state({})["runs"] == ["halp"]
    assert Api(session).runs({}) == compare_runs({"halp": runs["halp"]}).parts


def test_curves_of_similarity_and_settings_that_differ_stand_side_by_side(
    browser: Any, launch: Callable[..., Explorer], runs: dict[str, Run], tmp_path: Path
) -> None:
    paths = [str(runs[name].path) for name in ("moco", "halp")]
    explorer = launch(tmp_path / "labels.csv", "--runs", *paths, encoder=runs["halp"].path)
    parts = explorer.get("runs")
    assert parts == compare_runs(open_runs([Path(path) for path in paths])).parts, (
        "what `halp report` computes"
    )
    with visit(browser, explorer) as page:
        page.click("#tab-method")
        page.wait_for_selector("text=Training: 2 runs side by side")
        shown = [
            one.evaluate("image => decodeURIComponent(image.src)") for one in page.locator(".chart img").all()
        ]
        for title in ("Similarity to the query", "Similarity to the queue", "Contrastive loss"):
            assert any(title in markup for markup in shown), title
        page.wait_for_selector("table:has(caption:text('Settings that differ')) tr:has-text('terms')")
        page.click("text=Show it wide")
        page.wait_for_selector("dialog.wide[open] th:text-is('moco') + th:text-is('halp')")
        counted(page, "dialog.wide img", len(shown))
        assert serious(page) == []
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog.wide", state="hidden")
        page.click("#tab-watch")
        look_at(page, 5)
        page.click("text=Hallucinated positives")
        page.wait_for_selector(".walks circle")
        page.wait_for_selector("text=Computed as in the training of this encoder")
        page.locator(".one input").focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        page.wait_for_selector("h2:has-text('Nearest to this one')")
        _, near = explorer.arrays("understand", {"rows": [5]})
        order = np.argsort(near["angle"], kind="stable")
        first = page.locator(".walks ~ .grid .mini").first.get_attribute("data-row")
        assert int(first) == near["near"][order[2], 0]
        page.wait_for_selector(".walks .picked")
        assert serious(page) == []
        page.locator(".chart button").first.click()
        page.wait_for_selector("dialog.wide[open] img")


def test_a_static_folder_on_a_web_server_shows_the_runs_too(
    browser: Any, runs: dict[str, Run], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "shown"
    settings = Settings(
        store.path, str(runs["halp"].path), tmp_path / "labels.csv", runs=(runs["moco"].path,)
    )
    write_static(settings, folder)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.wait_for_selector("html[data-ready=true]")
        page.click("#tab-method")
        page.wait_for_selector("text=How it was trained")
        page.wait_for_selector(".chart img")
        page.mouse.click(*page.evaluate(WHERE, 5))
        page.wait_for_selector(".player canvas[data-frame]")
        page.close()
        server.shutdown()
    assert problems == []


def test_a_static_folder_without_room_is_one_sentence_and_leaves_nothing(
    runs: dict[str, Run], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("halp.explorer.static_page._write_parts", full)
    settings, target = (
        Settings(store.path, str(runs["halp"].path), tmp_path / "labels.csv"),
        tmp_path / "full",
    )
    with pytest.raises(InputError, match=r"shown' cannot be written .*No space left on device.*another path"):
        write_static(settings, target / "shown")
    assert not any(target.iterdir())
