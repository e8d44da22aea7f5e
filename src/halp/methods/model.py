"""The contrastive model: a pair of branches for every stream, one queue, and a sum of loss terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from halp.contrast.momentum import Branch, MomentumPair, encode_all
from halp.contrast.parallel import gather
from halp.contrast.queue import KeyQueue
from halp.encoders import EncoderSettings, build_encoder, encoder_of
from halp.errors import InputError
from halp.methods.registry import build_terms
from halp.methods.terms import Metrics, Moment, StreamBatch
from halp.skeleton import Topology
from halp.views import derive


@dataclass(frozen=True)
class ContrastSettings:
    """Momentum contrast. The defaults are those of the paper; queue 0 contrasts within the batch."""

    dimension: int = 128
    queue: int = 16384
    momentum: float = 0.999
    temperature: float = 0.07

    def __post_init__(self) -> None:
        if self.dimension < 2 or self.queue < 0:
            raise InputError(
                f"contrast: dimension = {self.dimension} has to be at least 2 and queue = {self.queue} not negative"
            )
        if not 0 <= self.momentum < 1 or self.temperature <= 0:
            raise InputError(
                f"contrast: momentum = {self.momentum} has to lie in [0, 1) and temperature = {self.temperature} above 0"
            )


class ContrastiveModel(nn.Module):
    """Two joint views → loss. A single-stream run is the same code with one entry in the dictionary.

    With `parts` above 1 a batch is encoded in so many pieces, whose activations are made again one after the other on the
    way back: the gradient accumulates over the pieces, and the loss still sees the whole batch.
    """

    def __init__(
        self,
        topology: Topology,
        persons: int,
        *,
        streams: Sequence[str] = ("joint",),
        terms: Sequence[str] = ("infonce", "halp"),
        encoder: EncoderSettings | None = None,
        encoders: Mapping[str, EncoderSettings] | None = None,
        contrast: ContrastSettings | None = None,
        generator: torch.Generator | None = None,
        parts: int = 1,
        **sections: Any,
    ) -> None:
        """`encoders` are those of streams like `joint@stgcn`, by label; `sections` the settings of the terms, by name."""
        super().__init__()
        self.parts = parts
        contrast = contrast or ContrastSettings()
        self.topology = topology
        self.pairs = nn.ModuleDict()
        for stream in streams:
            settings = encoder_of(stream, encoder or EncoderSettings(), encoders or {})
            branch = Branch(build_encoder(settings, topology, persons), contrast.dimension)
            self.pairs[stream] = MomentumPair(branch, contrast.momentum)
        self.queue = KeyQueue(streams, contrast.queue, contrast.dimension, generator)
        self.terms = nn.ModuleDict(build_terms(terms, sections, streams, contrast.queue, contrast.temperature))

    def forward(self, first: Tensor, second: Tensor, moment: Moment) -> tuple[Tensor, Metrics]:
        """Loss of one step for two joint views `(B, T, P, V, C)` of the same clips; the new keys join the queue."""
        total = moment.batch or len(first)
        pairs = [cast(MomentumPair, pair) for pair in self.pairs.values()]
        with record_function("halp: momentum"):
            for pair in pairs:
                pair.follow()
        with record_function("halp: query and key forward"):
            branches = [pair.query for pair in pairs] + [pair.key for pair in pairs]
            vectors = encode_all(branches, self._streams(first) + self._streams(second), self.parts)
            vectors = [gather(vector, total) for vector in vectors]
            queries, keys = vectors[: len(pairs)], vectors[len(pairs) :]
        batches = {stream: StreamBatch(*found) for stream, *found in zip(self.pairs, queries, keys)}
        # half precision would blur angles and logits: the loss is computed in full
        with torch.autocast(first.device.type, enabled=False):
            loss, metrics = self.loss(batches, moment)
        if bool(torch.isfinite(loss)):  # keys of a step that went wrong would spoil all that follow
            with record_function("halp: queue"):
                self.queue.push({stream: batch.key for stream, batch in batches.items()})
        return loss, metrics

    def _streams(self, clips: Tensor) -> list[Tensor]:
        return [derive(clips, stream, self.topology) for stream in self.pairs]

    def loss(self, batches: Mapping[str, StreamBatch], moment: Moment) -> tuple[Tensor, Metrics]:
        """Sum of the terms; `metrics` is empty on steps that are not watched."""
        total: Any = 0.0
        metrics: Metrics = {}
        for name, term in self.terms.items():
            with record_function(f"halp: {name} loss"):
                value, seen = term(batches, self.queue, moment)
            total = total + value
            metrics |= seen
        if moment.watched:
            metrics["loss"] = total.detach()
        return total, metrics
