"""The built page that is committed is the page that its source gives, whole and small."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from halp.explorer.api import ASSETS, asset
from halp.reports.drawing import read_asset

PAGE = Path(__file__).parents[2] / "page"


def test_built_page_is_what_its_source_gives(tmp_path: Path) -> None:
    if shutil.which("node") is None or not (PAGE / "node_modules" / "esbuild").is_dir():
        pytest.skip("the page is built with node; `npm ci` in page/ brings what it needs")
    subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=PAGE, check=True, timeout=300)
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    figures = {name: read_asset(name).encode() for name in ("figures.js", "figures.css")}
    assert built == {**{name: asset(name) for name in (*ASSETS, "widget.js", "LICENSES.txt")}, **figures}


def test_page_is_whole_and_below_a_megabyte() -> None:
    sizes = {name: len(asset(name)) for name in ASSETS}
    assert all(sizes.values())
    assert sum(sizes.values()) < 1_000_000
    for name in ("app.js", "app.css", "index.html"):  # nothing is fetched from anywhere else
        text = asset(name).decode()
        links = {part.split('"')[0].split("'")[0].split("`")[0] for part in text.split("https://")[1:]}
        assert not links, (name, links)


def test_lock_file_names_no_host() -> None:
    text = (PAGE / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in text
    assert '"integrity"' in text


def test_no_wheel_is_made_with_an_empty_page(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="wheels are made with hatchling")
    sys.path.insert(0, str(PAGE.parent))
    try:
        from hatch_build import PageHook
    finally:
        sys.path.pop(0)
    folder = tmp_path / "src" / "halp" / "explorer" / "static"
    folder.mkdir(parents=True)
    for name in (*ASSETS, "widget.js", "LICENSES.txt"):
        (folder / name).write_bytes(asset(name))
    reports = tmp_path / "src" / "halp" / "reports"
    reports.mkdir()
    for name in ("figures.js", "figures.css"):
        (reports / name).write_text(read_asset(name))
    hook = PageHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel")  # type: ignore[arg-type]
    hook.initialize("standard", {})
    (folder / "app.js").write_bytes(b"")
    with pytest.raises(RuntimeError, match=r"app\.js"):
        hook.initialize("standard", {})
    hook.initialize("editable", {})  # working on halp needs no node
