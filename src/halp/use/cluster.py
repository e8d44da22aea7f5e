"""Groups without labels: k-means on the sphere of vectors, how many by the silhouette, and a typical clip of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from halp.errors import InputError
from halp.features.embed import embed_table
from halp.features.loading import AnyEncoder
from halp.features.source import AnySource
from halp.features.table import FeatureTable
from halp.sampling import generator
from halp.sphere import kmeans
from halp.use.adapt import fit_metric
from halp.use.heads import unit

MOST_GROUPS = 12  # tried where the number is not given
_SAMPLE = 1000  # vectors that the silhouette is computed with


@dataclass(frozen=True)
class Clusters:
    """For every vector its group (the largest is 0), for every group the row of a typical clip; silhouette −1 … 1.

    `silhouettes` holds what each number of groups that was tried had; none were tried where the number was given.
    """

    group: npt.NDArray[np.int64]
    typical: npt.NDArray[np.int64]
    silhouette: float
    silhouettes: dict[int, float]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.group, minlength=len(self.typical))

    def summary(self, table: FeatureTable) -> list[dict[str, Any]]:
        """A row per group: how many clips it has, and its typical one."""
        return [
            {"group": number + 1, "clips": int(self.sizes[number]), "typical clip": table.name(row)}
            | {"start": float(table.starts[row]), "end": float(table.stops[row])}
            for number, row in enumerate(self.typical.tolist())
        ]


def cluster(
    encoder: AnyEncoder,
    source: AnySource,
    *,
    groups: int | None = None,
    adapt: bool = False,
    seed: int = 0,
    **options: Any,
) -> tuple[FeatureTable, Clusters]:
    """Group the clips or windows of a source.

    Parameters
    ----------
    encoder, source, **options
        What `halp.embed_table` takes.
    groups : int, optional
        How many (default: the number up to 12 whose groups are furthest apart).
    adapt : bool
        Compare in a metric that is fitted to these clips: what mutual neighbours differ in counts less.
    seed : int
        Of the starting points.

    Returns
    -------
    table : FeatureTable
        What the rows are.
    clusters : Clusters
        The group of every row, and a typical row of every group.

    Examples
    --------
    >>> import numpy as np, halp
    >>> draw = np.random.default_rng(0)
    >>> clips = [draw.normal(size=(40, 25, 3)) for _ in range(4)]
    >>> table, clusters = halp.cluster("halp-base", clips, groups=2, topology="kinect-v2", cache=False, progress=False)
    >>> len(table), int(clusters.sizes.sum())
    (4, 4)
    """
    table = embed_table(encoder, source, compact=True, **options)
    if len(table) < 2:
        raise InputError("one clip cannot be grouped; give several recordings, or cut it with --window SECONDS")
    vectors = fit_metric(table.vectors, table.recording, seed=seed)(table.vectors) if adapt else table.vectors
    return table, group_vectors(vectors, groups, seed=seed)


def group_vectors(vectors: npt.NDArray[np.float32], groups: int | None = None, *, seed: int = 0) -> Clusters:
    """Group vectors `(N, F)`, their mean taken out; without `groups` the number of the largest silhouette is taken."""
    if groups is not None and not 1 <= groups <= len(vectors):
        raise InputError(f"{len(vectors)} clips cannot make {groups} groups; ask for 1 to {len(vectors)}")
    rows = directions(vectors)
    silhouettes: dict[int, float] = {}
    if groups is None:
        for count in range(2, min(MOST_GROUPS, len(rows) - 1) + 1):
            silhouettes[count] = silhouette(rows, _assign(rows, count, seed)[0], seed=seed)
        groups = max(silhouettes, key=lambda count: silhouettes[count]) if silhouettes else 1
    group, centres = _assign(rows, groups, seed)
    order = np.argsort(-np.bincount(group, minlength=groups), kind="stable")
    group, centres = np.argsort(order)[group], centres[order]
    closeness = np.einsum("nf,nf->n", rows, centres[group])
    typical = [
        int(np.flatnonzero(group == number)[closeness[group == number].argmax()])
        for number in range(groups)
        if (group == number).any()
    ]
    return Clusters(group, np.array(typical, dtype=np.int64), silhouette(rows, group, seed=seed), silhouettes)


def directions(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Unit vectors without the mean that all of them share; as they are where nothing else is left."""
    centred = np.asarray(vectors, dtype=np.float32) - np.mean(vectors, axis=0, dtype=np.float64).astype(np.float32)
    flat = np.linalg.norm(centred, axis=1) < 1e-6
    return unit(np.where(flat[:, None], vectors, centred))


def _assign(
    rows: npt.NDArray[np.float32], groups: int, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    points = torch.from_numpy(rows)
    centres = kmeans(points, groups, generator=generator(seed, "clusters", groups), starts=3)
    return (points @ centres.T).argmax(1).numpy(), centres.numpy()


def silhouette(rows: npt.NDArray[np.float32], group: npt.NDArray[np.int64], *, seed: int = 0) -> float:
    """Mean of (b − a) / max(a, b): a is the mean cosine distance to the own group, b to the nearest other one.

    Of many rows a sample is taken. 0 for one group, and for a row that is alone in its own.
    """
    from sklearn.metrics import silhouette_score

    if len(rows) > _SAMPLE:
        chosen = np.random.default_rng(seed).choice(len(rows), _SAMPLE, replace=False)
        rows, group = rows[chosen], group[chosen]
    if not 2 <= len(np.unique(group)) < len(group):
        return 0.0
    return float(silhouette_score(rows, group, metric="cosine"))


def clusters_to_json(table: FeatureTable, clusters: Clusters) -> dict[str, Any]:
    """Groups with their typical clip and members, largest first."""

    def entry(row: int) -> dict[str, Any]:
        return {
            "name": table.name(row),
            "start": round(float(table.starts[row]), 6),
            "end": round(float(table.stops[row]), 6),
        }

    return {
        "silhouette": round(clusters.silhouette, 6),
        "groups": [
            {
                "group": number + 1,
                "size": int((clusters.group == number).sum()),
                "typical": entry(int(clusters.typical[number])),
                "members": [entry(int(row)) for row in np.flatnonzero(clusters.group == number)],
            }
            for number in range(len(clusters.typical))
        ],
    }
