"""`halp reproduce graphs`: the paper's table on graphs, from a folder of TU sets to a table with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from halp.errors import InputError
from halp.graphs.settings import GraphSettings, override
from halp.graphs.sweep import run_sweep
from halp.graphs.table import SetResult, note, rows, save, summarise

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


def reproduce_graphs(
    data: Sequence[str | Path],
    *,
    sets: Sequence[str] = (),
    seeds: int = 10,
    svm: str = "plain",
    settings: Sequence[str] = (),
    out: Path = Path("reproduced"),
    jobs: int = 1,
    progress: bool = True,
) -> GraphOutcome:
    """Train and evaluate what is missing in `out/graphs`, and write the table there."""
    if len(data) != 1:
        raise InputError("give the folder with the graph sets: halp reproduce graphs --data FOLDER")
    if seeds < 1 or jobs < 1:
        raise InputError(f"--seeds {seeds} and --jobs {jobs} have to be at least 1")
    chosen = override(replace(GraphSettings(), svm=svm), settings)
    names, numbers = tuple(dict.fromkeys(sets)) or SETS, range(seeds)
    folder = out / "graphs"
    cells = run_sweep(Path(data[0]), names, numbers, chosen, folder / "cells", jobs=jobs, progress=progress)
    command = ["halp reproduce graphs --data FOLDER", f"--seeds {seeds}", "--sets", *names]
    command += [f"--svm {svm}"] * (svm != "plain") + (["--set", *settings] if settings else [])
    about = {"command": " ".join(command), "seeds": list(numbers), "settings": chosen.as_dict()}
    outcome = GraphOutcome(summarise(cells, names, numbers), note(numbers, chosen.svm), about)
    save(folder, cells, outcome.results, outcome.note, about)
    return outcome
