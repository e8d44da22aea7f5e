"""Momentum contrast: query and key encoders per stream, one queue of past keys, a sum of loss terms.

MoCo, HaLP, CMD, CrosSCLR-B and ISC are this method with other terms and streams; what differs stands in the
recipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from halp.augment import Policy
from halp.core.config import CheckedSettings, limited
from halp.core.distributed import gather
from halp.encoders import require_abilities
from halp.losses.infonce import info_nce, mixed_key
from halp.methods.base import BuildContext, Method, Metrics, StepContext, StepOutput, register_method
from halp.methods.momentum import HEADS, EncodeJob, MomentumPair, ProjectedEncoder, encode_all
from halp.methods.queue import KeyQueue
from halp.methods.term import (
    DrawnMix,
    StreamBatch,
    StreamBatches,
    TermOutput,
    add_terms,
    build_terms,
    check_recipe_terms,
    check_terms,
    contrast_terms,
    term_map_variants,
    term_mixes,
    term_views,
)
from halp.skeleton.streams import derive

VIEWS: dict[str, Policy | None] = {"query": None, "key": None}


@dataclass(frozen=True)
class ContrastSettings(CheckedSettings):
    """Momentum contrast. The defaults are those of the paper; queue 0 contrasts within the batch."""

    dimension: int = limited(128, least=2)
    # between features and embeddings; none: the features themselves are contrasted
    head: str = limited("mlp", among=HEADS)
    queue: int = limited(16384, least=0)
    momentum: float = limited(0.999, least=0, below=1)
    temperature: float = limited(0.07, above=0)


@register_method("moco", ContrastSettings, section="contrast")
class MocoMethod(Method):
    """Views → loss. A single-stream run is the same code with one entry in the dictionary.

    With `encode_chunks` above 1 a batch is encoded in this many chunks, whose activations are recomputed one
    by one in the backward pass: the gradient accumulates over the chunks, and the loss still sees the whole
    batch.
    """

    views = VIEWS
    default_terms = ("infonce", "halp")
    fork_optional = ("terms.",)

    def __init__(self, contrast: ContrastSettings, context: BuildContext) -> None:
        super().__init__()
        self.contrast, self.topology, self.encode_chunks = contrast, context.topology, context.encode_chunks
        streams, terms = list(context.encoder_settings), context.terms
        check_terms(terms, streams, contrast.queue)
        self.pairs = nn.ModuleDict()
        for stream in streams:
            branch = ProjectedEncoder(context.build_encoder(stream), contrast.dimension, contrast.head)
            self.pairs[stream] = MomentumPair(branch, contrast.momentum)
        self.queue = KeyQueue(streams, contrast.queue, contrast.dimension, context.generator)
        self.queue_size = contrast.queue
        self.terms = build_terms(terms, streams, contrast.temperature)
        self.map_variants, self.mixes = term_map_variants(terms), term_mixes(terms, context.topology)
        self.views = {**VIEWS, **term_views(terms)}
        if self.map_variants:
            for stream, encoder in self.encoders().items():
                why = f"'{next(iter(self.map_variants))}' is made from the feature map before pooling"
                require_abilities(encoder, context.encoder_settings[stream].name, ("sequence", "pool"), why)

    @classmethod
    def check(cls, settings: ContrastSettings, recipe: Any) -> None:
        check_recipe_terms(recipe, settings.queue)

    def encoders(self) -> dict[str, nn.Module]:
        return {stream: pair.query.encoder for stream, pair in self._pairs().items()}

    def rewind(self) -> None:
        for pair in self._pairs().values():
            pair.momentum = 1.0  # the key encoder had made its step already
        super().rewind()

    def encoders_replaced(self) -> None:
        for pair in self._pairs().values():
            pair.key.load_state_dict(pair.query.state_dict())

    def training_step(self, views: Mapping[str, Tensor], context: StepContext) -> StepOutput:
        """Loss of one step for joint views `(B, T, P, V, C)` of the same clips; new keys join the queue."""
        with record_function("halp: momentum"):
            for pair in self._pairs().values():
                pair.update_key_encoder()
        batches = self._encode(views, context)
        # half precision would blur angles and logits: the loss is computed in full
        with torch.autocast(views["query"].device.type, enabled=False):
            loss, metrics = self.loss(batches, context)
        # keys of a diverged step would spoil every later one
        if not context.check_loss or bool(torch.isfinite(loss)):
            with record_function("halp: queue"):
                self.queue.push({stream: batch.key for stream, batch in batches.items()})
        return StepOutput(loss, metrics, {stream: batch.query for stream, batch in batches.items()})

    def _encode(self, views: Mapping[str, Tensor], context: StepContext) -> dict[str, StreamBatch]:
        """Queries, keys and the embeddings of further views, of the whole batch, by stream."""
        total = context.batch_size(len(views["query"]))
        drawn = {
            view: mix.draw(total, views["query"].shape[1], context.generator)
            for view, mix in self.mixes.items()
        }
        with record_function("halp: query and key forward"):
            jobs = {
                (stream, view): self._job(stream, view, views[view])
                for view in self.views
                for stream in self.pairs
            }
            for view, mix in drawn.items():
                others = self._partners(views["query"], mix, context)
                for stream, pair in self._pairs().items():
                    mixed = self.mixes[view].apply(
                        jobs[stream, "query"].clips, self._derive(others, stream), mix
                    )
                    jobs[stream, view] = EncodeJob(pair.query, mixed)
            vectors = dict(zip(jobs, encode_all(list(jobs.values()), self.encode_chunks)))
            vectors = {place: gather(vector, total) for place, vector in vectors.items()}
        return {
            stream: StreamBatch(
                vectors[stream, "query"],
                vectors[stream, "key"],
                {
                    name: vector
                    for view in [*self.views, *drawn]
                    if view not in VIEWS
                    for name, vector in self._split_variants(view, vectors[stream, view])
                },
                {
                    view: mixed_key(vectors[stream, "key"], mix.partner, mix.share)
                    for view, mix in drawn.items()
                },
            )
            for stream in self.pairs
        }

    def _job(self, stream: str, view: str, clips: Tensor) -> EncodeJob:
        pair = self._pairs()[stream]
        changes = tuple(change for of, change in self.map_variants.values() if of == view)
        return EncodeJob(pair.key if view == "key" else pair.query, self._derive(clips, stream), changes)

    def _split_variants(self, view: str, vectors: Tensor) -> Iterable[tuple[str, Tensor]]:
        """The embeddings of a further view and of its changed feature maps by name, split from one batch."""
        names = [view, *(variant for variant, (of, _) in self.map_variants.items() if of == view)]
        return zip(names, vectors.chunk(len(names), dim=1))

    @staticmethod
    def _partners(clips: Tensor, drawn: DrawnMix, context: StepContext) -> Tensor:
        """The clips that those of this process are mixed with, wherever they are."""
        whole = gather(clips.flatten(1), context.batch_size(len(clips))).unflatten(1, clips.shape[1:])
        return whole[drawn.partner[context.rows(len(clips))].to(clips.device)]

    def _derive(self, clips: Tensor, stream: str) -> Tensor:
        return derive(clips, stream, self.topology)

    def _pairs(self) -> dict[str, MomentumPair]:
        return {stream: cast(MomentumPair, pair) for stream, pair in self.pairs.items()}

    def loss(self, batches: StreamBatches, context: StepContext) -> TermOutput:
        """Sum of the terms; `metrics` is empty on steps that are not logged."""
        total, metrics = add_terms(0.0, self.terms, batches, self.queue, context)
        if context.log_metrics:
            metrics = self._diagnostics(batches) | metrics | {"loss": total.detach()}
        return total, metrics

    @torch.no_grad()
    def _diagnostics(self, batches: StreamBatches) -> Metrics:
        """Metrics of every contrastive method, with any terms and at any stage."""
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
