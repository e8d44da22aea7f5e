"""Where experiments find their data and keep their results."""

from __future__ import annotations

import json
import os
from pathlib import Path

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
