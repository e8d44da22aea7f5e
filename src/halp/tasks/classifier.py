"""The few-label classifier: head chosen by cross-validation, calibrated, with rejection and intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.tasks.adapt import Neighbourhood, allowed_methods, better_by_more_than_noise
from halp.tasks.calibration import (
    REJECTION_RATE,
    Floats,
    Reject,
    check_rejection,
    fit_temperature,
    nearest_similarities,
    rejection_threshold,
)
from halp.tasks.heads import (
    Candidate,
    Head,
    Labels,
    Vectors,
    candidates,
    fit_head,
    fit_heads,
    project_to_row_span,
    round_to_eight_bit,
)

Folds = list[tuple[Labels, Labels]]
PLAIN, ADAPTED = "plain", Candidate("adapted")
FOLDS = 5
_BLOCK = 4096
TUNED = 500  # labelled vectors that kind and setting are chosen with; more are sampled, and then no neighbourhood is used
_MANY = 200  # labelled vectors of which three folds tell enough
BANK = 1200  # labelled vectors that are kept to compare with; more are sampled
VOTERS, VOTES = 3000, 7_000_000  # labelled vectors that vote, and numbers in them: bytes of an exported file
_FITTED, _MOST_NUMBERS = 20_000, 50_000_000  # labelled vectors, and numbers in them, that a head is fitted on


@dataclass(frozen=True)
class Prediction:
    """Probabilities `(N, C)`, similarity to the nearest labelled vector, and whether that is too small."""

    probabilities: Floats
    similarity: Floats
    rejected: npt.NDArray[np.bool_]

    @property
    def best(self) -> Labels:
        """The most probable class, also of rejected rows."""
        return self.probabilities.argmax(1)

    @property
    def probability(self) -> Floats:
        """The probability of the most probable class."""
        return self.probabilities.max(1)


@dataclass(frozen=True)
class Classifier:
    """A head with its temperature, sorted similarities to other units, and the share to reject, or None."""

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

    def can_reject(self, reject: Reject = "auto") -> bool:
        """Whether anything can be rejected; if not, `rejected` is meaningless."""
        return bool(np.isfinite(self.threshold(reject)))

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
    units: npt.NDArray[np.int64] | None = None,
    kind: str = "auto",
    rejection_rate: float | None = REJECTION_RATE,
    seed: int = 0,
    one_scale: bool = False,
    neighbourhood: Neighbourhood | None = None,
) -> Classifier:
    """Fit on labelled vectors `(N, F)`; a unit (recording or person) stays on one side of every fold.

    `one_scale`: the columns share a unit, as raw coordinates do. A `neighbourhood` of these vectors, in their
    order, and of others without labels lets the kinds `auto` and `adapted` use them.
    """
    vectors, labels = np.asarray(vectors, dtype=np.float32), np.asarray(labels, dtype=np.int64)
    units = np.arange(len(labels)) if units is None else np.asarray(units, dtype=np.int64)
    if not len(labels) or len(vectors) != len(labels) or len(units) != len(labels):
        raise InputError(
            f"{len(vectors)} vectors, {len(labels)} labels and {len(units)} units do not make a classifier"
        )
    check_rejection(rejection_rate)
    rows = sample_rows(labels, units, TUNED, seed)
    part = vectors[rows], labels[rows], len(classes), units[rows], kind, seed, one_scale
    choice = choose(*part, neighbourhood if len(rows) == len(labels) else None, rows)
    if neighbourhood is not None and choice.method != PLAIN:
        head = neighbourhood.head(choice.method, rows, labels[rows], len(classes))
    else:
        rows = sample_rows(labels, units, min(_FITTED, max(BANK, _MOST_NUMBERS // vectors.shape[1])), seed)
        head = fit_head(choice.candidate, vectors[rows], labels[rows], len(classes), one_scale=one_scale)
    kept = sample_rows(labels[rows], units[rows], most_kept(head.candidate.kind, vectors.shape[1]), seed)
    head = replace(head, bank=round_to_eight_bit(head.bank[kept]), labels=labels[rows][kept])
    similarities = nearest_similarities(head.bank, units[rows][kept])
    return Classifier(head, tuple(classes), choice.temperature, similarities, rejection_rate)


def most_kept(kind: str, features: int) -> int:
    """Labelled vectors of so many features that a classifier keeps.

    >>> most_kept("knn", 5184), most_kept("knn", 512), most_kept("linear", 512)
    (1350, 3000, 1200)
    """
    return min(VOTERS, max(BANK, VOTES // features)) if kind == "knn" else BANK


@dataclass(frozen=True)
class Choice:
    """The result of cross-validation: `plain` with a candidate, or a method of `halp.tasks.adapt`."""

    method: str
    candidate: Candidate
    temperature: float = 1.0

    def __str__(self) -> str:
        return str(self.candidate) if self.method == PLAIN else f"{self.candidate}, {self.method}"


def choose(
    vectors: Vectors,
    labels: Labels,
    classes: int,
    units: npt.NDArray[np.int64],
    kind: str,
    seed: int = 0,
    one_scale: bool = False,
    neighbourhood: Neighbourhood | None = None,
    rows: Labels | None = None,
) -> Choice:
    """The candidate with the highest held-out accuracy, and the temperature of its held-out logits.

    Classes count alike, however many labels each has: labels are given where it is easy or where the model is
    unsure, so their shares are not those of the recordings. If no fold can be made (a class with one
    recording only), the first candidate and the temperature 1.

    With a `neighbourhood`, of which the vectors are the `rows`, the first method that it bears is taken,
    unless another one or `plain` is right more often by more than a standard error, or its clips without
    labels are unlike the labelled ones.
    """
    splits = folds(labels, units, seed, FOLDS if len(labels) < _MANY else 3)
    held = np.concatenate([test for _, test in splits]) if splits else np.zeros(0, dtype=np.int64)
    plain, logits = _choose_plain(vectors, labels, classes, splits, kind, one_scale)
    methods: tuple[str, ...] = ()
    if (
        neighbourhood is not None
        and rows is not None
        and kind in ("auto", "adapted")
        and len(neighbourhood) > len(labels)
        and (kind == "adapted" or neighbourhood.resembles(rows))
    ):
        methods = allowed_methods(len(neighbourhood), classes)
    if neighbourhood is None or rows is None or not methods:
        return plain
    if not splits:
        return Choice(methods[0], ADAPTED)
    found = {
        method: np.concatenate(
            [
                neighbourhood.scores(method, rows[train], labels[train], classes, rows[test])
                for train, test in splits
            ]
        )
        for method in methods
    }
    if kind == "auto":
        found[PLAIN] = logits
    right = {method: scores.argmax(1) == labels[held] for method, scores in found.items()}
    best = max(right, key=lambda method: _balanced(found[method], labels[held], classes))
    best = best if better_by_more_than_noise(right[best], right[methods[0]], units[held]) else methods[0]
    return plain if best == PLAIN else Choice(best, ADAPTED, fit_temperature(found[best], labels[held]))


def _choose_plain(
    vectors: Vectors, labels: Labels, classes: int, splits: Folds, kind: str, one_scale: bool
) -> tuple[Choice, Floats]:
    """The best candidate on labelled vectors alone, and its held-out logits."""
    tried = candidates(kind)
    if not splits:
        return Choice(PLAIN, tried[0]), np.zeros((0, classes))
    rows, held = project_to_row_span(vectors, one_scale), np.concatenate([test for _, test in splits])
    per_fold = [
        [head.logits(rows[test]) for head in fit_heads(tried, rows[train], labels[train], classes)]
        for train, test in splits
    ]
    logits = [np.concatenate(parts) for parts in zip(*per_fold)]
    best = int(np.argmax([_balanced(scores, labels[held], classes) for scores in logits]))
    return Choice(PLAIN, tried[best], fit_temperature(logits[best], labels[held])), logits[best]


def _balanced(scores: Floats, labels: Labels, classes: int) -> float:
    """Accuracy of held-out logits, averaged over classes; rounded, so that ties are ties."""
    counts = np.bincount(labels, minlength=classes)
    hits = np.bincount(labels[scores.argmax(1) == labels], minlength=classes)
    return round(float((hits / np.maximum(counts, 1)).sum()), 9)


def folds(labels: Labels, units: npt.NDArray[np.int64], seed: int = 0, most: int = FOLDS) -> Folds:
    """Training and test rows of up to `most` stratified folds with whole units; empty if impossible.

    A class needs two units at least: with one, the fold that tests it could not have learned it.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    fewest = min(len(np.unique(units[labels == label])) for label in np.unique(labels))
    if fewest < 2 or len(labels) < 4:
        return []
    alone = len(np.unique(units)) == len(units)
    kind = StratifiedKFold if alone else StratifiedGroupKFold
    splitter = kind(min(most, fewest), shuffle=True, random_state=seed)
    splits = splitter.split(np.zeros(len(labels)), labels, None if alone else units)
    return [(train, test) for train, test in splits if len(train) and len(test)]


def sample_rows(labels: Labels, units: npt.NDArray[np.int64], most: int, seed: int) -> Labels:
    """All rows, or `most` random ones; every class keeps two units at least, if it has them."""
    if len(labels) <= most:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(labels))
    _, first = np.unique(np.stack([labels[order], units[order]]), axis=1, return_index=True)
    firsts = order[np.sort(first)]  # a row of every class and unit
    needed = np.concatenate([firsts[labels[firsts] == label][:2] for label in np.unique(labels)])
    others = order[~np.isin(order, needed)][: max(0, most - len(needed))]
    return np.sort(np.concatenate([needed, others]))


@dataclass(frozen=True)
class Suggestion:
    """A row to label, with uncertainty (0 … 1) and distance to labelled or chosen rows (0 … 2)."""

    row: int
    uncertainty: float
    distance: float


def suggest(classifier: Classifier, vectors: Vectors, count: int) -> list[Suggestion]:
    """Greedily `count` rows of the largest uncertainty × distance; chosen ones count as labelled.

    Uncertainty is the entropy of the probabilities over its largest value; what is unlike everything has its
    distance.
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
