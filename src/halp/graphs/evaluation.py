"""SVM with an RBF kernel in stratified folds, C by an inner grid search: scikit-learn's `GridSearchCV(SVC())`, faster.

All values of C of an inner fold share one kernel matrix, which is what the plain grid search computes anew for each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from halp.errors import InputError

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
C_GRID = tuple(10.0**power for power in range(-3, 4))


def svm_accuracies(
    features: npt.NDArray[np.float32],
    labels: Labels,
    *,
    seed: int,
    folds: int = 10,
    inner_folds: int = 5,
    scaled: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> list[float]:
    """Test accuracy of every fold; `seed` shuffles the folds, `scaled` standardises features by each training part."""
    rarest = int(np.bincount(labels).min()) if len(labels) else 0
    if len(np.unique(labels)) < 2 or rarest < folds:
        raise InputError(
            f"{folds} stratified folds need two classes of at least {folds} graphs; the rarest has {rarest}"
        )
    x = features.astype(np.float64)
    if not np.isfinite(x).all():
        raise InputError("the embeddings hold NaN or infinity: the training has diverged; lower learning_rate")
    accuracies = []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, labels):
        c = choose_c(x[train], labels[train], inner_folds, scaled)
        predicted = _predict(x[train], labels[train], x[test], (c,), scaled)[0]
        accuracies.append(float((predicted == labels[test]).mean()))
        tick()
    return accuracies


def choose_c(x: Floats, labels: Labels, folds: int, scaled: bool) -> float:
    """The C with the highest mean accuracy in inner folds, the smallest among equals."""
    scores = np.empty((len(C_GRID), folds))
    for number, (train, test) in enumerate(StratifiedKFold(folds).split(x, labels)):
        predicted = _predict(x[train], labels[train], x[test], C_GRID, scaled)
        scores[:, number] = [(one == labels[test]).mean() for one in predicted]
    return C_GRID[int(scores.mean(1).argmax())]


def _predict(train: Floats, labels: Labels, test: Floats, grid: tuple[float, ...], scaled: bool) -> list[Labels]:
    """Predicted classes of the test rows for every C."""
    if scaled:
        mean, deviation = train.mean(0), train.std(0)
        deviation[deviation == 0] = 1
        train, test = (train - mean) / deviation, (test - mean) / deviation
    variance = float(train.var())
    gamma = 1 / (train.shape[1] * variance) if variance else 1.0  # gamma = "scale"
    between, towards = rbf_kernel(train, train, gamma), rbf_kernel(test, train, gamma)
    return [SVC(C=c, kernel="precomputed").fit(between, labels).predict(towards) for c in grid]


def rbf_kernel(x: Floats, y: Floats, gamma: float) -> Floats:
    """exp(−gamma · |x_i − y_j|²), `(n, m)`, in one array."""
    kernel: Floats = x @ y.T
    kernel *= 2 * gamma
    kernel -= gamma * np.einsum("ij,ij->i", x, x)[:, None]
    kernel -= gamma * np.einsum("ij,ij->i", y, y)
    return np.exp(np.minimum(kernel, 0, out=kernel), out=kernel)
