"""The ridge probe against the normal equations, scikit-learn and a loop over folds."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from halp.core.errors import InputError
from halp.data.splits import Split
from halp.data.store import Store, open_store
from halp.data.store_writer import add_split
from halp.evaluation import RawCoordinates, evaluate
from halp.evaluation.protocols.ridge import choose_ridge_penalty, fit_ridge, group_folds


def clouds(clips: int, width: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    labels = np.arange(clips) % classes
    centres = draw.normal(size=(classes, width))
    spread = draw.uniform(0.1, 5, size=width)
    return ((centres[labels] + draw.normal(size=(clips, width))) * spread).astype(np.float32), labels


@pytest.mark.parametrize("width", [3, 12, 40, 200])
@pytest.mark.parametrize("penalty", [1e-3, 0.3, 10.0])
def test_scores_are_those_of_a_ridge_regression_to_one_hot_classes(width: int, penalty: float) -> None:
    x, labels = clouds(40, width, 4)
    scaler = StandardScaler().fit(x.astype(np.float64))
    # scikit-learn adds the squares up, the probe averages them
    slow = Ridge(alpha=penalty * len(x)).fit(scaler.transform(x.astype(np.float64)), np.eye(4)[labels])
    other = np.random.default_rng(1).normal(size=(9, width))
    fast = fit_ridge(x, labels, penalty, 4)
    np.testing.assert_allclose(fast.scores(other), slow.predict(scaler.transform(other)), atol=1e-6)


def test_a_feature_that_does_not_vary_has_no_say() -> None:
    x, labels = clouds(30, 5, 3)
    x[:, 2] = 7
    classifier = fit_ridge(x, labels, 0.1, 3)
    assert np.abs(classifier.weights[2]).max() < 1e-12
    moved = x.copy()
    moved[:, 2] = -1000
    np.testing.assert_array_equal(classifier.scores(moved), classifier.scores(x))


def test_a_class_without_training_clips_is_allowed() -> None:
    x, labels = clouds(30, 5, 3)
    assert set(fit_ridge(x, labels, 0.1, 6).predict(x)) == {0, 1, 2}


def test_the_penalty_is_the_one_a_loop_over_folds_finds() -> None:
    x, labels = clouds(60, 25, 5, seed=3)
    x += np.random.default_rng(4).normal(size=x.shape).astype(np.float32) * 6
    folds = group_folds(np.arange(60) % 3, 5)
    penalties = (1e-3, 1e-1, 1.0, 10.0)
    chosen, accuracies = choose_ridge_penalty(x, labels, folds, 5, penalties)
    for penalty in penalties:
        right = [fit_ridge(x[a], labels[a], penalty, 5).predict(x[b]) == labels[b] for a, b in folds]
        assert accuracies[penalty] == pytest.approx(100 * np.concatenate(right).mean())
    assert chosen == max(penalties, key=lambda one: (accuracies[one], one))


@given(st.lists(st.integers(0, 6), min_size=2, max_size=40), st.integers(2, 6))
def test_folds_hold_out_every_clip_once_and_never_part_of_a_group(groups: list[int], number: int) -> None:
    folds = group_folds(np.array(groups), number)
    assert sum(held for _, held in folds).tolist() == [1] * len(groups)  # type: ignore[union-attr]
    for fitted, held_out in folds:
        assert (fitted != held_out).all()
        if len(set(groups)) > 1:
            assert not set(np.array(groups)[fitted]) & set(np.array(groups)[held_out])


def test_the_protocol_chooses_without_test_clips_and_says_what_it_chose(store: Store) -> None:
    encoder = RawCoordinates(store.topology, persons=store.persons, frames=8)
    result = evaluate(encoder, store, "ridge", "xsub", progress=False)
    assert result.metrics["penalty"] > 0
    assert 0 <= result.metrics["validation"] <= 100
    fixed = evaluate(encoder, store, "ridge", "xsub", progress=False, penalty=result.metrics["penalty"])
    assert fixed.accuracy == result.accuracy
    assert "validation" not in fixed.metrics


def _copied(store: Store, folder: Path, split: Split) -> Store:
    """A copy of a store with one more split: the store itself is shared by many tests."""
    path = folder / "store"
    shutil.copytree(store.path, path)
    add_split(path, split)
    return open_store(path)


def test_a_validation_split_of_the_store_is_used_and_has_to_lie_in_the_training_part(
    store: Store, tmp_path: Path
) -> None:
    encoder = RawCoordinates(store.topology, persons=store.persons, frames=8)
    train, test = store.split("xsub")
    seen, unseen = (np.unique(store.subjects[part]).tolist() for part in (train, test))
    store = _copied(store, tmp_path, Split("good", "subject", tuple(seen[:2]), tuple(seen[2:])))
    assert evaluate(encoder, store, "ridge", "xsub", progress=False, validation="good").metrics["penalty"] > 0
    store = _copied(store, tmp_path / "other", Split("leak", "subject", tuple(seen), tuple(unseen)))
    with pytest.raises(InputError, match="no training clips"):
        evaluate(encoder, store, "ridge", "xsub", progress=False, validation="leak")
