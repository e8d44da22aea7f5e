"""Encoders by what their last load told: enough to find their vectors in the cache, without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from halp._version import __version__
from halp.core.errors import InputError
from halp.core.files import cache_home, read_json, write_text
from halp.core.packages import find_encoder, is_package
from halp.data.reading import Reading
from halp.data.store import topology_from_json
from halp.features.cache import key_facts
from halp.features.loading import AnyEncoder, load_encoder, name_encoder, package_state
from halp.features.opening import open_source
from halp.features.source import Source

if TYPE_CHECKING:
    from halp.encoders.pretrained import PretrainedEncoder

SomeEncoder = Union["KnownEncoder", "PretrainedEncoder"]


class KnownEncoder:
    """The compact encoder of a package that did not change since it was loaded last."""

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self.path = path
        self.topology = topology_from_json(facts["topology"])
        self.persons, self.frames = int(facts["persons"]), int(facts["frames"])
        self.output_size, self.normalisation = int(facts["output_size"]), list(facts["normalisation"])
        self.key_facts, self.origin = dict(facts["key"]), dict(facts["origin"])

    @cached_property
    def loaded(self) -> PretrainedEncoder:
        """The encoder itself."""
        return _load(self.path)


def loaded(encoder: SomeEncoder) -> PretrainedEncoder:
    """An encoder that can be run."""
    return encoder.loaded if isinstance(encoder, KnownEncoder) else encoder


def portable(encoder: SomeEncoder) -> bool:
    """Whether other processes can load it: no class of it is defined by the caller."""
    if isinstance(encoder, KnownEncoder):
        return True
    modules = {type(module).__module__ for module in encoder.modules()}
    return all(name.startswith(("halp.", "torch.")) for name in modules)


def open_compact(encoder: AnyEncoder, source: Path, reading: Reading) -> tuple[SomeEncoder, Source]:
    """Open a source, with the encoder's compact form; torch is not imported for a package that is known."""
    if encoder != "auto":
        find_encoder(encoder)  # what is wrong with the paths is said first
    opened = open_source(source, reading)
    found = _known(find_encoder(name_encoder(encoder, opened)))
    return found, opened.for_dimensions(found.topology.dimensions)


def _known(path: Path) -> SomeEncoder:
    home = cache_home()
    if home is None or not is_package(path):
        return _load(path)
    state = json.dumps([__version__, *package_state(path)])
    file = home / "encoders" / f"{hashlib.sha256(state.encode()).hexdigest()[:32]}.json"
    with suppress(InputError, OSError, KeyError, TypeError, ValueError):
        return KnownEncoder(path, read_json(file))
    encoder = _load(path)
    if not portable(encoder):
        return encoder
    plain = ("persons", "frames", "output_size", "normalisation", "origin")
    facts = {name: getattr(encoder, name) for name in plain}
    facts |= {"topology": asdict(encoder.topology), "key": key_facts(encoder)}
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(facts))
    return encoder


def _load(path: Path) -> PretrainedEncoder:
    from halp.encoders.pretrained import compacted

    return compacted(load_encoder(path))
