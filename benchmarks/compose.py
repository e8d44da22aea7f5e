"""Methods without a recipe, for the benchmarks of single parts and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from halp.encoders import EncoderSettings, encoder_of
from halp.methods import TERMS, BuildContext, ContrastSettings, MocoMethod
from halp.skeleton import Topology


def compose_moco(
    topology: Topology,
    persons: int,
    *,
    streams: Sequence[str] = ("joint",),
    terms: Sequence[str] = ("infonce", "halp"),
    encoder: EncoderSettings | None = None,
    encoders: Mapping[str, EncoderSettings] | None = None,
    contrast: ContrastSettings | None = None,
    generator: torch.Generator | None = None,
    encode_chunks: int = 1,
    **sections: Any,
) -> MocoMethod:
    """Momentum contrast; `encoders` are those of streams like `joint@stgcn`, by label, `sections` the terms'
    settings.
    """
    chosen = {stream: encoder_of(stream, encoder or EncoderSettings(), encoders or {}) for stream in streams}
    settings = {name: sections.get(name) or TERMS[name].settings() for name in terms}
    context = BuildContext(topology, persons, 0, chosen, settings, generator, encode_chunks)
    return MocoMethod(contrast or ContrastSettings(), context)
