"""Open any source of clips: a store, recordings, arrays, or a collection."""

from __future__ import annotations

import os
from dataclasses import astuple
from pathlib import Path

from typing_extensions import Unpack

from halp.core.errors import InputError
from halp.core.remote import fetched
from halp.core.urls import remote_url
from halp.data.ingest.pipeline import Pipeline, is_store, plan_reading
from halp.data.readers import Item
from halp.data.reading import LeftOutTable, Reading, ReadingKeywords, combine
from halp.data.source_files import excluding_files
from halp.data.store import Store, open_store
from halp.data.windows import WindowSettings
from halp.features.content import StoredClips, array_clips
from halp.features.look import open_files
from halp.features.source import MANIFEST, AnySource, Source


def open_source(
    source: AnySource, reading: Reading | None = None, **keywords: Unpack[ReadingKeywords]
) -> Source:
    """Open a store, recordings, arrays or a collection.

    Parameters
    ----------
    source : Store, path, array, sequence of arrays or Source
        A store, a file or folder of recordings of any format (also at an address such as `s3://bucket/folder`,
        which is fetched into the cache), or arrays `(T, V, C)` or `(T, P, V, C)`; zeros
        (or NaN, in arrays) stand for joints and persons that are not seen.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields (window, stride, fps, topology, format,
        options, labels, pattern).

    Returns
    -------
    Source
        Nothing of it has been read yet but what is needed to know its layout.

    Raises
    ------
    InputError
        If there is nothing at the path, or its format is not known.

    Examples
    --------
    >>> import numpy as np, halp
    >>> source = halp.open_source(np.ones((90, 25, 3)), topology="kinect-v2", fps=30, window=1)
    >>> len(source), source.stops.tolist(), source.clip(2).frames.shape
    (3, [1.0, 2.0, 3.0], (30, 1, 25, 3))
    """
    reading = combine(reading, keywords)
    cutting, topology, options = reading.windows, reading.topology, reading.settings
    if isinstance(source, Source):
        return source.cut(*astuple(cutting)) if reading.window or reading.fps else source
    if (url := remote_url(source)) is not None:
        opened = open_source(fetched(source), reading)
        opened.origin = url
        return opened
    tags = (None if reading.labels is None else Path(reading.labels), reading.pattern)
    if isinstance(source, (str, os.PathLike)) and (Path(source) / MANIFEST).is_file():
        from halp.features.collection import open_collection

        return open_collection(source).source(reading)
    if isinstance(source, (str, os.PathLike)) and is_store(source):
        source = open_store(source)
    if is_arrays(source):
        return Source(array_clips(source, topology, cutting), cutting, "arrays", tags)
    if topology is not None:
        raise InputError(f"'{source}' states its own joint layout; topology is for arrays")
    if isinstance(source, Store):
        if options:
            raise InputError(f"a store has no options of a format; leave out {', '.join(options)}")
        return Source(StoredClips(source, cutting.fps), cutting, str(source.path), tags, reading.place)
    # workers have folders of their own
    path = Path(source) if reading.engine is None else Path(source).absolute()

    def listing() -> tuple[Pipeline, list[Item]]:
        with excluding_files(tags[0]):
            windows = WindowSettings(fps=reading.fps)
            return plan_reading(path, reading.format, windows, (), options=options)

    files = open_files(path, reading, tags[0], listing)
    listed = reading.left_out if isinstance(reading.left_out, LeftOutTable) else None
    return Source(files, cutting, str(path), tags, reading.place, listed)


def is_arrays(source: AnySource) -> bool:
    """Whether a source is one array or several, which do not state their joint layout."""
    return not isinstance(source, (Source, Store, str, os.PathLike))
