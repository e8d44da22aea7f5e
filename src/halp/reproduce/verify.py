"""Compare a reproduction with the paper: a finished table, a folder of them, or a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from halp.core.errors import InputError
from halp.core.files import read_json
from halp.evaluation.evaluate_run import saved_results
from halp.evaluation.results import Result, mean_and_std
from halp.reproduce.scales import SCALES
from halp.reproduce.tables import PaperTable, TableColumn, TableRow, list_tables
from halp.training.run import Run, open_run
from halp.training.run_folder import RunFolder

MARGIN = 1.0  # points that another seed may move a figure by, if there is only one


@dataclass(frozen=True)
class VerifiedCell:
    """A figure of the paper beside one's own; `agrees`: within two SD over seeds, or a point for one seed."""

    table: str
    row: str
    column: str
    data: str  # what ours was measured on
    scale: str
    paper: float
    ours: float
    std: float | None
    seeds: int

    @property
    def difference(self) -> float:
        return round(self.ours - self.paper, 4)

    @property
    def verdict(self) -> str:
        """`agrees`, `above` or `below`; at another scale than the paper's the two do not compare."""
        if self.scale != "paper":
            return "does not compare"
        if abs(self.difference) <= max(MARGIN, 2 * (self.std or 0.0)):
            return "agrees"
        return "above" if self.difference > 0 else "below"


@dataclass(frozen=True)
class Verification:
    """All figures of the paper beside one's own."""

    cells: list[VerifiedCell]

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {**asdict(cell), "difference": cell.difference, "verdict": cell.verdict} for cell in self.cells
        ]

    @property
    def sentence(self) -> str:
        """How many figures agree."""
        compared = [cell for cell in self.cells if cell.verdict != "does not compare"]
        if not compared:
            return (
                f"{len(self.cells)} figures, none at the paper's scale: they cannot be compared with the"
                " published ones"
            )
        counts = {
            name: sum(cell.verdict == name for cell in compared) for name in ("agrees", "above", "below")
        }
        mean = sum(cell.difference for cell in compared) / len(compared)
        return (
            f"{counts['agrees']} of {len(compared)} figures agree with the paper's, {counts['above']} are"
            f" above and {counts['below']} below; mean difference {mean:+.2f}"
        )


def verify(path: str | os.PathLike[str]) -> Verification:
    """Compare finished tables, or the evaluations of a run, with the figures that the paper reports.

    Parameters
    ----------
    path : path
        A table that `halp reproduce` saved (`tables/paper/linear.json`), the folder of a sweep, or a run of
        one of the paper's recipes with saved evaluations.

    Returns
    -------
    Verification
        A cell per figure: the paper's, ours, their difference.

    Raises
    ------
    InputError
        If there is nothing to compare.

    Examples
    --------
    >>> import halp
    >>> halp.verify("nowhere")
    Traceback (most recent call last):
    ...
    halp.core.errors.InputError: there is nothing at 'nowhere'; name a table's .json file, a sweep or a run
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"there is nothing at '{path}'; name a table's .json file, a sweep or a run")
    if RunFolder(path).holds_run():
        cells = list(_cells_of_run(open_run(path)))
        remedy = (
            "evaluate it with `halp evaluate`; only the paper's recipes (`halp recipes`) have published"
            " figures"
        )
    else:
        files = [path] if path.is_file() else sorted(path.glob("tables/*/*.json"))
        cells = [cell for file in files for cell in _cells_of_table(file)]
        remedy = "reproduce a table first: `halp reproduce linear --scale paper --data ntu60=STORE`"
    if not cells:
        raise InputError(f"'{path}' holds no figure that the paper has, too; {remedy}")
    return Verification(cells)


def _cells_of_table(file: Path) -> Iterator[VerifiedCell]:
    summary = read_json(file)
    try:
        for row in summary["rows"]:
            for cell in row["cells"]:
                if cell["paper"] is not None and cell["values"]:
                    mean, std = mean_and_std([float(value) for value in cell["values"]])
                    where = (summary["id"], row["name"], cell["column"], cell["data"], summary["scale"])
                    yield VerifiedCell(*where, float(cell["paper"]), mean, std, len(cell["values"]))
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"'{file}' is not a table that `halp reproduce` saved ({what}); run it again"
        ) from error


def _cells_of_run(run: Run) -> Iterator[VerifiedCell]:
    results = [r for r in saved_results(run) if r.encoder.get("trained") and "shipped" not in r.encoder]
    for table, row, column, paper in _published(run.recipe.name):
        for result in results:
            if _is_of(result, row, column):
                scale = "paper" if _as_published(run, row, column) else "other settings"
                where = (table.id, row.name, column.title, f"{run.path.name} {result.split}", scale)
                yield VerifiedCell(*where, paper, result.accuracy, result.std, len(result.accuracies))


def _published(recipe: str) -> Iterator[tuple[PaperTable, TableRow, TableColumn, float]]:
    """The cells of the paper whose row is exactly this recipe."""
    for table in list_tables().values():
        for row in table.rows if table.kind == "table" else ():
            for index, column in enumerate(table.columns):
                paper = table.paper_value(row, index)
                if paper is None or column.target or column.metric != "accuracy" or not row.has_recipe:
                    continue
                if recipe in _names(row, column):
                    yield table, row, column, paper


def _names(row: TableRow, column: TableColumn) -> Sequence[str]:
    """Names of the recipe of a row on the data of a column."""
    if row.method == "recipe":
        return [f"{column.data}-{row.recipe}"]
    terms = row.settings.get("terms")
    if not row.settings:
        return [f"{column.data}-{'moco' if row.method == 'moco' else row.recipe}"]
    ending = {"cmd": "cmd", "halp": "halp-cmd", "crossclr": "crossclr-b", "isc": "isc"}
    return [f"{column.data}-{ending[terms[-1]]}"] if terms and terms[-1] in ending else []


def _is_of(result: Result, row: TableRow, column: TableColumn) -> bool:
    """Whether a result was measured as a column says: protocol, split, and settings that the column names."""
    asked: Mapping[str, Any] = column.settings
    same = (result.protocol, result.split) == (row.protocol_of(column), column.split)
    return same and all(result.settings.get(key) == value for key, value in asked.items())


def _as_published(run: Run, row: TableRow, column: TableColumn) -> bool:
    """Whether a run has the settings of the paper's scale, apart from seed and name."""
    wanted = SCALES["paper"].recipe(column.data, column.split, run.recipe.seed, row).flat()
    own = run.recipe.flat()
    free = ("name", "description", "saving.")
    return all(own.get(key) == value for key, value in wanted.items() if not key.startswith(free))
