"""Groups without labels: spherical k-means, their number by silhouette, a typical clip of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from halp.core.errors import InputError
from halp.data.reading import Reading, ReadingKeywords
from halp.data.spans import Events
from halp.features.embed import embed_table
from halp.features.loading import AnyEncoder, open_for
from halp.features.source import AnySource, Source
from halp.features.table import FeatureTable
from halp.tasks.intervals import FEWEST_DRAWN, rounded, sums_interval

if TYPE_CHECKING:
    from halp.encoders.pretrained import PretrainedEncoder

MOST_GROUPS = 12  # tried where the number is not given
FITTED = 20_000  # vectors that groups are fitted to
BLOCK = 4096  # vectors of many that find their group at once
NEARLY = 0.8  # of the best silhouette, from which on groups are nearly as far apart
_SAMPLE = 1000  # vectors that the silhouette is computed with


#: Why numbers have no interval, by their place in the answer.
NO_INTERVAL = {
    "silhouette": "it describes these clips and groups",
    "silhouettes": "they describe these clips",
    "groups.size": "counted completely",
    "groups.share": f"below {FEWEST_DRAWN} recordings, or where all of them are alike, it has none",
}


@dataclass(frozen=True)
class Clusters:
    """Each vector's group (0 is the largest), a typical row per group, and the silhouette (−1 … 1).

    `silhouettes` holds what each number of groups that was tried had; none were tried where the number was
    given.
    """

    group: npt.NDArray[np.int64]
    typical: npt.NDArray[np.int64]
    silhouette: float
    silhouettes: dict[int, float]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.group, minlength=len(self.typical))

    @property
    def suggested(self) -> int | None:
        """The largest number of groups with at least 80 % of the best silhouette.

        Groups that are furthest apart are often few and coarse, such as locomotion and everything else.
        """
        best = max(self.silhouettes.values(), default=0.0)
        return (
            max((n for n, value in self.silhouettes.items() if value >= NEARLY * best), default=None)
            if best > 0
            else None
        )


@dataclass(frozen=True)
class Clustering:
    """Groups of the rows of a feature table.

    Attributes
    ----------
    table : FeatureTable
        What the rows are; `encoder` and `source` are what it was made of.
    clusters : Clusters
        The group of every row, and a typical row of every group.
    """

    table: FeatureTable = field(repr=False)
    clusters: Clusters
    encoder: PretrainedEncoder = field(repr=False)
    source: Source

    def __len__(self) -> int:
        """The number of groups."""
        return len(self.clusters.typical)

    def events(self) -> Events:
        """Every row with its group as label."""
        labels = [f"group {group + 1}" for group in self.clusters.group.tolist()]
        return Events([self.table.event(row, label=label) for row, label in enumerate(labels)])

    def summary(self) -> list[dict[str, Any]]:
        """A row per group: its number of clips and its typical clip."""
        table, sizes = self.table, self.clusters.sizes
        return [
            {"group": number + 1, "clips": int(sizes[number]), "typical clip": table.name(row)}
            | {"start": float(table.starts[row]), "stop": float(table.stops[row])}
            for number, row in enumerate(self.clusters.typical.tolist())
        ]

    def to_json(self) -> dict[str, Any]:
        """Groups with their typical clip and members, largest first."""
        group = self.clusters.group
        return {
            "no_interval": NO_INTERVAL,
            "silhouette": round(self.clusters.silhouette, 6),
            "suggested": self.clusters.suggested,
            "silhouettes": {
                str(count): round(value, 6) for count, value in self.clusters.silhouettes.items()
            },
            "groups": [
                {
                    "group": number + 1,
                    "size": int((group == number).sum()),
                    "share": round(float((group == number).mean()), 6),
                    "share_interval": self._share_interval(number),
                    "typical": self._entry(typical),
                    "members": [self._entry(row) for row in np.flatnonzero(group == number).tolist()],
                }
                for number, typical in enumerate(self.clusters.typical.tolist())
            ],
        }

    def _share_interval(self, number: int) -> list[float] | None:
        """Jackknife interval over recordings: windows of one recording are not independent."""
        recording = self.table.recording
        sizes, inside = (np.bincount(recording, weights) for weights in (None, self.clusters.group == number))
        rows = np.column_stack([inside, sizes])[sizes > 0]
        return rounded(sums_interval(rows, lambda sums: sums[:, 0] / sums[:, 1], "share"))

    def _entry(self, row: int) -> dict[str, Any]:
        name, start = self.table.name(row), round(float(self.table.starts[row]), 6)
        stop = round(float(self.table.stops[row]), 6)
        return {"name": name, "start": start, "end": stop, "recording": name, "stop": stop}


def cluster(
    encoder: AnyEncoder,
    source: AnySource,
    *,
    groups: int | None = None,
    adapt: bool = False,
    seed: int = 0,
    cache: bool = True,
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Clustering:
    """Group the clips or windows of a source.

    Parameters
    ----------
    encoder, source, cache, progress, reading, **keywords
        See `halp.embed_table`.
    groups : int, optional
        How many (default: the number up to 12 whose groups are furthest apart).
    adapt : bool
        Compare in a metric fitted to these clips, in which differences of mutual neighbours count less.
    seed : int
        Of the starting points.

    Returns
    -------
    Clustering
        The group of every row, and a typical row of every group.

    Examples
    --------
    $ halp cluster runs/small-seed0 stores/mine --html groups.html
    $ halp cluster halp-base recordings --groups 6 --window 2

    >>> import numpy as np, halp
    >>> draw = np.random.default_rng(0)
    >>> clips = [draw.normal(size=(40, 25, 3)) for _ in range(4)]
    >>> groups = halp.cluster("halp-base", clips, groups=2, topology="kinect-v2", cache=False, progress=False)
    >>> len(groups), int(groups.clusters.sizes.sum())
    (2, 4)
    """
    from halp.tasks.adapt import fit_metric

    encoder, source = open_for(encoder, source, reading, **keywords)
    table = embed_table(encoder, source, compact=True, cache=cache, progress=progress)
    if len(table) < 2:
        raise InputError("one clip cannot be grouped; give several, or cut it with --window SECONDS")
    vectors = fit_metric(table.vectors, table.recording, seed=seed)(table.vectors) if adapt else table.vectors
    return Clustering(table, group_vectors(vectors, groups, seed=seed), encoder, source)


def group_vectors(vectors: npt.NDArray[np.float32], groups: int | None = None, *, seed: int = 0) -> Clusters:
    """Group centred vectors `(N, F)`; by default into the number of groups with the largest silhouette.

    Groups of more than 20,000 vectors are fitted to a sample of this many; the others go to the nearest
    centre, block by block.
    """
    if groups is not None and not 1 <= groups <= len(vectors):
        raise InputError(
            f"{len(vectors)} clips cannot make {groups} groups; ask for 1 to {len(vectors)}, or cut them"
            " with --window SECONDS"
        )
    sample = np.arange(len(vectors))
    if len(vectors) > FITTED:
        sample = np.sort(np.random.default_rng(seed).choice(len(vectors), FITTED, replace=False))
    fitted = np.asarray(vectors) if len(sample) == len(vectors) else np.asarray(vectors[sample])
    mean = np.asarray(np.mean(fitted, axis=0, dtype=np.float64), dtype=np.float32)
    rows = directions(fitted, mean)
    del fitted
    silhouettes: dict[int, float] = {}
    if groups is None:
        for count in range(2, min(MOST_GROUPS, len(rows) - 1) + 1):
            silhouettes[count] = silhouette(rows, _nearest(rows, _centres(rows, count, seed)), seed=seed)
        groups = max(silhouettes, key=lambda count: silhouettes[count]) if silhouettes else 1
    centres = _centres(rows, groups, seed)
    step = len(rows) if len(rows) == len(vectors) else BLOCK
    blocks = (slice(first, first + step) for first in range(0, len(vectors), step))
    group, closeness = np.zeros(len(vectors), dtype=np.int64), np.zeros(len(vectors), dtype=np.float32)
    for block in blocks:
        here = rows if len(rows) == len(vectors) else directions(np.asarray(vectors[block]), mean)
        group[block] = _nearest(here, centres)
        closeness[block] = np.einsum("nf,nf->n", here, centres[group[block]])
    order = np.argsort(-np.bincount(group, minlength=groups), kind="stable")
    group = np.argsort(order)[group]
    typical = [
        int(np.flatnonzero(group == number)[closeness[group == number].argmax()])
        for number in range(groups)
        if (group == number).any()
    ]
    apart = silhouette(rows, group[sample], seed=seed)
    return Clusters(group, np.array(typical, dtype=np.int64), apart, silhouettes)


def directions(
    vectors: npt.NDArray[np.float32], mean: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """Unit vectors minus their mean; unchanged if nothing else would remain."""
    vectors = np.asarray(vectors, dtype=np.float32)
    centred = vectors - (
        np.mean(vectors, axis=0, dtype=np.float64).astype(np.float32) if mean is None else mean
    )
    flat = np.linalg.norm(centred, axis=1) < 1e-6
    centred[flat] = vectors[flat]
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    return centred


def _centres(rows: npt.NDArray[np.float32], groups: int, seed: int) -> npt.NDArray[np.float32]:
    import torch

    from halp.core.sampling import generator
    from halp.sphere import kmeans

    return kmeans(
        torch.from_numpy(rows), groups, generator=generator(seed, "clusters", groups), starts=3
    ).numpy()


def _nearest(rows: npt.NDArray[np.float32], centres: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    import torch

    return (torch.from_numpy(rows) @ torch.from_numpy(centres).T).argmax(1).numpy()


def silhouette(rows: npt.NDArray[np.float32], group: npt.NDArray[np.int64], *, seed: int = 0) -> float:
    """Mean of (b − a) / max(a, b), with mean cosine distances a to the own group, b to the nearest other.

    Of many rows a sample is taken. 0 for one group, and for a row that is alone in its own.
    """
    from sklearn.metrics import silhouette_score

    if len(rows) > _SAMPLE:
        chosen = np.random.default_rng(seed).choice(len(rows), _SAMPLE, replace=False)
        rows, group = rows[chosen], group[chosen]
    if not 2 <= len(np.unique(group)) < len(group):
        return 0.0
    return float(silhouette_score(rows, group, metric="cosine"))
