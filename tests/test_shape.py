"""The shape of the package: modules stay short, and public functions declare what they take."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SOURCE = Path(__file__).parents[1] / "src" / "halp"
WHOLE = {"hallucinate.py"}  # one file on purpose: it can be copied into any project


def test_nineteen_of_twenty_modules_have_at_most_360_lines_and_none_more_than_400() -> None:
    modules = [path for path in SOURCE.rglob("*.py") if path.name not in WHOLE]
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in modules}
    assert np.percentile(list(lengths.values()), 95) <= 360
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_no_function_takes_options_that_it_does_not_declare() -> None:
    undeclared = [
        path for path in SOURCE.rglob("*.py") if "**options: Any" in path.read_text(encoding="utf-8")
    ]
    assert undeclared == []
