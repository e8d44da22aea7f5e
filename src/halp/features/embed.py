"""Vectors of a source in constant memory: clips are prepared, cut and encoded in blocks, and cached."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from halp.core.errors import InputError
from halp.core.files import cache_home
from halp.core.job_parts import in_job_array
from halp.data.reading import Reading, ReadingKeywords
from halp.data.windows import squeeze_warning
from halp.features.cache import BATCH, FeatureCache, Vectors, feature_key, rows_key
from halp.features.collection import Collection, write_collection
from halp.features.content import ArrayClips, RecordingFiles
from halp.features.known import SomeEncoder, loaded, portable
from halp.features.loading import AnyEncoder, open_for
from halp.features.ready import GAPS, gap_note, prepare_source
from halp.features.shards import embed_shards
from halp.features.source import AnySource, Source
from halp.features.table import FeatureTable

if TYPE_CHECKING:
    import torch

    from halp.encoders.pretrained import PretrainedEncoder


def embed_table(
    encoder: AnyEncoder,
    source: AnySource,
    *,
    cache: bool = True,
    compact: bool = False,
    batch_size: int = BATCH,
    device: torch.device | str = "cpu",
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> FeatureTable:
    """Vectors of all clips or windows of a source, with their recordings, times, labels and persons.

    Parameters
    ----------
    encoder : PretrainedEncoder, path or str
        An encoder, a run, a package, a shipped name, or `auto`.
    source : Source, Store, path, array or sequence of arrays
        See `open_source`; arrays have the joints of the encoder unless `topology` is given.
    cache : bool
        Find the table in the user's cache folder (`HALP_CACHE`), and keep it there.
    compact : bool
        The few numbers that search and groups use, where the encoder has a projection to them (256 for
        shipped ones).
    batch_size : int
        Clips encoded together.
    device : str
        If they are encoded.
    progress : bool
        Whether progress is shown.
    reading, **keywords
        How recordings are read: a `halp.Reading`, or its fields (window, stride, fps, topology, format,
        options, labels, pattern).

    Returns
    -------
    FeatureTable
        One row per clip or window, in the order of the source.

    Raises
    ------
    InputError
        Where the source cannot be read or made ready for the encoder.

    Examples
    --------
    >>> import numpy as np, halp
    >>> clip = np.random.default_rng(0).normal(size=(60, 25, 3))
    >>> table = halp.embed_table("halp-base", clip, topology="kinect-v2", fps=30, window=1, cache=False, progress=False)
    >>> table.vectors.shape, table.starts.tolist()
    ((2, 4176), [0.0, 1.0])
    """
    from halp.encoders.pretrained import compacted

    encoder, source = open_for(encoder, source, reading, **keywords)
    encoder = compacted(encoder) if compact else encoder
    return make_table(source, Embedding(encoder, batch_size, device), cache, progress)


def make_table(
    source: Source, embedding: Embedding, cache: bool = True, progress: bool = True
) -> FeatureTable:
    """Vectors of an open source with what is known of its rows."""
    encoder = embedding.encoder
    # refused before the cache is looked at, and before anything is read
    note = prepare_source(encoder, source).note
    if note:
        warnings.warn(note, stacklevel=3)
    vectors, folder = _find_vectors(source, embedding, cache, progress)
    squeezed = (
        None if source.cutting.window else squeeze_warning(source.rows["length"].tolist(), encoder.frames)
    )
    if squeezed is not None:
        warnings.warn(squeezed, stacklevel=3)
    gaps = gap_note(source.known.rows)
    if gaps:
        warnings.warn(gaps, stacklevel=3)
    told = tuple(sentence for sentence in (note, *source.warnings, squeezed, gaps) if sentence)
    facts = source.recordings, source.class_names, source.known.absent, folder
    return FeatureTable(vectors, source.rows, *facts, told, tuple(source.left_out))


@dataclass(frozen=True)
class Embedding:
    """Settings that determine the vectors of a source, in any process."""

    encoder: SomeEncoder
    batch_size: int = BATCH
    device: torch.device | str = "cpu"

    @property
    def alone(self) -> bool:
        """Whether other processes cannot compute it: devices are not shared, nor classes defined by the
        caller.
        """
        return str(self.device).partition(":")[0] != "cpu" or not portable(self.encoder)

    def __call__(self, source: Source, progress: bool) -> Iterator[Vectors]:
        from halp.features.encode import embed_blocks

        return embed_blocks(
            loaded(self.encoder), source, batch_size=self.batch_size, device=self.device, progress=progress
        )


def _find_vectors(
    source: Source, embedding: Embedding, cache: bool, progress: bool
) -> tuple[Vectors, Path | None]:
    """Vectors of a source from the cache or computed now, shard by shard, and the folder of their table."""
    home, encoder = cache_home() if cache else None, embedding.encoder
    width = encoder.output_size
    if source.collection is not None:
        kept = source.collection.vectors(source, feature_key(encoder, source.how))
        if kept is not None:
            return kept, source.collection.folder
    if home is not None and source.whole and not isinstance(source.content, ArrayClips):
        series = feature_key(encoder, source.how)
        found = embed_shards(source, home, series, width, embedding, progress=progress, alone=embedding.alone)
        if found is not None:
            return found
        home = None
    if in_job_array(source.engine.part):
        raise InputError(
            f"parts of a job array keep their shards in the cache, and '{cache_home() or ''}' cannot be written;"
            " set HALP_CACHE to a folder with room that all jobs share"
        )
    key = "" if home is None else feature_key(encoder, source.hash)

    def filled() -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        return {"gaps": np.stack([source.known.rows[name] for name in GAPS])}, {}

    entry = FeatureCache(home).get(key, width, lambda: embedding(source, progress), filled)
    for name, counts in zip(GAPS, entry.arrays["gaps"]):
        source.known.rows[name] = counts
    return entry.vectors, entry.folder


def write_embedded(
    folder: Path, encoder: PretrainedEncoder, source: Source, reading: Reading, name: str
) -> Collection:
    """Write the compact vectors of a source that `embed_table` embedded as a collection."""
    from halp.encoders.pretrained import compacted

    return write_collection(folder, source, feature_key(compacted(encoder), source.how), reading, name)


def keep_rows(source: Source) -> None:
    """Take the rows of recordings from the cache, or read every file once and cache them."""
    home = cache_home()
    if source.recorded is None and home is not None and isinstance(source.content, RecordingFiles):
        embed_shards(source, home, rows_key(source.how), 0, _no_vectors)


def _no_vectors(source: Source, progress: bool) -> Iterator[Vectors]:
    yield np.zeros((len(source), 0), dtype=np.float32)


def embed(
    encoder: AnyEncoder,
    source: AnySource,
    *,
    compact: bool = False,
    batch_size: int = BATCH,
    device: torch.device | str = "cpu",
    progress: bool = True,
    reading: Reading | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> Vectors:
    """Vectors of all clips or windows of a source.

    Parameters
    ----------
    encoder : PretrainedEncoder, path or str
        An encoder, a run, a package, a shipped name, or `auto`.
    source : Source, Store, path, array or sequence of arrays
        See `open_source`.
    compact, batch_size, device, progress, reading, **keywords
        See `embed_table`.

    Returns
    -------
    array (N, F) float32
        One vector per clip, of its central 95 %; all zeros where nobody is seen in it.

    Raises
    ------
    InputError
        Where the source cannot be read or made ready for the encoder.

    Examples
    --------
    >>> import numpy as np, halp
    >>> clips = [np.random.default_rng(seed).normal(size=(40, 33, 3)) for seed in range(2)]
    >>> halp.embed("halp-base", clips, topology="mediapipe-33", progress=False).shape
    (2, 4176)
    """
    table = embed_table(
        encoder,
        source,
        cache=False,
        batch_size=batch_size,
        device=device,
        progress=progress,
        compact=compact,
        reading=reading,
        **keywords,
    )
    return table.vectors
