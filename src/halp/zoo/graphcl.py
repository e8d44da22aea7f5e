"""GraphCL (You et al., NeurIPS 2020) and HaLP on top of it: a graph has to recognise its augmented copy among
the other graphs of the batch. HaLP adds positives made up on the unit sphere between the batch's keys and
their prototypes, without a queue.

What is built is what the public code of GraphCL does by default, quirks included (docs/graphs.md): the first
view is the clean graph, the positive is not in the denominator, a graph loses a tenth of its nodes or all but
a start and some of its neighbours. Graphs are flat arrays, nodes and edges of graph after graph; everything
is index arithmetic over the batch.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.extend import CheckedSettings, InputError, generator, limited
from halp.hallucinate import HallucinatedPositives
from halp.sphere import unit
from halp.zoo.graph_batches import Edges, GraphBatch, GraphSet, augment

SVMS = ("plain", "scaled")


class SumRows(torch.autograd.Function):
    """Row i is the sum of rows `indices[offsets[i] : offsets[i + 1]]`; the gradient is of the same kind.

    An embedding bag is several times faster here than gather and `index_add`, and its own backward pass is
    not.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, indices: Tensor, offsets: Tensor, back: Tensor, back_offsets: Tensor
    ) -> Tensor:
        ctx.save_for_backward(back, back_offsets)
        return F.embedding_bag(indices, rows, offsets, mode="sum", include_last_offset=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        indices, offsets = ctx.saved_tensors
        rows = gradients[0].contiguous()
        return (
            F.embedding_bag(indices, rows, offsets, mode="sum", include_last_offset=True),
            None,
            None,
            None,
            None,
        )


def sum_pool(rows: Tensor, starts: Tensor, graph: Tensor) -> Tensor:
    """Sum of the node rows `(n, D)` of every graph, `(B, D)`; a graph without nodes gives zeros."""
    everyone, one_each = torch.arange(len(rows)), torch.arange(len(rows) + 1)
    pooled: Tensor = SumRows.apply(rows, everyone, starts, graph, one_each)
    return pooled


class GINLayer(nn.Module):
    """BN(ReLU(MLP(x + sum of the neighbours' x))) with MLP = Linear, ReLU, Linear."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Node rows `(n, inputs)` → `(n, width)`; `edges`: those that reach and leave each node."""
        if x.shape[1] > self.first.out_features:  # the linear map and the sum commute: sum the narrower rows
            x = x @ self.first.weight.T
            x = x + SumRows.apply(x, *edges) + self.first.bias
        else:
            x = self.first(x + SumRows.apply(x, *edges))
        out: Tensor = self.norm(self.second(x.relu()).relu())
        return out


class GIN(nn.Module):
    """Batch → `(B, layers · width)`: the sum over the nodes of each graph, of every layer, side by side."""

    def __init__(self, inputs: int, width: int = 32, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GINLayer(width if i else inputs, width) for i in range(layers))
        self.output_size = width * layers

    def forward(self, batch: GraphBatch) -> Tensor:
        """One row per graph."""
        edges, graph = (*batch.incoming, *batch.outgoing), batch.graph
        x, pooled = batch.features, []
        for layer in self.layers:
            x = layer(x, edges)
            pooled.append(sum_pool(x, batch.starts, graph))
        return torch.cat(pooled, 1)


class GraphContrast(nn.Module):
    """Encoder and projection head of GraphCL; the head serves training only."""

    def __init__(self, inputs: int, width: int, layers: int, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = GIN(inputs, width, layers)
        size = self.encoder.output_size
        self.head = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Projections `(B, layers · width)`, not yet of unit length."""
        projected: Tensor = self.head(self.encoder(batch))
        return projected


def unit_or_zero(x: Tensor) -> Tensor:
    """Rows of unit length; a row of zeros stays zero and passes a finite gradient on, instead of NaN.

    >>> unit_or_zero(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    square = x.square().sum(1, keepdim=True)
    return x / torch.where(square > 0, square, torch.ones_like(square)).sqrt()


def nt_xent_without_positive(query: Tensor, key: Tensor, temperature: float = 0.2) -> Tensor:
    """−mean over i of log(exp s_ii / Σ_{j ≠ i} exp s_ij), s_ij = query_i · key_j / temperature."""
    similarity = query @ key.T / temperature
    others = similarity.masked_fill(torch.eye(len(query), dtype=torch.bool, device=query.device), -torch.inf)
    return (torch.logsumexp(others, 1) - similarity.diagonal()).mean()


@dataclass(frozen=True)
class HalpGraphSettings(CheckedSettings):
    """Hallucinated positives: the clean view is pulled to the augmented one. Settings are ours."""

    weight: float = limited(1.0, least=0)  # μ; 0 is GraphCL
    start_epoch: int = limited(8, least=0)  # of 20, as 200 of 450 in the paper; μ is 0 before
    # prototypes: cluster the batch's keys, or take the `keys` themselves
    source: str = limited("batch", among=("batch", "keys"))
    prototypes: int = 10
    count: int = 100  # positives per key
    hardness: float = 0.8  # λ
    temperature: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.term()

    def term(self) -> HallucinatedPositives:
        """The loss term; building it checks the settings."""
        names = ("prototypes", "count", "hardness", "temperature", "source")
        try:
            return HallucinatedPositives(**{name: getattr(self, name) for name in names})
        except InputError as error:
            raise InputError(f"halp: {error}") from None


@dataclass(frozen=True)
class GraphSettings(CheckedSettings):
    """GraphCL's unsupervised training and evaluation on TU sets."""

    width: int = limited(32, least=1)
    layers: int = limited(3, least=1)
    epochs: int = limited(20, least=1)
    batch_size: int = limited(128, least=2)
    learning_rate: float = limited(0.01, above=0)
    temperature: float = limited(0.2, above=0)
    # `scaled` standardises features, which the published protocol does not
    svm: str = limited("plain", among=SVMS)
    folds: int = limited(10, least=2)
    inner_folds: int = limited(5, least=2)
    halp: HalpGraphSettings = field(default_factory=HalpGraphSettings)


class GraphTraining:
    """Encoder, head and optimiser of one seed. Draws depend on (seed, purpose, epoch, step) only."""

    def __init__(self, graphs: GraphSet, settings: GraphSettings, seed: int = 0) -> None:
        self.settings, self.seed, self.epoch = settings, seed, 0
        self.graphs = graphs.with_self_loops()
        if len(graphs) < 2:
            raise InputError(f"set '{graphs.name}' has {len(graphs)} graph(s); contrast needs at least two")
        draws = generator(seed, "graphs/weights")
        self.model = GraphContrast(graphs.feature_size, settings.width, settings.layers, draws)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=settings.learning_rate)
        self.term = settings.halp.term()
        order = torch.randperm(len(graphs), generator=generator(seed, "graphs/order"))
        # shuffled once; one graph alone has no negatives: such a last batch is left out
        self._batches = [
            self.graphs.batch(part) for part in order.split(settings.batch_size) if len(part) > 1
        ]

    def run(self, until: int | None = None) -> GraphTraining:
        """Train up to epoch `until` (default: all)."""
        self.model.train()
        while self.epoch < (self.settings.epochs if until is None else until):
            for step, batch in enumerate(self._batches):
                self.optimiser.zero_grad()
                loss = self.loss(batch, step)
                loss.backward()
                self.optimiser.step()
            if not bool(torch.isfinite(loss)):
                raise InputError(
                    f"training on '{self.graphs.name}' diverged in epoch {self.epoch}; lower learning_rate"
                )
            self.epoch += 1
        return self

    def fork(self, *, weight: float) -> GraphTraining:
        """A second training from here with another weight of HaLP; equal to one from scratch so far."""
        fork = copy.copy(self)
        fork.settings = replace(self.settings, halp=replace(self.settings.halp, weight=weight))
        fork.model, fork.optimiser, fork.term = copy.deepcopy((self.model, self.optimiser, self.term))
        return fork

    def loss(self, batch: GraphBatch, step: int) -> Tensor:
        """The loss of one step on a batch of clean graphs."""
        chosen = self.settings.halp
        view = augment(batch, generator(self.seed, "graphs/views", self.epoch, step))
        query, key = unit_or_zero(self.model(batch)), unit_or_zero(self.model(view))
        loss = nt_xent_without_positive(query, key, self.settings.temperature)
        if chosen.weight > 0 and self.epoch >= chosen.start_epoch:
            loss = loss + chosen.weight * self._pull(query, unit(key.detach()), step)
        return loss

    def _pull(self, query: Tensor, key: Tensor, step: int) -> Tensor:
        draws = generator(self.seed, "graphs/halp", self.epoch, step)
        # too few rows to cluster, as in a short last batch: each is a prototype of its own
        few = len(key) < self.term.prototypes and self.term.source != "keys"
        return self.term(query, key, None, draws, key) if few else self.term(query, key, key, draws)

    @torch.no_grad()
    def embed(self, chunk: int = 128) -> npt.NDArray[np.float32]:
        """The encoder's output `(N, layers · width)` for all graphs, in order, in evaluation mode."""
        self.model.eval()
        parts = [
            self.model.encoder(self.graphs.batch(part))
            for part in torch.arange(len(self.graphs)).split(chunk)
        ]
        return torch.cat(parts).numpy()
