"""Map positions and groups of rows, computed from vectors and kept with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halp.core.files import atomic_path, is_sealed, seal
from halp.reports.player import scale_to_unit_box

if TYPE_CHECKING:
    from halp.tasks.cluster import Clusters

Numbers = npt.NDArray[np.int64]
LAID_OUT = 4_000  # vectors that t-SNE lays out; others are put beside their neighbours


def place_rows(reduced: npt.NDArray[np.float32], method: str) -> npt.NDArray[np.float32]:
    """Places `(N, 2)` on the map, within −1 … 1, from principal components."""
    if method == "pca":
        return fit_unit_box(reduced[:, :2])
    from halp.evaluation.analysis.embedding import embedding_map

    if len(reduced) <= LAID_OUT:
        return fit_unit_box(embedding_map(reduced, method=method))
    chosen = np.sort(np.random.default_rng(0).permutation(len(reduced))[:LAID_OUT])
    places = embedding_map(reduced[chosen], method=method)
    return fit_unit_box(interpolate_positions(reduced, reduced[chosen], places))


def even_rows(recording: Numbers, starts: npt.NDArray[np.float64]) -> Numbers:
    """Rows balanced over recordings."""
    counts = np.bincount(recording)
    most = max(4, int(np.median(counts)))
    if counts.max() <= 2 * most:
        return np.arange(len(recording))
    order = np.lexsort([starts, recording])
    parts = np.split(order, np.cumsum(counts)[:-1])
    return np.sort(
        np.concatenate(
            [rows[np.unique(np.linspace(0, len(rows) - 1, most).astype(int))] for rows in parts if len(rows)]
        )
    )


def group_evenly(vectors: npt.NDArray[np.float32], rows: Numbers, count: int | None) -> Clusters:
    """Groups of some rows, to which all others are added by the nearest centre."""
    from halp.tasks.cluster import Clusters, group_vectors
    from halp.tasks.heads import unit

    if count is not None and len(rows) < count <= len(vectors):
        rows = np.arange(len(vectors))
    found = group_vectors(vectors[rows], count)
    if len(rows) == len(vectors):
        return found
    middle = vectors[rows].mean(0)
    own = unit(vectors - middle)
    sums = np.zeros((len(found.typical), vectors.shape[1]), dtype=np.float32)
    np.add.at(sums, found.group, own[rows])
    group = (own @ unit(sums).T).argmax(1)
    group[rows] = found.group
    order = np.argsort(-np.bincount(group, minlength=len(sums)), kind="stable")  # the largest first
    return Clusters(np.argsort(order)[group], rows[found.typical[order]], found.silhouette, {})


def pack_groups(clusters: Clusters) -> npt.NDArray[np.float64]:
    """Groups, typical rows and the silhouette in one array, to be kept."""
    return np.concatenate([clusters.group, clusters.typical, [clusters.silhouette]]).astype(np.float64)


def interpolate_positions(
    vectors: npt.NDArray[np.float32], known: npt.NDArray[np.float32], places: npt.NDArray[Any], k: int = 3
) -> npt.NDArray[np.float64]:
    """Places of vectors at the weighted mean of those of their k nearest known ones."""
    from sklearn.neighbors import KDTree

    tree = KDTree(known[:, :16])
    distance, nearest = tree.query(vectors[:, :16], min(k, len(known)))
    weight = 1 / (distance + 1e-9 + 0.05 * distance.mean())
    return np.einsum("nk,nkd->nd", weight / weight.sum(1, keepdims=True), np.asarray(places)[nearest])


def fit_unit_box(places: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Two coordinates within −1 … 1."""
    places = np.asarray(places, dtype=np.float64)
    return scale_to_unit_box(np.pad(places, ((0, 0), (0, max(0, 2 - places.shape[1])))))


def load_or_compute(path: Path, compute: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Load an array whose hash is stored with it; compute and write it if missing or not matching."""
    if is_sealed(path):
        return np.load(path, allow_pickle=False)
    array = compute()
    with atomic_path(path) as partial:
        np.save(partial, array, allow_pickle=False)
    seal(path)
    return array
