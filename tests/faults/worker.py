"""Enumerates faults: for one scenario every kind of fault at every call, each in a forked process, invariants after each.

Run as `python -m faults.worker SCENARIO NUMBER` (or `all`) in `tests` it tries that many faults, spread over all of them,
and prints one line of JSON: calls, faults tried, and what went wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from faults.scenarios import ABSENT, Scenario, scenario_of
from faults.shim import CRASHED, KINDS, install

from halp.errors import InputError

FAILED, STUMBLED = 10, 11


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


real_write = os.write


def visible(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def check(scenario: Scenario, name: str, work: Path, kind: str, at: int, old: str, new: str, files: list[str]) -> str:
    """What is wrong after one fault; empty where everything holds."""
    folder = work / "faulty"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    scenario.begin(folder)
    code, said = run(scenario, folder, kind, at)
    where = f"{name}: {kind} at call {at}"
    if code == STUMBLED:
        return f"{where}: raw {said}"
    if code not in (0, FAILED, CRASHED) or (code == FAILED and "\n" in said):
        return f"{where}: exit code {code}, {said}"
    try:
        found = scenario.state(folder)
    except Exception as error:
        return f"{where}: a reader stumbles ({type(error).__name__}: {error})"
    if found not in (old, new) or (code == 0 and found != new and not scenario.best_effort):
        return f"{where}: neither old nor new ({found[:200]})"
    if code == FAILED and kind in ("EIO", "EINTR") and (left := [one for one in visible(folder) if one not in files]):
        return f"{where}: left behind {left}"
    if found == new and name == "a new store":
        return ""
    code, said = run(scenario, folder)
    if code != 0:
        return f"{where}: the next attempt fails with {code}, {said}"
    if scenario.state(folder) != new:
        return f"{where}: the next attempt does not end in the new state"
    return ""


def main() -> None:
    name, number = sys.argv[1], sys.argv[2]
    scenario = scenario_of(name)
    work = Path(tempfile.mkdtemp())
    os.environ["HALP_CACHE"] = ""
    try:
        clean = work / "clean"
        clean.mkdir()
        scenario.begin(clean)
        old, files = scenario.state(clean), visible(clean)
        code, said = run(scenario, clean)
        assert code == 0, said
        calls, new, files = int(said), scenario.state(clean), [*files, *visible(clean)]
        assert old != new, (old, new)
        assert new != ABSENT
        points = [(kind, at) for kind in KINDS for at in range(1, calls + 1)]
        chosen = points if number == "all" else points[:: max(1, len(points) // int(number))]
        wrong = [found for kind, at in chosen if (found := check(scenario, name, work, kind, at, old, new, files))]
        sys.stdout.write(
            json.dumps({"calls": calls, "points": len(points), "tried": len(chosen), "wrong": wrong}) + "\n"
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
