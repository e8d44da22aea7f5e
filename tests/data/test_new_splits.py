"""Splits on request, and what holds where a store has none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from clip_samples import make_store

from halp.core.errors import InputError
from halp.data.choose_splits import default_split, evaluation_splits, training_clips
from halp.data.clip import Clip
from halp.data.new_splits import split as make_splits
from halp.data.store import Store, open_store
from halp.data.store_writer import StoreWriter
from halp.skeleton import KINECT_V1


def parts_of(store: Store, names: list[str]) -> list[tuple[set[int], set[int]]]:
    return [tuple(set(part.tolist()) for part in store.split(name)) for name in names]


def anonymous(path: Path, windows: int = 1) -> Store:
    """A store of two classes with 6 recordings each, no subjects, every recording cut into this many
    windows.
    """
    with StoreWriter(path, KINECT_V1, persons=1, class_names=["walk", "run"]) as writer:
        for number in range(12):
            for part in range(windows):
                extra = (
                    {"recording": f"r{number}", "start": float(part), "end": part + 1.0}
                    if windows > 1
                    else {}
                )
                writer.add(Clip(np.ones((4, 1, 20, 3)), f"r{number}@{part}", number % 2, extra=extra))
    return open_store(path)


def test_folds_over_a_column_keep_its_values_together(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", splits=())
    made = make_splits(store.path, "subject", folds=4)
    assert [rule.name for rule in made] == ["subject-1", "subject-2", "subject-3", "subject-4"]
    store = open_store(store.path)
    for train, test in parts_of(store, [rule.name for rule in made]):
        assert not set(store.subjects[list(train)]) & set(store.subjects[list(test)])
        assert test
        assert train | test == set(range(12))


def test_values_of_a_column_are_held_out_by_number_or_by_name(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", splits=())
    make_splits(store.path, "subject", hold_out=["2", "4"], name="xsub")
    make_splits(store.path, "label", hold_out=["walk"])
    store = open_store(store.path)
    assert set(store.subjects[store.split("xsub")[1]]) == {2, 4}
    assert set(store.labels[store.split("label")[1]]) == {1}


def test_stratified_folds_give_every_class_its_share(tmp_path: Path) -> None:
    store = anonymous(tmp_path / "store")
    made = make_splits(store.path, "stratified", folds=3)
    assert len(made) == 3
    for _, test in parts_of(open_store(store.path), [rule.name for rule in made]):
        assert sorted(store.labels[list(test)]) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"by": "subject"}, "either --folds NUMBER or --hold-out"),
        ({"by": "subject", "folds": 2, "hold_out": ["1"]}, "and not both"),
        ({"by": "subject", "folds": 1}, "at least 2"),
        ({"by": "subject", "folds": 5}, "too few for 5 folds"),
        ({"by": "subjekt", "folds": 2}, "did you mean 'subject'"),
        ({"by": "subject", "hold_out": ["9"]}, "Known: 1, 2, 3, 4"),
        ({"by": "subject", "hold_out": ["1", "2", "3", "4"]}, "nothing is left for training"),
        ({"by": "stratified", "hold_out": ["1"]}, "cannot hold out values"),
    ],
)
def test_splits_that_cannot_be_made_say_why_and_change_nothing(
    settings: dict, message: str, tmp_path: Path
) -> None:
    store = make_store(tmp_path / "store", splits=())
    with pytest.raises(InputError, match=message):
        make_splits(store.path, **settings)
    assert open_store(store.path).splits == {}


def test_a_column_that_is_not_known_names_the_remedy(tmp_path: Path) -> None:
    store = anonymous(tmp_path / "store")
    with pytest.raises(InputError, match="does not know 'subject'; give it at prepare time with --labels"):
        make_splits(store.path, "subject", folds=2)


def test_training_uses_all_clips_of_a_store_without_splits_and_says_so(tmp_path: Path) -> None:
    bare = make_store(tmp_path / "a store", splits=())
    clips, note = training_clips(bare, "xsub")
    assert clips.tolist() == list(range(12))
    assert "has no splits: learning from all 12 clips" in note
    assert f"halp split '{bare.path}'" in note
    split = make_store(tmp_path / "split")
    assert training_clips(split, "xsub")[0].tolist() == split.split("xsub")[0].tolist()
    assert training_clips(split, "all") == (pytest.approx(np.arange(12)), "")
    with pytest.raises(InputError, match="has no split 'xview'; it has xsub: choose one with --set"):
        training_clips(split, "xview")


def test_evaluation_without_splits_goes_by_subjects_where_they_are_known(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", splits=())
    rules, note = default_split(store)
    assert len(rules) == 4
    assert "4 folds over its 4 subjects" in note
    tested = np.concatenate([rule.indices(store.columns)[1] for rule in rules])
    assert sorted(tested) == list(range(12))


@pytest.mark.parametrize("windows", [1, 3])
def test_evaluation_without_subjects_goes_by_stratified_folds_of_recordings(
    windows: int, tmp_path: Path
) -> None:
    store = anonymous(tmp_path / "store", windows)
    rules, note = default_split(store)
    assert len(rules) == 5
    assert "5 stratified folds" in note
    names = np.array([name.split("@")[0] for name in store.names])
    for rule in rules:
        train, test = rule.indices(store.columns)
        assert not set(names[train]) & set(names[test])
        assert set(store.labels[test]) == {0, 1}


def test_evaluation_takes_what_was_asked_for_or_trained_on_or_folds(tmp_path: Path) -> None:
    split = make_store(tmp_path / "split")
    assert evaluation_splits(split, ["xsub"], "all") == (split, ["xsub"], "")
    assert evaluation_splits(split, [], "xsub") == (split, ["xsub"], "")
    with pytest.raises(InputError, match=r"splits xsub.*--split"):
        evaluation_splits(split, [], "all")
    bare = make_store(tmp_path / "bare", splits=())
    view, names, note = evaluation_splits(bare, [], "all")
    assert names == ["subjects-1", "subjects-2", "subjects-3", "subjects-4"]
    assert "has no splits" in note
    assert len(view.split("subjects-1")[1]) == 3
    assert bare.splits == open_store(bare.path).splits == {}
    with pytest.raises(InputError, match="has no splits, so no 'xsub'; make some with `halp split"):
        bare.split("xsub")


def test_evaluation_needs_two_classes(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", KINECT_V1, persons=1) as writer:
        writer.add(Clip(np.ones((4, 1, 20, 3)), "a"))
    with pytest.raises(InputError, match="fewer than two classes"):
        default_split(open_store(tmp_path / "store"))
