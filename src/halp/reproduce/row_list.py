"""What `halp reproduce --list` says: every row of the paper's tables, what runs it, or why it is quoted."""

from __future__ import annotations

from dataclasses import dataclass

from halp.reproduce.other_systems import QUOTED
from halp.reproduce.table_registry import PaperTable, list_tables


@dataclass(frozen=True)
class RowStatus:
    """One row of a table of the paper. `how` is the command that runs it, or the reason why it is quoted."""

    source: str  # where it stands in the paper
    table: str
    row: str
    paper: tuple[float | None, ...]
    runs: bool
    how: str
    note: str = ""


def list_rows() -> list[RowStatus]:
    """All rows of all tables of the paper, in the order of the paper."""
    found = [row for table in list_tables().values() for row in _rows(table)]
    found += [
        RowStatus("Supplement, Table 14", "graphs", row, paper, True, "halp reproduce graphs")
        for row, paper in (("GraphCL", (77.87, 74.39, 78.62, 86.8)), ("GraphCL + HaLP", (78.88, 74.65, 79.2, 89.35)))
    ]
    return sorted(found, key=_place)


def _rows(table: PaperTable) -> list[RowStatus]:
    run = [
        RowStatus(table.source, table.id, row.name, row.paper, True, f"halp reproduce {table.id}", row.note)
        for row in table.rows
    ]
    quoted = [
        RowStatus(table.source, table.id, system.name, paper, False, system.reason)
        for system, paper in QUOTED.get(table.id, ())
    ]
    return run + quoted


def _place(status: RowStatus) -> tuple[int, int, str]:
    """Tables by their number, the paper's before the supplement's, then sections and figures."""
    kind, _, number = status.source.removeprefix("Supplement, ").partition(" ")
    digits = "".join(letter for letter in number if letter.isdigit())
    return (0 if kind == "Table" else 1, int(digits) if kind == "Table" and digits else 0, status.source)
