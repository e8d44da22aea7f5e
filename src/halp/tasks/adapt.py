"""Adapt an encoder to a user's data: unlabelled clips shape the classifier, search and groups.

`fit_metric` takes clips that are each other's nearest neighbours for two views of one movement, and shrinks
the directions in which they differ most (`Invariance` of the encoders, in closed form, fitted to the user's
clips). `Neighbourhood` spreads a few labels over a graph of neighbours and fits a ridge classifier to the
soft labels, beside one of the labelled clips alone.
`choose_method` compares {plain, metric, spread, both} by cross-validation, where the labels allow it. No test
clip is needed, and a fitted head reads one clip at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from halp.core.errors import InputError
from halp.tasks.heads import SHARPNESS, Candidate, Head, Labels, Vectors, column_scale, standardise, unit

Floats = npt.NDArray[np.float64]
Units = npt.NDArray[np.int64]
# in the order in which they are taken where nothing can be cross-validated
METHODS = ("both", "spread", "metric")
MOST = 3000  # clips that a neighbourhood is made of; of more the labelled ones and a sample
LEAST = 50  # clips that a metric is fitted to
LEAST_PER_CLASS = 10  # clips per class below which mutual neighbours are too often of two classes
DIRECTIONS, MUTUAL = 64, 3  # directions that are shrunk, neighbours that have to be mutual
FLOOR = 0.1  # of the mean variance between neighbours: keeps directions from being blown up
NEIGHBOURS, WARMTH, REACH = 5, 0.2, 0.8  # of the graph: k, exp((cos − 1) / warmth), α
STEPS = 40  # of spreading; what is left after them is α⁴⁰ ≈ 1e-4
PENALTY = 0.1  # of ridge on unit vectors of labelled clips
SOFT_PENALTY = 1.0  # of ridge on unit vectors of all clips
UNLIKE = 0.05  # mean rank of what is nearest to labelled clips, below which the others show other movements
_SOME = 500  # clips that tell the spread of scores


@dataclass(frozen=True)
class Metric:
    """Standardised vectors, less most of the variation between neighbours: `z − V (1 − left) Vᵀ z`."""

    mean: Vectors
    scale: Vectors
    axes: Vectors  # (F, r), orthonormal; r = 0 shrinks nothing
    left: Vectors  # (r,)

    def __call__(self, vectors: Vectors) -> Vectors:
        """Vectors `(N, F)` in this metric, of length one."""
        return unit(standardise(vectors, self.mean, self.scale, self.axes, self.left))


def fit_metric(vectors: Vectors, units: Units | None = None, *, seed: int = 0) -> Metric:
    """The metric of unlabelled clips `(N, F)`; clips of one unit (a recording) are not neighbours.

    Of many clips a sample is taken. With fewer pairs of mutual neighbours than twice the directions, fewer
    directions are shrunk.
    """
    if len(vectors) < LEAST:
        raise InputError(
            f"{len(vectors)} clips are too few to adapt to; give at least {LEAST}, or leave out --adapt"
        )
    rows = np.arange(len(vectors))
    if len(rows) > MOST:
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), MOST, replace=False))
    vectors, units = np.asarray(vectors[rows], dtype=np.float32), None if units is None else units[rows]
    mean, scale = vectors.mean(0), column_scale(vectors)
    rows = ((vectors - mean) / scale).astype(np.float32)
    directions = unit(rows)
    return Metric(mean, scale, *_shrunk_axes(rows, directions @ directions.T, units))


def _shrunk_axes(rows: Vectors, similarity: Vectors, units: Units | None) -> tuple[Vectors, Vectors]:
    """Directions in which mutual neighbours differ most, and the share of each that is kept."""
    from sklearn.utils.extmath import randomized_svd

    first, second = mutual_neighbours(similarity, units)
    width = rows.shape[1]
    number = min(DIRECTIONS, len(first) // 2, width - 1)
    if number < 1:
        return np.zeros((width, 0), np.float32), np.ones(0, np.float32)
    gaps = (rows[first] - rows[second]) / np.sqrt(np.float32(2))
    _, sizes, axes = randomized_svd(gaps, number, n_iter=2, random_state=0)
    moved, total = sizes**2 / len(gaps), float((gaps**2).sum()) / len(gaps)
    rest, floor = max(total - float(moved.sum()), 0.0) / (width - number), FLOOR * total / width
    left = np.sqrt((rest + floor) / np.maximum(moved + floor, 1e-12))
    return np.ascontiguousarray(axes.T, dtype=np.float32), np.minimum(left, 1).astype(np.float32)


def mutual_neighbours(
    similarity: Vectors, units: Units | None = None, k: int = MUTUAL
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pairs of rows that are among the k nearest of each other, of different units.

    >>> pairs = mutual_neighbours(np.array([[1, 0.9, 0.1], [0.9, 1, 0.2], [0.1, 0.2, 1]]), k=1)
    >>> [side.tolist() for side in pairs]
    [[0], [1]]
    """
    nearest = _nearest(similarity, units, k)
    near = np.zeros(similarity.shape, dtype=bool)
    near[np.arange(len(near))[:, None], nearest] = True
    near &= _allowed(similarity, units)
    first, second = np.nonzero(np.triu(near & near.T))
    return first, second


