"""`halp reproduce graphs`: the paper's table on graphs, from a folder of TU sets to a table with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from halp.errors import InputError
from halp.graphs.settings import GraphSettings, override
from halp.graphs.sweep import run_sweep
from halp.graphs.table import note, rows, save, summarise

SETS = ("MUTAG", "PROTEINS", "NCI1", "DD")


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
    show: bool = True,
) -> dict[str, Any]:
    """Train and evaluate what is missing in `out/graphs`, write the table there and print it (`show`) on stdout."""
    if len(data) != 1:
        raise InputError("give the folder with the graph sets: halp reproduce graphs --data FOLDER")
    if seeds < 1 or jobs < 1:
        raise InputError(f"--seeds {seeds} and --jobs {jobs} have to be at least 1")
    chosen = replace(override(GraphSettings(), settings), svm=svm)
    names, numbers = tuple(dict.fromkeys(sets)) or SETS, range(seeds)
    folder = out / "graphs"
    cells = run_sweep(Path(data[0]), names, numbers, chosen, folder / "cells", jobs=jobs, progress=progress)
    results, words = summarise(cells, names, numbers), note(numbers, svm)
    command = " ".join(
        ["halp reproduce graphs --data FOLDER", f"--seeds {seeds}", "--sets", *names]
        + ([f"--svm {svm}"] if svm != "plain" else [])
        + (["--set", *settings] if settings else [])
    )
    about = {"command": command, "seeds": list(numbers), "settings": chosen.as_dict()}
    save(folder, cells, results, words, about)
    if show:
        heads, lines = rows(results)
        shown = Table(*heads, title="GraphCL and HaLP on TU graphs")
        for line in lines:
            shown.add_row(*line)
        printer = Console()
        printer.print(shown)
        printer.print(words, highlight=False)
    return about | {"note": words, "results": [asdict(result) for result in results]}
