"""Which recordings to label next: those the classifier is unsure about, and that are unlike each other and the labelled ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halp.errors import InputError
from halp.use.classifier import Classifier
from halp.use.heads import Vectors


@dataclass(frozen=True)
class Suggestion:
    """A row to label, with how unsure the classifier is (0 … 1) and how unlike it is to what is labelled or chosen (0 … 2)."""

    row: int
    uncertainty: float
    distance: float


def suggest(classifier: Classifier, vectors: Vectors, count: int) -> list[Suggestion]:
    """Greedily `count` rows of the largest uncertainty × distance; each choice counts as labelled for the next.

    Uncertainty is the entropy of the probabilities over its largest value, or 1 where nothing fits.
    """
    if count < 1:
        raise InputError(f"{count} suggestions cannot be made; ask for at least 1")
    found = classifier.predict(vectors)
    uncertainty = np.where(found.label < 0, 1.0, entropy(found.probabilities))
    directions = classifier.head.directions(vectors)
    nearest = found.similarity.copy()
    chosen: list[Suggestion] = []
    open_rows = np.ones(len(vectors), dtype=bool)
    for _ in range(min(count, len(vectors))):
        worth = np.where(open_rows, (uncertainty + 1e-6) * (1 - nearest + 1e-6), -np.inf)
        row = int(worth.argmax())
        chosen.append(Suggestion(row, float(uncertainty[row]), float(1 - nearest[row])))
        open_rows[row] = False
        nearest = np.maximum(nearest, directions @ directions[row])
    return chosen


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropy of every row as a share of the largest that is possible; 0 with one class."""
    classes = probabilities.shape[1]
    if classes < 2:
        return np.zeros(len(probabilities))
    return -(probabilities * np.log(probabilities + 1e-300)).sum(1) / np.log(classes)
