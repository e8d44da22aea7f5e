"""Events in the formats of other programs: tables, BORIS, ELAN, Praat, Audacity and SLEAP.

`read_events` and `write_events` choose by the ending unless told; a folder is read file by file. Formats that
hold one recording per file are written to a folder, a file per recording.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from halp.core.errors import InputError, check_choice
from halp.core.files import atomic_path, plain_cell, write_csv
from halp.data.source_files import find_files, read_bytes, read_text
from halp.data.spans import COLUMNS, UNSEEN, Event, Events, stem
from halp.data.text_files import number, point_number, problem, safe_name
from halp.tasks.events.annotations import (
    read_audacity,
    read_elan,
    read_sleap,
    read_textgrid,
    write_audacity,
    write_elan,
    write_sleap,
    write_textgrid,
)
from halp.tasks.events.boris import aggregated_rows, read_boris, tabular_rows, write_boris, write_boris_excel
from halp.tasks.events.cells import LARGEST_FILE, Rows, needed, seconds, write_workbook

_OTHER_WORDS = {"name": "recording", "end": "stop", "probability": "score"}
_KNOWN = {*COLUMNS, *_OTHER_WORDS}
_NUMBERS = {
    *"start stop end score probability time fps".split(), "start (s)", "stop (s)", "media duration (s)", "total length"
}  # fmt: skip


@dataclass(frozen=True)
class Format:
    """How events are read and written; `single`: one recording per file, `takes`: the writer's options."""

    ending: str
    read: Callable[[Path], Rows]
    write: Callable[..., None]
    single: bool = False
    takes: tuple[str, ...] = ()


