"""The examples run as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_says_something(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip()


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {"three_lines", "own_poses"}
