"""`python tools/notebooks.py FOLDER`: tutorials and gallery as notebooks; text becomes cells of text, blocks become
cells of code.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"


def notebook(text: str) -> dict[str, Any]:
    """A page as a notebook; shell blocks are run by `%%bash`."""
    cells: list[dict[str, Any]] = []
    for part in re.split(r"(^```(?:bash|python)\n.*?^```\n)", text, flags=re.M | re.S):
        code = re.fullmatch(r"```(bash|python)\n(.*?)```\n", part, flags=re.S)
        if code is not None:
            source = code[2].rstrip() if code[1] == "python" else "%%bash\n" + code[2].rstrip()
            cells.append(
                {
                    "cell_type": "code",
                    "execution_count": None,
                    "metadata": {},
                    "outputs": [],
                    "source": source,
                }
            )
        elif part.strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": part.strip()})
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "notebooks")
    folder.mkdir(parents=True, exist_ok=True)
    for page in [*sorted(DOCS.glob("tutorials/*.md")), *sorted(DOCS.glob("gallery/*.md"))]:
        text = json.dumps(notebook(page.read_text(encoding="utf-8")), indent=1, ensure_ascii=False)
        (folder / f"{page.stem}.ipynb").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