def read_events(path: str | os.PathLike[str], file_format: str = "auto") -> tuple[Events, list[str]]:
    """Events of a file, or of all files of a folder, and notes about omissions.

    Parameters
    ----------
    path : a file or a folder.
    file_format : a name of `FORMATS`; `auto` goes by ending and header.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"there is nothing at '{path}'; give a file with events")
    endings = {kind.ending for kind in FORMATS.values()}
    files = find_files(path, *endings) if path.is_dir() else [path]
    if not files:
        raise InputError(f"there is no file with events below '{path}', of {', '.join(sorted(endings))}")
    events: list[Event] = []
    lengths: dict[str, float] = {}
    notes: list[str] = []
    for file in files:
        some, known, left_out = FORMATS[_choose_format(file, file_format)].read(file)
        events += some
        lengths |= known
        notes += [f"'{file}': {note}" for note in left_out]
    return Events(events, lengths, f"'{path}'"), notes


def write_events(
    events: Events,
    path: str | os.PathLike[str],
    file_format: str = "auto",
    *,
    media: str = "mp4",
    fps: float = 30.0,
) -> list[Path]:
    """Write events and return the files; several recordings in a one-recording format become a folder of
    files.

    `media` is the ending of the films that BORIS and SLEAP are told to look for, `fps` their rate for SLEAP,
    which counts frames.
    """
    path = Path(path)
    kind = FORMATS[_choose_format(path, file_format)]
    try:
        if not kind.single or (
            path.suffix.lower() == kind.ending and len({e.recording for e in events}) == 1
        ):
            given = {"media": media, "fps": fps}
            kind.write(path, events, **{name: given[name] for name in kind.takes})
            return [path]
        return [
            _write_one(path, kind, name, part) for name, part in events.by_recording().items() if len(part)
        ]
    except OSError as error:
        raise InputError(f"'{path}' cannot be written ({error}); choose another path") from error


def _write_one(folder: Path, kind: Format, name: str, events: Events) -> Path:
    if folder.suffix.lower() == kind.ending:
        raise InputError(f"'{folder}' can hold one recording and there are several; give a folder")
    path = folder / (stem(safe_name(name, folder, "")) + kind.ending)
    kind.write(path, events)
    return path


def _choose_format(path: Path, file_format: str) -> str:
    if file_format != "auto":
        return check_choice("format of events", file_format, FORMATS)
    for name, kind in FORMATS.items():
        if path.suffix.lower() == kind.ending.lower():
            return name
    if not path.suffix:
        raise InputError(f"'{path}' has no ending; name a format with --to: {', '.join(FORMATS)}")
    raise InputError(
        f"the ending of '{path}' is not that of an event format; name the format: {', '.join(FORMATS)}"
    )


def read_csv(path: Path) -> Rows:
    """A CSV table of events, or of BORIS (tabular or aggregated), recognised by its header."""
    text = read_text(path, LARGEST_FILE)
    if "\0" in text:
        raise problem(path, "", "it holds a NUL character", "save it again as a CSV table in UTF-8")
    first = max(text.split("\n")[:40], key=lambda line: max(map(line.count, ",;\t")), default="")
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=max(",;\t", key=first.count), strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        same: dict[str, str] = {}  # names and labels come again and again; each is kept once
        try:
            for row in reader:
                if any(map(str.strip, row)):
                    yield (
                        reader.line_num,
                        [same.setdefault(cell, cell) for cell in map(plain_cell, map(str.strip, row))],
                    )
                    if len(same) > 100_000:  # times do not come again
                        same.clear()
        except csv.Error as error:
            raise problem(
                path, f"line {reader.line_num}", f"not CSV ({error})", "check that the file is whole"
            ) from None

    return _from_rows(path, rows(), decimal_comma=reader.dialect.delimiter != ",")


def _from_rows(path: Path, rows: Iterable[tuple[int, list[str]]], *, decimal_comma: bool = False) -> Rows:
    """Events of rows; the first row that names known columns is the header."""
    rows = iter(rows)
    for line, cells in rows:
        header = [cell.lower() for cell in cells]
        names = {_OTHER_WORDS.get(name, name) for name in header}
        reads = (
            _plain_rows if {"recording", "start", "stop", "label"} <= names
            else aggregated_rows if {"behavior", "start (s)", "stop (s)"} <= names
            else tabular_rows if {"behavior", "time"} <= names or {"code", "time"} <= names
            else None
        )  # fmt: skip
        if reads is not None:
            twice = next((name for name in header if name and header.count(name) > 1), None)
            if twice is not None:
                raise problem(
                    path, f"line {line}", f"column '{twice}' is there twice", "rename one of the two"
                )
            table = (_named(path, header, *each) for each in rows)
            return reads(path, map(_with_points, table) if decimal_comma else table)
    raise problem(
        path,
        "line 1",
        "its header is neither of events nor of BORIS",
        f"name the columns {', '.join(COLUMNS[:4])} (and {', '.join(COLUMNS[4:])})",
    )


def _named(path: Path, header: list[str], line: int, row: list[str]) -> tuple[int, dict[str, str]]:
    """A row by the names of its columns; further cells are empty, as programs for tables write them."""
    if any(row[len(header) :]):
        fault = f"{len(row)} cells below {len(header)} names of columns"
        raise problem(
            path, f"line {line}", fault, "put cells with a comma in quotation marks, or name all columns"
        )
    return line, dict(zip_longest(header, row[: len(header)], fillvalue=""))


def _with_points(row: tuple[int, dict[str, str]]) -> tuple[int, dict[str, str]]:
    """A row of a table whose separator is not a comma: 1,5 is a number in columns of numbers."""
    line, cells = row
    return line, cells | {
        name: point_number(cell) for name, cell in cells.items() if name in _NUMBERS and "," in cell
    }


def _plain_rows(path: Path, table: Iterable[tuple[int, Mapping[str, str]]]) -> Rows:
    events = []
    # further columns, such as a group, are mostly those of the row before
    same: dict[tuple[str, ...], dict[str, str]] = {}
    for line, cells in table:
        row = {
            **{_OTHER_WORDS[name]: cell for name, cell in cells.items() if name in _OTHER_WORDS and cell},
            **cells,
        }
        for name, other in _OTHER_WORDS.items():
            row[other] = cells.get(other) or cells.get(name, "")
        where = f"line {line}, column "
        more = {k: v for k, v in cells.items() if k and k not in _KNOWN}
        events.append(
            Event(
                row["recording"],
                seconds(row["start"], path, f"{where}start"),
                seconds(row["stop"], path, f"{where}stop"),
                row["state"] if row.get("state") in UNSEEN else row["label"],
                row.get("subject", ""),
                row.get("source", "") or ("model" if "probability" in cells else "human"),
                number(row["score"], path, f"{where}score") if row["score"] else None,
                same.setdefault(tuple(more.values()), more) if len(same) < 10_000 else more,
            )
        )
    return events, {}, []


def write_csv_events(path: Path, events: Events) -> None:
    """A CSV table of events."""
    write_csv(path, *_table(events))


def write_tsv_events(path: Path, events: Events) -> None:
    """The CSV table with tabs."""
    write_csv(path, *_table(events), delimiter="\t")


def _table(events: Events) -> tuple[list[str], list[dict[str, Any]]]:
    more = list(dict.fromkeys(name for event in events for name in event.more))
    return [*COLUMNS, *more], [dict.fromkeys(more, "") | event.to_json() for event in events]


def read_parquet(path: Path) -> Rows:
    """A Parquet table of events."""
    from pyarrow import parquet

    try:
        table = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise problem(path, "", f"it cannot be read as Parquet ({error})", "write it again") from None
    rows = [[str(name) for name in table[0]] if table else []]
    rows += [["" if value is None else str(value) for value in row.values()] for row in table]
    return _from_rows(path, list(enumerate(rows, start=1)))


def write_parquet(path: Path, events: Events) -> None:
    """A Parquet table of events."""
    import pyarrow
    from pyarrow import parquet

    columns, rows = _table(events)
    with atomic_path(path) as partial:
        parquet.write_table(pyarrow.table({name: [row[name] for row in rows] for name in columns}), partial)


def read_excel(path: Path) -> Rows:
    """The first sheet of a workbook: events, or what BORIS exports."""
    openpyxl = needed("openpyxl")
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path, LARGEST_FILE))) as archive:
            if sum(part.file_size for part in archive.infolist()) > 4 * LARGEST_FILE:
                raise problem(path, "", "it unpacks to more than 256 MiB", "save the events as CSV")
            if any(
                b"<!DOCTYPE" in archive.read(part)
                for part in archive.namelist()
                if part.endswith((".xml", ".rels"))
            ):
                raise problem(path, "", "it declares a document type", "do not open it; it may be malicious")
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheet = [
            ["" if cell is None else str(cell).strip() for cell in row] for row in book.worksheets[0].values
        ]
    except InputError:
        raise
    except Exception as error:  # the library names its errors by what it met in the archive
        raise problem(
            path, "", f"it cannot be read as a workbook ({error})", "save it again as .xlsx"
        ) from None
    return _from_rows(path, [(at, row) for at, row in enumerate(sheet, start=1) if any(row)])


def write_excel(path: Path, events: Events) -> None:
    """A workbook with the columns of the CSV table."""
    columns, rows = _table(events)
    write_workbook(path, columns, [[row[name] for name in columns] for row in rows])


def _read_any_boris(path: Path) -> Rows:
    """A project of BORIS, or a table that BORIS exported."""
    return {".xlsx": read_excel, ".csv": read_csv, ".tsv": read_csv}.get(path.suffix.lower(), read_boris)(
        path
    )


FORMATS: dict[str, Format] = {
    "csv": Format(".csv", read_csv, write_csv_events),
    "tsv": Format(".tsv", read_csv, write_tsv_events),
    "parquet": Format(".parquet", read_parquet, write_parquet),
    "excel": Format(".xlsx", read_excel, write_excel),
    "boris": Format(".boris", _read_any_boris, write_boris, takes=("media",)),
    "boris-xlsx": Format(".xlsx", read_excel, write_boris_excel, single=True),
    "elan": Format(".eaf", read_elan, write_elan, single=True),
    "textgrid": Format(".TextGrid", read_textgrid, write_textgrid, single=True),
    "audacity": Format(".txt", read_audacity, write_audacity, single=True),
    "sleap": Format(".slp", read_sleap, write_sleap, takes=("media", "fps")),
}
