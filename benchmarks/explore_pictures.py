"""`python -m benchmarks.explore_pictures [FOLDER]`: pictures of the explorer for the documentation, from
synthetic people.

Needs Chromium on the PATH, Playwright and Pillow. Clips become a store that knows its frame rate; some are
joined to long recordings, so that there is a timeline to see.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from halp.data.cleaning import fill_gaps
from halp.data.clip import Clip
from halp.data.store import open_store
from halp.data.store_writer import StoreWriter
from halp.data.synthetic import synthetic_clips
from halp.data.synthetic_body import ACTIONS
from halp.skeleton import get_topology

OUT = Path(__file__).parents[1] / "docs" / "images"
CLIPS, PEOPLE, JOINED = 480, 10, 8
FLAGS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
]
WHERE = """row => { const m = halpMap, [x, y] = m.toPixels(...m.placeOf(row)), b = m.overlay.getBoundingClientRect();
  return [b.left + x / m.dense, b.top + y / m.dense]; }"""


def make_stores(folder: Path) -> None:
    """Clips without gaps, and long recordings of eight clips of one person each."""
    clips, topology = list(synthetic_clips(CLIPS, subjects=PEOPLE, seed=0)), get_topology("kinect-v2")
    with StoreWriter(folder / "movements", topology, persons=2, class_names=ACTIONS) as writer:
        for clip in clips:
            frames = fill_gaps(clip.frames, topology)
            writer.add(Clip(frames, clip.name, clip.label, clip.subject, clip.camera, {"fps": 30.0}))
    with StoreWriter(folder / "sessions", topology, persons=2) as writer:
        for person in sorted({clip.subject for clip in clips}):
            own = [clip for clip in clips if clip.subject == person and clip.camera == clips[0].camera][
                :JOINED
            ]
            parts = [
                np.concatenate([_two(clip.frames), np.zeros((12, 2, 25, 3), np.float32)]) for clip in own
            ]
            writer.add(
                Clip(np.concatenate(parts), f"session_{person:02}", subject=person, extra={"fps": 30.0})
            )


def _two(frames: np.ndarray) -> np.ndarray:
    return np.pad(frames, ((0, 0), (0, 2 - frames.shape[1]), (0, 0), (0, 0)))


def start(source: Path, *more: str) -> tuple[subprocess.Popen[str], str]:
    """A running explorer and its address."""
    command = [
        sys.executable,
        "-m",
        "halp",
        "explore",
        str(source),
        "--encoder",
        "halp-base",
        "--no-browser",
        *more,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def visit(browser: Any, address: str, *, dark: bool = False, width: int = 1280, height: int = 800) -> Any:
    """A page on which everything has been computed."""
    size = {"width": width, "height": height}
    page = browser.new_context(viewport=size, color_scheme="dark" if dark else "light").new_page()
    page.set_default_timeout(600_000)
    page.goto(address)
    page.wait_for_selector("html[data-ready=true]")
    page.wait_for_selector(".working", state="detached")
    return page


def save(page: Any, name: str) -> None:
    """A screenshot with few colours, which keeps it small."""
    from PIL import Image

    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture = shot.quantize(
        160, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE
    )  # small marks stay as they are
    picture.save(OUT / f"{name}.png", optimize=True)


def look(page: Any, row: int) -> None:
    page.mouse.click(*page.evaluate(WHERE, row))
    page.wait_for_selector(".player[data-mode=recording] canvas[data-frame]")
    page.wait_for_timeout(1500)


def movements(browser: Any, address: str, folder: Path) -> None:
    """The map, search, what HaLP sees, and labels; and the moving picture."""
    from PIL import Image

    page = visit(browser, address)
    look(page, 40)
    page.mouse.move(*page.evaluate(WHERE, 100))
    page.wait_for_selector(".hover-card canvas[data-frame]")
    save(page, "explore-map")
    page.mouse.move(700, 20)
    frames = []
    for act in (None, "text=Find similar"):
        if act:
            page.click(act)
            page.wait_for_selector("text=Nearest first")
            page.wait_for_timeout(1500)
        for _ in range(14):
            page.keyboard.press("ArrowRight")
            page.keyboard.press("ArrowRight")
            page.wait_for_timeout(120)
            shot = (
                Image.open(io.BytesIO(page.screenshot()))
                .convert("RGB")
                .resize((800, 500), Image.Resampling.LANCZOS)
            )
            frames.append(shot)
    frames[0].save(
        OUT / "explore.webp",
        save_all=True,
        append_images=frames[1:],
        duration=110,
        loop=0,
        quality=38,
        method=4,
    )
    page.keyboard.press("?")
    page.check("dialog input[type=checkbox]")  # for researchers
    page.keyboard.press("Escape")
    page.click("#tab-method")
    page.click("text=Hallucinate positives")
    page.wait_for_selector(".walks circle")
    page.wait_for_timeout(2000)
    save(page, "explore-method")
    page = visit(browser, address, dark=True)
    store = open_store(folder)
    for label in ("kick", "wave", "sit down", "squat", "bow"):
        rows = np.flatnonzero(store.labels == ACTIONS.index(label))[:4].tolist()
        page.evaluate(
            """([rows, label]) => fetch("api/label", {method: "POST", body: JSON.stringify({rows, label}), headers: {
              "Content-Type": "application/json", "X-Halp-Token": new URLSearchParams(location.search).get("token")}})""",
            [rows, label],
        )
    page.click("#tab-label")
    page.wait_for_selector(".accuracy.best")
    page.wait_for_timeout(2000)
    save(page, "explore-label")


def sessions(browser: Any, address: str, folder: Path) -> None:
    """A long recording with its timeline."""
    page = visit(browser, address)
    look(page, 12)
    page.click("#tab-groups")
    page.wait_for_timeout(2500)
    save(page, "explore-timeline")


def main() -> None:
    from playwright.sync_api import sync_playwright

    path = next(
        (
            found
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (found := shutil.which(name))
        ),
        None,
    )
    if path is None:
        sys.exit("pictures need Chromium on the PATH")
    OUT.mkdir(parents=True, exist_ok=True)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    if not (folder / "sessions").exists():
        make_stores(folder)
    os.environ.setdefault("HALP_CACHE", str(folder / "cache"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        for source, more, act in (
            ("movements", (), movements),
            ("sessions", ("--window", "2", "--stride", "0.5"), sessions),
        ):
            for kept in ("csv", "sqlite"):
                (folder / f"{source}.{kept}").unlink(missing_ok=True)
            process, address = start(folder / source, "--labels", str(folder / f"{source}.csv"), *more)
            try:
                act(browser, address, folder / source)
            finally:
                process.kill()
                process.wait()
        browser.close()


if __name__ == "__main__":
    main()
