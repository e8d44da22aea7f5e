"""The report of runs: what is left out says why, and what is there is right for data without labels or
splits.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.store import Store, open_store
from halp.data.store_writer import StoreWriter
from halp.evaluation.evaluate_run import evaluate_run
from halp.explorer.api import Api
from halp.explorer.session import Session, Settings
from halp.reports.run_report import open_runs, report_runs
from halp.training import Run, load_recipe, pretrain


def trained(store: Store, path: Path, tiny: tuple[str, ...], *settings: str) -> Run:
    return pretrain(load_recipe("small", (*tiny, "epochs=1", *settings)), store, path, progress=False)


def without_labels(store: Store, path: Path, *, splits: bool) -> Store:
    """The same clips with neither labels nor classes."""
    options = {"persons": store.persons, "normalisation": store.normalisation}
    with StoreWriter(
        path, store.topology, splits=store.splits.values() if splits else (), **options
    ) as writer:
        for i, name in enumerate(store.names.tolist()):
            columns = {"subject": int(store.subjects[i]), "camera": int(store.cameras[i])}
            writer.add(Clip(np.array(store.clip(i)), name, **columns))
    return open_store(path)


def test_parts_that_are_left_out_say_why(store: Store, tmp_path: Path, tiny: tuple[str, ...]) -> None:
    run = trained(store, tmp_path / "run", tiny, 'terms=["infonce"]')
    page = report_runs({"run": run}, None).html()
    assert "Left out" in page
    assert "no evaluation is saved in the run" in page
    assert "is not there; give another with --data" in page
    page = report_runs({"run": run}, store).html()
    assert "run run has not hallucinated any positives" in page
    assert "Confusion matrix: no evaluation on split" in page


def test_runs_side_by_side_show_curves_and_the_settings_that_differ(
    store: Store, tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    run = trained(store, tmp_path / "a", tiny, 'terms=["infonce"]')
    shutil.copytree(run.path, tmp_path / "b")
    recipe = tmp_path / "b" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("seed = 0", "seed = 7"))
    session = Session(Settings(tmp_path, runs=(tmp_path / "a", tmp_path / "b")))
    parts = json.loads(json.dumps(Api(session).runs({})))  # as the explorer's page gets it
    (settings,) = [part for part in parts if part.get("caption") == "Settings that differ"]
    assert settings["columns"] == ["setting", "a", "b"]
    assert [row["cells"] for row in settings["rows"]] == [["seed", "0", "7"]]
    assert any("<svg" in part.get("markup", "") for part in parts)
    with pytest.raises(InputError, match="not a run folder"):
        open_runs([tmp_path])
    with pytest.raises(InputError, match="the same folder name"):
        open_runs([tmp_path / "a", tmp_path / "a"])


def test_a_complete_report_leaves_nothing_out(store: Store, tmp_path: Path, tiny: tuple[str, ...]) -> None:
    run = trained(store, tmp_path / "run", tiny, "epochs=3", "halp.start_epoch=1", "contrast.queue=64")
    evaluate_run(run, store, protocols=("knn",))
    page = report_runs({"run": run}, store).html()
    assert "Left out" not in page
    assert "Similarity to every prototype" in page


def test_a_method_without_contrast_has_curves_of_its_own(store: Store, tmp_path: Path) -> None:
    settings = ("method=masked", "encoder.name=transformer", "epochs=1", "batch_size=64")
    run = pretrain(load_recipe("small", settings), store, tmp_path / "run", progress=False)
    page = report_runs({"run": run}, None).html()
    assert "All terms together" in page
    assert "no data" not in page
    for title in ("Contrastive loss", "Similarity to the query", "Positives kept"):
        assert title not in page


@pytest.mark.parametrize("splits", [True, False])
def test_data_without_labels_has_a_report(
    store: Store, tmp_path: Path, tiny: tuple[str, ...], splits: bool
) -> None:
    bare = without_labels(store, tmp_path / "bare", splits=splits)
    run = trained(bare, tmp_path / "run", tiny, 'split="all"')
    page = report_runs({"run": run}, bare).html()
    assert ("no label" in page) == splits
    assert ("has no split with test clips" in page) == (not splits)
