"""Every block of the tutorials and of the gallery runs as it stands on the page, in order, in an empty
folder.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import forked as subprocess
import pytest

from halp.video.pose_model import kept_pose_model

pytestmark = pytest.mark.slow  # real commands

ROOT = Path(__file__).parents[1]
PAGES = [page for room in ("tutorials", "gallery") for page in sorted((ROOT / "docs" / room).glob("*.md"))]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", flags=re.M | re.S)
FILM = "film.mp4"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tutorial_runs(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(ROOT / "examples" / "make_recordings.py", folder)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HALP_CACHE": str(tmp_path / "cache"),
        "PATH": f"{subprocess.commands()}:{os.environ['PATH']}",
    }
    text = page.read_text(encoding="utf-8")
    if FILM in text:
        provide_film(folder / FILM)
        environment["HALP_POSE_MODEL"] = str(kept_pose_model())
        text = text.replace("halp pose-model\n", "")  # tests fetch nothing
    blocks = BLOCK.findall(text)
    assert blocks
    for kind, group in groupby(blocks, key=lambda block: block[0]):
        code = "\n".join(code for _, code in group)
        command = (
            [sys.executable, "-c", code] if kind == "python" else ["bash", "-euo", "pipefail", "-c", code]
        )
        answer = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert answer.returncode == 0, f"{answer.stdout}\n{answer.stderr}"


def provide_film(path: Path) -> None:
    """Two seconds of a real film, if there is one with the weights to read it."""
    for name in ("av", "mediapipe"):
        pytest.importorskip(name, reason="videos need `pip install 'halp-motion[video]'`")
    if not kept_pose_model().is_file():
        pytest.skip("no pose model: halp pose-model")
    spec = find_spec("Sports2D")
    places = [Path(os.environ.get("HALP_TEST_FILM", "none"))]
    places += [
        Path(part) / "Demo" / "demo.mp4" for part in (spec.submodule_search_locations or () if spec else ())
    ]
    film = next((place for place in places if place.is_file()), None)
    if film is None:
        pytest.skip("no film: pip install --no-deps sports2d, or set HALP_TEST_FILM")
    from halp.video.film import FilmWriter, film_facts, film_pictures

    facts = film_facts(film)
    with FilmWriter(path, facts.width, facts.height, facts.fps) as writer:
        for number, (moment, picture) in enumerate(film_pictures(film)):
            if 20 <= number < 80:
                writer.write(picture, moment - 20 / facts.fps)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_notebook_has_the_code_of_its_page(page: Path) -> None:
    notebook = runpy.run_path(str(ROOT / "tools" / "notebooks.py"))["notebook"]
    text = page.read_text(encoding="utf-8")
    cells = [cell["source"] for cell in notebook(text)["cells"] if cell["cell_type"] == "code"]
    wanted = [("%%bash\n" if kind == "bash" else "") + code.rstrip() for kind, code in BLOCK.findall(text)]
    assert cells == wanted
