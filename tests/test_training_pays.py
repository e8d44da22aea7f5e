"""What the tables of training and its ceilings are computed by, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from benchmarks.training_pays import CEILING, MEASURES, TWIN, merged, within_classes
from benchmarks.transfer import DRAWS, UNIT_PENALTY, few_right, standardised


def features(seed: int = 0, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    return draw.normal(size=(count, 8)) + 2 * np.eye(8)[labels], labels


def test_features_are_standardised_by_the_training_clips_alone() -> None:
    x, _ = features()
    x[:, 3] = 7.0  # says nothing
    train = np.arange(40)
    unit = standardised(x, train)
    changed = x.copy()
    changed[40:] += 100
    assert np.array_equal(standardised(changed, train)[:40], unit[:40])
    assert np.allclose(np.linalg.norm(unit, axis=1), 1)
    assert not unit[:, 3].any()


@pytest.mark.parametrize("shots", [1, 5])
def test_few_labels_are_judged_as_by_ridge_on_so_many_clips_of_each_class(shots: int) -> None:
    x, labels = features()
    train, held = np.arange(40), np.arange(40, 60)
    unit = standardised(x, train)
    right = np.zeros(len(held))
    for draw in range(DRAWS):
        order = np.random.default_rng(draw).permutation(train)
        rows = [row for label in range(3) for row in [row for row in order if labels[row] == label][:shots]]
        wanted = np.eye(3)[labels[rows]]
        model = Ridge(alpha=UNIT_PENALTY, fit_intercept=False).fit(unit[rows], wanted - wanted.mean(0))
        right += model.predict(unit[held]).argmax(1) == labels[held]
    assert np.allclose(few_right(unit, labels, train, held, shots), right / DRAWS)


def test_the_spread_within_classes_leaves_out_what_tells_them_apart() -> None:
    x, labels = features()
    expected = sum(
        np.outer(row - mean, row - mean) for row, mean in ((x[i], x[labels == labels[i]].mean(0)) for i in range(60))
    )
    assert np.allclose(within_classes(x, labels), expected / 60)
    assert np.array_equal(x, features()[0])  # untouched


def test_seeds_are_averaged_and_the_better_floor_counts() -> None:
    def cell(value: float) -> dict[str, dict[str, np.ndarray]]:
        return {"set": {name: np.full(4, value) for name in MEASURES}}

    rows = {f"{TWIN}, seed 0": cell(0.2), f"{TWIN}, seed 1": cell(0.4), "halp-base": cell(0.5)}
    rows |= {f"{CEILING}, floor 0.1": cell(0.6), f"{CEILING}, floor 0.5": cell(0.7)}
    found = merged(rows)
    assert {name: round(float(sets["set"]["knn"].mean()), 3) for name, sets in found.items()} == {
        TWIN: 0.3,
        "halp-base": 0.5,
        CEILING: 0.7,
    }
