"""Assessment of a few-label classifier: nested cross-validation, raw coordinates, learning curve."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.core.progress import Bar
from halp.tasks.adapt import Neighbourhood
from halp.tasks.calibration import accuracy_interval
from halp.tasks.classifier import PLAIN, Choice, choose, folds
from halp.tasks.heads import Labels, Vectors, fit_head, project_to_row_span

Splits = list[tuple[Labels, Labels]]
MOST = 600  # labelled vectors that are cross-validated; more are sampled
# draws of labels per point of the learning curve; the few from this many labels on
_DRAWS, _FEW_DRAWS, _MANY = (5, 2, 300)


@dataclass(frozen=True)
class Score:
    """Cross-validated accuracy, a 95 % interval over recordings, and the candidate chosen on all."""

    accuracy: float
    low: float
    high: float
    recordings: int
    chosen: str

    @classmethod
    def of(
        cls,
        right: npt.NDArray[np.bool_],
        recordings: npt.NDArray[np.int64],
        units: npt.NDArray[np.int64],
        chosen: str,
    ) -> Score:
        """The score of answers `(N,)` that are right or not."""
        interval = accuracy_interval(right, recordings, units)
        return cls(float(right.mean()), *interval, len(np.unique(recordings)), chosen)


def assess(
    vectors: Vectors,
    raw: Vectors,
    labels: Labels,
    units: npt.NDArray[np.int64],
    recordings: npt.NDArray[np.int64],
    *,
    kind: str = "auto",
    seed: int = 0,
    progress: bool = True,
    neighbourhood: Neighbourhood | None = None,
) -> dict[str, Any]:
    """Cross-validate the encoder's vectors and the raw coordinates of the same clips in the same way.

    Raw coordinates share a unit and have one scale. The encoder's vectors may have a `neighbourhood`;
    held-out clips are then among those without labels, as clips that will be classified are.

    Plain data for `config.json`: the scores of `encoder` and `raw`, None where a class has one recording
    only, so that nothing can be held out; `curve` maps the number of labelled recordings per class to the
    mean accuracies of both.
    """
    splits = folds(labels, units, seed)
    if not splits:
        return {"encoder": None, "raw": None, "curve": {}}
    scores, curves = [], []
    with Bar("cross-validation", 2 * (len(splits) + 1), shown=progress) as bar:
        for features, near in ((vectors, neighbourhood), (raw, None)):
            how: dict[str, Any] = {"seed": seed, "one_scale": features is raw, "neighbourhood": near}
            classes, rows = int(labels.max()) + 1, np.arange(len(labels))
            chosen = choose(features, labels, classes, units, kind, rows=rows, **how)
            score = cross_validate(features, labels, units, recordings, kind=kind, bar=bar, **how)
            scores.append({**asdict(score), "chosen": str(chosen)})
            curves.append(learning_curve(chosen, features, labels, units, splits, **how))
            bar.advance()
    curve = {count: (curves[0][count], curves[1][count]) for count in curves[0]}
    return {"encoder": scores[0], "raw": scores[1], "curve": curve}


def cross_validate(
    vectors: Vectors,
    labels: Labels,
    units: npt.NDArray[np.int64],
    recordings: npt.NDArray[np.int64],
    *,
    kind: str = "auto",
    seed: int = 0,
    bar: Bar | None = None,
    one_scale: bool = False,
    neighbourhood: Neighbourhood | None = None,
) -> Score:
    """Nested: in every fold the classifier is chosen on the training part alone."""
    right = np.zeros(len(labels), dtype=bool)
    classes = [str(label) for label in range(int(labels.max()) + 1)]
    for train, test in folds(labels, units, seed):
        part = vectors[train], labels[train]
        choice = choose(*part, len(classes), units[train], kind, seed, one_scale, neighbourhood, train)
        if neighbourhood is not None and choice.method != PLAIN:
            guess = neighbourhood.scores(choice.method, train, labels[train], len(classes), test).argmax(1)
        else:
            head = fit_head(choice.candidate, *part, len(classes), one_scale=one_scale)
            guess = head.logits(vectors[test]).argmax(1)
        right[test] = guess == labels[test]
        if bar is not None:
            bar.advance()
    return Score.of(right, recordings, units, kind)


def learning_curve(
    chosen: Choice,
    vectors: Vectors,
    labels: Labels,
    units: npt.NDArray[np.int64],
    splits: Splits,
    *,
    seed: int = 0,
    one_scale: bool = False,
    neighbourhood: Neighbourhood | None = None,
) -> dict[int, float]:
    """Accuracy against labelled recordings per class, 1, 2, 4, …; mean over folds and draws.

    In every fold the vectors are standardised by the training part: held-out clips shape nothing.
    """
    classes, draw = int(labels.max()) + 1, np.random.default_rng(seed)
    fewest = min(
        len(np.unique(units[train][labels[train] == label]))
        for train, _ in splits
        for label in np.unique(labels[train])
    )

    def accuracy(count: int, train: Labels, test: Labels, span: Vectors) -> float:
        rows = few_per_class(train, labels, units, count, draw)
        if neighbourhood is not None and chosen.method != PLAIN:
            scores = neighbourhood.scores(chosen.method, rows, labels[rows], classes, test)
        else:
            head = fit_head(chosen.candidate, span[rows], labels[rows], classes, standard=True)
            scores = head.logits(span[test])
        return float((scores.argmax(1) == labels[test]).mean())

    counts = [2**power for power in range(20) if 2**power <= fewest]
    # many held-out labels tell an accuracy with few draws
    draws = _DRAWS if len(labels) < _MANY else _FEW_DRAWS
    # all products are the same in the span of the rows, which has far fewer coordinates
    spans = [project_to_row_span(vectors, one_scale, train) for train, _ in splits]
    return {
        count: float(
            np.mean(
                [accuracy(count, *split, span) for split, span in zip(splits, spans) for _ in range(draws)]
            )
        )
        for count in counts
    }


def few_per_class(
    rows: Labels, labels: Labels, units: npt.NDArray[np.int64], count: int, draw: np.random.Generator
) -> Labels:
    """The rows of `count` random units of every class."""
    kept = []
    for label in np.unique(labels[rows]):
        members = rows[labels[rows] == label]
        chosen = draw.permutation(np.unique(units[members]))[:count]
        kept.append(members[np.isin(units[members], chosen)])
    return np.concatenate(kept)
