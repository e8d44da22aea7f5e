"""`halp reproduce graphs`: the paper's table on graphs, from a folder of TU sets to a table with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from halp.errors import InputError
from halp.graphs.settings import GraphSettings, override
from halp.graphs.sweep import run_sweep, schedule
from halp.graphs.table import SetResult, note, rows, save, summarise
from halp.locks import locked_folder

SETS = ("MUTAG", "PROTEINS", "NCI1", "DD")


@dataclass(frozen=True)
class GraphOutcome:
    """What the command found: results per set, what the numbers are, and how they were made."""

    results: list[SetResult]
    note: str
    about: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """As it is saved in graphs.json."""
        return self.about | {"note": self.note, "results": [asdict(result) for result in self.results]}

    def as_table(self) -> Table:
        """As it is shown in a terminal."""
        heads, lines = rows(self.results)
        shown = Table(*heads, title="GraphCL and HaLP on TU graphs", caption=self.note)
        for line in lines:
            shown.add_row(*line)
        return shown


@dataclass(frozen=True)
class GraphRequest:
    """What the command was asked for: a folder with sets, which of them, how many seeds, and settings as key=value."""

    data: Path
    sets: tuple[str, ...]
    seeds: range
    settings: GraphSettings
    command: str
    out: Path

    @property
    def cells(self) -> Path:
        """Where finished cells are."""
        return self.out / "graphs" / "cells"


def request_graphs(
    data: Sequence[str | Path],
    *,
    sets: Sequence[str] = (),
    seeds: int | None = None,
    svm: str = "plain",
    settings: Sequence[str] = (),
    out: Path = Path("reproduced"),
) -> GraphRequest:
    """Check what was asked for; all four sets of the paper and ten seeds where nothing else is said."""
    if len(data) != 1:
        raise InputError("give the folder with the graph sets: halp reproduce graphs --data FOLDER")
    seeds = 10 if seeds is None else seeds
    if seeds < 1:
        raise InputError(f"--seeds {seeds}: at least one seed is needed")
    names = tuple(dict.fromkeys(sets)) or SETS
    command = ["halp reproduce graphs --data FOLDER", f"--seeds {seeds}", "--sets", *names]
    command += [f"--svm {svm}"] * (svm != "plain") + (["--set", *settings] if settings else [])
    chosen = override(replace(GraphSettings(), svm=svm), settings)
    return GraphRequest(Path(data[0]), names, range(seeds), chosen, " ".join(command), out)


def plan_graphs(request: GraphRequest) -> dict[str, Any]:
    """What is left to do, without doing it."""
    planned = schedule(request.data, request.sets, request.seeds, request.settings, request.cells)
    left = sum(len(job.methods) for job in planned.jobs)
    return {"cells": len(planned.paths), "cells left": left, "seconds left": round(planned.seconds)}


def reproduce_graphs(request: GraphRequest, *, jobs: int = 1, progress: bool = True) -> GraphOutcome:
    """Train and evaluate what is missing in `out/graphs`, and write the table there."""
    if jobs < 1:
        raise InputError(f"--jobs {jobs}: at least one process is needed")
    with locked_folder(request.out, f"the sweep in '{request.out}'"):
        return _reproduce(request, jobs, progress)


def _reproduce(request: GraphRequest, jobs: int, progress: bool) -> GraphOutcome:
    asked = (request.data, request.sets, request.seeds, request.settings, request.cells)
    cells = run_sweep(*asked, jobs=jobs, progress=progress)
    spent = round(sum(sum(cell.seconds.values()) for cell in cells))
    about: dict[str, Any] = {
        "command": request.command,
        "seeds": list(request.seeds),
        "settings": request.settings.as_dict(),
    }
    about["core seconds"] = spent  # of all cells, whenever they were computed
    words = note(request.seeds, request.settings.svm)
    outcome = GraphOutcome(summarise(cells, request.sets, request.seeds), words, about)
    save(request.out / "graphs", cells, outcome.results, words, about)
    return outcome
