"""Graphs of a data set as rows and edges, batches of them, and random augmentations of a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

Edges = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class GraphSet:
    """Labelled graphs. Graph i has nodes `starts[i] : starts[i + 1]`; edges in both directions, no loops."""

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

    def with_self_loops(self) -> GraphSet:
        """With self-loops up to the last node of each graph that has an edge, as in the public code."""
        nodes, graph = torch.arange(len(self.node_labels)), graph_of_nodes(self.starts)
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
        # of every node in the batch
        shift = torch.repeat_interleave(starts[:-1] - self.starts[chosen], starts.diff())
        targets = torch.repeat_interleave(torch.arange(len(nodes)), offsets.diff())
        features = F.one_hot(self.node_labels[nodes], self.feature_size).float()
        return GraphBatch(features, self.sources[edges] + shift[targets], targets, starts, symmetric=True)


@dataclass(frozen=True)
class GraphBatch:
    """Graphs side by side: node features `(n, F)`, edges between batch nodes, each graph's first node.

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

    @cached_property
    def incoming(self) -> tuple[Tensor, Tensor]:
        """Sources of the edges of every node, and where each node's begin `(n + 1,)`."""
        return self.sources, torch.searchsorted(self.targets, torch.arange(len(self.features) + 1))

    @cached_property
    def outgoing(self) -> tuple[Tensor, Tensor]:
        """Targets of the edges of every node, and where each node's begin `(n + 1,)`."""
        if self.symmetric:
            return self.incoming
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


def augment(batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
    """A view of every graph: a tenth of the nodes dropped, or a subgraph, with equal probability.

    A graph never vanishes: where nothing would be left, one node stays. The view has no self-loops.
    """
    drops = torch.randint(2, (len(batch),), generator=generator) == 0
    graph, sizes = batch.graph, batch.sizes
    draws = torch.rand(len(graph), generator=generator, dtype=torch.float64)
    tenth = _rank(draws + graph, graph, sizes) < (sizes // 10)[graph]
    kept = torch.where(drops[graph], ~tenth, grown_subgraph(batch, generator))
    survives = kept[batch.sources] & kept[batch.targets]
    sources, targets = batch.sources[survives], batch.targets[survives]
    kept = _joined(kept, sources, targets, graph, len(batch))
    proper = sources != targets
    sources, targets = sources[proper], targets[proper]
    number = kept.long().cumsum(0) - 1
    starts = torch.cat(
        [torch.zeros(1, dtype=torch.long), torch.bincount(graph[kept], minlength=len(batch)).cumsum(0)]
    )
    return GraphBatch(batch.features[kept], number[sources], number[targets], starts, batch.symmetric)


def grown_subgraph(batch: GraphBatch, generator: torch.Generator) -> Tensor:
    """Which nodes `(n,)` the public code keeps: a random start, and up to n // 5 of its neighbours.

    It draws from the neighbours of the start (the start among them, if it has a self-loop) with replacement,
    at most n times; the frontier is never widened. One draw per node of the batch does all graphs at once.
    """
    graph, sizes = batch.graph, batch.sizes
    start = batch.starts[:-1] + _below(
        sizes, torch.rand(len(batch), generator=generator, dtype=torch.float64)
    )
    neighbours, offsets = batch.outgoing
    degree = offsets[start + 1] - offsets[start]
    tried = torch.rand(len(graph), generator=generator, dtype=torch.float64)
    able = (degree > 0)[graph]
    owner = graph[able]
    reached = neighbours[offsets[start][owner] + _below(degree[owner], tried[able])]
    number = (torch.arange(len(graph)) - batch.starts[:-1][graph])[able]
    never = len(graph)
    first = torch.full((len(graph),), never).scatter_reduce(0, reached, number, "amin")
    first[start] = never
    hit = (first < never).nonzero()[:, 0]
    place = _rank(
        graph[hit] * (never + 1) + first[hit], graph[hit], torch.bincount(graph[hit], minlength=len(batch))
    )
    members = torch.zeros(len(graph), dtype=torch.bool)
    members[hit[place < (sizes // 5)[graph[hit]]]] = True
    members[start] = True
    return members


def _below(bound: Tensor, uniform: Tensor) -> Tensor:
    """Whole numbers in [0, bound) from uniform ones in [0, 1)."""
    return torch.minimum((uniform * bound).long(), bound - 1)


def _rank(key: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    """Place of every entry in its group by ascending key; keys must rise with the group."""
    order = torch.argsort(key)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order)) - (counts.cumsum(0) - counts)[group[order]]
    return place


def _joined(kept: Tensor, sources: Tensor, targets: Tensor, graph: Tensor, graphs: int) -> Tensor:
    """The kept nodes that have an edge, or the first kept one in a graph where none has."""
    joined = torch.zeros_like(kept)
    joined[sources] = joined[targets] = True
    alive = torch.zeros(graphs, dtype=torch.bool)
    alive[graph[joined]] = True
    last_resort = (kept & ~alive[graph]).nonzero()[:, 0]
    owner = graph[last_resort]
    joined[last_resort[torch.cat([owner.new_ones(1, dtype=torch.bool), owner.diff() > 0])[: len(owner)]]] = (
        True
    )
    return joined
