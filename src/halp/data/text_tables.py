"""Tables in text files: CSV with a header, and bare columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.core.files import plain_cell
from halp.data.source_files import MIB, head, read_text, remembered
from halp.data.text_files import (
    LARGEST_COORDINATE,
    Floats,
    number,
    point_number,
    problem,
    shown,
    whole_number,
)


@dataclass
class Table:
    """A CSV file by column: cells as text, lower-case column names, and the line number of each row.

    `spelling` has the column names as they are written in the file.
    """

    path: Path
    columns: dict[str, tuple[str, ...]]
    lines: list[int]
    spelling: dict[str, str] = field(default_factory=dict)
    decimal_comma: bool = False
    _parsed: dict[str, Floats] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int, column: str) -> str:
        return f"line {self.lines[row]}, column '{column}'"

    def numbers(self, column: str) -> Floats:
        """A column of finite numbers; an empty cell is NaN."""
        if column not in self._parsed:
            self._parsed[column] = self._parse(column)
        return self._parsed[column]

    def _parse(self, column: str) -> Floats:
        cells = self.columns[column]
        if self.decimal_comma:
            cells = tuple(map(point_number, cells))
        try:
            values = np.fromiter(
                map(float, (cell or "nan" for cell in cells) if "" in cells else cells), np.float64
            )
        except ValueError:
            for at, cell in enumerate(cells):
                if cell:
                    number(cell, self.path, self.where(at, column))
            raise
        for row in np.flatnonzero(~(np.abs(values) <= LARGEST_COORDINATE)):
            if cells[row]:
                fault = f"{shown(cells[row])} is not a place"
                raise problem(
                    self.path,
                    self.where(int(row), column),
                    fault,
                    "correct it, or leave a missing cell empty",
                )
        return values

    def whole_numbers(self, column: str) -> npt.NDArray[np.int64]:
        """A column of whole numbers, none missing."""
        cells = self.columns[column]
        return np.array(
            [
                whole_number(_as_number(cell), self.path, self.where(row, column))
                for row, cell in enumerate(cells)
            ],
            dtype=np.int64,
        )


def _as_number(cell: str) -> int | float | str:
    try:
        return float(cell) if "." in cell else int(cell)
    except ValueError:
        return cell


def _doubled_header(path: Path, where: str, header: Sequence[str]) -> InputError:
    """What to report about a header with a repeated name: a DeepLabCut table, a missing header, or a mistake."""
    if header[0] in ("scorer", "individuals", "bodyparts"):
        return problem(path, where, "this is a table of DeepLabCut", "prepare it with the format deeplabcut")
    if all(re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?|nan|", cell) for cell in header):
        return problem(path, where, "it holds numbers and no names of columns", NO_HEADER)
    twice = next(name for name in header if header.count(name) > 1)
    return problem(path, where, f"column {shown(twice)} occurs twice", "rename one of the two")


#: What to do about a table of numbers alone.
NO_HEADER = (
    "add a header line that names the joints, or, where these are the 33 landmarks of MediaPipe, use "
    "`halp prepare mediapipe … --option header=false`"
)


def header_cells(path: Path) -> list[str]:
    """The cells of the first line of a CSV file in lower case, for sniffing."""
    first = head(path, 1 << 18).removeprefix(b"\xef\xbb\xbf").split(b"\n")[0].decode("latin-1").lower()
    return [cell.strip(' "\r') for cell in re.split("[,;\t]", first)]


def csv_rows(path: Path, separators: str = ",") -> tuple[list[list[str]], list[int]]:
    """The rows of a CSV file that are not empty, all of one width, and the line each ends on.

    The separator is the one that comes most often in the first line.
    """
    text = read_text(path)
    rows: list[list[str]] = []
    lines: list[int] = []
    reader = csv.reader(
        text.split("\n"), delimiter=_separator(text.partition("\n")[0], separators), strict=True
    )
    try:
        for row in reader:
            cells = list(map(str.strip, row))
            if any(cells):
                rows.append(cells)
                lines.append(reader.line_num)
                if len(row) != len(rows[0]):
                    raise problem(path, f"line {lines[-1]}", f"{len(row)} cells instead of {len(rows[0])}")
    except csv.Error as error:
        raise problem(path, f"line {reader.line_num}", f"not CSV ({error})") from None
    return rows, lines


def _separator(first_line: str, separators: str) -> str:
    return max(separators, key=first_line.count)


@remembered(largest=64 * MIB)
def read_table(path: Path, header: tuple[str, ...] = ()) -> Table:
    """A CSV file with a header line, or with the one given; the separator is a comma, a semicolon or a tab.

    The last file is remembered for as long as it does not change: its rows, labels and layout are asked for
    one by one.
    """
    rows, lines = csv_rows(path, ",;\t")
    if header:
        rows, lines = [list(header), *rows], [0, *lines]
        if len(rows[-1]) != len(header):
            raise problem(path, "line 1", f"{len(rows[-1])} columns instead of {len(header)}")
    if len(rows) < 2:
        raise problem(path, "", "there is no row below the header", "fetch it again or leave it out")
    names = [name.lower() for name in rows[0]]
    if len(set(names)) != len(names):
        raise _doubled_header(path, f"line {lines[0]}", names)
    # a comma within cells is that of numbers where it does not separate them
    comma = _separator(head(path, 1 << 18).partition(b"\n")[0].decode("latin-1"), ",;\t") != ","
    return Table(path, dict(zip(names, zip(*rows[1:]))), lines[1:], dict(zip(names, rows[0])), comma)


def read_plain_table(path: Path) -> Table:
    """Like `read_table`, for tables from spreadsheets or halp: strips the guard against formulas from cells."""
    table = read_table(path)
    return replace(
        table, columns={name: tuple(map(plain_cell, cells)) for name, cells in table.columns.items()}
    )
