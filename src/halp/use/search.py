"""Search: which clips or windows of a source are most like a query."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.clips.clip import Clip, Frames
from halp.clips.ingest.pipeline import is_store
from halp.clips.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.errors import InputError
from halp.features.embed import embed, embed_table, ready_clips
from halp.features.loading import AnyEncoder, open_for
from halp.features.source import AnySource, Source, is_arrays, open_source
from halp.features.table import FeatureTable
from halp.use.adapt import fit_metric
from halp.use.heads import unit
from halp.use.index import EXACT, IndexFacts, search_exactly, search_index


@dataclass(frozen=True)
class Hit:
    """A clip or window with its cosine similarity to the query; times in seconds (frames where the rate is not known)."""

    name: str
    similarity: float
    start: float
    end: float

    def to_json(self) -> dict[str, Any]:
        return {name: value if isinstance(value, str) else round(value, 6) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class SearchResults(Sequence[Hit]):
    """A sequence of hits, nearest first, and what a page about them needs.

    The rows of `table` they are, and the source of that table; what was asked for, as the encoder reads it; and the facts of
    the index, where one was used.
    """

    hits: list[Hit]
    rows: npt.NDArray[np.int64]
    table: FeatureTable
    source: Source
    query: list[Clip]
    facts: IndexFacts | None = None

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, place: Any) -> Any:
        return self.hits[place]


def search(
    encoder: AnyEncoder,
    query: Any,
    source: AnySource,
    *,
    k: int = 10,
    exact: bool = False,
    adapt: bool = False,
    cache: bool = True,
    progress: bool = True,
    **options: Any,
) -> SearchResults:
    """The clips or windows of a source that are most like a query, nearest first.

    Parameters
    ----------
    encoder : PretrainedEncoder, path or str
        An encoder, a run, a package, a shipped name, or `auto`.
    query : array, path, or str
        An array `(T, V, C)` or `(T, P, V, C)`, recordings, or the name of a recording of the source, which is then left out
        of the hits. A query of several clips or windows finds what is most like any of them.
    source : Source, Store, path, array or sequence of arrays
        Where to search, see `halp.open_source`.
    k : int
        How many to find.
    exact : bool
        Compare with every vector even where there are more than a million.
    adapt : bool
        Compare in a metric that is fitted to the clips of the source: what mutual neighbours differ in counts less.
    cache : bool
        Keep vectors and index for the next search.
    progress : bool
        Whether progress is shown.
    **options
        What `halp.open_source` takes: topology, window, stride, fps, file_format, options.

    Returns
    -------
    SearchResults
        A sequence of hits with name, similarity, start and end.

    Examples
    --------
    >>> import numpy as np, halp
    >>> draw = np.random.default_rng(0)
    >>> clips = [draw.normal(size=(40, 25, 3)) for _ in range(4)]
    >>> hits = halp.search("halp-base", clips[1], clips, k=2, topology="kinect-v2", cache=False, progress=False)
    >>> len(hits), hits[0].name
    (2, 'clip-000001')
    """
    if k < 1:
        raise InputError(f"k = {k} hits cannot be found; ask for at least 1")
    encoder, source = open_for(encoder, source, **options)
    outside = is_arrays(query) or isinstance(query, (Source, Store)) or Path(query).exists()
    asked = _open_query(encoder, query, options) if outside else None
    table = embed_table(encoder, source, cache=cache, compact=True, progress=progress)
    if asked is None:
        left_out = rows_of(source, str(query))
        vectors, shown = np.array(table.vectors[left_out]), ready_clips(encoder, source, left_out[:1])
    else:
        vectors = embed(encoder, asked, compact=True, progress=progress)
        left_out, shown = _itself(query, vectors, source, table), ready_clips(encoder, asked, range(len(asked)))
    wanted = min(k + len(left_out), len(table))
    if adapt:
        metric = fit_metric(table.vectors, table.recording)
        rows, similarity = _largest(*search_exactly(metric(table.vectors), metric(vectors), wanted), wanted)
        facts = None
    else:
        rows, similarity, facts = _nearest(table, unit(vectors), wanted, exact, progress)
    kept = ~np.isin(rows, left_out)
    rows, similarity = rows[kept][:k], similarity[kept][:k]
    hits = [
        Hit(table.name(row), float(value), float(table.starts[row]), float(table.stops[row]))
        for row, value in zip(rows, similarity)
    ]
    return SearchResults(hits, rows, table, source, shown, facts)


def rows_of(source: Source, name: str) -> npt.NDArray[np.int64]:
    """The rows of the recording of that name; an error where there is none."""
    rows = source.find(name)
    if not len(rows):
        near = difflib.get_close_matches(name, source.recordings, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise InputError(f"there is no file '{name}', and no recording of that name where it is searched for{hint}")
    return rows


def _itself(query: Any, vectors: npt.NDArray[np.float32], source: Source, table: FeatureTable) -> npt.NDArray[np.int64]:
    """Rows of the recording that a queried file is, by its name and its vectors; none where there is nothing else."""
    if not isinstance(query, (str, os.PathLike)):
        return np.zeros(0, dtype=np.int64)
    path = Path(query).resolve().with_suffix("").as_posix()
    same = [place for place, name in enumerate(source.recordings) if path.endswith(f"/{name}")]
    rows = np.flatnonzero(np.isin(table.recording, same))
    alike = len(rows) and (unit(table.vectors[rows]) @ unit(vectors).T).max() > 0.9999
    return rows if alike and len(rows) < len(table) else np.zeros(0, dtype=np.int64)


def _open_query(encoder: PretrainedEncoder, query: Any, options: dict[str, Any]) -> Source:
    """The query, cut like the source."""
    spans: dict[str, Any] = {name: options.get(name) for name in ("window", "stride", "fps")}
    if is_arrays(query):
        return open_for(encoder, query, topology=options.get("topology"), **spans)[1]
    if not isinstance(query, (str, os.PathLike)) or is_store(query):
        return open_source(query, **spans)
    return open_source(query, **{**options, "topology": None})


def _nearest(
    table: FeatureTable, queries: npt.NDArray[np.float32], k: int, exact: bool, progress: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], IndexFacts | None]:
    """Rows nearest to any of the queries with their largest similarity, nearest first."""
    facts = None
    if exact or len(table) <= EXACT or table.folder is None:
        rows, similarity = search_exactly(table.vectors, queries, k)
    else:
        rows, similarity, facts = search_index(table.folder, queries, k, progress=progress)
    return *_largest(rows, similarity, k), facts


def _largest(
    rows: npt.NDArray[np.int64], similarity: npt.NDArray[np.float32], k: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Of the hits of several queries the k most similar rows, each once."""
    order = np.argsort(-similarity.ravel(), kind="stable")
    _, first = np.unique(rows.ravel()[order], return_index=True)
    best = order[np.sort(first)][:k]
    return rows.ravel()[best], np.clip(similarity.ravel()[best], -1, 1)


def frames_of(clip: Clip) -> Frames:
    """Frames for a player: persons who are never there left out."""
    there = (clip.frames != 0).any(axis=(0, 2, 3))
    return clip.frames[:, there] if there.any() else clip.frames[:, :1]
