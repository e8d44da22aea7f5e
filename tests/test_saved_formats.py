"""Every saved format opens, and docs/stability.md names the versions that are written today."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import halp
from halp.data import spans
from halp.data import store as stores
from halp.encoders import pretrained
from halp.evaluation import results
from halp.explorer import ledger
from halp.explorer.labels import LabelBook
from halp.features import collection
from halp.features.collection import open_collection
from halp.tasks import model_folder, motifs
from halp.tasks.events.formats import read_events
from halp.training import checkpoint, load_recipe, open_run, pretrain

SAVED = Path(__file__).parent / "fixtures" / "0.3.0"
PAGE = (Path(__file__).parents[1] / "docs" / "stability.md").read_text(encoding="utf-8")
WRITTEN = {
    "store": stores.FORMAT,
    "run": checkpoint.FORMAT,
    "result": results.FORMAT,
    "model": model_folder.VERSION,
    "package": pretrained.VERSION,
    "motifs": motifs._FORMAT,
    "collection": collection.FORMAT,
    "labels": ledger.VERSION,
}


@pytest.mark.parametrize(("name", "version"), [("store", stores.FORMAT), ("store-json", stores.JSON_FORMAT)])
def test_store_opens_with_its_clips_labels_and_splits(name: str, version: int) -> None:
    assert json.loads((SAVED / name / "store.json").read_text())["format"] == version
    store = stores.open_store(SAVED / name)
    clips = [clip.frames for clip in halp.open_source(SAVED / name).clips()]
    assert [clip.shape for clip in clips] == [(6, 1, 21, 3)] * 4
    np.testing.assert_array_equal(clips[0], np.load(SAVED / name / "frames.npy")[:6])
    assert [store.class_names[label] for label in store.labels] == ["squat", "squat", "wave", "wave"]
    assert store.times(0)[-1] == pytest.approx(5 / 30, rel=1e-4)
    assert [sorted(store.subjects[part]) for part in store.split("subjects-1")] == [[1, 1], [2, 2]]


def test_collection_opens_and_is_searched_with_its_own_vectors() -> None:
    source = halp.open_source(SAVED / "collection")
    saved = np.load(next((SAVED / "collection" / "vectors").glob("*.npy")))
    kept = open_collection(SAVED / "collection")
    series = kept.facts["series"]
    np.testing.assert_array_equal(np.asarray(kept.vectors(source, series)[:]), saved)
    assert [source.class_names[label] for label in source.labels] == ["squat", "squat", "wave", "wave"]


def test_vectors_open_with_their_rows() -> None:
    with np.load(SAVED / "vectors.npz", allow_pickle=False) as saved:
        assert saved["vectors"].shape == (4, 24)
        assert saved["names"].shape == saved["starts"].shape == (4,)


def test_labels_open_with_their_classes_and_undone_acts(tmp_path: Path) -> None:
    for name in ("labels.sqlite", "labels.csv"):
        shutil.copy(SAVED / name, tmp_path)
    with LabelBook(tmp_path / "labels.csv") as book:
        assert [event.label for _, event in book.now.events] == ["squat", "wave"]
        book.redo()
        assert [event.label for _, event in book.now.events] == ["squat", "wave", "other"]


def test_result_opens_with_its_metrics() -> None:
    saved = json.loads((SAVED / "result.json").read_text())
    result = results.Result.load(SAVED / "result.json")
    assert (result.accuracy, result.metrics, result.split) == (
        saved["accuracy"],
        saved["metrics"],
        "subjects-1",
    )


def test_run_opens_and_is_forked(tmp_path: Path) -> None:
    run = open_run(SAVED / "run")
    assert (
        halp.load_encoder(SAVED / "run").output_size
        == halp.load_encoder(SAVED / "model" / "encoder").output_size
    )
    recipe = load_recipe(SAVED / "run" / "recipe.toml", ["epochs=2"])
    forked = pretrain(
        recipe, stores.open_store(SAVED / "store"), tmp_path / "fork", fork=run.path, progress=False
    )
    assert forked.info["forked"]["step"] == 1


def test_model_answers_as_when_it_was_saved() -> None:
    expected = json.loads((SAVED / "model" / "expected.json").read_text())
    found = model_folder.load_model(SAVED / "model").classifier.predict(
        np.array(expected["vectors"], np.float32)
    )
    assert found.best.tolist() == expected["best"]
    np.testing.assert_allclose(found.probabilities, expected["probabilities"], atol=1e-5)


def test_motifs_open() -> None:
    assert motifs.load_motifs(SAVED / "motifs.npz").facts["window"] == 0.5


def test_segments_are_read_as_events() -> None:
    read, left_out = read_events(SAVED / "segments.csv")
    assert [event.label for event in read] == ["squat", "wave", "squat", "wave", "squat"]
    assert [event.start for event in read][1:] == [event.stop for event in read][:-1]
    assert {event.recording for event in read} == {"long"}
    assert not left_out


@pytest.mark.parametrize(("kind", "version"), WRITTEN.items())
def test_page_names_the_version_that_is_written(kind: str, version: int) -> None:
    row = re.search(rf"^\| {kind} \|(?:[^|]*\|)? (\d+) \|", PAGE, flags=re.M)
    assert row is not None
    assert int(row[1]) == version


def test_page_names_the_columns_of_events() -> None:
    assert all(f"`{column}`" in PAGE for column in spans.COLUMNS)
