"""GraphCL and HaLP on top of it: one training as an object that runs to an epoch, can be forked there, and embeds graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halp.errors import Diverged, InputError
from halp.graphs.augment import augment
from halp.graphs.data import GraphBatch, GraphSet
from halp.graphs.gin import GraphContrast
from halp.graphs.losses import nt_xent, unit_or_zero
from halp.graphs.settings import GraphSettings
from halp.sampling import generator
from halp.sphere import unit


class GraphTraining:
    """Encoder, head and optimiser of one seed. Draws depend on (seed, purpose, epoch, step) only, so a fork sees the same.

    With `halp.weight = 0` this is GraphCL.
    """

    def __init__(self, graphs: GraphSet, settings: GraphSettings, seed: int = 0) -> None:
        self.settings, self.seed, self.epoch = settings, seed, 0
        self.graphs = graphs.with_self_loops(settings.augment.self_loops)
        if len(graphs) < 2:
            raise InputError(f"set '{graphs.name}' has {len(graphs)} graph(s); contrast needs at least two")
        self.model = GraphContrast(
            graphs.feature_size, settings.width, settings.layers, generator(seed, "graphs/weights")
        )
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=settings.learning_rate)
        self.term = settings.halp.term()
        self.past = torch.empty(0, self.model.encoder.output_size)  # newest keys last, for prototypes from a queue
        self._batches: list[GraphBatch] = []

    def run(self, until: int | None = None, tick: Callable[[], None] = lambda: None) -> GraphTraining:
        """Train up to epoch `until` (default: all); `tick` is called after every epoch."""
        self.model.train()
        while self.epoch < (self.settings.epochs if until is None else until):
            for step, batch in enumerate(self._epoch_batches()):
                self.optimiser.zero_grad()
                loss = self.loss(batch, step)
                loss.backward()
                self.optimiser.step()
            if not bool(torch.isfinite(loss)):
                raise Diverged(f"training on '{self.graphs.name}' diverged in epoch {self.epoch}; lower learning_rate")
            self.epoch += 1
            tick()
        return self

    def fork(self, *, weight: float) -> GraphTraining:
        """A second training that continues from here with another weight of HaLP; equal to one from scratch up to its start."""
        graphs, batches = self.graphs, self._batches
        twin = copy.copy(self)
        twin.settings = replace(self.settings, halp=replace(self.settings.halp, weight=weight))
        twin.model, twin.optimiser, twin.term = copy.deepcopy((self.model, self.optimiser, self.term))
        twin.graphs, twin._batches = graphs, batches
        return twin

    def loss(self, batch: GraphBatch, step: int) -> Tensor:
        """The loss of one step on a batch of clean graphs."""
        settings, draws = self.settings, generator(self.seed, "graphs/views", self.epoch, step)
        first = batch if settings.first_view == "clean" else augment(batch, settings.augment, draws)
        second = augment(batch, settings.augment, draws)
        one, other = unit_or_zero(self.model(first)), unit_or_zero(self.model(second))
        loss = nt_xent(one, other, settings.temperature, include_positive=settings.include_positive)
        if settings.halp.weight > 0 and self.epoch >= settings.halp.start_epoch:
            loss = loss + settings.halp.weight * self._halp(
                one, other, generator(self.seed, "graphs/halp", self.epoch, step)
            )
        if settings.halp.source == "queue":
            self.past = torch.cat([self.past, unit(other.detach())])[-settings.halp.recent :]
        return loss

    def _halp(self, one: Tensor, other: Tensor, draws: torch.Generator) -> Tensor:
        pairs = {"clean": [(one, other)], "augmented": [(other, one)], "both": [(one, other), (other, one)]}
        losses = [self._pull(query, unit(key.detach()), draws) for query, key in pairs[self.settings.halp.query]]
        return torch.stack(losses).mean()

    def _pull(self, query: Tensor, key: Tensor, draws: torch.Generator) -> Tensor:
        pool = self.past if self.term.source == "queue" else key
        if len(pool) < self.term.prototypes and self.term.source != "keys":
            # too few rows to cluster, as in a short last batch: each is a prototype of its own
            return self.term(query, key, None, draws, pool) if len(pool) > 1 else query.new_zeros(())
        return self.term(query, key, pool, draws) if len(pool) > 1 else query.new_zeros(())

    def _epoch_batches(self) -> list[GraphBatch]:
        if self._batches and self.settings.order == "once":
            return self._batches
        counters = (self.epoch,) if self.settings.order == "epoch" else ()
        order = torch.randperm(len(self.graphs), generator=generator(self.seed, "graphs/order", *counters))
        # one graph alone has no negatives: such a last batch is left out
        self._batches = [self.graphs.batch(part) for part in order.split(self.settings.batch_size) if len(part) > 1]
        return self._batches

    @torch.no_grad()
    def embed(self, chunk: int = 128) -> npt.NDArray[np.float32]:
        """The encoder's output `(N, layers · width)` for all graphs in the order of the set, in evaluation mode."""
        self.model.eval()
        parts = [self.model.encoder(self.graphs.batch(part)) for part in torch.arange(len(self.graphs)).split(chunk)]
        return torch.cat(parts).numpy()
