"""The examples run as they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import forked as subprocess
import pytest

pytestmark = pytest.mark.slow  # real processes

ROOT = Path(__file__).parents[1]
# the plugin is loaded by commands, in tests/test_plugins.py
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.py")) if path.stem != "plugin"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_says_something(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip()


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {"three_lines", "own_poses"}


def commands(text: str) -> list[str]:
    """Lines that begin with `halp `, without comments and padding."""
    lines = [line.split("  #")[0].replace('"$@"', "").strip() for line in text.splitlines()]
    return [" ".join(line.split()) for line in lines if line.startswith("halp ")]


def test_readme_and_script_for_own_data_type_the_same_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme[readme.index("## Your own recordings") : readme.index("Videos work the same way")]
    script = commands((ROOT / "examples" / "own_data.sh").read_text(encoding="utf-8"))
    assert commands(section) == script
    assert len(script) > 10


def test_script_for_own_data_goes_from_recordings_to_answers(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{subprocess.commands()}:{os.environ['PATH']}",
    }
    folder = tmp_path / "mine"
    folder.mkdir()
    script = str(ROOT / "examples" / "own_data.sh")
    small = [
        "--set",
        "epochs=2",
        "batch_size=12",
        "encoder.hidden=24",
        "halp.start_epoch=1",
        "saving.checkpoint_epochs=2",
    ]
    done = subprocess.run(
        ["bash", script, *small], capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name in (
        "mine.html",
        "found.html",
        "timeline.html",
        "groups.html",
        "compared.html",
        "stats.html",
        "vectors.csv",
    ):
        assert (folder / name).stat().st_size > 1000, name
    assert {path.name for path in (folder / "my-encoder").iterdir()} >= {
        "config.json",
        "model.onnx",
        "README.md",
    }
    segments = (folder / "segments.csv").read_text().splitlines()
    assert segments[0].startswith("recording,start,stop,label,")
    labels = [line.split(",")[3] for line in segments[1:]]
    assert set(labels) & {"march", "wave", "squat"}
