"""The bill of materials names every package that halp needs, with licence and fingerprint, and notices a change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # real processes

TOOL = Path(__file__).parents[1] / "tools" / "sbom.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_bill_names_packages_licences_and_notices_a_change(tmp_path: Path) -> None:
    bill, table, hashes = tmp_path / "sbom.json", tmp_path / "licences.md", tmp_path / "hashes.txt"
    assert run("--json", bill, "--licences", table, "--hashes", hashes).returncode == 0
    found = {one["name"]: one for one in json.loads(bill.read_text())["components"]}
    assert {"halp", "torch", "numpy", "safetensors"} <= set(found)
    assert "Apache-2.0" in found["halp"]["licenses"][0]["license"]["name"]
    assert "| numpy |" in table.read_text()
    assert run("--check", hashes).returncode == 0
    hashes.write_text(hashes.read_text().replace("sha256:", "sha256:0", 1))
    answer = run("--check", hashes)
    assert answer.returncode == 1
    assert "recorded: " in answer.stdout
