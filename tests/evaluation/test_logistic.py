"""Logistic regression for a series of penalties, against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from halp.evaluation.logistic import LogisticPath


def blobs(classes: int, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(classes)
    labels = np.concatenate(
        [np.arange(classes), np.minimum(*draw.integers(0, classes, (2, rows - classes)))]
    )  # uneven
    centres = draw.normal(size=(classes, columns))
    return (centres[labels] + draw.normal(size=(rows, columns))).astype(np.float32), labels


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("columns", [6, 90])
@pytest.mark.parametrize("classes", [2, 5])
def test_every_fit_of_a_path_is_that_of_scikit_learn(classes: int, columns: int, balanced: bool) -> None:
    rows, labels = blobs(classes, 60, columns)
    path = LogisticPath(
        rows, labels, classes + 1, iterations=5000, tolerance=1e-7, unit=3.0, balanced=balanced
    )
    for strength in (0.1, 1.0, 100.0):
        weight, bias = path.fit(strength)
        reference = LogisticRegression(
            C=strength, max_iter=5000, tol=1e-9, class_weight="balanced" if balanced else None
        )
        expected = reference.fit(rows.astype(float) / 3, labels).predict_proba(rows / 3)
        logits = rows @ weight.T + bias
        grown = np.exp(logits - logits.max(1, keepdims=True))
        np.testing.assert_allclose(grown[:, :classes] / grown.sum(1, keepdims=True), expected, atol=1e-5)
        assert grown[:, classes].max() < 1e-9  # a class without rows
