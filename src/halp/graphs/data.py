"""Sets of small graphs, and batches of them as flat arrays: nodes and edges of graph after graph, by index arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from halp.errors import choose

SELF_LOOPS = ("public", "all", "none")


@dataclass(frozen=True)
class GraphSet:
    """Labelled graphs. Nodes of graph i are `starts[i] : starts[i + 1]`; edges are in both directions, without loops."""

    name: str
    sources: Tensor  # (E,) node that an edge leaves
    targets: Tensor  # (E,) node that it reaches; ascending
    node_labels: Tensor  # (n,) from 0
    starts: Tensor  # (N + 1,)
    labels: Tensor  # (N,) class, from 0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def feature_size(self) -> int:
        """Width of the one-hot node label."""
        return int(self.node_labels.max()) + 1

    def with_self_loops(self, rule: str) -> GraphSet:
        """Add an edge from nodes to themselves.

        rule: `public` for all nodes of a graph that stand before its last node with an edge, as the public code of GraphCL
            does (the last one gets none); `all`; `none`.
        """
        if choose("self-loop rule", rule, SELF_LOOPS) == "none":
            return self
        nodes = torch.arange(len(self.node_labels))
        if rule == "public":
            graph = graph_of_nodes(self.starts)
            last = torch.full((len(self),), -1).scatter_reduce(0, graph[self.targets], self.targets, "amax")
            nodes = nodes[nodes < last[graph]]
        sources, targets = torch.cat([self.sources, nodes]), torch.cat([self.targets, nodes])
        order = torch.argsort(targets * len(self.node_labels) + sources)
        return replace(self, sources=sources[order], targets=targets[order])

    def batch(self, chosen: Tensor) -> GraphBatch:
        """The chosen graphs `(B,)` as one batch, with the one-hot node label as features."""
        nodes, starts = ranges(self.starts, chosen)
        offsets = torch.searchsorted(self.targets, torch.arange(len(self.node_labels) + 1))
        edges, offsets = ranges(offsets, nodes)
        shift = torch.repeat_interleave(starts[:-1] - self.starts[chosen], starts.diff())  # of every node in the batch
        targets = torch.repeat_interleave(torch.arange(len(nodes)), offsets.diff())
        features = F.one_hot(self.node_labels[nodes], self.feature_size).float()
        return GraphBatch(features, self.sources[edges] + shift[targets], targets, starts, symmetric=True)


@dataclass(frozen=True)
class GraphBatch:
    """Several graphs side by side: node features `(n, F)`, edges between batch nodes, and where each graph's nodes start.

    A `symmetric` batch has every edge in both directions; summing over neighbours is then its own transpose.
    """

    features: Tensor
    sources: Tensor  # (E,)
    targets: Tensor  # (E,), ascending
    starts: Tensor  # (B + 1,)
    symmetric: bool = False

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> Tensor:
        """Number of nodes of every graph, `(B,)`."""
        return self.starts.diff()

    @property
    def graph(self) -> Tensor:
        """The graph of every node, `(n,)`."""
        return graph_of_nodes(self.starts)

    def incoming(self) -> tuple[Tensor, Tensor]:
        """Sources of the edges of every node, and where each node's begin `(n + 1,)`."""
        return self.sources, torch.searchsorted(self.targets, torch.arange(len(self.features) + 1))

    def outgoing(self) -> tuple[Tensor, Tensor]:
        """Targets of the edges of every node, and where each node's begin `(n + 1,)`."""
        if self.symmetric:
            return self.incoming()
        sources, order = torch.sort(self.sources, stable=True)
        return self.targets[order], torch.searchsorted(sources, torch.arange(len(self.features) + 1))


def graph_of_nodes(starts: Tensor) -> Tensor:
    """The graph of every node, from where the graphs start.

    >>> graph_of_nodes(torch.tensor([0, 2, 2, 5])).tolist()
    [0, 0, 2, 2, 2]
    """
    return torch.repeat_interleave(torch.arange(len(starts) - 1), starts.diff())


def ranges(starts: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the chosen ranges one after the other, and where each begins among them.

    >>> [part.tolist() for part in ranges(torch.tensor([0, 2, 5, 9]), torch.tensor([2, 0]))]
    [[5, 6, 7, 8, 0, 1], [0, 4, 6]]
    """
    sizes = starts[chosen + 1] - starts[chosen]
    begin = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return torch.arange(int(begin[-1])) + torch.repeat_interleave(starts[chosen] - begin[:-1], sizes), begin
