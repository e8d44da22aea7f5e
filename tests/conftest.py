"""Fixtures that several tests share."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

# idle threads that spin would slow everything else on a small machine; this must be said before torch is
# loaded
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch
from hypothesis import settings

from halp.data.store import Store
from halp.data.synthetic import make_synthetic_store

ROOT = Path(__file__).parents[1]

settings.register_profile("same", deadline=None, derandomize=True)  # `make fuzz` looks for new cases
settings.load_profile("same")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """No test leaves torch with another number of threads, which rounds sums differently."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _one_worker() -> Iterator[None]:
    """Work of a second is not worth processes of its own: it stays here where nobody asks for workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("halp.engine.Engine.processes", property(lambda engine: engine.workers or 1))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and reference outputs, if there is one."""
    folder = Path(os.environ.get("HALP_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"real data is not at '{folder}'; say where with HALP_SHARED")
    return folder


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A few synthetic clips, normalised as the authors do."""
    return make_synthetic_store(tmp_path_factory.mktemp("stores") / "synthetic", count=192, subjects=6)


TINY = (
    "epochs=3",
    "batch_size=16",
    "views.frames=12",
    "encoder.hidden=8",
    "encoder.layers=1",
    "contrast.queue=32",
    "contrast.dimension=16",
    "halp.start_epoch=1",
    "halp.prototypes=4",
    "halp.count=6",
    "halp.recent=32",
    "saving.checkpoint_epochs=1",
    "saving.log_every=1",
)


@pytest.fixture(scope="session")
def tiny() -> tuple[str, ...]:
    """Overrides that make any recipe run in a moment."""
    return TINY


def chromium() -> str | None:
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))),
        None,
    )


def _patient(opens: Callable[..., Any]) -> Callable[..., Any]:
    """What is opened waits as long as a busy machine needs."""

    def patient(**options: Any) -> Any:
        made = opens(**options)
        made.set_default_timeout(180_000)
        return made

    return patient


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip(
        "playwright.sync_api", reason="tests in a browser need `pip install playwright`"
    )
    path = chromium()
    if path is None:
        pytest.skip("tests in a browser need Chromium on the PATH")
    options = [
        "--no-sandbox",
        "--use-angle=swiftshader",
        "--enable-unsafe-swiftshader",
        "--disable-background-networking",
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
    ]
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=options)
        opened.new_page = _patient(opened.new_page)
        opened.new_context = _patient(opened.new_context)
        _browsers.append(opened)
        yield opened
        _browsers.remove(opened)
        opened.close()


_browsers: list[Any] = []


@pytest.fixture(autouse=True)
def _pages_are_closed() -> Iterator[None]:
    """A page that a failed test left open would go on playing, and take the time of the tests after it."""
    yield
    for context in (context for browser in _browsers for context in list(browser.contexts)):
        context.close()


HEAVY = {"pretrain", "reproduce", "subprocess", "forked"}


@cache
def _is_heavy(function: object) -> bool:
    return _names_heavy(function, set())


def _names_heavy(function: object, seen: set[object]) -> bool:
    """Whether a function, or one of its module that it calls, names a training or processes, also in a
    command.
    """
    function = getattr(function, "__wrapped__", function)
    if not isinstance(function, FunctionType) or function in seen:
        return False
    seen.add(function)
    codes = [function.__code__]
    for code in codes:
        constants = [
            part for item in code.co_consts for part in (item if isinstance(item, tuple) else (item,))
        ]
        codes += [part for part in constants if isinstance(part, CodeType)]
        if HEAVY & {*code.co_names, *(part for part in constants if isinstance(part, str))}:
            return True
        called = [function.__globals__.get(name) for name in code.co_names]
        if any(
            _names_heavy(one, seen)
            for one in called
            if getattr(one, "__module__", None) == function.__module__
        ):
            return True
    return False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: what collection makes stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what trains or starts processes, itself or in a fixture: `make quick` leaves it out. Slow modules
    go first.
    """
    for item in items:
        fixtures = getattr(item, "_fixtureinfo", None)
        definitions = (
            [one.func for known in fixtures.name2fixturedefs.values() for one in known] if fixtures else []
        )
        if "browser" in getattr(item, "fixturenames", ()) or any(
            map(_is_heavy, (getattr(item, "function", None), *definitions))
        ):
            item.add_marker("heavy")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)  # at the end, workers share short tests
