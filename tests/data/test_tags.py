"""Labels, subjects, cameras and further columns come from a table, from a pattern of paths, or from
folders.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reader_samples import BVH

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.ingest.prepare import prepare
from halp.data.store import Store, open_store


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
        [
            "anna/walk/take 1,walk,7",
            "./anna/run/take 1,run,7",
            "ben\\walk\\take 1,walk,9",
            "ben/run/take 1,run,9",
        ],
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
    store = made(own, pattern="{subject}/{label}/*.bvh")
    assert names(store) == ["run", "walk", "run", "walk"]
    assert store.columns["subject_name"].tolist() == ["anna", "anna", "ben", "ben"]


def test_a_table_goes_before_a_pattern(own: Path) -> None:
    table = own.parent / "meta.csv"
    table.write_text("name,label\nanna/walk/take 1,stroll\n")
    store = made(own, pattern="{subject}/{label}/*.bvh", labels=table)
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
        "name,label\n"
        + "".join(f"{who}/{what}/take 1,{what}\n" for who in ("anna", "ben") for what in ("walk", "run"))
    )
    store = made(own, labels=table, window=1, fps=1)
    assert len(store) == 8
    assert names(store) == ["run", "run", "walk", "walk"] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label\nwalk\n", "names a clip; call one of them name or clip or path or file"),
        ("name,label\nnobody,walk\n", "matches no clip .*nothing was written"),
        ("name,label\na,walk\na,run\n", "line 3, column 'name': 'a' occurs twice"),
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
        made(own, pattern=pattern)


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


@pytest.fixture
def takes(tmp_path: Path) -> Path:
    """Three recordings of the same bare name."""
    for place in ("", "s01", "s02"):
        (tmp_path / "takes" / place).mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "takes" / place / "take1.npy", np.random.default_rng(0).normal(size=(4, 25, 3)))
    return tmp_path / "takes"


def tagged(source: Path, table: str) -> tuple[dict[str, str], list[str], list[str]]:
    """Labels by clip, classes and notes of a store made with a table."""
    labels = source.parent / "labels.csv"
    labels.write_text(table, encoding="utf-8")
    options = {"topology": "kinect-v2"}
    path = source.parent / "tagged"
    manifest = prepare("arrays", source, path, labels=labels, options=options, overwrite=True, progress=False)
    store = open_store(path)
    by_name = {
        name: store.class_names[label] if label >= 0 else "" for name, label in zip(store.names, store.labels)
    }
    return by_name, store.class_names, manifest.notes


def test_a_clip_that_is_in_no_row_gets_no_label_from_a_bare_name(takes: Path) -> None:
    labels, _, notes = tagged(takes, "path,label\ns01/take1.npy,walk\ntake1.npy,run\n")
    assert labels == {"take1": "run", "s01/take1": "walk", "s02/take1": ""}
    assert "1 of 3 clips are not in" in notes[0]


def test_an_ambiguous_bare_name_labels_nothing_and_is_named(takes: Path) -> None:
    (takes / "take1.npy").unlink()
    labels, classes, notes = tagged(takes, "name,label\ntake1,walk\ns01/take1,run\nghost,fly\n")
    assert labels == {"s01/take1": "run", "s02/take1": ""}
    assert classes == ["run"]
    assert "1 rows of" in notes[1]
    assert "fit several recordings and label none: 'take1' (2)" in notes[1]
    assert "1 of 3 rows of" in notes[2]
    assert "fit no clip: 'ghost'" in notes[2]


def test_a_bare_name_of_recordings_that_are_folders_has_to_be_unique_too(tmp_path: Path) -> None:
    from halp.data.tags import table_tags

    for place in ("s01", "s02"):
        (tmp_path / "source" / place / "take1").mkdir(parents=True)
        (tmp_path / "source" / place / "take1" / f"{place}.json").write_text("{}")
    (tmp_path / "labels.csv").write_text("name,label\ntake1,walk\n")
    tags = table_tags(tmp_path / "labels.csv", tmp_path / "source")
    assert tags.bare["take1"] == 2


def test_a_bare_name_fits_where_it_is_unique(takes: Path) -> None:
    (takes / "s02" / "take1.npy").rename(takes / "s02" / "take2.npy")
    labels, _, _ = tagged(takes, "name,label\ntake2,walk\ns01/take1,run\n")
    assert labels == {"take1": "", "s01/take1": "run", "s02/take2": "walk"}


def test_only_endings_of_files_are_stripped(tmp_path: Path) -> None:
    folder = tmp_path / "dots"
    folder.mkdir()
    for name in ("walk", "walk.01", "walk.02"):
        np.save(folder / f"{name}.npy", np.ones((4, 25, 3)))
    labels, _, _ = tagged(folder, "name,label\nwalk.01,a\nwalk.02,b\n")
    assert labels == {"walk": "", "walk.01": "a", "walk.02": "b"}


def test_rows_that_contradict_each_other_are_refused(takes: Path) -> None:
    with pytest.raises(InputError, match=r"rows 's01/take1\.npy' and 's01/take1' contradict each other"):
        tagged(takes, "name,label\ns01/take1.npy,walk\ns01/take1,run\n")


def test_composed_and_decomposed_names_are_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "names"
    folder.mkdir()
    np.save(folder / "caf\u00e9.npy", np.ones((4, 25, 3)))
    labels, _, notes = tagged(folder, "name,label\ncafe\u0301,walk\n")
    assert list(labels.values()) == ["walk"]
    assert notes == []


def test_missing_and_unfitting_labels_are_no_classes(takes: Path) -> None:
    labels, classes, _ = tagged(takes, "path,label\ntake1.npy,NaN\ns01/take1.npy,walk\ns02/take1.npy,\n")
    assert classes == ["walk"]
    assert labels == {"take1": "", "s01/take1": "walk", "s02/take1": ""}


def test_a_label_of_thousands_of_characters_is_refused(takes: Path) -> None:
    with pytest.raises(InputError, match="5000 characters"):
        tagged(takes, f"path,label\ntake1.npy,{'x' * 5000}\n")


@pytest.mark.heavy
def test_a_large_table_is_looked_through_once(takes: Path) -> None:
    rows = "".join(f"clip{number},c{number}\n" for number in range(100_000))
    labels, classes, notes = tagged(takes, f"path,label\ns01/take1.npy,walk\n{rows}")
    assert classes == ["walk"]
    assert labels["s01/take1"] == "walk"
    assert "100000 of 100001 rows" in notes[1]


def test_labels_that_are_no_class_numbers_cost_their_clips() -> None:
    from halp.data.clip import Dropped
    from halp.data.ingest.pipeline import Pipeline
    from halp.data.readers import Info, Item, get_reader
    from halp.skeleton import KINECT_V2

    pipeline = Pipeline(get_reader("arrays"), Info(KINECT_V2), KINECT_V2, ())
    for label in (10**9, -7):
        clip = Clip(np.ones((2, 1, 25, 3)), "one", label)
        (outcome,) = pipeline._finish(clip, Item(Path("one")))
        assert isinstance(outcome, Dropped)
        assert "is not a class number" in outcome.reason


def test_folders_name_the_classes_of_long_tables_too(tmp_path: Path) -> None:
    for label in ("wave", "squat"):
        (tmp_path / "recordings" / label).mkdir(parents=True)
        rows = [
            f"{label}1,{frame},{joint},1,{frame},2"
            for frame in range(3)
            for joint in ("head", "neck", "hip_center")
        ]
        (tmp_path / "recordings" / label / "one.csv").write_text("\n".join(["clip,frame,joint,x,y,z", *rows]))
    manifest = prepare("auto", tmp_path / "recordings", tmp_path / "store", progress=False)
    store = open_store(tmp_path / "store")
    assert dict(zip(store.names, names(store))) == {"wave1": "wave", "squat1": "squat"}
    assert "2 classes named by folders" in manifest.summary()


def test_a_table_of_files_fits_the_clips_of_their_store(takes: Path) -> None:
    from halp.data.tagger import make_tagger

    store = takes.parent / "store"
    prepare("arrays", takes, store, options={"topology": "kinect-v2"}, progress=False)
    (takes.parent / "labels.csv").write_text("path,label\ns01/take1.npy,walk\ns02/take1,run\n")
    tagger = make_tagger(store, takes.parent / "labels.csv", None)
    assert tagger is not None
    clips = [tagger.tag(Clip(np.ones((2, 1, 25, 3)), str(name))) for name in open_store(store).names]
    assert {clip.name: clip.label for clip in clips} == {"take1": -1, "s01/take1": 1, "s02/take1": 0}
