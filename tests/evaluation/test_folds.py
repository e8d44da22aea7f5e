"""Folds of a split are reported together."""

from __future__ import annotations

from typing import Any

import numpy as np

from halp.evaluation.results import Result, pool_folds, with_folds


def _result(split: str, confusion: list[list[int]], **changes: Any) -> Result:
    matrix = np.array(confusion)
    accuracy = 100 * float(np.trace(matrix) / matrix.sum())
    fields: dict[str, Any] = {
        **{
            "protocol": "knn",
            "settings": {"k": 1},
            "split": split,
            "split_hash": "",
            "seed": 0,
            "seeds": [0],
        },
        **{
            "stream": "joint",
            "accuracy": accuracy,
            "accuracies": [accuracy],
            "std": None,
            "metrics": {"mAP": accuracy},
        },
        **{"per_class": {}, "confusion": confusion, "classes": ["a", "b"], "test_clips_trained_on": 1},
        **{"clips": {"train": 8, "test": int(matrix.sum())}, "encoder": {}, "data": {}, "backbone": {}},
    }
    return Result(**{**fields, **changes})


def test_folds_are_pooled_over_their_clips_and_other_splits_are_left_alone() -> None:
    folds = [_result("folds-1", [[2, 0], [1, 1]]), _result("folds-2", [[1, 0], [0, 1]])]
    other = _result("xsub", [[1, 0], [0, 1]])
    pooled, alone = pool_folds([*folds, other])
    assert alone is other
    assert pooled.accuracy == round(100 * 5 / 6, 4), "clips count, not folds"
    assert pooled.accuracies == [75.0, 100.0]
    assert pooled.std == round(float(np.std([75.0, 100.0], ddof=1)), 4)
    assert pooled.split == "folds, 2 folds"
    assert pooled.clips["test"] == 6
    assert pooled.test_clips_trained_on == 2
    assert pooled.per_class == {"a": 100.0, "b": round(100 * 2 / 3, 4)}
    assert with_folds([*folds, other]) == [*folds, other, pooled]


def test_folds_of_other_settings_are_not_mixed() -> None:
    results = [_result("folds-1", [[1, 0], [0, 1]]), _result("folds-1", [[1, 0], [1, 0]], settings={"k": 5})]
    assert pool_folds(results) == results
