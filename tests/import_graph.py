"""The import graph of `halp` at the level of sub-packages: printed by `make graph`, held to one direction by
the tests.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "halp"


def modules() -> dict[str, Path]:
    """Every module of halp by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("halp", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: Iterable[str]) -> set[str]:
    """Modules of halp that a file imports, inside functions too; `from halp import x` counts as `halp.x`."""
    known = set(known)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {
                name if (name := f"{node.module}.{alias.name}") in known else node.module
                for alias in node.names
            }
    return {name for name in found if name in known}


def package_of(module: str) -> str:
    """The sub-package a module stands in; a module at the top is one by itself."""
    path = modules()[module]
    if path.name == "__init__.py":
        return module.removeprefix("halp.") if module != "halp" else "halp"
    parts = module.split(".")[1:]
    return parts[0] if len(parts) == 1 else ".".join(parts[:-1])


def graph() -> dict[str, set[str]]:
    """Sub-package → the sub-packages that it imports from."""
    every = modules()
    packages = {module: package_of(module) for module in every}
    edges: dict[str, set[str]] = {package: set() for package in packages.values()}
    for module, path in every.items():
        if module == "halp":  # the public names, loaded when they are first used
            continue
        # a package's __init__ gathers its own sub-packages, so that they register: that is not a dependency
        gathers = path.name == "__init__.py"
        for other in imports(path, every):
            inside = gathers and packages[other].startswith(f"{packages[module]}.")
            if packages[other] != packages[module] and not inside and other != "halp":
                edges[packages[module]].add(packages[other])
    return edges


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """A way round in the graph, empty if there is none."""
    done: set[str] = set()

    def visit(node: str, way: list[str]) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        for other in sorted(edges.get(node, ())):
            if found := visit(other, [*way, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(edges) if (found := visit(node, []))), [])


def levels(edges: dict[str, set[str]]) -> list[list[str]]:
    """Packages in the order of the data: each stands above everything that it imports from."""
    left, ordered = dict(edges), []
    while left:
        ready = sorted(name for name, needs in left.items() if not (needs & left.keys()) - {name})
        if not ready:
            break
        ordered.append(ready)
        for name in ready:
            del left[name]
    return ordered


if __name__ == "__main__":
    made = graph()
    for number, names in enumerate(levels(made)):
        for name in names:
            sys.stdout.write(f"{number:2}  {name:24} ← {', '.join(sorted(made[name])) or '–'}\n")
    if way := cycle(made):
        sys.exit("a way round: " + " → ".join(way))
