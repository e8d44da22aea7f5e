"""Answers as CSV tables."""

from __future__ import annotations

from pathlib import Path

from halp.core.files import write_csv


def test_names_that_look_like_formulas_are_written_as_text(tmp_path: Path) -> None:
    rows = [
        {"name": '=HYPERLINK("x")', "score": -1.5},
        {"name": "@a", "score": None},
        {"name": "walk", "score": "-2"},
    ]
    lines = write_csv(tmp_path / "answers.csv", ["name", "score"], rows).read_text().splitlines()
    assert lines == ["name,score", '"\'=HYPERLINK(""x"")",-1.5', "'@a,", "walk,-2"]
