"""Shared by readers and writers of events: times, cells without formulas, limits, optional packages."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from halp.core.errors import missing_extra
from halp.core.files import atomic_path
from halp.data.spans import Event
from halp.data.text_files import number, problem

LARGEST_FILE = 64 * 2**20  # bytes of a file of events
Rows = tuple[list[Event], dict[str, float], list[str]]  # events, lengths of recordings, what was left out


def seconds(text: str, path: Path, where: str) -> float:
    if re.fullmatch(r"\d+:\d+(:\d+)?([.,]\d+)?", text):
        fault = f"'{text}' is a time of day or minutes and seconds"
        raise problem(path, where, fault, "give seconds from the start of the recording")
    return number(text, path, where)


def write_workbook(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    openpyxl = needed("openpyxl")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("events")
    # an archive that cannot be finished for want of space would complain once more at its end
    content = io.BytesIO()
    try:
        sheet.append(list(columns))
        for row in rows:
            cells = [openpyxl.cell.WriteOnlyCell(sheet, value) for value in row]
            for cell in cells:
                if isinstance(cell.value, str):  # a text that begins with = stays a text
                    cell.data_type = "s"
            sheet.append(cells)
        book.save(content)
    except OSError:  # of its temporary file, which would complain once more when it is collected
        with suppress(OSError):
            sheet._writer.xf.close()
        raise
    with atomic_path(path) as partial:
        partial.write_bytes(content.getbuffer())


def needed(module: str, extra: str = "findings") -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise missing_extra(f"this needs '{module.split('.')[0]}'", extra) from None


def left_out_points(count: int) -> list[str]:
    """A note about events without a duration."""
    events = (
        "1 point event, which has no duration, was"
        if count == 1
        else f"{count} point events, which have no duration, were"
    )
    return [f"{events} left out"] if count else []
