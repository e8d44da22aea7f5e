"""The way of the data: imports run in one direction, and the project speaks of itself alone."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

import import_graph
import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "halp"

# The way of the data, lower packages first; anything else has its place by what it imports.
ORDER = (
    "core skeleton data video data.readers data.ingest augment encoders methods training features evaluation "
)
ORDER += "evaluation.protocols evaluation.analysis tasks reports.pages"
# nothing imports these, but the command line
CONSUMERS = {"cli", "explorer", "reproduce", "serve"}
SHELF = 24


def test_the_shelf_shows_the_architecture() -> None:
    private = {"__init__.py", "__main__.py", "_version.py", "py.typed", "__pycache__", "recipes"}
    shelf = {path.name for path in SOURCE.iterdir()} - private
    assert len(shelf) <= SHELF, sorted(shelf)


@pytest.mark.heavy
def test_imports_run_in_one_direction_between_sub_packages() -> None:
    edges = import_graph.graph()
    assert import_graph.cycle(edges) == []
    level = {name: number for number, names in enumerate(import_graph.levels(edges)) for name in names}
    assert level.keys() == edges.keys()
    order = ORDER.split()
    for earlier, later in itertools.pairwise(order):
        reached, todo = set(), [earlier]
        while todo:
            here = todo.pop()
            reached.add(here)
            todo += [other for other in edges[here] if other not in reached]
        assert later not in reached, f"{earlier} imports from {later}, by way of others perhaps"


@pytest.mark.heavy
def test_consumers_are_imported_by_the_command_line_alone() -> None:
    edges = import_graph.graph()
    assert edges.keys() >= CONSUMERS
    for room, others in edges.items():
        if room not in ("cli", "__main__"):
            assert not {other for other in others if other.split(".")[0] in CONSUMERS - {room}}, room


def test_the_guard_sees_every_way_of_importing(tmp_path: Path) -> None:
    known = ["halp", "halp.data", "halp.data.store", "halp.training", "halp.training.run"]
    file = tmp_path / "module.py"
    file.write_text(
        "import halp.data.store\nfrom halp import training\ndef f():\n    from halp.training import run,"
        " Recipe\n"
    )
    expected = {"halp.data.store", "halp.training", "halp.training.run"}
    assert import_graph.imports(file, known) == expected
    assert import_graph.cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]


def test_hallucination_needs_nothing_but_torch() -> None:
    for name in ("sphere", "hallucinate"):
        found = set()
        for node in ast.walk(ast.parse((SOURCE / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module if node.module.startswith("halp") else node.module.split(".")[0])
        # the errors of halp are replaced where halp is absent
        own = {"halp.core.errors"} if name == "sphere" else {"sphere"}
        assert found <= {"__future__", "torch", "dataclasses", "typing", "collections", *own}, name


def test_nothing_saved_is_pickled() -> None:
    paths = list(SOURCE.rglob("*.py"))
    assert len(paths) > 200
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"allow_pickle\s*=\s*True|pickle\.loads?\(|pickle\.dump", text), path
        # the authors' own format is the one thing that torch has to write
        assert "torch.save(" not in text or path.name == "convert.py", path
        for call in re.findall(r"torch\.load\([^)]*\)", text):
            assert "weights_only=True" in call, path


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, halp.cli; assert 'torch' not in sys.modules, 'torch is loaded before it is needed'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_library_warns_and_logs_and_the_command_prints() -> None:
    speaking = {
        path.relative_to(SOURCE)
        for path in SOURCE.rglob("*.py")
        if "console.print(" in path.read_text("utf-8")
    }
    silent = {path for path in speaking if path.parts[0] not in ("cli", "explorer", "serve")}
    assert silent <= {Path("core/progress.py")}, "warn, or tell the logger"


def test_only_rooms_that_show_answers_draw_tables_and_pages() -> None:
    drawing = {
        path.relative_to(SOURCE)
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*(from|import) (rich|jinja2)\b", path.read_text("utf-8"), re.MULTILINE)
    }
    rooms = ("cli", "explorer", "reports")
    assert {path for path in drawing if path.parts[0] not in rooms} == {Path("core/progress.py")}
