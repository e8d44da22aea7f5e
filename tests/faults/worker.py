"""Enumerates faults: for every writer every kind of fault at every call, each in a forked process, invariants
after each.

Run as `python -m faults.worker NUMBER PART OF` in `tests` it tries this many faults (or `all`) of every
writer, of these the share `PART` of `OF`, and prints one line of JSON per writer: calls, faults there are and
were tried, and what went wrong.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import safetensors.numpy
import safetensors.torch
from faults.scenarios import ABSENT, Scenario, all_scenarios
from faults.shim import CRASHED, KINDS, importers, install

from halp.core.errors import InputError
from halp.core.progress import console

FAILED, STUMBLED = 10, 11
real_write = os.write


def run(scenario: Scenario, folder: Path, kind: str = "", at: int = 0) -> tuple[int, str]:
    """Act in a child process under a fault; its exit code and, where it only counted, the number of calls."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code, said = 0, ""
        try:
            faults = install(folder, kind, at)
            try:
                scenario.act(folder)
                said = str(faults.count)
            except InputError as error:
                code, said = FAILED, str(error)
            except BaseException as error:
                code, said = STUMBLED, f"{type(error).__name__}: {error}"
        finally:
            real_write(writer, said.encode())
            os._exit(code)
    os.close(writer)
    said = b""
    while part := os.read(reader, 65536):
        said += part
    os.close(reader)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode(errors="replace")


def visible(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


class Trial:
    """One writer: its old and new state, its calls, and the check of any fault in them."""

    def __init__(self, name: str, scenario: Scenario, work: Path) -> None:
        self.name, self.scenario = name, scenario
        self.begun, self.folder = work / "begun", work / "faulty"
        self.begun.mkdir(parents=True)
        scenario.begin(self.begun)
        self.restore()
        self.old, files = scenario.state(self.folder), visible(self.folder)
        code, said = run(scenario, self.folder)
        assert code == 0, (name, said)
        self.calls, self.new = int(said), scenario.state(self.folder)
        self.files = {*files, *visible(self.folder)}
        assert self.new not in (self.old, ABSENT), name
        self.points = [(kind, at) for kind in KINDS for at in range(1, self.calls + 1)]

    def restore(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.begun, self.folder)

    def check(self, kind: str, at: int) -> str:
        """What is wrong after one fault; empty where everything holds."""
        self.restore()
        code, said = run(self.scenario, self.folder, kind, at)
        wrong = self._wrong(kind, code, said)
        return f"{self.name}: {kind} at call {at}: {wrong}" if wrong else ""

    def _wrong(self, kind: str, code: int, said: str) -> str:
        if code == STUMBLED:
            return f"raw {said}"
        if code not in (0, FAILED, CRASHED) or (code == FAILED and "\n" in said):
            return f"exit code {code}, {said}"
        try:
            found = self.scenario.state(self.folder)
        except Exception as error:
            return f"a reader stumbles ({type(error).__name__}: {error})"
        if found not in (self.old, self.new) or (
            code == 0 and found != self.new and not self.scenario.best_effort
        ):
            return f"neither old nor new ({found[:200]})"
        if (
            code == FAILED
            and kind in ("EIO", "EINTR", "ENOSPC")
            and (left := {*visible(self.folder)} - self.files)
        ):
            return f"left behind {sorted(left)}"
        if found == self.new and self.scenario.once:
            return ""
        code, said = run(self.scenario, self.folder)
        if code != 0:
            return f"the next attempt fails with {code}, {said}"
        if self.scenario.state(self.folder) != self.new:
            return "the next attempt does not end in the new state"
        return ""


def main() -> None:
    number, part, of = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.environ["HALP_CACHE"] = ""
    console.quiet = True
    # in memory if there is such a place: a fault costs a hundred calls, and what is flushed is of no use here
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    writers = all_scenarios()
    for library in (safetensors.torch, safetensors.numpy):
        importers(library)
    gc.freeze()  # pages that the collector does not touch are shared with the forks
    work = Path(tempfile.mkdtemp(dir=place, prefix="halp-faults-"))
    try:
        for count, (name, scenario) in enumerate(writers.items()):
            trial = Trial(name, scenario, work / str(count))
            every = 1 if number == "all" else max(1, len(trial.points) // int(number))
            chosen = trial.points[::every][part::of]
            wrong = [found for kind, at in chosen if (found := trial.check(kind, at))]
            row = {"calls": trial.calls, "points": len(trial.points), "tried": len(chosen), "wrong": wrong}
            sys.stdout.write(json.dumps({"writer": name, **row}) + "\n")
            sys.stdout.flush()
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
