"""Classifiers for few labels on frozen vectors: linear, nearest neighbours, prototypes, adapted.

All give logits `(N, C)`; what follows (temperature, "none of these") does not depend on which one it is.
`adapted` is fitted by
`halp.tasks.adapt` with the help of clips without labels: a direction per class in a metric of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError, check_choice
from halp.evaluation.logistic import LogisticPath

Vectors = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float64]

KINDS = ("linear", "knn", "prototypes", "adapted")
SHARPNESS = 10.0  # cosine similarities are multiplied by it before they compete
FAINT = 1e-3  # vote that a class has without any neighbour


@dataclass(frozen=True)
class Candidate:
    """A kind of classifier with its setting: C of linear, k of nearest neighbours, else none."""

    kind: str
    setting: float = 1.0

    def __post_init__(self) -> None:
        check_choice("classifier", self.kind, KINDS)
        if not self.setting > 0 or (self.kind == "knn" and self.setting != int(self.setting)):
            raise InputError(
                f"classifier {self.kind}: setting {self.setting:g} must be above 0, and whole for knn"
            )

    def __str__(self) -> str:
        symbol = {"linear": "C", "knn": "k"}.get(self.kind)
        return f"{self.kind}, {symbol} = {self.setting:g}" if symbol else self.kind


# Of equally good ones the first is taken.
CANDIDATES = (
    Candidate("prototypes"),
    *(Candidate("linear", c) for c in (1.0, 0.1, 10.0, 100.0)),
    *(Candidate("knn", k) for k in (1, 3, 5)),
)


def candidates(kind: str) -> tuple[Candidate, ...]:
    """The candidates of a kind, to be compared on labelled clips alone; `auto` and `adapted` try every kind."""
    check_choice("classifier", kind, (*KINDS, "auto"))
    return tuple(candidate for candidate in CANDIDATES if kind in ("auto", "adapted", candidate.kind))


@dataclass(frozen=True)
class Head:
    """A fitted classifier. `bank`: labelled vectors `(N, F)` as `directions` gives them; `labels` `(N,)`.

    Of standardised vectors `left` `(r,)` remains along the `axes` `(F, r)`; r = 0 leaves them as they are.
    """

    candidate: Candidate
    classes: int
    mean: Vectors
    scale: Vectors
    bank: Vectors
    labels: Labels
    weight: Vectors
    bias: Vectors
    axes: Vectors = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    left: Vectors = field(default_factory=lambda: np.zeros(0, np.float32))

    def standardise(self, vectors: Vectors) -> Vectors:
        """Vectors less the mean, over the standard deviation, shrunk along the axes, `(N, F)`."""
        return standardise(vectors, self.mean, self.scale, self.axes, self.left)

    def directions(self, vectors: Vectors) -> Vectors:
        """Standardised vectors of length one: their products are the similarities that count here."""
        return unit(self.standardise(vectors))

    def logits(self, vectors: Vectors) -> Logits:
        """Scores of the classes `(N, C)`."""
        if self.candidate.kind == "linear":
            return (self.standardise(vectors) @ self.weight.T + self.bias).astype(np.float64)
        rows = self.directions(vectors)
        if self.candidate.kind in ("prototypes", "adapted"):
            return (SHARPNESS * (rows @ self.weight.T)).astype(np.float64)
        from halp.evaluation.protocols.knn import knn_votes

        k = min(int(self.candidate.setting), len(self.bank))
        votes = knn_votes(self.bank, self.labels, rows, k, classes=self.classes, temperature=1 / SHARPNESS)
        return np.log(votes / votes.sum(1, keepdims=True) + FAINT)


def standardise(vectors: Vectors, mean: Vectors, scale: Vectors, axes: Vectors, left: Vectors) -> Vectors:
    """`z − V (1 − left) Vᵀ z` of standardised vectors z `(N, F)` with the axes V `(F, r)`."""
    rows = ((np.asarray(vectors, dtype=np.float32) - mean) / scale).astype(np.float32)
    return rows - ((rows @ axes) * (1 - left)) @ axes.T if len(left) else rows


def unit(vectors: npt.NDArray[np.floating]) -> Vectors:
    """Rows of length one; a row of zeros stays zero."""
    vectors = np.asarray(vectors, dtype=np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def to_eight_bit(rows: Vectors) -> tuple[npt.NDArray[np.int8], Vectors]:
    """Rows as eight-bit numbers `(N, F)` with a scale each `(N,)`; exact for rows from `round_to_eight_bit`."""
    scale = np.maximum(np.abs(rows).max(1, initial=0), 1e-12).astype(np.float32) / np.float32(127)
    return np.rint(rows / scale[:, None]).astype(np.int8), scale


def round_to_eight_bit(rows: Vectors) -> Vectors:
    """Rows rounded to multiples of 1/127 of their largest entry: a quarter of the size in a file.

    Products of features of length one change by some 1e-3.
    """
    numbers, scale = to_eight_bit(rows)
    return (numbers * scale[:, None]).astype(np.float32)


def fit_heads(tried: Sequence[Candidate], vectors: Vectors, labels: Labels, classes: int) -> list[Head]:
    """One classifier per candidate on the same standardised vectors; linear ones share computations."""
    path = logistic_path(vectors, labels, classes) if any(c.kind == "linear" for c in tried) else None
    heads = {
        candidate: fit_head(candidate, vectors, labels, classes, standard=True, path=path)
        for candidate in sorted(tried, key=lambda candidate: candidate.setting)
    }
    return [heads[candidate] for candidate in tried]


def fit_head(
    candidate: Candidate,
    vectors: Vectors,
    labels: Labels,
    classes: int,
    *,
    standard: bool = False,
    one_scale: bool = False,
    path: LogisticPath | None = None,
) -> Head:
    """Fit one classifier on labelled vectors `(N, F)`, labels 0 … C − 1; a class may be without any.

    `standard`: the vectors are standardised already. `one_scale`: their columns share a unit, as raw
    coordinates do. `path`: of these vectors, if several strengths are fitted.
    """
    vectors = np.asarray(vectors, dtype=np.float32)
    mean, scale = np.zeros(vectors.shape[1], np.float32), np.ones(vectors.shape[1], np.float32)
    if not standard:
        mean, scale = vectors.mean(0), column_scale(vectors, one_scale)
        vectors = ((vectors - mean) / scale).astype(np.float32)
    # one vector has no direction once its mean is taken out
    bank = unit(vectors if len(vectors) > 1 else np.ones_like(vectors))
    weight, bias = np.zeros((classes, vectors.shape[1]), np.float32), np.zeros(classes, np.float32)
    if candidate.kind == "prototypes":
        np.add.at(weight, labels, bank)
        weight = unit(weight)
    elif candidate.kind == "linear":
        weight, bias = (path or logistic_path(vectors, labels, classes)).fit(candidate.setting)
    return Head(candidate, classes, mean, scale, bank, labels.copy(), weight, bias)


def column_scale(vectors: Vectors, one_scale: bool = False) -> Vectors:
    """Standard deviations; nearly constant coordinates keep the common scale instead of being blown up.

    With `one_scale` all columns have the same: the root of their mean variance.
    """
    scale = vectors.std(0) if len(vectors) > 1 else np.ones(vectors.shape[1], np.float32)
    if one_scale:
        return np.full_like(scale, max(float(np.sqrt(np.mean(scale**2))), 1e-6))
    still = scale <= 1e-3 * max(float(scale.max(initial=0)), 1e-12)
    return np.where(still, max(float(scale.mean()), 1e-6), scale).astype(np.float32)


def project_to_row_span(
    vectors: Vectors, one_scale: bool = False, fitted: Labels | slice = slice(None)
) -> Vectors:
    """Standardised vectors, rotated into at most as many coordinates as rows; inner products are preserved."""
    mean, scale = vectors[fitted].mean(0), column_scale(vectors[fitted], one_scale)
    rows = ((vectors - mean) / scale).astype(np.float32)
    if rows.shape[1] <= len(rows):
        return rows
    sizes, directions = np.linalg.eigh(rows @ rows.T)
    return (directions * np.sqrt(np.maximum(sizes, 0))).astype(np.float32)


def logistic_path(rows: Vectors, labels: Labels, classes: int) -> LogisticPath:
    """Regression on rows over √F with classes weighted alike, for a series of strengths."""
    unit_of_rows = float(np.sqrt(rows.shape[1]))
    return LogisticPath(rows, labels, classes, iterations=500, unit=unit_of_rows, balanced=True)
