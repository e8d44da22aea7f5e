"""The walk of the documentation, from unlabelled recordings to a table, still leads through the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def test_walk_leads_from_recordings_to_named_groups_a_model_and_a_table(browser: Any, tmp_path: Path) -> None:
    out = tmp_path / "walk.json"
    command = [sys.executable, "-m", "benchmarks.explore_walk", "--recordings", "24", "--groups", "3"]
    command += ["--members", "4", "--more", "2", "--keep", str(tmp_path / "walk"), "--out", str(out)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    variables = {"HALP_CACHE": str(tmp_path / "cache"), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True, timeout=280)
    found = json.loads(out.read_text())["invented"]
    assert sum(found["labels"].values()) >= 12
    assert sum(found["named_groups"].values()) >= 1
    assert found["named_rightly"] >= 0.8 * found["unlabelled"]
    assert found["outside"]["lines"] == 24
    assert (tmp_path / "walk" / "table.csv").read_text().startswith("recording,start,stop,label")
