"""`python tools/gallery_pictures.py [FOLDER]`: run the pages of the gallery and make their pictures.

Needs Chromium on the PATH, Playwright and Pillow. A page that writes an HTML file is shown by it, the others by
what they print.
"""

from __future__ import annotations

import html
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES, OUT = ROOT / "docs" / "gallery", ROOT / "docs" / "images" / "gallery"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", flags=re.M | re.S)
SIZE = (1200, 675)


def shown(page: Path, folder: Path) -> str:
    """Run the blocks of a page in a folder; the address of its answer as a page."""
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "make_recordings.py", folder)
    printed = ""
    for kind, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        command = (
            [sys.executable, "-c", code] if kind == "python" else ["bash", "-euo", "pipefail", "-c", code]
        )
        environment = {
            **os.environ,
            "COLUMNS": "100",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        answer = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        printed += answer.stderr + answer.stdout
    written = sorted(folder.rglob("*.html"), key=lambda path: path.stat().st_mtime)
    if not written:
        style = "font:15px/1.5 monospace;padding:24px;background:#16181d;color:#e6e6e6;margin:0;width:912px"
        written = [folder / "printed.html"]
        written[0].write_text(f'<meta charset="utf-8"><pre style="{style}">{html.escape(printed)}</pre>')
    return written[-1].resolve().as_uri()


def main(folder: Path) -> None:
    """A picture per page, in docs/images/gallery."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    OUT.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for page in sorted(PAGES.glob("*.md")):
            tab = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
            tab.goto(shown(page, folder / page.stem))
            tab.evaluate("document.querySelector('section, pre')?.scrollIntoView()")
            tab.wait_for_timeout(1500)  # players have drawn some poses by then
            printed = tab.locator("body > pre")
            shot = printed.screenshot() if printed.count() else tab.screenshot()
            picture = Image.open(io.BytesIO(shot)).convert("RGB")
            size = (800, round(800 * picture.height / picture.width))
            picture.resize(size, Image.Resampling.LANCZOS).save(OUT / f"{page.stem}.webp", quality=70)
            print(f"written: {OUT / page.stem}.webp", flush=True)
            tab.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as place:
            main(Path(place))
