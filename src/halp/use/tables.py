"""Answers as CSV tables, whole or absent."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halp.errors import InputError
from halp.files import atomic_path


def write_csv(path: str | os.PathLike[str], columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows under a header; None is an empty cell."""
    path = Path(path)
    try:
        with atomic_path(path) as partial, open(partial, "w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, columns, extrasaction="ignore")
            table.writeheader()
            table.writerows(rows)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written ({error}); choose another place") from error
    return path
