"""Search: the clips or windows of a source that are most similar to a query."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from halp.core.errors import InputError, names_of
from halp.core.listed import Listed
from halp.core.remote import fetched
from halp.core.urls import remote_url
from halp.data.clip import Clip, Frames
from halp.data.ingest.pipeline import is_store
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.spans import Event, Events, film_of, person_of
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.embed import embed, embed_table
from halp.features.encode import ready_clips
from halp.features.loading import AnyEncoder, open_for
from halp.features.opening import is_arrays, open_source
from halp.features.source import AnySource, Source
from halp.features.table import ChosenRows, FeatureTable
from halp.features.where import matching_rows
from halp.tasks.adapt import fit_metric
from halp.tasks.heads import unit
from halp.tasks.index import EXACT, IndexFacts, search_exactly
from halp.tasks.index_update import search_index


@dataclass(frozen=True)
class SearchResults(Listed[Event]):
    """Hits of a search, nearest first; the score of a hit is its cosine similarity to the query.

    Times are in seconds, in frames where the frame rate is not known.

    Attributes
    ----------
    hits : sequence of Event
        Nearest first.
    rows : array (k,)
        The rows of `table` that the hits are.
    table, source, encoder
        What was searched, and with which encoder.
    asked : str
        The query in words; `query` gives its clips as the encoder reads them.
    facts : IndexFacts or None
        Recall of the index, if one was used.
    """

    listed = "hits"

    hits: Sequence[Event]
    rows: npt.NDArray[np.int64] = field(repr=False)
    table: FeatureTable = field(repr=False)
    source: Source = field(repr=False)
    encoder: PretrainedEncoder = field(repr=False)
    asked: str
    read_query: Callable[[], list[Clip]] = field(repr=False)
    facts: IndexFacts | None = None

    @cached_property
    def query(self) -> list[Clip]:
        """Clips of the query; of a recording of the source the first one."""
        return self.read_query()

    def events(self) -> Events:
        """The hits in order of recording and time."""
        return Events(self.hits)

    def to_json(self) -> list[dict[str, Any]]:
        """A row per hit, nearest first: name, similarity, start and end, and the fields of events."""
        rows = []
        for hit in self.hits:
            event = hit.to_json()
            named = {
                "name": hit.recording,
                "similarity": event["score"],
                "start": event["start"],
                "end": event["stop"],
            }
            rows.append(named | {name: value for name, value in event.items() if name != "start"})
        return rows


def search(
    encoder: AnyEncoder,
    query: Any,
    source: AnySource,
    *,
    k: int = 10,
    where: str | None = None,
    exact: bool = False,
    adapt: bool = False,
    cache: bool = True,
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> SearchResults:
    """The clips or windows of a source that are most like a query, nearest first.

    Parameters
    ----------
    encoder : PretrainedEncoder, path or str
        An encoder, a run, a package, a shipped name, or `auto`.
    query : array, path, or str
        An array `(T, V, C)` or `(T, P, V, C)`, recordings, or the name of a recording of the source, which is
        then left out of the hits. A query of several clips or windows finds what is most like any of them.
    source : Source, Store, path, array or sequence of arrays
        Where to search, see `halp.open_source`.
    k : int
        How many to find.
    where : str, optional
        A filter on rows, such as `subject = 3 and label in ('walk', 'run')`. Up to a million matching
        rows are searched exactly, more with an index of at least 95 % recall.
    exact : bool
        Compare with every vector even if there are more than a million.
    adapt : bool
        Compare in a metric fitted to the source, in which differences of mutual neighbours count less.
    cache : bool
        Keep vectors and index for the next search.
    progress : bool
        Whether progress is shown.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields (window, stride, fps, topology, format,
        options, labels, pattern).

    Returns
    -------
    SearchResults
        A sequence of events, nearest first, with the similarity as score.

    Examples
    --------
    >>> import numpy as np, halp
    >>> draw = np.random.default_rng(0)
    >>> clips = [draw.normal(size=(40, 25, 3)) for _ in range(4)]
    >>> hits = halp.search("halp-base", clips[1], clips, k=2, topology="kinect-v2", cache=False, progress=False)
    >>> len(hits), hits[0].recording
    (2, 'clip-000001')
    """
    if k < 1:
        raise InputError(f"k = {k} hits cannot be found; ask for at least 1")
    reading = combine(reading, keywords)
    encoder, source = open_for(encoder, source, reading)
    query = fetched(query) if remote_url(query) else query
    outside = is_arrays(query) or isinstance(query, (Source, Store)) or Path(query).exists()
    asked = _open_query(encoder, query, reading) if outside else None
    table = embed_table(encoder, source, cache=cache, compact=True, progress=progress)
    if asked is None:
        left_out = rows_of(source, str(query))
        vectors = np.array(table.vectors[left_out])
        shown = partial(ready_clips, encoder, source, left_out[:1])
    else:
        people = [name for name in asked.recordings if person_of(name) is not None]
        if len(people) > 1:
            warnings.warn(
                f"the query shows {len(people)} people ({names_of(people)}), and hits are like any of them;"
                " choose one with --person",
                stacklevel=2,
            )
        vectors = embed(encoder, asked, compact=True, progress=progress)
        left_out = _rows_of_query_file(query, vectors, source, table)
        shown = partial(ready_clips, encoder, asked, range(len(asked)))
    passing = None if where is None else np.flatnonzero(matching_rows(source, where))
    most = min(k + len(left_out), len(table) if passing is None else len(passing))
    space, queries = table, unit(vectors)
    if adapt:
        metric = fit_metric(table.vectors, table.recording)
        space, queries = replace(table, vectors=metric(table.vectors), folder=None), metric(vectors)
    rows, similarity, facts = _nearest(space, queries, most, exact, progress, passing)
    kept = ~np.isin(rows, left_out)
    rows, similarity = rows[kept][:k], similarity[kept][:k]
    hits = [table.event(int(row), score=float(value)) for row, value in zip(rows, similarity)]
    asked_for = str(query) if asked is None or isinstance(query, (str, os.PathLike)) else asked.names[0]
    return SearchResults(hits, rows, table, source, encoder, asked_for, shown, facts)


def rows_of(source: Source, name: str) -> npt.NDArray[np.int64]:
    """The rows of a recording by name; an error if there is none."""
    rows = source.find(name)
    if not len(rows):
        near = difflib.get_close_matches(name, source.recordings, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise InputError(f"there is no file '{name}', and no recording of that name in the source{hint}")
    return rows


def _rows_of_query_file(
    query: Any, vectors: npt.NDArray[np.float32], source: Source, table: FeatureTable
) -> npt.NDArray[np.int64]:
    """Rows of the queried recording, by name and vectors; none if there is nothing else."""
    if not isinstance(query, (str, os.PathLike)):
        return np.zeros(0, dtype=np.int64)
    path = Path(query).resolve().with_suffix("").as_posix()
    same = [place for place, name in enumerate(source.recordings) if path.endswith(f"/{film_of(name)}")]
    rows = np.flatnonzero(np.isin(table.recording, same))
    alike = len(rows) and (unit(table.vectors[rows]) @ unit(vectors).T).max() > 0.9999
    return rows if alike and len(rows) < len(table) else np.zeros(0, dtype=np.int64)


def _open_query(encoder: PretrainedEncoder, query: Any, reading: Reading) -> Source:
    """The query, cut like the source."""
    spans = Reading(topology=reading.topology if is_arrays(query) else None).cut_by(reading.windows)
    if is_arrays(query):
        return open_for(encoder, query, spans)[1]
    if not isinstance(query, (str, os.PathLike)) or is_store(query):
        return open_source(query, spans)
    return open_source(query, reading, topology=None)


def _nearest(
    table: FeatureTable,
    queries: npt.NDArray[np.float32],
    k: int,
    exact: bool,
    progress: bool,
    passing: npt.NDArray[np.int64] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], IndexFacts | None]:
    """Rows nearest to any of the queries with their largest similarity, nearest first."""
    facts, home = None, getattr(table.vectors, "home", None) or table.folder
    if exact or home is None or len(table if passing is None else passing) <= EXACT:
        every = np.arange(len(table)) if passing is None else passing
        some = table.vectors if passing is None else ChosenRows(table.vectors, passing)
        rows, similarity = search_exactly(some, queries, k)
        rows = every[rows]
    else:
        rows, similarity, facts = search_index(
            home, table.vectors, queries, k, passing=passing, progress=progress
        )
    order = np.argsort(-similarity.ravel(), kind="stable")
    _, first = np.unique(rows.ravel()[order], return_index=True)
    best = order[np.sort(first)][:k]
    return rows.ravel()[best], np.clip(similarity.ravel()[best], -1, 1), facts


def frames_of(clip: Clip) -> Frames:
    """Frames for a player, without persons who never appear."""
    there = (clip.frames != 0).any(axis=(0, 2, 3))
    return clip.frames[:, there] if there.any() else clip.frames[:, :1]
