"""How good a few-label classifier is: nested cross-validation with an interval, beside the raw coordinates, and over labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.progress import Bar
from halp.tasks.classifier import accuracy_interval, choose_candidate, fit_classifier, folds
from halp.tasks.heads import Candidate, Labels, Vectors, fit_head, project_to_row_span

Splits = list[tuple[Labels, Labels]]
MOST = 600  # labelled vectors that are cross-validated; more are sampled
_DRAWS, _FEW_DRAWS, _MANY = (
    5,
    2,
    300,
)  # draws of labels per point of the learning curve; the few from this many labels on


@dataclass(frozen=True)
class Score:
    """Cross-validated accuracy with a 95 % interval, over this many recordings, and what all of them choose."""

    accuracy: float
    low: float
    high: float
    recordings: int
    chosen: str

    @classmethod
    def of(
        cls, right: npt.NDArray[np.bool_], recordings: npt.NDArray[np.int64], groups: npt.NDArray[np.int64], chosen: str
    ) -> Score:
        """The score of answers `(N,)` that are right or not."""
        interval = accuracy_interval(right, recordings, groups)
        return cls(float(right.mean()), *interval, len(np.unique(recordings)), chosen)


def assess(
    vectors: Vectors,
    raw: Vectors,
    labels: Labels,
    groups: npt.NDArray[np.int64],
    recordings: npt.NDArray[np.int64],
    *,
    kind: str = "auto",
    seed: int = 0,
    progress: bool = True,
) -> dict[str, Any]:
    """Cross-validate the encoder's vectors and the raw coordinates of the same clips, both chosen and tuned the same way.

    Plain data for `config.json`: the scores of `encoder` and `raw`, None if a class has one recording only, so that
    nothing can be held out; `curve` maps the number of labelled recordings per class to the mean accuracies of both.
    """
    splits = folds(labels, groups, seed)
    if not splits:
        return {"encoder": None, "raw": None, "curve": {}}
    scores, curves = [], []
    with Bar("cross-validation", 2 * (len(splits) + 1), shown=progress) as bar:
        for features in (vectors, raw):
            chosen, _ = choose_candidate(features, labels, int(labels.max()) + 1, groups, kind, seed)
            score = cross_validate(features, labels, groups, recordings, kind=kind, seed=seed, bar=bar)
            scores.append({**asdict(score), "chosen": str(chosen)})
            # all products are the same in the span of the rows, which has far fewer coordinates
            rows = project_to_row_span(features)
            curves.append(learning_curve(chosen, rows, labels, groups, splits, seed=seed))
            bar.advance()
    curve = {count: (curves[0][count], curves[1][count]) for count in curves[0]}
    return {"encoder": scores[0], "raw": scores[1], "curve": curve}


def cross_validate(
    vectors: Vectors,
    labels: Labels,
    groups: npt.NDArray[np.int64],
    recordings: npt.NDArray[np.int64],
    *,
    kind: str = "auto",
    seed: int = 0,
    bar: Bar | None = None,
) -> Score:
    """Nested: in every fold the classifier is chosen on the training part alone."""
    right = np.zeros(len(labels), dtype=bool)
    classes = [str(label) for label in range(int(labels.max()) + 1)]
    for train, test in folds(labels, groups, seed):
        fitted = fit_classifier(vectors[train], labels[train], classes, groups=groups[train], kind=kind, seed=seed)
        right[test] = fitted.predict(vectors[test]).best == labels[test]
        if bar is not None:
            bar.advance()
    return Score.of(right, recordings, groups, kind)


def learning_curve(
    chosen: Candidate,
    vectors: Vectors,
    labels: Labels,
    groups: npt.NDArray[np.int64],
    splits: Splits,
    *,
    seed: int = 0,
) -> dict[int, float]:
    """Accuracy of a kind of classifier against labelled recordings per class: 1, 2, 4, …; mean over folds and draws.

    The vectors are standardised already.
    """
    classes, draw = int(labels.max()) + 1, np.random.default_rng(seed)
    fewest = min(
        len(np.unique(groups[train][labels[train] == label]))
        for train, _ in splits
        for label in np.unique(labels[train])
    )

    def accuracy(count: int, train: Labels, test: Labels) -> float:
        rows = few_per_class(train, labels, groups, count, draw)
        head = fit_head(chosen, vectors[rows], labels[rows], classes, standard=True)
        return float((head.logits(vectors[test]).argmax(1) == labels[test]).mean())

    counts = [2**power for power in range(20) if 2**power <= fewest]
    # many held-out labels tell an accuracy with few draws
    draws = _DRAWS if len(labels) < _MANY else _FEW_DRAWS
    return {
        count: float(np.mean([accuracy(count, train, test) for train, test in splits for _ in range(draws)]))
        for count in counts
    }


def few_per_class(
    rows: Labels, labels: Labels, groups: npt.NDArray[np.int64], count: int, draw: np.random.Generator
) -> Labels:
    """The rows of `count` random groups of every class."""
    kept = []
    for label in np.unique(labels[rows]):
        members = rows[labels[rows] == label]
        chosen = draw.permutation(np.unique(groups[members]))[:count]
        kept.append(members[np.isin(groups[members], chosen)])
    return np.concatenate(kept)
