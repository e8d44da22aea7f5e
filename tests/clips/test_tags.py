"""Labels, subjects, cameras and further columns come from a table, from a pattern of paths, or from folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from reader_samples import BVH

from halp.clips.ingest.prepare import prepare
from halp.clips.store import Store, open_store
from halp.errors import InputError


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Four recordings: two people, two actions."""
    for person in ("anna", "ben"):
        for action in ("walk", "run"):
            folder = tmp_path / "own" / person / action
            folder.mkdir(parents=True)
            (folder / "take 1.bvh").write_text(BVH)
    return tmp_path / "own"


def made(own: Path, **settings) -> Store:
    prepare("bvh", own, own.parent / "store", progress=False, **settings)
    return open_store(own.parent / "store")


def names(store: Store) -> list[str]:
    return [store.class_names[label] if label >= 0 else "" for label in store.labels]


@pytest.mark.parametrize(
    "rows",
    [
        [
            "anna/walk/take 1.bvh,walk,7",
            "anna/run/take 1.bvh,run,7",
            "ben/walk/take 1.bvh,walk,9",
            "ben/run/take 1.bvh,run,9",
        ],
        ["anna/walk/take 1,walk,7", "./anna/run/take 1,run,7", "ben\\walk\\take 1,walk,9", "ben/run/take 1,run,9"],
    ],
    ids=["paths", "names"],
)
@pytest.mark.parametrize("header", ["path,label,subject", "name,class,participant"])
def test_a_table_gives_labels_and_subjects(header: str, rows: list[str], own: Path) -> None:
    table = own.parent / "meta.csv"
    table.write_text("\n".join([header, *rows]) + "\n")
    store = made(own, labels=table)
    assert names(store) == ["run", "walk", "run", "walk"]
    assert store.subjects.tolist() == [7, 7, 9, 9]
    assert store.class_names == ["run", "walk"]


def test_further_columns_are_numbers_or_texts_and_names_of_people_are_kept(own: Path) -> None:
    table = own.parent / "meta.csv"
    table.write_text(
        "name;subject;age;height;site\nanna/walk/take 1;anna;31;1.7;Graz\nanna/run/take 1;anna;31;1.7;Graz\n"
        "ben/walk/take 1;ben;40;;Bern\nben/run/take 1;ben;;1.8;\n"
    )
    store = made(own, labels=table)
    assert store.subjects.tolist() == [0, 0, 1, 1]
    assert store.columns["subject_name"].tolist() == ["anna", "anna", "ben", "ben"]
    assert store.columns["age"].tolist() == [31, 31, -1, 40]
    assert store.columns["height"].tolist() == [1.7, 1.7, 1.8, -1]
    assert store.columns["site"].tolist() == ["Graz", "Graz", "", "Bern"]
    # The table has no labels, so the folders still name the classes.
    assert store.class_names == ["anna", "ben"]


def test_a_pattern_of_paths_gives_labels_and_subjects(own: Path) -> None:
    store = made(own, path="{subject}/{label}/*.bvh")
    assert names(store) == ["run", "walk", "run", "walk"]
    assert store.columns["subject_name"].tolist() == ["anna", "anna", "ben", "ben"]


def test_a_table_goes_before_a_pattern(own: Path) -> None:
    table = own.parent / "meta.csv"
    table.write_text("name,label\nanna/walk/take 1,stroll\n")
    store = made(own, path="{subject}/{label}/*.bvh", labels=table)
    assert names(store) == ["run", "stroll", "run", "walk"]


def test_clips_without_a_row_are_counted_and_unlabelled(own: Path) -> None:
    table = own.parent / "meta.csv"
    table.write_text("name,label\nanna/walk/take 1,walk\n")
    manifest = prepare("bvh", own, own.parent / "store", labels=table, progress=False)
    assert "3 of 4 clips are not in" in manifest.notes[0]
    assert open_store(own.parent / "store").labels.tolist() == [-1, 0, -1, -1]


def test_windows_share_the_row_of_their_recording(own: Path) -> None:
    table = own.parent / "meta.csv"
    table.write_text(
        "name,label\n" + "".join(f"{who}/{what}/take 1,{what}\n" for who in ("anna", "ben") for what in ("walk", "run"))
    )
    store = made(own, labels=table, window=1, fps=1)
    assert len(store) == 8
    assert names(store) == ["run", "run", "walk", "walk"] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label\nwalk\n", "names a clip; call one of them name or clip or path or file"),
        ("name,label\nnobody,walk\n", "fits no clip .*nothing was written"),
        ("name,label\na,walk\na,run\n", "line 3, column 'name': 'a' comes twice"),
        ("name,length\na,3\n", "column 'length' is one that halp fills itself"),
        ("name,label,class\na,b,c\n", "two columns mean the same"),
        ("", "no row below the header"),
    ],
)
def test_tables_that_do_not_fit_are_refused_and_leave_nothing(text: str, message: str, own: Path) -> None:
    (own.parent / "meta.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        made(own, labels=own.parent / "meta.csv")
    assert not (own.parent / "store").exists()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("*.bvh", "names no column"),
        ("{a b}/*", "names no column"),
        ("{label}/{label}/*.bvh", "or one twice"),
        ("{label}.bvh", "fits no file below .*the first file is 'anna/run/take 1.bvh'"),
        ("{length}/*/*.bvh", "halp fills itself"),
    ],
)
def test_patterns_that_do_not_fit_are_refused(pattern: str, message: str, own: Path) -> None:
    with pytest.raises(InputError, match=message):
        made(own, path=pattern)


def test_a_table_that_is_not_there_says_so(own: Path) -> None:
    with pytest.raises(InputError, match="there is no table"):
        made(own, labels=own / "nothing.csv")


def test_a_table_may_lie_among_the_recordings(tmp_path: Path) -> None:
    from reader_samples import write_deeplabcut

    write_deeplabcut(tmp_path)
    (tmp_path / "a_meta.csv").write_text("name,label\nmouseDLC_resnet50,groom\n")
    manifest = prepare("auto", tmp_path, tmp_path / "store", labels=tmp_path / "a_meta.csv", progress=False)
    assert (manifest.clips, manifest.dropped) == (1, [])
    assert open_store(tmp_path / "store").class_names == ["groom"]
