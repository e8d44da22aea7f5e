"""Every text names the distribution `halp-motion`: `halp` on the package index is another project."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import tomlkit

from halp._version import DISTRIBUTION

ROOT = Path(__file__).parents[1]
WRONG = re.compile(
    r"(?<![\w-])halp\[[a-z][a-z,]*\]|pip install (-U )?['\"]?halp['\"]?(\s|$)|uvx? (pip install )?halp\b"
)
TEXTS = (".py", ".md", ".toml", ".sh", ".ipynb", ".jsx", ".js", ".yml", ".html", "Makefile")


def test_project_has_the_name_that_hints_give() -> None:
    project = tomlkit.parse((ROOT / "pyproject.toml").read_text(encoding="utf-8")).unwrap()["project"]
    assert project["name"] == DISTRIBUTION == "halp-motion"


def test_no_text_recommends_the_package_of_another_project() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    files = [ROOT / name for name in listed if name.endswith(TEXTS)] or [*(ROOT / "src").rglob("*.py")]
    wrong = [
        f"{file.relative_to(ROOT)}: {line.strip()[:100]}"
        for file in files
        if file.is_file() and file.name != Path(__file__).name and "static" not in file.parts
        for line in file.read_text(encoding="utf-8").splitlines()
        if WRONG.search(line) and "another project" not in line and "unrelated" not in line
    ]
    assert not wrong
