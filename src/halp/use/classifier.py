"""The few-label classifier: choose a head by cross-validation, calibrate it, and know when nothing fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from halp.errors import InputError
from halp.use.calibration import (
    REJECTION_RATE,
    Floats,
    Reject,
    check_rejection,
    fit_temperature,
    nearest_similarities,
    rejection_threshold,
)
from halp.use.heads import Candidate, Head, Labels, Vectors, candidates, fit_head, standardised_in_their_span

FOLDS = 5
_BLOCK = 4096
_TUNED = 500  # labelled vectors that kind and setting are chosen with; more are sampled
_MANY = 200  # labelled vectors of which three folds tell enough
_BANK = 3000  # labelled vectors that are kept to compare with; more are sampled
_FITTED, _LARGEST = 20_000, 50_000_000  # labelled vectors, and numbers in them, that a head is fitted on


@dataclass(frozen=True)
class Prediction:
    """For every vector the probabilities of the classes `(N, C)`, its similarity to the nearest labelled one, and whether
    that is too small for any of the classes."""

    probabilities: Floats
    similarity: Floats
    rejected: npt.NDArray[np.bool_]

    @property
    def best(self) -> Labels:
        """The most probable class, also of what is rejected."""
        return self.probabilities.argmax(1)

    @property
    def probability(self) -> Floats:
        """The probability of the most probable class."""
        return self.probabilities.max(1)


@dataclass(frozen=True)
class Classifier:
    """A head with its temperature, the similarities of labelled vectors to their nearest of another group, sorted, and the
    share of them that may be rejected (None: the labels cannot tell what is unlike them)."""

    head: Head
    classes: tuple[str, ...]
    temperature: float
    similarities: Floats
    rejection_rate: float | None = REJECTION_RATE

    def threshold(self, reject: Reject = "auto") -> float:
        """The similarity below which a vector is rejected."""
        rate = check_rejection(reject)
        rate = self.rejection_rate if rate == "auto" else rate
        return -np.inf if rate is None else rejection_threshold(self.similarities, float(rate))

    def predict(self, vectors: Vectors, *, reject: Reject = "auto") -> Prediction:
        """Classes of vectors `(N, F)`; `reject` is a rate, "auto" for that of the fit, "none" for never."""
        from scipy.special import softmax

        threshold = self.threshold(reject)
        logits, similarities = [np.zeros((0, len(self.classes)))], [np.zeros(0)]
        for first in range(0, len(vectors), _BLOCK):
            block = vectors[first : first + _BLOCK]
            logits.append(self.head.logits(block))
            similarities.append((self.head.directions(block) @ self.head.bank.T).max(1).astype(np.float64))
        similarity = np.concatenate(similarities)
        probabilities = softmax(np.concatenate(logits) / self.temperature, axis=1)
        return Prediction(probabilities, similarity, similarity < threshold)


def fit_classifier(
    vectors: Vectors,
    labels: Labels,
    classes: Sequence[str],
    *,
    groups: npt.NDArray[np.int64] | None = None,
    kind: str = "auto",
    rejection_rate: float | None = REJECTION_RATE,
    seed: int = 0,
) -> Classifier:
    """Fit on labelled vectors `(N, F)`; vectors of one group (recording or person) stay on one side of every fold."""
    vectors, labels = np.asarray(vectors, dtype=np.float32), np.asarray(labels, dtype=np.int64)
    groups = np.arange(len(labels)) if groups is None else np.asarray(groups, dtype=np.int64)
    if not len(labels) or len(vectors) != len(labels) or len(groups) != len(labels):
        raise InputError(
            f"{len(vectors)} vectors, {len(labels)} labels and {len(groups)} groups do not make a classifier"
        )
    check_rejection(rejection_rate)
    rows = sample_rows(labels, groups, _TUNED, seed)
    chosen, temperature = choose_candidate(vectors[rows], labels[rows], len(classes), groups[rows], kind, seed)
    rows = sample_rows(labels, groups, min(_FITTED, max(_BANK, _LARGEST // vectors.shape[1])), seed)
    head = fit_head(chosen, vectors[rows], labels[rows], len(classes))
    kept = sample_rows(labels[rows], groups[rows], _BANK, seed)
    head = replace(head, bank=head.bank[kept], labels=labels[rows][kept])
    similarities = nearest_similarities(head.bank, groups[rows][kept])
    return Classifier(head, tuple(classes), temperature, similarities, rejection_rate)


def choose_candidate(
    vectors: Vectors, labels: Labels, classes: int, groups: npt.NDArray[np.int64], kind: str, seed: int = 0
) -> tuple[Candidate, float]:
    """The candidate that is right most often on held-out folds, and the temperature of its held-out logits.

    Classes count alike, however many labels each has: labels are given where it is easy or where the model is unsure, so
    their shares are not those of the recordings. Where no fold can be made (a class with one recording only), the first
    candidate and the temperature 1.
    """
    tried, splits = candidates(kind), folds(labels, groups, seed, FOLDS if len(labels) < _MANY else 3)
    if not splits:
        return tried[0], 1.0
    rows, held = standardised_in_their_span(vectors), np.concatenate([test for _, test in splits])

    def held_out_logits(candidate: Candidate) -> Floats:
        heads = [fit_head(candidate, rows[train], labels[train], classes, standard=True) for train, _ in splits]
        return np.concatenate([head.logits(rows[test]) for head, (_, test) in zip(heads, splits)])

    logits = [held_out_logits(candidate) for candidate in tried]
    counts = np.bincount(labels[held], minlength=classes)
    right = [np.bincount(labels[held][scores.argmax(1) == labels[held]], minlength=classes) for scores in logits]
    best = int(np.argmax([round(float((hits / np.maximum(counts, 1)).sum()), 9) for hits in right]))  # ties are ties
    return tried[best], fit_temperature(logits[best], labels[held])


def folds(
    labels: Labels, groups: npt.NDArray[np.int64], seed: int = 0, most: int = FOLDS
) -> list[tuple[Labels, Labels]]:
    """Training and test rows of up to `most` folds, stratified by class, groups kept together; none where that is impossible.

    A class needs two groups at least: with one, the fold that tests it could not have learned it.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    fewest = min(len(np.unique(groups[labels == label])) for label in np.unique(labels))
    if fewest < 2 or len(labels) < 4:
        return []
    alone = len(np.unique(groups)) == len(groups)
    kind = StratifiedKFold if alone else StratifiedGroupKFold
    splitter = kind(min(most, fewest), shuffle=True, random_state=seed)
    splits = splitter.split(np.zeros(len(labels)), labels, None if alone else groups)
    return [(train, test) for train, test in splits if len(train) and len(test)]


