"""JSON Lines: one JSON value per line, a frame each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from halp.clips.source_files import read_text
from halp.clips.text_files import problem


def read_json_lines(path: Path) -> list[Any]:
    """The values of all lines that are not empty; NaN, as Python writes it, is null."""

    def constant(text: str) -> Any:
        if text == "NaN":
            return None
        raise ValueError(f"{text} is not JSON")

    values = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                values.append(json.loads(line, parse_constant=constant))
            except (ValueError, RecursionError) as error:
                reason = getattr(error, "msg", None) or str(error)[:80]
                raise problem(path, f"line {number}", f"not JSON ({reason})", "write one value per line") from None
    if not values:
        raise problem(path, "", "there is no line in it", "check that the file is whole")
    return values
