"""Momentum contrast: an encoder and its momentum twin for every stream, one queue of past keys, and a sum of loss terms.

MoCo, HaLP, CMD, CrosSCLR-B and ISC are this method with other terms and streams; what differs stands in the recipe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from halp.augment import DrawnMix, Policy
from halp.distributed import gather
from halp.encoders import EncoderSettings, build_encoder, encoder_of
from halp.errors import InputError, choose
from halp.losses.infonce import info_nce, mixed_key
from halp.methods.base import BuildContext, Method, Metrics, StepContext, StepOutput, register_method, uncount_calls
from halp.methods.momentum import HEADS, Encoding, MomentumPair, ProjectedEncoder, encode_all
from halp.methods.queue import KeyQueue
from halp.methods.term import (
    TERMS,
    StreamBatch,
    add_terms,
    build_terms,
    check_recipe_terms,
    check_terms,
    contrast_terms,
    term_mixes,
    term_twins,
    term_views,
)
from halp.skeleton import Topology
from halp.streams import derive

VIEWS: dict[str, Policy | None] = {"query": None, "key": None}


@dataclass(frozen=True)
class ContrastSettings:
    """Momentum contrast. The defaults are those of the paper; queue 0 contrasts within the batch."""

    dimension: int = 128
    head: str = "mlp"  # between features and embeddings; none: the features themselves are contrasted
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
        choose("contrast.head", self.head, HEADS)


class MocoMethod(Method):
    """Views → loss. A single-stream run is the same code with one entry in the dictionary.

    With `parts` above 1 a batch is encoded in so many pieces, whose activations are computed again one after the other in
    the backward pass: the gradient accumulates over the pieces, and the loss still sees the whole batch.
    """

    fork_optional = ("terms.",)
    has_momentum_twin = True

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
        self.contrast = contrast = contrast or ContrastSettings()
        self.topology = topology
        settings = {name: sections.get(name) or TERMS[name].settings() for name in terms}
        check_terms(settings, streams, contrast.queue)
        self.pairs = nn.ModuleDict()
        for stream in streams:
            chosen = encoder_of(stream, encoder or EncoderSettings(), encoders or {})
            branch = ProjectedEncoder(build_encoder(chosen, topology, persons), contrast.dimension, contrast.head)
            self.pairs[stream] = MomentumPair(branch, contrast.momentum)
        self.queue = KeyQueue(streams, contrast.queue, contrast.dimension, generator)
        self.queue_size = contrast.queue
        self.terms = build_terms(settings, streams, contrast.temperature)
        self.extra_views, self.twins = term_views(settings), term_twins(settings)
        self.mixes = term_mixes(settings, topology)
        self.views = {**VIEWS, **self.extra_views}
        if self.twins and (lacking := [s for s, made in self.encoders().items() if not hasattr(made, "sequence")]):
            raise InputError(
                f"stream '{lacking[0]}': its encoder has no feature map before pooling, which '{next(iter(self.twins))}' is "
                "made from; choose another encoder, for example 'stgcn'"
            )

    def encoders(self) -> dict[str, nn.Module]:
        return {stream: pair.query.encoder for stream, pair in self._pairs().items()}

    def rewind(self) -> None:
        for pair in self._pairs().values():
            pair.momentum = 1.0  # the key encoder had made its step already
        uncount_calls(self)

    def encoders_replaced(self) -> None:
        for pair in self._pairs().values():
            pair.key.load_state_dict(pair.query.state_dict())

    def training_step(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        """Loss of one step for joint views `(B, T, P, V, C)` of the same clips; the new keys join the queue."""
        with record_function("halp: momentum"):
            for pair in self._pairs().values():
                pair.update_momentum()
        batches = self._encode(views, context)
        # half precision would blur angles and logits: the loss is computed in full
        with torch.autocast(views["query"].device.type, enabled=False):
            loss, metrics = self.loss(batches, context)
        if bool(torch.isfinite(loss)):  # keys of a diverged step would spoil every later one
            with record_function("halp: queue"):
                self.queue.push({stream: batch.key for stream, batch in batches.items()})
        return StepOutput(loss, metrics, {stream: batch.query for stream, batch in batches.items()})

    def _encode(self, views: Mapping[str, Tensor], context: StepContext) -> dict[str, StreamBatch]:
        """Queries, keys and the embeddings of further views, of the whole batch, by stream."""
        pairs, total = list(self._pairs().values()), context.batch_size(len(views["query"]))
        drawn = {view: mix.draw(total, views["query"].shape[1], context.generator) for view, mix in self.mixes.items()}
        with record_function("halp: query and key forward"):
            queries = self._streams(views["query"])
            work = [Encoding(pair.query, x) for pair, x in zip(pairs, queries)]
            work += [Encoding(pair.key, x) for pair, x in zip(pairs, self._streams(views["key"]))]
            for view in self.extra_views:
                changes = tuple(change for of, change in self.twins.values() if of == view)
                work += [Encoding(pair.query, x, changes) for pair, x in zip(pairs, self._streams(views[view]))]
            for view, mix in drawn.items():
                partners = self._streams(self._partners(views["query"], mix, context))
                mixed = map(partial(self.mixes[view].apply, drawn=mix), queries, partners)
                work += [Encoding(pair.query, x) for pair, x in zip(pairs, mixed)]
            vectors = [gather(vector, total) for vector in encode_all(work, self.parts)]
        number = len(pairs)
        query, key, *extra = [vectors[start : start + number] for start in range(0, len(vectors), number)]
        return {
            stream: StreamBatch(
                query[i],
                key[i],
                self._extra([vectors[i] for vectors in extra]),
                {view: mixed_key(key[i], mix.partner, mix.share) for view, mix in drawn.items()},
            )
            for i, stream in enumerate(self.pairs)
        }

    @staticmethod
    def _partners(clips: Tensor, drawn: DrawnMix, context: StepContext) -> Tensor:
        """The clips that those of this process are mixed with, wherever they are."""
        whole = gather(clips.flatten(1), context.batch_size(len(clips))).unflatten(1, clips.shape[1:])
        return whole[drawn.partner[context.rows(len(clips))].to(clips.device)]

    def _extra(self, vectors: Sequence[Tensor]) -> dict[str, Tensor]:
        """Embeddings of further views and their twins by name, from what the branches gave side by side."""
        found: dict[str, Tensor] = {}
        for view, vector in zip([*self.extra_views, *self.mixes], vectors):
            names = [view, *(twin for twin, (of, _) in self.twins.items() if of == view)]
            found |= dict(zip(names, vector.chunk(len(names), dim=1)))
        return found

    def _pairs(self) -> dict[str, MomentumPair]:
        return {stream: cast(MomentumPair, pair) for stream, pair in self.pairs.items()}

    def _streams(self, clips: Tensor) -> list[Tensor]:
        return [derive(clips, stream, self.topology) for stream in self.pairs]

    def loss(self, batches: Mapping[str, StreamBatch], context: StepContext) -> tuple[Tensor, Metrics]:
        """Sum of the terms; `metrics` is empty on steps that are not logged."""
        total, metrics = add_terms(0.0, self.terms, batches, self.queue, context)
        if context.log_metrics:
            metrics = self._diagnostics(batches) | metrics | {"loss": total.detach()}
        return total, metrics

    @torch.no_grad()
    def _diagnostics(self, batches: Mapping[str, StreamBatch]) -> Metrics:
        """What is worth knowing of every contrastive method, whichever terms it has and whatever stage it is in."""
        metrics: Metrics = {}
        for stream, batch in batches.items():
            metrics[f"{stream}/similarity_key_query"] = (batch.query * batch.key).sum(1).mean()
            if self.queue.size:
                keys = self.queue.keys(stream)
                metrics[f"{stream}/similarity_key_queue"] = (batch.key @ keys.mean(0)).mean()
                if not contrast_terms(self.terms):  # they report it themselves
                    metrics[f"{stream}/loss_contrast"] = info_nce(
                        batch.query, batch.key, keys, self.contrast.temperature
                    )
        return metrics


def _check(settings: ContrastSettings, recipe: Any) -> None:
    check_recipe_terms(recipe, settings.queue)


@register_method(
    "moco", ContrastSettings, section="contrast", views=VIEWS, default_terms=("infonce", "halp"), check=_check
)
def build_moco(settings: ContrastSettings, context: BuildContext) -> MocoMethod:
    """Momentum contrast of the recipe's streams with the recipe's terms."""
    streams = list(context.encoder_settings)
    labelled = {name.partition("@")[2]: chosen for name, chosen in context.encoder_settings.items() if "@" in name}
    plain = [chosen for name, chosen in context.encoder_settings.items() if "@" not in name]
    return MocoMethod(
        context.topology,
        context.persons,
        streams=streams,
        terms=list(context.terms),
        encoder=plain[0] if plain else None,
        encoders=labelled,
        contrast=settings,
        generator=context.generator,
        parts=context.accumulate,
        **context.terms,
    )
