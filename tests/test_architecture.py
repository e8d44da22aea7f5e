"""The way of the data: imports run in one direction, and the project speaks of itself alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "halp"

# Lower layers first; a module may import from its own layer and from those before it.
LAYERS = [
    {"_version", "cores", "errors", "files", "locks", "progress", "recipe_list", "topologies"},
    {"skeleton"},
    {"clips"},
    {"views", "sampling"},
    {"encoders", "sphere"},
    {"hallucinate"},
    {"contrast"},
    {"methods"},
    {"training"},
    {"evaluation"},
    {"analysis"},
    {"reports"},
    {"use"},
    {"demo", "graphs", "reproduce"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(path: Path) -> set[str]:
    """First parts of the halp modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("halp."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("halp.")}
    return found


def test_imports_run_in_the_direction_of_the_data() -> None:
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        assert own in LEVEL, f"'{own}' has no place in the layers; add it"
        for other in imports(path):
            assert LEVEL[other] <= LEVEL[own], f"{path.relative_to(ROOT)} may not import halp.{other}"


def test_hallucination_needs_nothing_but_torch() -> None:
    for name in ("sphere", "hallucinate"):
        roots = set()
        for node in ast.walk(ast.parse((SOURCE / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                roots |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                roots.add(node.module.split(".")[0])
        assert roots <= {"__future__", "torch", "halp", "dataclasses", "typing", "collections"}, name


def test_nothing_saved_is_pickled() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"allow_pickle\s*=\s*True|pickle\.loads?\(|pickle\.dump", text), path
        # the authors' own format is the one thing that torch has to write
        assert "torch.save(" not in text or path.name == "convert.py", path
        for call in re.findall(r"torch\.load\([^)]*\)", text):
            assert "weights_only=True" in call, path


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, halp.cli; assert 'torch' not in sys.modules, 'torch is loaded before it is needed'"
    subprocess.run([sys.executable, "-c", code], check=True)