def _allowed(similarity: Vectors, units: Units | None) -> npt.NDArray[np.bool_]:
    """Which pairs may be neighbours: two clips, not of one unit."""
    alone = np.arange(len(similarity)) if units is None else units
    return np.asarray(alone[:, None] != alone[None])


def _nearest(similarity: Vectors, units: Units | None, k: int) -> npt.NDArray[np.int64]:
    """The k most similar rows of every row `(N, k)`, of other units if enough exist."""
    values = np.where(_allowed(similarity, units), similarity, -2)
    k = min(k, len(values) - 1)
    return np.argpartition(-values, k - 1, axis=1)[:, :k] if k else np.zeros((len(values), 0), dtype=np.int64)


@dataclass(frozen=True)
class Neighbourhood:
    """Clips `(N, F)`, the labelled ones first, with the inner products that the methods need.

    Everything here is without labels; `fit` takes these. Cross-validation therefore costs products of the
    clips with each other once, and little per fold.
    """

    vectors: Vectors
    metric: Metric
    products: Vectors  # of the standardised rows (N, N)
    shrunk: Vectors  # what is shrunk of the rows (N, r)
    units: Units | None = None

    @classmethod
    def of(
        cls,
        labelled: Vectors,
        unlabelled: Vectors,
        units: Units | None = None,
        *,
        most: int = MOST,
        seed: int = 0,
    ) -> Neighbourhood:
        """Of labelled and unlabelled vectors; `units` are those of both, in this order."""
        room = max(most - len(labelled), 0)
        chosen = np.arange(len(unlabelled))
        if len(chosen) > room:
            chosen = np.sort(np.random.default_rng(seed).choice(len(unlabelled), room, replace=False))
        vectors = np.concatenate([labelled, unlabelled[chosen]]).astype(np.float32)
        if units is not None:
            units = np.concatenate([units[: len(labelled)], units[len(labelled) + chosen]])
        mean, scale = vectors.mean(0), column_scale(vectors)
        rows = ((vectors - mean) / scale).astype(np.float32)
        products = rows @ rows.T
        axes, left = _shrunk_axes(rows, _cosines(products), units)
        return cls(vectors, Metric(mean, scale, axes, left), products, rows @ axes, units)

    def __len__(self) -> int:
        return len(self.vectors)

    def cosines(self, method: str) -> Vectors:
        """Cosines of all clips in the metric of a method `(N, N)`."""
        return self._shrunk_cosines if method in ("both", "metric") else self._plain_cosines

    @cached_property
    def _plain_cosines(self) -> Vectors:
        return _cosines(self.products)

    @cached_property
    def _shrunk_cosines(self) -> Vectors:
        # (z − V(1−s)Vᵀz)ᵀ(z' − V(1−s)Vᵀz') = zᵀz' − (Vᵀz)ᵀ(1 − s²)(Vᵀz'), for V is orthonormal
        lost = (self.shrunk * (1 - self.metric.left**2)) @ self.shrunk.T
        return _cosines(self.products - lost)

    def resembles(self, rows: Labels) -> bool:
        """Whether unlabelled clips are about as near to the labelled rows as to each other.

        If they show other movements, almost all of them are nearer to each other.
        """
        rest = np.setdiff1d(np.arange(len(self)), rows)
        if len(rest) < 2:
            return True
        units = np.arange(len(self)) if self.units is None else self.units

        def nearest(of: Labels) -> Vectors:
            others = units[of][:, None] != units[rest]
            return np.asarray(np.where(others, self._plain_cosines[np.ix_(of, rest)], -2).max(1))

        own = np.sort(nearest(rest[:: -(-len(rest) // _SOME)]))
        return bool(np.searchsorted(own, nearest(rows)).mean() > UNLIKE * len(own))

    @cached_property
    def _solvers(self) -> dict[bool, tuple[object, object]]:
        return {}

    def _prepared(self, method: str) -> tuple[object, object]:
        """The graph and the factor of the ridge system in the metric of a method."""
        from scipy.linalg import cho_factor

        shrunk = method == "both"
        if shrunk not in self._solvers:
            cosines = self.cosines(method)
            system = cosines.astype(np.float32) + SOFT_PENALTY * np.eye(len(cosines), dtype=np.float32)
            self._solvers[shrunk] = graph(cosines, self.units), cho_factor(system, check_finite=False)
        return self._solvers[shrunk]

    def weights(self, method: str, rows: Labels, labels: Labels, classes: int) -> Floats:
        """Dual weights `(N, C)` of the classifier from labelled rows: scores are `cosines @ weights`.

        Ridge on the labelled clips and, where labels are spread, ridge on all clips with soft labels, each in
        units of the spread of its scores.
        """
        from scipy.linalg import cho_solve

        cosines, wanted = self.cosines(method), np.eye(classes)[labels]
        found = np.zeros((len(self), classes))
        own = cosines[np.ix_(rows, rows)] + PENALTY * np.eye(len(rows))
        found[rows] = np.linalg.solve(own, wanted - wanted.mean(0))
        found /= _spread_of(cosines, found)
        if method != "metric":
            links, factor = self._prepared(method)
            soft = spread_labels(links, rows, labels, classes)
            further = cho_solve(factor, (soft - soft.mean(0)).astype(np.float32), check_finite=False)
            found += further / _spread_of(cosines, further)
        return found

    def scores(self, method: str, rows: Labels, labels: Labels, classes: int, of: Labels) -> Floats:
        """Logits `(M, C)` of the clips `of` `(M,)`, from labelled rows."""
        return np.asarray(
            self.cosines(method)[of] @ self.weights(method, rows, labels, classes), dtype=np.float64
        )

    def head(self, method: str, rows: Labels, labels: Labels, classes: int) -> Head:
        """The classifier that reads new vectors."""
        metric = self.metric
        if method == "spread":
            metric = Metric(metric.mean, metric.scale, metric.axes[:, :0], metric.left[:0])
        directions = metric(self.vectors)
        weight = (self.weights(method, rows, labels, classes).T @ directions).astype(np.float32) / SHARPNESS
        return Head(
            Candidate("adapted"),
            classes,
            metric.mean,
            metric.scale,
            directions[rows],
            labels.copy(),
            weight,
            np.zeros(classes, np.float32),
            metric.axes,
            metric.left,
        )


def _cosines(products: Vectors) -> Vectors:
    lengths = np.sqrt(np.maximum(np.diag(products), 1e-12))
    return np.asarray(products / lengths[:, None] / lengths, dtype=np.float32)


def _spread_of(cosines: Vectors, weights: npt.NDArray[np.floating]) -> float:
    """Standard deviation of the scores of some clips."""
    return max(float(np.std(cosines[:: -(-len(cosines) // _SOME)] @ weights)), 1e-9)


def graph(cosines: Vectors, units: Units | None = None) -> object:
    """The normalised graph of neighbours, D^(−1/2) W D^(−1/2), as a sparse matrix."""
    from scipy.sparse import coo_array

    nearest = _nearest(cosines, units, NEIGHBOURS)
    rows = np.repeat(np.arange(len(cosines)), nearest.shape[1])
    columns = nearest.ravel()
    allowed = _allowed(cosines, units)[rows, columns]
    weight = np.exp((cosines[rows, columns].astype(np.float64) - 1) / WARMTH) * allowed
    one_way = coo_array((weight, (rows, columns)), shape=cosines.shape).tocsr()
    links = one_way.maximum(one_way.T)
    degree = np.maximum(np.asarray(links.sum(1)).ravel(), 1e-12) ** -0.5
    return links.multiply(degree[:, None]).multiply(degree[None]).tocsr()


def spread_labels(links: object, rows: Labels, labels: Labels, classes: int) -> Floats:
    """Soft labels of all clips `(N, C)`, F ← α S F + (1 − α) Y, classes balanced; unreached clips uniform."""
    given = np.zeros((links.shape[0], classes))  # type: ignore[attr-defined]
    given[rows, labels] = 1
    found = given
    for _ in range(STEPS):
        found = REACH * (links @ found) + (1 - REACH) * given  # type: ignore[operator]
    found = found / np.maximum(found.sum(0), 1e-12)
    reached = found.sum(1, keepdims=True)
    soft = np.where(reached > 1e-12, found / np.maximum(reached, 1e-12), 1 / classes)
    soft[rows] = given[rows]
    return soft


def allowed_methods(clips: int, classes: int, methods: Sequence[str] = METHODS) -> tuple[str, ...]:
    """Methods for this many clips: mutual neighbours need several of every class."""
    scarce = clips < LEAST_PER_CLASS * classes
    return tuple(method for method in methods if method == "spread" or not scarce)


def better_by_more_than_noise(
    right: npt.NDArray[np.bool_], other: npt.NDArray[np.bool_], units: Units
) -> bool:
    """Whether the first is right more often by over one standard error of the difference, by units."""
    gaps = right.astype(float) - other
    sums = np.bincount(np.unique(units, return_inverse=True)[1], gaps - gaps.mean())
    number = len(sums)
    error = np.sqrt(number / max(number - 1, 1) * float(sums @ sums)) / len(gaps)
    return bool(gaps.mean() > error + 1e-9)
