"""What earlier versions saved still opens, and docs/stability.md names the versions that are written today."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import halp
from halp.data import spans
from halp.data import store as stores
from halp.encoders import pretrained
from halp.evaluation import results
from halp.tasks import model_folder, motifs
from halp.tasks.events.formats import read_events
from halp.training import checkpoint

FIXTURES = Path(__file__).parent / "fixtures"
PAGE = (Path(__file__).parents[1] / "docs" / "stability.md").read_text(encoding="utf-8")
WRITTEN = {
    "store": stores.FORMAT,
    "run": checkpoint.FORMAT,
    "result": results.FORMAT,
    "model": model_folder.VERSION,
    "package": pretrained.VERSION,
    "motifs": motifs._FORMAT,
}


@pytest.mark.parametrize(("name", "timed"), [("store-0.1.0", False), ("store-0.1.0-timed", True)])
def test_store_of_the_first_version_opens_and_gives_its_clips_labels_and_splits(name: str, timed: bool) -> None:
    source = halp.open_source(FIXTURES / name)
    clips = [clip.frames for clip in source.clips()]
    assert [clip.shape for clip in clips] == [(6, 1, 21, 3)] * 4
    np.testing.assert_array_equal(clips[0], np.load(FIXTURES / name / "frames.npy")[:6])
    assert [source.class_names[label] for label in source.labels] == ["squat", "squat", "wave", "wave"]
    store = stores.open_store(FIXTURES / name)
    assert (store.timed, store.manifest()["clips"]) == (timed, 4)
    assert store.times(0)[-1] == pytest.approx(5 / 30 if timed else 5, rel=1e-4)
    split = json.loads((FIXTURES / "result-0.1.0.json").read_text())["split"]
    assert store.splits[split].hash == store.header["splits"][split]["hash"]
    assert [sorted(store.subjects[part]) for part in store.split(split)] == [[1, 1], [2, 2]]


def test_result_of_the_first_version_opens_with_its_metrics_under_todays_name() -> None:
    result = results.Result.load(FIXTURES / "result-0.1.0.json")
    saved = json.loads((FIXTURES / "result-0.1.0.json").read_text())
    assert (saved["format"], result.format) == (2, results.FORMAT)
    assert (result.accuracy, result.metrics) == (saved["accuracy"], saved["figures"])
    assert result.test_clips_trained_on is None


def test_package_of_the_first_version_opens() -> None:
    encoder = halp.load_encoder(FIXTURES / "model-0.1.0" / "encoder")
    assert encoder.origin["halp"] == "0.1.0"


def test_segments_of_the_first_version_are_read_as_events() -> None:
    read, left_out = read_events(FIXTURES / "segments-0.1.0.csv")
    assert [(event.recording, event.start, event.stop, event.label, event.score) for event in read] == [
        ("long", 0.0, 4.99995, "march", 0.885447),
        ("long", 4.99995, 9.9999, "wave", 0.800223),
        ("long", 9.9999, 14.99985, "squat", 0.708869),
        ("long", 14.99985, 19.9998, "wave", 0.800344),
        ("long", 19.9998, 24.99975, "", 0.497222),
    ]
    assert not left_out


@pytest.mark.parametrize(("kind", "version"), WRITTEN.items())
def test_page_names_the_version_that_is_written(kind: str, version: int) -> None:
    row = re.search(rf"^\| {kind} \|(?:[^|]*\|)? (\d+) \|", PAGE, flags=re.M)
    assert row is not None
    assert int(row[1]) == version


def test_page_names_the_columns_of_events() -> None:
    assert all(f"`{column}`" in PAGE for column in spans.COLUMNS)
