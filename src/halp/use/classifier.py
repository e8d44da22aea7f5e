"""The few-label classifier: choose a head by cross-validation, calibrate it, and know when nothing fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from halp.errors import InputError
from halp.use.calibration import (
    Floats,
    fit_temperature,
    nearest_similarities,
    novelty_threshold,
    softmax,
)
from halp.use.heads import Candidate, Head, Labels, Vectors, candidates, fit_head

FOLDS = 5
UNSURE = 0.05  # share of the labelled recordings that may be called unlike everything
_BLOCK = 4096
_TUNED = 2000  # labelled vectors that kind and setting are chosen with; more are sampled
_BANK = 5000  # labelled vectors that are kept to compare with; more are sampled


@dataclass(frozen=True)
class Prediction:
    """For every vector: class index, −1 for none of these; its probability; the nearest labelled similarity.

    `probabilities` `(N, C)` are those of the classes. Where nothing fits, `probability` is the share of the labelled
    recordings that are more like their own class than this vector is like anything.
    """

    label: Labels
    probability: Floats
    probabilities: Floats
    similarity: Floats


@dataclass(frozen=True)
class Classifier:
    """A head with its temperature and the similarities of labelled vectors to their nearest, sorted."""

    head: Head
    classes: tuple[str, ...]
    temperature: float
    threshold: float
    similarities: Floats

    def predict(self, vectors: Vectors, *, reject: bool = True) -> Prediction:
        """Classes of vectors `(N, F)`; without `reject` the likeliest class is given whatever it is like."""
        blocks = [self._predict(vectors[first : first + _BLOCK], reject) for first in range(0, len(vectors), _BLOCK)]
        if not blocks:
            empty = np.zeros(0)
            return Prediction(np.zeros(0, np.int64), empty, np.zeros((0, len(self.classes))), empty)
        return Prediction(*(np.concatenate([getattr(block, name) for block in blocks]) for name in _FIELDS))

    def _predict(self, vectors: Vectors, reject: bool) -> Prediction:
        probabilities = softmax(self.head.logits(vectors), self.temperature)
        similarity = (self.head.directions(vectors) @ self.head.bank.T).max(1).astype(np.float64)
        label = probabilities.argmax(1)
        probability = probabilities.max(1)
        if reject:
            strange = similarity < self.threshold
            label = np.where(strange, -1, label)
            above = 1 - (np.searchsorted(self.similarities, similarity, "right") + 1) / (len(self.similarities) + 1)
            probability = np.where(strange, above, probability)
        return Prediction(label.astype(np.int64), probability, probabilities, similarity)


_FIELDS = ("label", "probability", "probabilities", "similarity")


def fit_classifier(
    vectors: Vectors,
    labels: Labels,
    classes: Sequence[str],
    *,
    groups: npt.NDArray[np.int64] | None = None,
    kind: str = "auto",
    unsure: float = UNSURE,
    seed: int = 0,
) -> Classifier:
    """Fit on labelled vectors `(N, F)`; vectors of one group (recording or person) stay on one side of every fold."""
    vectors, labels = np.asarray(vectors, dtype=np.float32), np.asarray(labels, dtype=np.int64)
    groups = np.arange(len(labels)) if groups is None else np.asarray(groups, dtype=np.int64)
    if not len(labels) or len(vectors) != len(labels) or len(groups) != len(labels):
        raise InputError(
            f"{len(vectors)} vectors, {len(labels)} labels and {len(groups)} groups do not make a classifier"
        )
    if not 0 <= unsure < 1:
        raise InputError(f"the share that may be called unlike everything is {unsure:g}; it has to be in [0, 1)")
    rows = sample_rows(labels, groups, _TUNED, seed)
    chosen, temperature = choose_candidate(
        vectors[rows], labels[rows], len(classes), groups[rows], candidates(kind), seed
    )
    head = fit_head(chosen, vectors, labels, len(classes))
    kept = sample_rows(labels, groups, _BANK, seed)
    head = replace(head, bank=head.bank[kept], labels=labels[kept])
    similarities = nearest_similarities(head.bank, groups[kept])
    known = np.sort(similarities[np.isfinite(similarities)])
    return Classifier(head, tuple(classes), temperature, novelty_threshold(similarities, unsure), known)


def choose_candidate(
    vectors: Vectors,
    labels: Labels,
    classes: int,
    groups: npt.NDArray[np.int64],
    tried: Sequence[Candidate],
    seed: int = 0,
) -> tuple[Candidate, float]:
    """The candidate that is right most often on held-out folds, and the temperature of its held-out logits.

    Where no fold can be made (a class with one recording only), the first candidate and the temperature 1.
    """
    splits = list(folds(labels, groups, seed))
    if not splits:
        return tried[0], 1.0
    held = np.concatenate([test for _, test in splits])
    best: tuple[float, Candidate, Floats] | None = None
    for one in tried:
        logits = np.concatenate(
            [fit_head(one, vectors[train], labels[train], classes).logits(vectors[test]) for train, test in splits]
        )
        right = float((logits.argmax(1) == labels[held]).mean())
        if best is None or right > best[0]:
            best = right, one, logits
    if best is None:
        raise InputError("there is no classifier to choose from")
    return best[1], fit_temperature(best[2], labels[held])


def folds(labels: Labels, groups: npt.NDArray[np.int64], seed: int = 0) -> Iterator[tuple[Labels, Labels]]:
    """Training and test rows of up to five folds, stratified by class, groups kept together; none where that is impossible.

    A class needs two groups at least: with one, the fold that tests it could not have learned it.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    fewest = min(len(np.unique(groups[labels == label])) for label in np.unique(labels))
    if fewest < 2 or len(labels) < 4:
        return
    splitter = StratifiedGroupKFold(min(FOLDS, fewest), shuffle=True, random_state=seed)
    for train, test in splitter.split(np.zeros(len(labels)), labels, groups):
        if len(train) and len(test):
            yield train, test


def sample_rows(labels: Labels, groups: npt.NDArray[np.int64], most: int, seed: int) -> Labels:
    """All rows, or those of random groups until `most` is reached; every class keeps two groups at least."""
    if len(labels) <= most:
        return np.arange(len(labels))
    draw = np.random.default_rng(seed)
    kept: set[int] = set()
    for label in np.unique(labels):
        kept |= set(draw.permutation(np.unique(groups[labels == label]))[:2].tolist())
    taken = int(np.isin(groups, list(kept)).sum())
    sizes = dict(zip(*np.unique(groups, return_counts=True)))
    for group in draw.permutation(np.unique(groups)):
        if group not in kept and taken + sizes[group] <= most:
            kept.add(int(group))
            taken += int(sizes[group])
    return np.flatnonzero(np.isin(groups, list(kept)))
