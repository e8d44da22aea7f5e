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
from functools import cached_property
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
    "halp.data.store": ("tests/data/test_store.py", "tests/attacks/test_stores.py"),
    "halp.core.files": ("tests/core/test_files.py",),
}
# module → (part of the line, part of the change, why nothing can notice it)
ROUNDING = "only the last bits of rounding could tell"
BORDER = "the two sides meet in a single number that no input has, rounding aside"
REMOVAL = "matters only where a folder cannot be removed; it is then left"
EXPLAINED: dict[str, list[tuple[str, str, str]]] = {
    "halp.sphere": [
        ("flat = sine", "<=", BORDER),
        (
            "torch.where(flat, torch.where(omega <",
            "omega <",
            "flat angles are near 0 or near π: any border between does",
        ),
        ("torch.where(flat, torch.where(omega <", "1 → 3", "flat angles are near 0 or near π: any border between does"),
        ("nowhere = (length == 0)", ">=", BORDER),
        ("nowhere = (length == 0)", "<=", BORDER),
        ("torch.where(nowhere, 1, length)", "1 → 3", "the divisor of what is replaced by zeros"),
        ("iterations: int = 50", "50 → 101", "a mean is at rest long before"),
        ("iterations: int = 100", "100 → 201", "centres are at rest long before"),
        ("if step.norm() < tolerance", "<=", BORDER),
        ("(sine < _tiny(sine)) & (cosine < 0)", "<=", BORDER),
        ("(sine < _tiny(sine)) & (cosine < 0)", "0 → 1", "a key within rounding of its target has no lead to walk by"),
        (".clamp(0, 1)", "1 → 3", ROUNDING),
        (
            "(lead >= 0) & ((spread == 0) | (omega == 0))",
            "0 → 1",
            "a target equal to the key leads only where spread is 0",
        ),
        ("amax(1).clamp(-1, 1).arccos()", "1 → 3", ROUNDING),
        ("following.clamp_max_(len(x) - 1)", "", ROUNDING),
        ("float(cosine.min()) > 1 - 1e-6", ">=", BORDER),
        (
            "float(cosine.min()) > 1 - 1e-6",
            "1 + 1e-06",
            "without the break the centres are put on the same points again",
        ),
        ("float(cosine.min()) > 1 - 1e-6", "1 → 3", "without the break the centres are put on the same points again"),
        ("clamp_(-1, 1 - torch.finfo(x.dtype).eps)", "1 → 3", "−3 in place of −1: " + ROUNDING),
        ("if float(length.max()) < tolerance", "<=", BORDER),
    ],
    "halp.hallucinate": [
        ("8 * eps", "8 → 17", ROUNDING),
        ("8 * torch.finfo(key.dtype).eps", "8 → 17", ROUNDING),
        ("theta.cos() * own + theta.sin() * tilt", "> least", BORDER),
        ('if filter == "variant-2"', "", "variant-2 keeps every positive by construction, as does no filter"),
        ("walkable = cosine >", ">=", BORDER),
        ("(self.theta / omega).clamp(0, 1)", "1 → 3", ROUNDING),
        (".clamp(-1, 1)", "1 → 3", ROUNDING),
    ],
    "halp.losses.distillation": [
        ('similarity.device.type == "cpu"', "", "both ways find the same rows; which is quicker depends on the device"),
        ("count == similarity.shape[1]", "", "all rows by themselves, or all rows found"),
        ("sorted=False", "", "the order of the rows does not matter"),
    ],
    "halp.core.files": [
        ("if TYPE_CHECKING:", "", "imports for the type checker alone"),
        ("sys.version_info >= (3, 11)", "", "both branches read the same TOML; which one is the version's choice"),
        ("file.read(1 << 20)", "1 → 3", "the size of the blocks that are read"),
        ("partial.mkdir(parents=True)", "True → False", "the lock beside it has made the parents"),
        ("ignore_errors=True", "True → False", REMOVAL),
        ("mask = os.umask(0)", "0 → 1", "the mask is read and put back at once"),
    ],
    "halp.training.checkpoint": [("ignore_errors=True", "True → False", REMOVAL)],
    "halp.data.store": [
        ("unknown(values[0] if values else -1)", "1", "a column without values is one that this clip has"),
        ("indent=1", "1 → 3", "the layout of a JSON file"),
        ("a lock is not made beside what is not a store", "pass", "the lock is given back before the same refusal"),
        ("wait=10", "10 → 21", "whoever is refused waits some seconds longer"),
    ],
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
        new, old = (one.func if isinstance(one, cached_property) else one for one in (new, old))
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

    def __init__(self, module: str, sample: int | None, seconds: float, again: list[dict[str, Any]] | None) -> None:
        self.module, self.seconds = module, seconds
        self.path = ROOT / "src" / Path(*module.split(".")).with_suffix(".py")
        source = self.path.read_text(encoding="utf-8")
        self.lines = source.splitlines()
        self.all = self.tried = list(mutants(source))
        if sample and sample < len(self.all):
            chosen = random.Random(0).sample(range(len(self.all)), sample)  # noqa: S311
            self.tried = [self.all[number] for number in sorted(chosen)]
        self.number = len(self.tried)
        self.left: list[dict[str, Any]] = []
        if again is not None:  # tests were added: what was killed stays killed
            left = {(each["line"], each["kind"], each["change"]) for each in again}
            self.tried = [mutant for mutant in self.tried if mutant[:3] in left]
            if {mutant[:3] for mutant in self.tried} != left:
                raise SystemExit(f"{module} has changed since it was tried; try it again without --again")
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
                self.left.append(self.entry(line, kind, text))
                note = f"{self.path.relative_to(ROOT)}:{line}: survives: {text} {self.why(line, text)}\n"
                sys.__stdout__.write(note)  # type: ignore[union-attr]
                sys.__stdout__.flush()  # type: ignore[union-attr]
        return True

    def why(self, line: int, text: str) -> str:
        """Why no test can notice a change, where that is known."""
        known = EXPLAINED.get(self.module, [])
        return next((why for part, change, why in known if part in self.lines[line - 1] and change in text), "")

    def entry(self, line: int, kind: str, text: str) -> dict[str, Any]:
        why = self.why(line, text)
        return {"line": line, "kind": kind, "change": text, **({"why": why} if why else {})}

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
    parser.add_argument("--again", action="store_true", help="only those that survived, by the file of --json")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    os.chdir(ROOT)
    table = json.loads(chosen.json.read_text(encoding="utf-8")) if chosen.json and chosen.json.exists() else {}
    for module in chosen.modules:
        importlib.import_module(module)
        again = table.get(module, {"left": None})["left"] if chosen.again else None
        mutation = Mutation(module, chosen.sample, chosen.seconds, again)
        options = ["-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:terminal"]
        code = pytest.main([*options, "-m", "not slow", "--hypothesis-seed=0", *MODULES[module]], plugins=[mutation])
        if code:
            raise SystemExit(f"{module}: pytest ended with {code}")
        tried, left = mutation.number, mutation.left
        explained = sum("why" in each for each in left)
        facts = {"mutants": len(mutation.all), "tried": tried, "killed": tried - len(left), "explained": explained}
        table[module] = {**facts, "left": left}
        sys.stdout.write(f"{module}: {', '.join(f'{number} {name}' for name, number in facts.items())}\n")
        sys.stdout.flush()
        if chosen.json:
            chosen.json.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
