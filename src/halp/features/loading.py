"""Encoders by object, path, shipped name or `auto`: the one place that resolves encoder arguments."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from halp.core.errors import InputError
from halp.core.packages import find_encoder, is_package, list_encoders
from halp.core.progress import log
from halp.data.reading import Reading, ReadingKeywords, combine
from halp.data.store import topology_from_json
from halp.features.opening import is_arrays, open_source
from halp.features.source import AnySource, Source
from halp.skeleton import joint_recipes

if TYPE_CHECKING:
    from halp.encoders.pretrained import PretrainedEncoder

AUTO = "auto"
AnyEncoder = (
    Any  # a PretrainedEncoder, the path of a run or package, the name of a shipped encoder, or "auto"
)


def load_encoder(encoder: str | os.PathLike[str], stream: str | None = None) -> PretrainedEncoder:
    """Load the encoder of a run, of a package, or of a name that comes with halp.

    Parameters
    ----------
    encoder : str or path
        A run folder, a package folder, or a shipped name (`halp encoders` lists them).
    stream : str, optional
        Which stream of a run (default: joint, if it has one).

    Returns
    -------
    PretrainedEncoder
        In evaluation mode; it knows its topology, stream, persons, frames and normalisation.

    Raises
    ------
    InputError
        If there is no such encoder, or it is damaged.

    Examples
    --------
    >>> import halp
    >>> encoder = halp.load_encoder("halp-base")
    >>> encoder.topology.name, encoder.frames, encoder.output_size
    ('body-16', 64, 4176)
    """
    path = find_encoder(encoder)
    if is_package(path):
        from halp.encoders.pretrained import load_package

        return load_package(path, stream)
    from halp.training.run import open_run

    run = open_run(path)
    return run.encoder(stream or ("joint" if "joint" in run.recipe.streams else run.recipe.streams[0]))


_kept: dict[tuple[Any, ...], PretrainedEncoder] = {}
_KEPT = 8  # packages that stay in memory
_keeping = threading.Lock()


def _kept_encoder(encoder: str | os.PathLike[str], stream: str | None) -> PretrainedEncoder:
    """The encoder of a path or name; a package is loaded once per process, until one of its files changes."""
    path = find_encoder(encoder)
    if not is_package(path):
        return load_encoder(path, stream)
    key = (stream, *package_state(path))
    with _keeping:
        if key not in _kept:
            while len(_kept) >= _KEPT:
                del _kept[next(iter(_kept))]
            _kept[key] = load_encoder(path, stream)
        return _kept[key]


def package_state(path: Path) -> tuple[Any, ...]:
    """Path, and size and times of the files of a package: equal as long as none of them changes."""
    states = ((file.name, file.stat()) for file in sorted(path.iterdir()) if file.is_file())
    return os.path.realpath(path), *((name, at.st_ino, at.st_size, at.st_mtime_ns) for name, at in states)


def name_encoder(encoder: AnyEncoder, source: Source | None) -> AnyEncoder:
    """An encoder argument, with `auto` replaced by the shipped encoder that reads the source."""
    if encoder != AUTO:
        return encoder
    if source is None:
        raise InputError("'auto' needs a source to choose an encoder; name one (see `halp encoders`)")
    name = choose_shipped(source)
    log.info(f"encoder: {name}, chosen by the joints of {source.name}")
    return name


def as_encoder(
    encoder: AnyEncoder, source: Source | None = None, stream: str | None = None
) -> PretrainedEncoder:
    """Resolve an encoder argument; `auto` picks the shipped one that reads the source and logs the choice."""
    encoder = name_encoder(encoder, source)
    if isinstance(encoder, (str, os.PathLike)):
        return _kept_encoder(encoder, stream)
    from halp.encoders.pretrained import PretrainedEncoder

    if not isinstance(encoder, PretrainedEncoder):
        raise InputError(
            f"an encoder is needed, not {type(encoder).__name__}; give a run, a package or a shipped name, or"
            " what halp.load_encoder gives"
        )
    return encoder


def open_for(
    encoder: AnyEncoder,
    source: AnySource,
    reading: Reading | None = None,
    *,
    stream: str | None = None,
    **keywords: Unpack[ReadingKeywords],
) -> tuple[PretrainedEncoder, Source]:
    """Load an encoder and open a source; arrays have the encoder's joints unless a topology is given.

    Paths come first: what is wrong with them is said before torch and weights are loaded.
    """
    if isinstance(encoder, (str, os.PathLike)) and encoder != AUTO:
        find_encoder(encoder)
    reading = combine(reading, keywords)
    if is_arrays(source) and reading.topology is None and encoder != AUTO:
        encoder = as_encoder(encoder, stream=stream)
        reading = replace(reading, topology=encoder.topology)
    opened = open_source(source, reading)
    loaded = as_encoder(encoder, opened, stream)
    return loaded, opened.for_dimensions(loaded.topology.dimensions)


def choose_shipped(source: Source) -> str:
    """The shipped encoder that reads the joints of this source; if several do, the one that reads the most joints."""
    fits = {}
    for name, facts in list_encoders().items():
        topology = topology_from_json(facts["topology"])
        try:
            joint_recipes(source.topology, topology)
        except InputError:
            continue
        fits[name] = len(topology)
    if not fits:
        raise InputError(
            f"no shipped encoder reads the {source.topology.dimensions}D joints of '{source.name}'"
            f" ({source.topology.name}); see `halp encoders`, or train your own: `halp prepare auto"
            " RECORDINGS stores/mine` and `halp pretrain small --data stores/mine`"
        )
    return max(sorted(fits), key=lambda name: fits[name])
