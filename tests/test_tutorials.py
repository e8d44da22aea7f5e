"""Every block of the tutorials and of the gallery runs as it stands on the page, in order, in an empty
folder. So does every line of shell on the other pages, unless NOT_TYPED says why not.
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
from ports import free_port
from test_commands_in_docs import block_lines

from halp.video.pose_model import kept_pose_model

pytestmark = pytest.mark.slow  # real commands

ROOT = Path(__file__).parents[1]
PAGES = [page for room in ("tutorials", "gallery") for page in sorted((ROOT / "docs" / room).glob("*.md"))]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", flags=re.M | re.S)
FILM = "film.mp4"


OTHERS = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page not in PAGES)]
#: Lines of shell that are not typed here, and why.
NOT_TYPED = {
    r"python3 -m venv|\. halp-env|pip install": "`make wheel` installs into an empty environment",
    r"make demo|make test": "tests/test_demo.py; this is the other",
    r"halp pose-model": "tests fetch nothing",
    r"halp explore|halp live|python -m http.server": "end when they are stopped: tests/explorer, tests/cli",
    r"halp export model page --web": "fetches libraries: tests/tasks/test_web_page.py",
    r"halp same-people": "needs several videos: tests/video",
    r"halp (pretrain small --data stores|evaluate runs/small|export runs)": "tests/test_examples.py",
    r"halp (embed|pretrain) .*(--workers 8|STORE)": "tests/test_engine.py, tests/training",
    r"halp (prepare|pretrain|evaluate|reproduce|verify) .*(ntu|FOLDER|RECORDINGS|reproduced)": "needs data, or a GPU",
    r"python -m (experiments|benchmarks)": "needs data, or hours",
    r"halp sweep|halp prepare synthetic 1440": "takes an hour: tests/reproduce/test_sweep.py",
    r"export |srun|sbatch|dask|helm|kubectl|python -m torch": "needs a cluster",
    r"halp .*(/data/|s3://|tcp://)": "needs a cluster or a bucket",
}
#: What these lines find beside the generated recordings.
SETTING = """
mkdir others sessions && cp -r recordings/wave others && cp long.bvh sessions
echo name,label > labels.csv
echo recording,start,stop,label > recordings.labels.csv
for name in $(cd recordings && echo */*.bvh); do
  echo "$name,${name%%/*}" >> labels.csv
  echo "$name,0,3,${name%%/*}" >> recordings.labels.csv
done
cp labels.csv meta.csv
printf 'recording,start,stop,label\\nlong,0,6,a\\nlong,6,12,b\\nlong,12,18,c\\n' > coded.csv
halp events coded.csv annotations --to elan
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder with the script that makes recordings."""
    shutil.copytree(ROOT / "examples", tmp_path / "work" / "examples")
    shutil.copy(ROOT / "examples" / "make_recordings.py", tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One cache for all pages: they read the same recordings."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HALP_CACHE": str(tmp_path_factory.mktemp("cache")),
        "PATH": f"{subprocess.commands()}:{os.environ['PATH']}",
    }


def run(kind: str, code: str, folder: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", code] if kind == "python" else ["bash", "-euo", "pipefail", "-c", code]
    answer = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, f"{answer.stdout}\n{answer.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tutorial_runs(page: Path, folder: Path, environment: dict[str, str]) -> None:
    text = page.read_text(encoding="utf-8")
    if FILM in text:
        environment = provide_film(folder / FILM, environment)
        text = text.replace("halp pose-model\n", "")  # tests fetch nothing
    blocks = BLOCK.findall(text)
    assert blocks
    for kind, group in groupby(blocks, key=lambda block: block[0]):
        run(kind, "\n".join(code for _, code in group), folder, environment)


def lines_to_type() -> list[str]:
    """Each line of shell on the other pages once, in order."""
    texts = (page.read_text(encoding="utf-8") for page in OTHERS)
    lines = {" ".join(line.split()): None for text in texts for line in block_lines(text) if line}
    unused = {pattern for pattern in NOT_TYPED if not any(re.match(pattern, line) for line in lines)}
    assert not unused, "a reason for lines that are on no page"
    return [line for line in lines if not any(re.match(pattern, line) for pattern in NOT_TYPED)]


def test_lines_of_guides_on_recordings_run(folder: Path, environment: dict[str, str]) -> None:
    asked, *lines = sorted(
        (line for line in lines_to_type() if FILM not in line), key=lambda line: not line.startswith("curl ")
    )
    place = lines.index("python examples/make_recordings.py recordings") + 1
    port = free_port()
    asked = asked.replace("localhost:8000", f"-sSf --retry 60 --retry-connrefused 127.0.0.1:{port}")
    served = [  # a service runs while it is asked
        f"{line} --port {port} & {asked}; kill $!; wait $! || true"
        if line.startswith("halp serve ")
        else line
        for line in lines
    ]
    code = "\n".join(["set -x", *served[:place], SETTING, *served[place:]])
    run("bash", code, folder, environment)


def test_lines_of_guides_on_a_video_run(folder: Path, environment: dict[str, str]) -> None:
    environment = provide_film(folder / FILM, environment)
    run(
        "bash",
        "\n".join(["set -x", *(line for line in lines_to_type() if FILM in line)]),
        folder,
        environment,
    )


def provide_film(path: Path, environment: dict[str, str]) -> dict[str, str]:
    """Two seconds of a real film, if there is one with the weights to read it, and the variables for them."""
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
    return {**environment, "HALP_POSE_MODEL": str(kept_pose_model())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_notebook_has_the_code_of_its_page(page: Path) -> None:
    notebook = runpy.run_path(str(ROOT / "tools" / "notebooks.py"))["notebook"]
    text = page.read_text(encoding="utf-8")
    cells = [cell["source"] for cell in notebook(text)["cells"] if cell["cell_type"] == "code"]
    wanted = [("%%bash\n" if kind == "bash" else "") + code.rstrip() for kind, code in BLOCK.findall(text)]
    assert cells == wanted
