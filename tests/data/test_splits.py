"""Splits are rules that draw by name, survive saving, and notice when they were changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from clip_samples import make_store

from halp.core.errors import InputError
from halp.data.splits import FewLabels, Fold, Split, SplitRule, Within, few_labels, k_fold, rule_from_json
from halp.data.store import open_store
from halp.data.store_writer import add_split

COLUMNS = {
    "name": np.array([f"clip{number:03}" for number in range(100)]),
    "label": np.arange(100) % 5,
    "subject": np.arange(100) % 7,
    "source": np.arange(100) // 50,
}
XSUB = Split("xsub", "subject", (0, 1, 2), (3, 4))
RULES: list[SplitRule] = [
    XSUB,
    Split("list", "name", ("clip001", "clip002"), ("clip003",)),
    Fold("fold", 5, 2, "subject"),
    Fold("stratified", 4, 0, seed=3, stratified=True),
    FewLabels("few", XSUB, 0.2, seed=1),
    FewLabels("shots", XSUB, per_class=2),
    Within("within", Fold("fold", 2, 0, "subject"), "source", 1),
    Within("deep", FewLabels("few", XSUB, 0.5), "source", 0),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_gives_two_separate_parts_and_survives_json(rule: SplitRule) -> None:
    train, test = rule.indices(COLUMNS)
    assert len(train)
    assert len(test)
    assert not set(train) & set(test)
    again = rule_from_json(rule.name, json.loads(json.dumps({**rule.to_json(), "hash": rule.hash})))
    assert again == rule
    assert again.hash == rule.hash
    for part, same in zip(rule.indices(COLUMNS), again.indices(COLUMNS), strict=True):
        np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_order_of_a_store_does_not_change_which_clips_are_drawn(rule: SplitRule) -> None:
    order = np.random.default_rng(0).permutation(100)
    shuffled = {name: values[order] for name, values in COLUMNS.items()}
    for part, other in zip(rule.indices(COLUMNS), rule.indices(shuffled), strict=True):
        assert set(COLUMNS["name"][part]) == set(shuffled["name"][other])


def test_the_folds_of_a_cross_validation_test_every_clip_once_and_keep_groups_together() -> None:
    for settings in ({"column": "subject"}, {}, {"stratified": True}):
        tests = [fold.indices(COLUMNS)[1] for fold in k_fold("cv", 5, **settings)]
        assert sorted(np.concatenate(tests)) == list(range(100))
    subjects = [
        set(COLUMNS["subject"][fold.indices(COLUMNS)[1]]) for fold in k_fold("cv", 5, column="subject")
    ]
    assert sum(map(len, subjects)) == 7
    counts = [
        np.bincount(COLUMNS["label"][fold.indices(COLUMNS)[1]]) for fold in k_fold("cv", 5, stratified=True)
    ]
    assert {int(count) for row in counts for count in row} == {4}


def test_few_labels_are_a_part_of_the_training_clips_drawn_by_seed() -> None:
    whole, test = XSUB.indices(COLUMNS)
    few, same_test = FewLabels("few", XSUB, 0.2).indices(COLUMNS)
    assert set(few) < set(whole)
    assert len(few) == round(0.2 * len(whole))
    np.testing.assert_array_equal(test, same_test)
    assert set(FewLabels("few", XSUB, 0.2, seed=1).indices(COLUMNS)[0]) != set(few)
    smaller = FewLabels("few", XSUB, 0.1).indices(COLUMNS)[0]
    assert set(smaller) < set(few)


def test_stratified_few_labels_have_every_class() -> None:
    for rule in (FewLabels("few", XSUB, 0.01, stratified=True), FewLabels("shots", XSUB, per_class=1)):
        assert sorted(COLUMNS["label"][rule.indices(COLUMNS)[0]]) == [0, 1, 2, 3, 4]
    assert [rule.name for rule in few_labels(XSUB)] == ["xsub-1%", "xsub-5%", "xsub-10%", "xsub-20%"]


def test_a_draw_is_the_same_on_every_machine() -> None:
    drawn = ["clip016", "clip072", "clip078", "clip084", "clip085"]
    assert COLUMNS["name"][FewLabels("few", XSUB, per_class=1).indices(COLUMNS)[0]].tolist() == drawn


def test_rules_that_cannot_be_say_why() -> None:
    with pytest.raises(InputError, match="needs the column 'setup'"):
        Split("xset", "setup", (1,)).indices(COLUMNS)
    with pytest.raises(InputError, match="no test clip"):
        Split("all", "subject", tuple(range(7))).indices(COLUMNS)
    with pytest.raises(InputError, match="training and in the test"):
        Split("both", "subject", (1,), (1, 2)).indices(COLUMNS)
    with pytest.raises(InputError, match="fold 5 of 5"):
        Fold("cv", 5, 5)
    with pytest.raises(InputError, match="share of 0"):
        FewLabels("few", XSUB, 0)
    with pytest.raises(InputError, match="unknown kind"):
        rule_from_json("odd", {"kind": "magic"})
    with pytest.raises(InputError, match="is damaged"):
        rule_from_json("odd", {"kind": "fold"})


def test_a_users_split_is_saved_in_the_store_and_the_fingerprint_guards_it(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store").path
    rule = FewLabels("few", Split("xsub", "subject", (1, 3)), 0.5)
    add_split(path, rule)
    add_split(path, rule)
    store = open_store(path)
    assert store.splits["few"] == rule
    for part, same in zip(store.split("few"), rule.indices(store.columns), strict=True):
        np.testing.assert_array_equal(part, same)
    with pytest.raises(InputError, match="another split 'few'"):
        add_split(path, FewLabels("few", Split("xsub", "subject", (1, 3)), 0.25))
    with pytest.raises(InputError, match="no training clip"):
        add_split(path, Split("none", "subject", (99,)))
    header = json.loads((path / "store.json").read_text())
    header["splits"]["few"]["seed"] = 5
    (path / "store.json").write_text(json.dumps(header))
    with pytest.raises(InputError, match="was changed after it was saved"):
        open_store(path)
