"""Python of README and guides: it parses, names what halp has, calls it with arguments that it takes, and the
README's runs. Tutorials and gallery run whole in a test of their own.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

ROOT = Path(__file__).parents[1]
RUN_ELSEWHERE = ("tutorials", "gallery")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.M | re.S)
BLOCKS = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    if page.parent.name not in RUN_ELSEWHERE
    for number, code in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
]


def dotted(node: ast.expr) -> str:
    """`halp.search` of an expression; empty if it is something else."""
    if isinstance(node, ast.Attribute):
        return f"{before}.{node.attr}" if (before := dotted(node.value)) else ""
    return node.id if isinstance(node, ast.Name) else ""


def resolved(name: str) -> Any:
    """What a dotted name of halp stands for."""
    thing = importlib.import_module("halp")
    for part in name.split(".")[1:]:
        thing = getattr(thing, part)
    return thing


def imported(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Names that a block takes out of halp, and what they are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "halp":
            for each in node.names:
                yield each.asname or each.name, getattr(importlib.import_module(str(node.module)), each.name)


def test_there_is_code_to_read() -> None:
    assert len(BLOCKS) >= 10


@pytest.mark.parametrize("code", BLOCKS)
def test_code_calls_what_halp_has_with_arguments_that_it_takes(code: str) -> None:
    tree = ast.parse(code)
    names = dict(imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := dotted(node)).startswith("halp."):
            assert resolved(name) is not None
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            called = resolved(name) if name.startswith("halp.") else names.get(name)
            if called is not None:
                keywords = {word.arg: None for word in node.keywords if word.arg}
                inspect.signature(called).bind(*node.args, **keywords)


def test_the_three_lines_of_the_readme_are_a_loss_with_a_gradient() -> None:
    (code,) = (block for block in BLOCK.findall(PAGES[0].read_text(encoding="utf-8")) if "term =" in block)
    torch.manual_seed(0)
    query = F.normalize(torch.randn(8, 16), dim=1).requires_grad_()
    recent = F.normalize(torch.randn(256, 16), dim=1)
    names = {"query": query, "key": recent[:8], "recent_keys": recent, "contrastive_loss": 0.0, "weight": 1.0}
    exec(code, names)  # noqa: S102
    names["loss"].backward()
    assert query.grad.abs().sum() > 0


@pytest.mark.heavy
def test_python_of_the_readme_finds_the_other_waves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = (
        block for block in BLOCK.findall(PAGES[0].read_text(encoding="utf-8")) if "halp.embed" in block
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", ["make_recordings.py", "recordings"])
    runpy.run_path(str(ROOT / "examples" / "make_recordings.py"), run_name="__main__")
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102
    assert len(names["vectors"]) == 36
    assert [hit.recording.startswith("wave/") for hit in names["hits"]] == [True] * 5
    assert len(repr(names["hits"])) < 1200  # what a reader prints: the hits, not network and vectors
