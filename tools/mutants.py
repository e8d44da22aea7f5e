"""Mutation testing: `make mutants` changes one thing at a time in the core modules and asks whether a test notices.

Every change – a comparison, an operator, a number, a condition, a statement left out – is tried in a process that is forked
after the tests were collected and have passed, with the code of the changed functions exchanged in place. A mutant is killed
when a test fails or does not end in time; one that survives is a missing assertion, or no change of behaviour.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
# module → the fast tests that answer for it
MODULES = {
    "halp.sphere": ("tests/test_sphere.py",),
    "halp.hallucinate": ("tests/test_hallucinate.py",),
    "halp.losses.infonce": ("tests/losses/test_infonce.py",),
    "halp.losses.distillation": ("tests/methods/test_stream_losses.py",),
    "halp.losses.mined_positives": ("tests/methods/test_stream_losses.py",),
    "halp.losses.reconstruction": ("tests/losses/test_reconstruction.py",),
    "halp.training.checkpoint": ("tests/training/test_checkpoint.py",),
    "halp.clips.store": ("tests/clips/test_store.py", "tests/attacks/test_stores.py"),
    "halp.files": ("tests/test_files.py",),
}
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
    ast.Mod: ast.Mult, ast.USub: ast.UAdd, ast.BitXor: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def sites(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run: no annotations, no docstrings, nothing inside an error's text, no imports."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "exc", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child
                yield from sites(child)


def changes(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """What may stand in the place of a node, each with a word for it."""
    other = copy.deepcopy(node)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        other.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[attr-defined]
        return [("comparison", other)]
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign | ast.UnaryOp) and type(node.op) in SWAPS:
        other.op = SWAPS[type(node.op)]()  # type: ignore[attr-defined]
        return [("operator", other)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [("condition", node.operand)]
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        other.value = not node.value if isinstance(node.value, bool) else node.value * 2 + 1  # type: ignore[attr-defined]
        return [("number", other)]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        other.test = ast.UnaryOp(ast.Not(), node.test)  # type: ignore[attr-defined]
        return [("condition", other)]
    if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)):
        return [("statement", ast.Pass())]
    return []


def mutants(source: str) -> Iterator[tuple[int, str, str, ast.Module]]:
    """Line, kind, text and tree of every mutant of a module."""
    tree = ast.parse(source)
    count = sum(1 for _ in sites(tree))
    for position in range(count):
        for number in range(len(changes(next(s for i, s in enumerate(sites(tree)) if i == position)))):
            changed = copy.deepcopy(tree)
            node = next(s for i, s in enumerate(sites(changed)) if i == position)
            kind, other = changes(node)[number]
            ast.copy_location(other, node)
            text = f"{ast.unparse(node).splitlines()[0]} → {ast.unparse(other).splitlines()[0]}"
            for parent in ast.walk(changed):
                for field, value in ast.iter_fields(parent):
                    if value is node:
                        setattr(parent, field, other)
                    elif isinstance(value, list) and any(item is node for item in value):
                        value[next(i for i, item in enumerate(value) if item is node)] = other
            yield getattr(node, "lineno", 0), kind, text, ast.fix_missing_locations(changed)


def exchange(live: Any, changed: Any, module: str) -> None:
    """Give functions, methods and numbers of a module those of its changed twin."""
    for name, new in vars(changed).items():
        old = vars(live).get(name)
        new, old = (getattr(one, "__func__", getattr(one, "fget", one)) for one in (new, old))
        while hasattr(old, "__wrapped__") and hasattr(new, "__wrapped__"):
            new, old = new.__wrapped__, old.__wrapped__
        if isinstance(new, FunctionType) and isinstance(old, FunctionType) and new.__module__ == module:
            old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
        elif isinstance(new, type) and isinstance(old, type) and new.__module__ == module:
            exchange(old, new, module)
        elif isinstance(new, int | float) and type(new) is type(old):
            setattr(live, name, new)


class Mutation:
    """The loop of a test session: once as it is, then for every mutant in a process of its own until a test fails."""

    def __init__(self, module: str, sample: int | None, seconds: float) -> None:
        self.module, self.seconds = module, seconds
        self.path = ROOT / "src" / Path(*module.split(".")).with_suffix(".py")
        self.all = self.tried = list(mutants(self.path.read_text(encoding="utf-8")))
        if sample and sample < len(self.all):
            chosen = random.Random(0).sample(range(len(self.all)), sample)  # noqa: S311
            self.tried = [self.all[number] for number in sorted(chosen)]
        self.left: list[dict[str, Any]] = []
        self.took: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.took[report.nodeid] = self.took.get(report.nodeid, 0) + report.duration

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.run_tests(session)
        if session.testsfailed:
            raise SystemExit(f"{self.module}: its tests fail without a change")
        session.items.sort(key=lambda item: self.took.get(item.nodeid, 0))  # what is cheap is asked first
        for line, kind, text, tree in self.tried:
            if self.survives(session, tree):
                self.left.append({"line": line, "kind": kind, "change": text})
                sys.__stdout__.write(f"{self.path.relative_to(ROOT)}:{line}: survives: {text}\n")  # type: ignore[union-attr]
                sys.__stdout__.flush()  # type: ignore[union-attr]
        return True

    @staticmethod
    def run_tests(session: pytest.Session) -> None:
        """What the session's fixtures hold is kept for the mutants: the last test is followed by the first."""
        for item, following in zip(session.items, [*session.items[1:], session.items[0]]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return

    def survives(self, session: pytest.Session, tree: ast.Module) -> bool:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setpgid(0, 0)
                live, changed = sys.modules[self.module], ModuleType(self.module)
                changed.__file__ = str(self.path)
                exec(compile(tree, str(self.path), "exec"), changed.__dict__)  # noqa: S102
                exchange(live, changed, self.module)
                self.run_tests(session)
                code = int(session.testsfailed > 0)
            finally:
                os._exit(code)
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status == 0
            time.sleep(0.005)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=list(MODULES))
    parser.add_argument("--sample", type=int, help="so many mutants of every module, drawn at random; else all")
    parser.add_argument("--seconds", type=float, default=120, help="after which a mutant counts as killed")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    os.chdir(ROOT)
    table = json.loads(chosen.json.read_text(encoding="utf-8")) if chosen.json and chosen.json.exists() else {}
    for module in chosen.modules:
        importlib.import_module(module)
        mutation = Mutation(module, chosen.sample, chosen.seconds)
        options = ["-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:terminal"]
        code = pytest.main([*options, "-m", "not slow", "--hypothesis-seed=0", *MODULES[module]], plugins=[mutation])
        if code:
            raise SystemExit(f"{module}: pytest ended with {code}")
        tried, left = len(mutation.tried), len(mutation.left)
        table[module] = {"mutants": len(mutation.all), "tried": tried, "killed": tried - left, "left": mutation.left}
        sys.stdout.write(f"{module}: {len(mutation.all)} mutants, {tried} tried, {tried - left} killed\n")
        sys.stdout.flush()
        if chosen.json:
            chosen.json.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
