"""Search: which clips or windows of a source are most like a query."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halp.clips.clip import Clip, Frames
from halp.clips.windows import Cutting
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.training import load_encoder
from halp.use.embed import embed_clips
from halp.use.heads import unit
from halp.use.index import EXACT, IndexFacts, build_index, open_index, search_exactly
from halp.use.sources import Source, in_blocks, read_source
from halp.use.vectors import VectorTable, embed_table


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
class Found(Sequence[Hit]):
    """A sequence of hits, nearest first, and what a page about them needs.

    The rows of `table` they are; what was asked for; and the facts of the index, where one was used.
    """

    hits: list[Hit]
    rows: npt.NDArray[np.int64]
    table: VectorTable
    query: list[Clip]
    facts: IndexFacts | None = None

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, place: Any) -> Any:
        return self.hits[place]


def search(
    encoder: PackagedEncoder | str | os.PathLike[str],
    query: Any,
    source: Source,
    *,
    k: int = 10,
    window: float | None = None,
    stride: float | None = None,
    fps: float | None = None,
    format: str = "auto",
    exact: bool = False,
    cache: bool = True,
    progress: bool = True,
) -> Found:
    """The k clips or windows of a source that are most like the query, nearest first.

    `query` is an array `(T, V, C)` or `(T, P, V, C)`, a path to recordings, or the name of a recording of the source.
    A query of several clips or windows finds what is most like any of them. A query that is named as a recording of the
    source is left out of the hits.
    """
    if k < 1:
        raise InputError(f"k = {k} hits cannot be found; ask for at least 1")
    encoder = encoder if isinstance(encoder, PackagedEncoder) else load_encoder(encoder)
    cutting = Cutting(window, stride, fps)
    outside = not isinstance(query, (str, os.PathLike)) or Path(query).exists()
    asked = list(_read_query(encoder, query, cutting, format)) if outside else []
    table = embed_table(encoder, source, cutting, format=format, cache=cache, progress=progress)
    if outside:
        vectors = np.concatenate([embed_clips(encoder, block) for block in in_blocks(asked, 256, 65_536)])
        own = -1
    else:
        if str(query) not in table.recordings:
            raise InputError(f"there is no file '{query}', and no recording of that name where it is searched for")
        own = table.recordings.index(str(query))
        vectors = np.array(table.vectors[table.recording == own])
        asked = fetch(encoder, source, table, np.flatnonzero(table.recording == own)[:1], cutting, format=format)
    left_out = int((table.recording == own).sum()) if own >= 0 else 0
    wanted = min(k + left_out, len(table))
    rows, similarity, facts = _nearest(table, unit(vectors), wanted, exact, progress)
    kept = table.recording[rows] != own
    rows, similarity = rows[kept][:k], similarity[kept][:k]
    hits = [
        Hit(table.name(row), float(value), float(table.starts[row]), float(table.ends[row]))
        for row, value in zip(rows, similarity)
    ]
    return Found(hits, rows, table, asked, facts)


def _read_query(encoder: PackagedEncoder, query: Any, cutting: Cutting | None, format: str) -> Sequence[Clip]:
    if isinstance(query, (str, os.PathLike)):
        return list(read_source(encoder, query, cutting, format=format))
    arrays = list(query) if isinstance(query, (list, tuple)) else [query]
    return list(read_source(encoder, arrays, cutting))


def _nearest(
    table: VectorTable, queries: npt.NDArray[np.float32], k: int, exact: bool, progress: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], IndexFacts | None]:
    """Rows nearest to any of the queries with their largest similarity, nearest first."""
    facts = None
    if exact or len(table) <= EXACT or table.folder is None:
        rows, similarity = search_exactly(table.vectors, queries, k)
    else:
        index = open_index(table.folder) or build_index(table.vectors, table.folder, progress=progress)
        rows, similarity = index.search(queries, k)
        facts = index.facts
    order = np.argsort(-similarity.ravel(), kind="stable")
    _, first = np.unique(rows.ravel()[order], return_index=True)
    best = order[np.sort(first)][:k]
    return rows.ravel()[best], np.clip(similarity.ravel()[best], -1, 1), facts


def fetch(
    encoder: PackagedEncoder,
    source: Source,
    table: VectorTable,
    rows: npt.NDArray[np.int64],
    cutting: Cutting | None = None,
    *,
    format: str = "auto",
) -> list[Clip]:
    """The clips of some rows of a table, read from the source again."""
    wanted = {int(row) for row in rows}
    found: dict[int, Clip] = {}
    for row, clip in enumerate(read_source(encoder, source, cutting, format=format)):
        if row in wanted:
            found[row] = clip
            if len(found) == len(wanted):
                break
    return [found[int(row)] for row in rows]


def frames_of(clip: Clip) -> Frames:
    """Frames for a player: persons who are never there left out."""
    there = (clip.frames != 0).any(axis=(0, 2, 3))
    return clip.frames[:, there] if there.any() else clip.frames[:, :1]
