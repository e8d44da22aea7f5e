"""How good a few-label classifier is: nested cross-validation with an interval, beside the raw coordinates, and over labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.progress import Bar
from halp.use.calibration import accuracy_interval
from halp.use.classifier import choose_candidate, fit_classifier, folds, sample_rows
from halp.use.heads import Candidate, Labels, Vectors, candidates, fit_head

MOST = 800  # labelled vectors that are cross-validated; more are sampled
_DRAWS = 5


@dataclass(frozen=True)
class Score:
    """Cross-validated accuracy with a 95 % interval, over so many recordings, and what all of them choose."""

    accuracy: float
    low: float
    high: float
    recordings: int
    chosen: str


@dataclass(frozen=True)
class Assessment:
    """What is known about a classifier; None where a class has one recording only, so that nothing can be held out.

    `curve` maps the number of labelled recordings per class to the mean accuracies of encoder and raw coordinates.
    """

    encoder: Score | None
    raw: Score | None
    curve: dict[int, tuple[float, float]]

    def to_json(self) -> dict[str, Any]:
        """Plain data for `config.json`."""
        return asdict(self)


def assess(
    vectors: Vectors,
    raw: Vectors,
    labels: Labels,
    groups: npt.NDArray[np.int64],
    *,
    recordings: npt.NDArray[np.int64] | None = None,
    kind: str = "auto",
    seed: int = 0,
    progress: bool = True,
) -> Assessment:
    """Cross-validate the encoder's vectors and the raw coordinates of the same clips, both chosen and tuned the same way."""
    rows = sample_rows(labels, groups, MOST, seed)
    vectors, raw, labels, groups = vectors[rows], raw[rows], labels[rows], groups[rows]
    recordings = groups if recordings is None else recordings[rows]
    splits = list(folds(labels, groups, seed))
    if not splits:
        return Assessment(None, None, {})
    with Bar("cross-validation", 2 * (len(splits) + 1), shown=progress) as bar:
        scores, curves = [], []
        for features in (vectors, raw):
            scores.append(
                cross_validate(features, labels, groups, recordings=recordings, kind=kind, seed=seed, bar=bar)
            )
            curves.append(learning_curve(features, labels, groups, kind=kind, seed=seed))
            bar.advance()
    curve = {count: (curves[0][count], curves[1][count]) for count in curves[0]}
    return Assessment(scores[0], scores[1], curve)


def cross_validate(
    vectors: Vectors,
    labels: Labels,
    groups: npt.NDArray[np.int64],
    *,
    recordings: npt.NDArray[np.int64] | None = None,
    kind: str = "auto",
    seed: int = 0,
    bar: Bar | None = None,
) -> Score:
    """Nested: in every fold the classifier is chosen on the training part alone."""
    right = np.zeros(len(labels), dtype=bool)
    classes = [str(label) for label in range(int(labels.max()) + 1)]
    for train, test in folds(labels, groups, seed):
        fitted = fit_classifier(vectors[train], labels[train], classes, groups=groups[train], kind=kind, seed=seed)
        right[test] = fitted.predict(vectors[test], reject=False).label == labels[test]
        if bar is not None:
            bar.advance()
    chosen, _ = choose_candidate(vectors, labels, len(classes), groups, candidates(kind), seed)
    recordings = groups if recordings is None else recordings
    low, high = accuracy_interval(right, recordings, groups)
    return Score(float(right.mean()), low, high, len(np.unique(recordings)), str(chosen))


def learning_curve(
    vectors: Vectors, labels: Labels, groups: npt.NDArray[np.int64], *, kind: str = "auto", seed: int = 0
) -> dict[int, float]:
    """Accuracy against labelled recordings per class: 1, 2, 4, …; mean over folds and draws.

    The kind of classifier and its setting are those that all labels choose.
    """
    classes = int(labels.max()) + 1
    chosen, _ = choose_candidate(vectors, labels, classes, groups, candidates(kind), seed)
    splits = list(folds(labels, groups, seed))
    draw = np.random.default_rng(seed)
    fewest = min(
        len(np.unique(groups[train][labels[train] == label]))
        for train, _ in splits
        for label in np.unique(labels[train])
    )
    counts = [2**power for power in range(20) if 2**power <= fewest]
    return {count: _accuracy_with(count, chosen, vectors, labels, groups, splits, classes, draw) for count in counts}


def _accuracy_with(
    count: int,
    chosen: Candidate,
    vectors: Vectors,
    labels: Labels,
    groups: npt.NDArray[np.int64],
    splits: list[tuple[Labels, Labels]],
    classes: int,
    draw: np.random.Generator,
) -> float:
    found = []
    for train, test in splits:
        for _ in range(_DRAWS):
            rows = few_per_class(train, labels, groups, count, draw)
            head = fit_head(chosen, vectors[rows], labels[rows], classes)
            found.append(float((head.logits(vectors[test]).argmax(1) == labels[test]).mean()))
    return float(np.mean(found))


def few_per_class(
    rows: Labels, labels: Labels, groups: npt.NDArray[np.int64], count: int, draw: np.random.Generator
) -> Labels:
    """The rows of `count` random groups of every class."""
    kept = []
    for label in np.unique(labels[rows]):
        own = rows[labels[rows] == label]
        chosen = draw.permutation(np.unique(groups[own]))[:count]
        kept.append(own[np.isin(groups[own], chosen)])
    return np.concatenate(kept)
