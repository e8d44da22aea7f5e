"""Encoders: joint clips `(B, T, P, V, C)` → features `(B, F)`, by name in a registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from halp.encoders.gru import GRUEncoder
from halp.encoders.stgcn import STGCNEncoder
from halp.errors import InputError, choose
from halp.skeleton import Topology
from halp.views import split_stream


@dataclass(frozen=True)
class EncoderSettings:
    """Which encoder and how large. The defaults are those of the paper."""

    name: str = "gru"
    hidden: int = 1024
    layers: int = 3
    direction: str = "bidirectional"
    pooling: str = "last"
    input_norm: bool = True


Builder = Callable[[EncoderSettings, Topology, int], nn.Module]
_ENCODERS: dict[str, Builder] = {}


def register_encoder(name: str) -> Callable[[Builder], Builder]:
    """Make an encoder known by name; it has to have `output_size` and turn `(B, T, P, V, C)` into `(B, output_size)`."""

    def add(builder: Builder) -> Builder:
        _ENCODERS[name] = builder
        return builder

    return add


def list_encoders() -> list[str]:
    """Names of all known encoders."""
    return sorted(_ENCODERS)


def build_encoder(settings: EncoderSettings, topology: Topology, persons: int) -> Any:
    """A fresh encoder for clips of that topology and number of persons."""
    return _ENCODERS[choose("encoder", settings.name, _ENCODERS)](settings, topology, persons)


@register_encoder("gru")
def _gru(settings: EncoderSettings, topology: Topology, persons: int) -> nn.Module:
    encoder = GRUEncoder(
        persons * len(topology) * topology.dimensions,
        settings.hidden,
        settings.layers,
        settings.direction,
        settings.pooling,
        settings.input_norm,
    )
    return initialise(encoder)


@register_encoder("stgcn")
def _stgcn(settings: EncoderSettings, topology: Topology, persons: int) -> nn.Module:
    return STGCNEncoder(topology.parents, topology.dimensions, settings.hidden, settings.layers, settings.input_norm)


def encoder_of(stream: str, default: EncoderSettings, labelled: Mapping[str, EncoderSettings]) -> EncoderSettings:
    """Settings of a representation's encoder: `joint` has the default, `joint@stgcn` the one labelled `stgcn`."""
    _, label = split_stream(stream)
    if label and label not in labelled:
        raise InputError(
            f"stream '{stream}' wants encoder '{label}', which is not described; add a section [encoders.{label}] "
            f"(there are: {', '.join(labelled) or 'none'})"
        )
    return labelled[label] if label else default


def initialise(module: nn.Module) -> nn.Module:
    """The authors' initialisation: every weight matrix Xavier-uniform, the rest as torch does."""
    for parameter in module.parameters():
        if parameter.ndim == 2:
            nn.init.xavier_uniform_(parameter)
    return module
