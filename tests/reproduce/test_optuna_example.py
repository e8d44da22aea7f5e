"""The Optuna example of docs/cluster.md, as it stands there, on a small store and for three trials."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from halp.data.store import Store

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


@pytest.mark.slow
def test_the_optuna_example_searches_and_resumes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (example,) = [block for block in blocks if "optuna" in block]
    for said, meant in (('"epochs=20"', '"epochs=1", "encoder.hidden=8"'), ("n_trials=20", "n_trials=2")):
        assert said in example
        example = example.replace(said, meant)
    shutil.copytree(store.path, tmp_path / "stores" / "mine")
    monkeypatch.chdir(tmp_path)
    for trials in (2, 4):
        found: dict[str, Any] = {}
        exec(example, found)  # noqa: S102 - our own page
        assert len(found["study"].trials) == trials
    assert 0 <= found["study"].best_value <= 100
    assert 0.1 <= found["study"].best_params["hardness"] <= 0.9
