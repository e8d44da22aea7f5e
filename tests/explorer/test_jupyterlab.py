"""`halp.explore` in a cell of a running JupyterLab, over the real kernel connection."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

from halp.data.store import Store


@pytest.fixture
def lab(store: Store, package: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a notebook whose one cell explores a store."""
    for name in ("jupyterlab", "ipykernel", "anywidget"):
        pytest.importorskip(name, reason="needs `pip install jupyterlab ipykernel 'halp-motion[notebook]'`")
    code = (
        f"import halp\nhalp.explore({str(store.path)!r}, {str(package)!r}, labels='labels.csv', height=640)"
    )
    cell = {
        "cell_type": "code",
        "id": "a",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": code,
    }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "movements.ipynb").write_text(json.dumps(notebook))
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--ServerApp.port={port}"]
    command += [f"--ServerApp.root_dir={tmp_path}", "--IdentityProvider.token=word", "--LabApp.news_url=None"]
    own = {name: str(tmp_path / "jupyter" / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    own |= {"JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "jupyter"), "HALP_CACHE": str(tmp_path / "cache")}
    with open(tmp_path / "lab.log", "wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **own}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        end = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token=word", timeout=5).read()
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "lab.log").read_text()
                assert time.monotonic() < end, "JupyterLab did not start"
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/lab/tree/movements.ipynb?token=word"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=300)


@pytest.mark.slow
def test_page_in_a_cell_of_jupyterlab_plays_and_labels(
    browser: Any, lab: str, store: Store, tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(lab)
    page.locator(".jp-Notebook .jp-CodeCell").first.click()
    page.wait_for_selector("text=/Python 3 .*Idle/i")
    page.keyboard.press("Shift+Enter")
    frame = page.frame_locator("iframe[title='halp explore']")
    frame.locator("html[data-ready=true]").wait_for()
    inside = next(one for one in page.frames if one.parent_frame and one.evaluate("Boolean(window.halpMap)"))
    assert inside.evaluate("halpMap.count") == len(store)
    frame.get_by_role("combobox", name="find").fill(store.names[0])
    frame.locator("#find-list li").first.click()
    frame.locator(".player canvas[data-frame]").wait_for()
    frame.get_by_role("textbox", name="new label").fill("squat")
    frame.get_by_role("textbox", name="new label").press("Enter")
    frame.locator(".chip", has_text="squat").wait_for()
    if picture := os.environ.get("HALP_PICTURES"):
        page.screenshot(path=Path(picture) / "jupyterlab.png")
    written, deadline = tmp_path / "labels.csv", time.monotonic() + 120
    while not written.exists() or "squat" not in written.read_text():  # the page does not wait for the server
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)
    page.keyboard.press("1")  # a key pressed in the page stays there
    assert page.locator(".jp-Notebook .jp-CodeCell").count() <= 2
    page.close()