def sample_rows(labels: Labels, groups: npt.NDArray[np.int64], most: int, seed: int) -> Labels:
    """All rows, or `most` random ones; every class keeps two groups at least, where it has them."""
    if len(labels) <= most:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(labels))
    _, first = np.unique(np.stack([labels[order], groups[order]]), axis=1, return_index=True)
    firsts = order[np.sort(first)]  # a row of every class and group
    needed = np.concatenate([firsts[labels[firsts] == label][:2] for label in np.unique(labels)])
    others = order[~np.isin(order, needed)][: max(0, most - len(needed))]
    return np.sort(np.concatenate([needed, others]))


@dataclass(frozen=True)
class Suggestion:
    """A row to label, with how unsure the classifier is (0 … 1) and how unlike it is to what is labelled or chosen (0 … 2)."""

    row: int
    uncertainty: float
    distance: float


def suggest(classifier: Classifier, vectors: Vectors, count: int) -> list[Suggestion]:
    """Greedily `count` rows of the largest uncertainty × distance; each choice counts as labelled for the next.

    Uncertainty is the entropy of the probabilities over its largest value; what is unlike everything has its distance.
    """
    from scipy.stats import entropy

    if count < 1:
        raise InputError(f"{count} suggestions cannot be made; ask for at least 1")
    prediction = classifier.predict(vectors, reject="none")
    uncertainty = entropy(prediction.probabilities, axis=1) / max(np.log(len(classifier.classes)), 1e-9)
    directions = classifier.head.directions(vectors)
    nearest = prediction.similarity.copy()
    chosen: list[Suggestion] = []
    open_rows = np.ones(len(vectors), dtype=bool)
    for _ in range(min(count, len(vectors))):
        worth = np.where(open_rows, (uncertainty + 1e-6) * (1 - nearest + 1e-6), -np.inf)
        row = int(worth.argmax())
        chosen.append(Suggestion(row, float(uncertainty[row]), float(1 - nearest[row])))
        open_rows[row] = False
        nearest = np.maximum(nearest, directions @ directions[row])
    return chosen
