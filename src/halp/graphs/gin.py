"""Graph isomorphism network: sums over neighbours and over graphs, three layers, all layers read out; and its head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.graphs.data import GraphBatch


class _SumRows(torch.autograd.Function):
    """Row i of the result is the sum of the rows `indices[offsets[i] : offsets[i + 1]]`; the way back is the same kind of sum.

    An embedding bag is several times faster here than gather and `index_add`, and its own backward pass is not.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, indices: Tensor, offsets: Tensor, back: Tensor, back_offsets: Tensor) -> Tensor:
        ctx.save_for_backward(back, back_offsets)
        return F.embedding_bag(indices, rows, offsets, mode="sum", include_last_offset=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        indices, offsets = ctx.saved_tensors
        rows = gradients[0].contiguous()
        return F.embedding_bag(indices, rows, offsets, mode="sum", include_last_offset=True), None, None, None, None


class Neighbours:
    """The sum over the edges that reach each node, as a function of node rows `(n, D)`; fitted to one batch."""

    def __init__(self, batch: GraphBatch) -> None:
        self.incoming = batch.incoming()
        self.outgoing = self.incoming if batch.symmetric else batch.outgoing()

    def __call__(self, rows: Tensor) -> Tensor:
        """Row i is the sum of the rows of the sources of all edges to node i."""
        total: Tensor = _SumRows.apply(rows, *self.incoming, *self.outgoing)
        return total


def sum_pool(rows: Tensor, starts: Tensor, graph: Tensor) -> Tensor:
    """Sum of the node rows `(n, D)` of every graph, `(B, D)`; a graph without nodes gives zeros."""
    everyone, one_each = torch.arange(len(rows)), torch.arange(len(rows) + 1)
    pooled: Tensor = _SumRows.apply(rows, everyone, starts, graph, one_each)
    return pooled


class GINLayer(nn.Module):
    """BN(ReLU(MLP(x + sum of the neighbours' x))) with MLP = Linear, ReLU, Linear."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor, neighbours: Neighbours) -> Tensor:
        """Node rows `(n, inputs)` → `(n, width)`."""
        if x.shape[1] > self.first.out_features:  # the linear map and the sum commute: sum the narrower rows
            x = x @ self.first.weight.T
            x = x + neighbours(x) + self.first.bias
        else:
            x = self.first(x + neighbours(x))
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
        neighbours, graph = Neighbours(batch), batch.graph
        x, pooled = batch.features, []
        for layer in self.layers:
            x = layer(x, neighbours)
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
