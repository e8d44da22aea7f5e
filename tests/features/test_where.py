"""Filters on rows: what they compare, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data.test_prepare import write_tree

import halp
from halp.cli import main
from halp.core.errors import InputError
from halp.data.ingest.prepare import prepare
from halp.data.store import Store
from halp.features.opening import open_source
from halp.features.where import evaluate, matching_rows

COLUMNS = {
    "subject": np.array([1, 2, 3, 2]),
    "label": np.array(["walk", "run", "it's = 2", "walk"]),
    "start": np.arange(4.0),
}


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("subject = 2", [1, 3]),
        ("subject == '2' AND start > 1.5", [3]),
        ("subject <> 2 or label = 'run'", [0, 1, 2]),
        ("not (subject in (1, 2))", [2]),
        ("label not in ('walk', 'run')", [2]),
        ('label = "it\'s = 2"', [2]),
        ("start >= 1 and start <= 2", [1, 2]),
        ("subject = -1", []),
    ],
)
def test_filters_compare_as_they_read(where: str, rows: list[int]) -> None:
    assert np.flatnonzero(evaluate(where, COLUMNS)).tolist() == rows


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("subjet = 2", "did you mean 'subject'"),
        ("subject", "cannot be read"),
        ("subject = ", "cannot be read"),
        ("subject = 'p3'", "compares 'subject', a number, with 'p3'"),
        ("__import__('os').system('x') = 1", "cannot be read"),
        ("subject = label", "cannot be read"),
        ("(" * 500, "cannot be read"),
    ],
)
def test_wrong_filters_are_one_sentence(where: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        evaluate(where, COLUMNS)


def test_filter_on_people_that_no_recording_names_says_so() -> None:
    with pytest.raises(InputError, match="no subject of these recordings is known"):
        evaluate("subject = 'p3'", {"subject": np.array([-1, -1])})


def test_a_filtered_search_is_exact_over_the_rows_that_pass(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halp.tasks.search.EXACT", 10)  # others go by an index
    where = f"subject = {int(store.subjects[5])} and camera = {int(store.cameras[5])}"
    passing = np.flatnonzero(matching_rows(open_source(store), where))
    assert 0 < len(passing) < len(store)
    vectors = halp.embed("halp-base", store, compact=True, progress=False)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    query = int(np.setdiff1d(np.arange(len(store)), passing)[0])
    order = passing[np.argsort(-(unit[passing] @ unit[query]), kind="stable")][:4]
    found = halp.search(
        "halp-base", str(store.names[query]), store, k=4, where=where, cache=False, progress=False
    )
    assert [hit.recording for hit in found] == [str(store.names[row]) for row in order]
    with pytest.raises(InputError, match="no row of"):
        halp.search(
            "halp-base", str(store.names[0]), store, where="subject = 99", cache=False, progress=False
        )


def test_people_and_cameras_are_compared_by_the_names_that_a_table_gave_them(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    for number in range(4):
        np.save(tmp_path / "files" / f"{number}.npy", store.clip(number))
    (tmp_path / "who.csv").write_text("name,subject,camera\n0,p3,1\n1,p3,2\n2,p4,2\n3,p5,2\n")
    options = {"labels": tmp_path / "who.csv", "options": {"topology": "kinect-v2"}, "progress": False}
    prepare("arrays", tmp_path / "files", tmp_path / "store", **options)  # type: ignore[arg-type]
    labels = tmp_path / "who.csv"
    files = open_source(tmp_path / "files", options={"topology": "kinect-v2"}, labels=labels, fps=30)
    for source in (open_source(tmp_path / "store"), files):
        assert source.names == ["0", "1", "2", "3"]
        assert matching_rows(source, "subject = 'p3' and camera = 2").tolist() == [False, True, False, False]


def test_cameras_of_files_are_compared_and_kept_in_a_collection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree(tmp_path / "tree", 6)
    for _ in range(2):  # the second time from the cache
        source = open_source(tmp_path / "tree")
        halp.embed_table("halp-base", source, compact=True, progress=False)
        assert matching_rows(source, "camera = 2").tolist() == ["C002" in name for name in source.names]
    main(["embed", "halp-base", str(tmp_path / "tree"), str(tmp_path / "all")])
    kept = open_source(tmp_path / "all")
    halp.embed_table("halp-base", kept, compact=True, progress=False)
    assert matching_rows(kept, "camera = 2").sum() == 2
