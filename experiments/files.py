"""Where experiments find their data and keep their results."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("HALP_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data"


def save_results(name: str, data: object, page: str = "") -> None:
    """Write `results/NAME.json` and, if there is a page, `results/NAME.md`."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(
        json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    if page:
        (RESULTS / f"{name}.md").write_text(page, encoding="utf-8")


def kept_arrays(path: Path, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Arrays of a file, made once: how a stopped command resumes."""
    path = path.with_name(path.name.replace(" ", "_"))
    if not path.exists():
        np.savez(path, **make())
    return read_arrays(path)


def read_arrays(path: Path) -> dict[str, Any]:
    """Arrays of a file; none if it does not exist."""
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as found:
        return dict(found)
