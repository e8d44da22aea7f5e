"""Protocol `ridge`: least squares from standardised features to one-hot classes; validated penalty.

The penalty is chosen on the training clips alone: by a split of them that the store has (`validation`), or by
folds that hold out whole subjects or cameras, whatever the test split goes by. It is then fitted again to all
training clips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError
from halp.evaluation.protocol import Features, Labels, Predictions, ProtocolContext, register_protocol

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Fold = tuple[Mask, Mask]  # which training clips are fitted to, and which are held out
PENALTIES = tuple(float(10.0 ** (half / 2)) for half in range(-8, 7))
# Where nothing can be held out (one clip per class): the middle of what is chosen on real sets.
DEFAULT_PENALTY = 1.0


@dataclass(frozen=True)
class RidgeSettings(CheckedSettings):
    """A positive `penalty` is taken as it is; 0 chooses one of `penalties` on the training clips.

    `validation` names a split of the store to choose by, of which only training clips of the test split are
    used; empty:
    `folds` folds over subjects or cameras.
    """

    penalty: float = limited(0.0, least=0)
    penalties: tuple[float, ...] = limited(PENALTIES, above=0)
    folds: int = limited(5, least=2)
    validation: str = ""
    scale: str = limited("each", among=("each", "one"))  # standardise each feature, or all by one scale

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.penalties:
            raise InputError("ridge: penalties = [] leaves nothing to choose from; name at least one")


@dataclass(frozen=True)
class RidgeClassifier:
    """Scores are `(x − mean) / scale @ weights + intercept`, one column per class."""

    mean: Floats
    scale: Floats
    weights: Floats
    intercept: Floats

    def scores(self, features: npt.NDArray[np.floating]) -> Floats:
        """Scores `(N, classes)` of features `(N, F)`."""
        return ((features - self.mean) / self.scale) @ self.weights + self.intercept

    def predict(self, features: npt.NDArray[np.floating]) -> Labels:
        """The class of every row."""
        return self.scores(features).argmax(1)


class RidgePath:
    """Ridge classifiers of a training set for any penalty: one eigendecomposition of a Gram matrix.

    Minimises mean squared error / 2 + penalty / 2 · ‖weights‖² from standardised features to centred one-hot
    classes; a feature that does not vary has weight 0. `scale = "one"` divides all features by their common
    spread.
    """

    def __init__(self, features: Features, labels: Labels, classes: int, scale: str = "each") -> None:
        x = np.asarray(features, dtype=np.float64)
        self.mean, spread = x.mean(0), x.std(0)
        common = np.full_like(spread, np.sqrt((spread**2).mean()))
        self.scale = np.where(spread < 1e-6, np.inf, common if scale == "one" else spread)
        x = (x - self.mean) / self.scale
        target = np.eye(classes)[labels]
        self.intercept = target.mean(0)
        target = (target - self.intercept) / len(x)
        # weights = basis (values + penalty)⁻¹ coefficients, from XᵀX/n or, where clips are fewer than
        # features, XXᵀ/n
        if x.shape[1] <= len(x):
            self.values, vectors = np.linalg.eigh(x.T @ x / len(x))
            self.coefficients, self.basis = vectors.T @ (x.T @ target), vectors
        else:
            self.values, vectors = np.linalg.eigh(x @ x.T / len(x))
            self.coefficients, self.basis = vectors.T @ target, x.T @ vectors
        self.values = self.values.clip(0)

    def classifier(self, penalty: float) -> RidgeClassifier:
        """The classifier of one penalty."""
        weights = self.basis @ (self.coefficients / (self.values + penalty)[:, None])
        return RidgeClassifier(self.mean, self.scale, weights, self.intercept)


def fit_ridge(
    features: Features, labels: Labels, penalty: float, classes: int, scale: str = "each"
) -> RidgeClassifier:
    """The ridge classifier of training features `(N, F)`."""
    return RidgePath(features, labels, classes, scale).classifier(penalty)


def choose_ridge_penalty(
    features: Features,
    labels: Labels,
    folds: Sequence[Fold],
    classes: int,
    penalties: Sequence[float] = PENALTIES,
    scale: str = "each",
) -> tuple[float, dict[float, float]]:
    """The penalty with the best cross-validated accuracy (of equals the largest), and all accuracies in %."""
    right, total = np.zeros(len(penalties)), 0
    for fitted, held_out in folds:
        path = RidgePath(features[fitted], labels[fitted], classes, scale)
        rotated = ((features[held_out] - path.mean) / path.scale) @ path.basis
        for number, penalty in enumerate(penalties):
            scores = rotated @ (path.coefficients / (path.values + penalty)[:, None]) + path.intercept
            right[number] += (scores.argmax(1) == labels[held_out]).sum()
        total += int(held_out.sum())
    best = max(range(len(penalties)), key=lambda number: (right[number], penalties[number]))
    return penalties[best], {
        tried: float(100 * hits / max(total, 1)) for tried, hits in zip(penalties, right)
    }


def group_folds(groups: npt.NDArray[np.generic], number: int) -> list[Fold]:
    """Folds of whole groups, as even as possible; of single clips if there is only one group.

    >>> [held.tolist() for _, held in group_folds(np.array([7, 7, 9]), 5)]
    [[True, True, False], [False, False, True]]
    """
    distinct, position = np.unique(groups, return_inverse=True)
    if len(distinct) < 2:
        distinct, position = np.arange(len(groups)), np.arange(len(groups))
    part = position % min(number, len(distinct))
    return [(part != fold, part == fold) for fold in np.unique(part) if (part != fold).any()]


@register_protocol("ridge", RidgeSettings, baseline_settings={"scale": "one"})
def evaluate_ridge(context: ProtocolContext, settings: RidgeSettings) -> Predictions:
    """Classify the test clips by a ridge classifier on the frozen features of the training clips."""
    features, labels = context.features[context.train], context.train_labels
    penalty = settings.penalty
    metrics: dict[str, float] = {}
    if not penalty:
        penalty = DEFAULT_PENALTY
        folds = _folds(context, settings)
        if folds:
            how = (context.classes, settings.penalties, settings.scale)
            penalty, accuracies = choose_ridge_penalty(features, labels, folds, *how)
            metrics = {"validation": round(accuracies[penalty], 4)}
    classifier = fit_ridge(features, labels, penalty, context.classes, settings.scale)
    return Predictions(classifier.predict(context.features[context.test]), {"penalty": penalty, **metrics})


def _folds(context: ProtocolContext, settings: RidgeSettings) -> list[Fold]:
    """Training clips to fit on and to hold out when choosing the penalty."""
    if settings.validation:
        fitted, held_out = (np.isin(context.train, part) for part in context.store.split(settings.validation))
        if not fitted.any() or not held_out.any():
            raise InputError(
                f"ridge: split '{settings.validation}' has no training clips of split '{context.split}' on"
                " one side; choose another validation split, or none for folds"
            )
        return [(fitted, held_out)]
    return group_folds(context.groups, settings.folds)
