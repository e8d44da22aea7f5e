"""The fast grid search against scikit-learn's own."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from halp.errors import InputError
from halp.graphs.evaluation import C_GRID, choose_c, svm_accuracies


def samples(count: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two overlapping classes, with columns of very different scale as sums over nodes have them."""
    draw = np.random.default_rng(seed)
    labels = (draw.random(count) < 0.4).astype(np.int64)
    features = draw.normal(size=(count, 12)) + 0.6 * labels[:, None] * (np.arange(12) < 5)
    return (features * np.geomspace(0.1, 100, 12)[::-1]).astype(np.float32), labels


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.slow
def test_accuracies_equal_those_of_a_plain_grid_search(seed: int, scaled: bool) -> None:
    features, labels = samples(seed=seed)
    plain = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(features, labels):
        model = make_pipeline(StandardScaler(), SVC()) if scaled else make_pipeline(SVC())
        search = GridSearchCV(model, {"svc__C": C_GRID}, cv=5, scoring="accuracy")
        search.fit(features[train].astype(np.float64), labels[train])
        assert search.best_params_["svc__C"] == choose_c(features[train].astype(np.float64), labels[train], 5, scaled)
        plain.append(search.score(features[test].astype(np.float64), labels[test]))
    ours = svm_accuracies(features, labels, seed=seed, folds=5, scaled=scaled)
    assert ours == pytest.approx(plain, abs=1e-12)


def test_constant_features_give_the_larger_class() -> None:
    labels = np.array([0] * 30 + [1] * 20)
    assert np.mean(svm_accuracies(np.ones((50, 3), np.float32), labels, seed=0, folds=10)) == pytest.approx(0.6)


def test_too_few_graphs_of_a_class_and_embeddings_that_are_not_finite_are_refused() -> None:
    features, labels = samples(40)
    with pytest.raises(InputError, match="stratified folds"):
        svm_accuracies(features, np.arange(40) // 39, seed=0)
    with pytest.raises(InputError, match="diverged"):
        svm_accuracies(features * np.nan, labels, seed=0)
