"""`halp.explore` in a notebook: the widget's own script shows the page in a cell, and the kernel answers
it.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import halp
from halp.core.errors import InputError
from halp.data.store import Store

# What a notebook gives to a widget: a cell, and a model whose messages travel to the kernel and back.
HOST = """async ([script, traits]) => {
  const hear = [];
  const model = {
    get: (name) => traits[name],
    on: (_, act) => hear.push(act),
    off: (_, act) => hear.splice(hear.indexOf(act), 1),
    send: async (content) => {
      for (const [answer, text] of await toKernel(content)) {
        const bytes = text === null ? [] : [new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer)];
        hear.forEach((act) => act(answer, bytes));
      }
    },
  };
  const { default: widget } = await import("data:text/javascript;base64," + btoa(script));
  window.leave = widget.render({ model, el: document.body });
}"""


@pytest.fixture
def widget(store: Store, package: Path, tmp_path: Path) -> Iterator[Any]:
    pytest.importorskip("anywidget", reason="notebooks need `pip install 'halp-motion[notebook]'`")
    shown = halp.explore(store.path, str(package), labels=tmp_path / "labels.csv", height=700)
    yield shown
    shown.close()


def kernel(widget: Any) -> Callable[[Any], list[tuple[Any, str | None]]]:
    """What the widget puts on the wire when a message of the page arrives."""

    def take(content: Any) -> list[tuple[Any, str | None]]:
        sent: list[tuple[Any, str | None]] = []

        def publish(
            kind: str, data: Any = None, metadata: Any = None, buffers: Any = None, **more: Any
        ) -> None:
            if data and data.get("method") == "custom":
                sent.append((data["content"], base64.b64encode(buffers[0]).decode() if buffers else None))

        widget.comm.publish_msg = publish
        widget._handle_custom_msg(content, [])
        return sent

    return take


def test_page_in_a_cell_shows_the_map_and_keeps_labels(
    browser: Any, widget: Any, store: Store, tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 760})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.expose_function("toKernel", kernel(widget))
    page.evaluate(HOST, [widget._esm, {"page": widget.page, "height": widget.height}])
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready=true]").wait_for()
    assert page.frames[1].evaluate("halpMap.count") == len(store)
    frame.get_by_role("combobox", name="find").fill(store.names[0])
    frame.locator("#find-list li").first.click()
    frame.locator(".player canvas[data-frame]").wait_for()
    frame.get_by_role("textbox", name="new label").fill("squat")
    frame.get_by_role("textbox", name="new label").press("Enter")
    frame.locator(".chip", has_text="squat").wait_for()
    assert "squat" in (tmp_path / "labels.csv").read_text()
    page.evaluate("leave()")
    page.close()
    assert problems == []


def test_kernel_refuses_what_is_no_request(widget: Any) -> None:
    for content in ({"name": "_rows", "given": {}}, {"name": "state", "given": []}, {}):
        ((answer, body),) = kernel(widget)({"view": 1, "number": 2, **content})
        assert (answer["view"], answer["number"], body) == (1, 2, None)
        assert "request" in answer["error"] or "JSON object" in answer["error"]


def test_cell_that_is_run_again_takes_the_labels_over(
    widget: Any, store: Store, package: Path, tmp_path: Path
) -> None:
    again = halp.explore(store.path, str(package), labels=tmp_path / "labels.csv")
    ((answer, body),) = kernel(again)({"view": 1, "number": 1, "name": "pulse", "given": {}})
    assert "error" not in answer
    assert body
    again.close()


def test_missing_source_and_missing_package_are_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="there is nothing at"):
        halp.explore(tmp_path / "none")
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(InputError, match=r"pip install 'halp-motion\[notebook\]'"):
        halp.explore(tmp_path)
