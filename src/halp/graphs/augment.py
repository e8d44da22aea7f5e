"""Augmentations of a whole batch of graphs at once: node drop, subgraph, edges, attributes, each graph by one of them.

Where the public code of GraphCL does something else than its paper describes there are two readings; see docs/graphs.md.
A graph never vanishes: where nothing would be left, one node stays.
"""

from __future__ import annotations

import torch
from torch import Tensor

from halp.graphs.data import GraphBatch
from halp.graphs.settings import AUGMENTATION_SETS, AugmentSettings


def augment(batch: GraphBatch, settings: AugmentSettings, generator: torch.Generator) -> GraphBatch:
    """An augmented view of every graph of the batch; the batch itself is not changed."""
    names = AUGMENTATION_SETS[settings.set]
    drawn = torch.randint(len(names), (len(batch),), generator=generator)
    graph, sizes = batch.graph, batch.sizes
    # a tenth of the nodes of every graph, for whichever augmentation wants them
    tenth = (
        _rank(torch.rand(len(graph), generator=generator, dtype=torch.float64) + graph, graph, sizes)
        < (sizes // 10)[graph]
    )
    chosen = {name: (drawn == number) for number, name in enumerate(names)}
    kept = torch.ones(len(graph), dtype=torch.bool)
    if "nodes" in chosen:
        kept &= ~(tenth & chosen["nodes"][graph])
    if "subgraph" in chosen:
        grow = grown_subgraph if settings.reading == "public" else walked_subgraph
        kept &= grow(batch, generator) | ~chosen["subgraph"][graph]
    sources, targets, symmetric = batch.sources, batch.targets, batch.symmetric
    if "edges" in chosen:
        change = dropped_edges if settings.reading == "public" else rewired_edges
        sources, targets = change(batch, chosen["edges"], generator)
        symmetric = symmetric and settings.reading != "public"
    features = batch.features
    if "attributes" in chosen:
        noisy = tenth & chosen["attributes"][graph]
        features = features.clone()
        features[noisy] = 0.5 + 0.5 * torch.randn(int(noisy.sum()), features.shape[1], generator=generator)
    there = kept[sources] & kept[targets]
    sources, targets = sources[there], targets[there]
    if settings.isolated == "leave":
        kept = _joined(kept, sources, targets, graph, len(batch))
    if not settings.view_self_loops:
        proper = sources != targets
        sources, targets = sources[proper], targets[proper]
    return _subset(features, sources, targets, kept, graph, len(batch), symmetric)


def grown_subgraph(batch: GraphBatch, generator: torch.Generator) -> Tensor:
    """Which nodes `(n,)` the public code keeps: a random start, and up to n // 5 of its neighbours.

    It draws from the neighbours of the start (the start among them, if it has a self-loop) with replacement, at most n
    times; the frontier is never widened. One draw per node of the batch does all graphs at once.
    """
    graph, sizes = batch.graph, batch.sizes
    start = batch.starts[:-1] + _below(sizes, torch.rand(len(batch), generator=generator, dtype=torch.float64))
    neighbours, offsets = batch.outgoing()
    degree = offsets[start + 1] - offsets[start]
    tried = torch.rand(len(graph), generator=generator, dtype=torch.float64)
    able = (degree > 0)[graph]
    owner = graph[able]
    found = neighbours[offsets[start][owner] + _below(degree[owner], tried[able])]
    number = (torch.arange(len(graph)) - batch.starts[:-1][graph])[able]
    never = len(graph)
    first = torch.full((len(graph),), never).scatter_reduce(0, found, number, "amin")
    first[start] = never
    hit = (first < never).nonzero()[:, 0]
    place = _rank(graph[hit] * (never + 1) + first[hit], graph[hit], torch.bincount(graph[hit], minlength=len(batch)))
    members = torch.zeros(len(graph), dtype=torch.bool)
    members[hit[place < (sizes // 5)[graph[hit]]]] = True
    members[start] = True
    return members


def walked_subgraph(batch: GraphBatch, generator: torch.Generator) -> Tensor:
    """Which nodes `(n,)` a random walk visits: until n // 5 + 1 different ones, at most n steps from a random start."""
    sizes = batch.sizes
    current = batch.starts[:-1] + _below(sizes, torch.rand(len(batch), generator=generator, dtype=torch.float64))
    neighbours, offsets = batch.outgoing()
    members = torch.zeros(len(batch.features), dtype=torch.bool)
    members[current] = True
    wanted, left = sizes // 5, sizes.clone()
    while True:
        going = (wanted > 0) & (left > 0) & (offsets[current + 1] > offsets[current])
        current, wanted, left = current[going], wanted[going], left[going] - 1
        if not len(current):
            return members
        degree = offsets[current + 1] - offsets[current]
        drawn = _below(degree, torch.rand(len(current), generator=generator, dtype=torch.float64))
        current = neighbours[offsets[current] + drawn]
        wanted = wanted - (~members[current]).long()
        members[current] = True


def dropped_edges(batch: GraphBatch, chosen: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Edges without a tenth of the directed edges, self-loops among them, of every chosen graph."""
    owner = batch.graph[batch.targets]
    counts = torch.bincount(owner, minlength=len(batch))
    key = torch.rand(len(owner), generator=generator, dtype=torch.float64) + owner
    stays = ~chosen[owner] | (_rank(key, owner, counts) >= (counts // 10)[owner])
    return batch.sources[stays], batch.targets[stays]


def rewired_edges(batch: GraphBatch, chosen: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Edges with a tenth of the pairs of every chosen graph dropped, in both directions, and as many random pairs added.

    A drawn pair that was joined before or is drawn twice is not added again.
    """
    nodes, graph, sizes = len(batch.features), batch.graph, batch.sizes
    low, high = torch.minimum(batch.sources, batch.targets), torch.maximum(batch.sources, batch.targets)
    pairs, pair = torch.unique(low * nodes + high, return_inverse=True)
    proper = pairs // nodes != pairs % nodes
    owner = graph[pairs // nodes]
    counts = torch.bincount(owner[proper], minlength=len(batch))
    amount = (counts // 10) * chosen
    key = torch.rand(len(pairs), generator=generator, dtype=torch.float64) + owner + ~proper * float(len(batch))
    # loops are ranked behind all proper pairs, and never dropped
    place = torch.full((len(pairs),), nodes)
    place[proper] = _rank(key[proper], owner[proper], counts)
    stays = (place >= amount[owner])[pair]
    home = torch.repeat_interleave(torch.arange(len(batch)), amount)
    draws = torch.rand(2, len(home), generator=generator, dtype=torch.float64)
    one = _below(sizes[home], draws[0])
    other = (one + 1 + _below(sizes[home] - 1, draws[1])) % sizes[home]
    one, other = one + batch.starts[home], other + batch.starts[home]
    new = torch.unique(torch.minimum(one, other) * nodes + torch.maximum(one, other))
    new = new[~torch.isin(new, pairs)]
    sources = torch.cat([batch.sources[stays], new // nodes, new % nodes])
    targets = torch.cat([batch.targets[stays], new % nodes, new // nodes])
    order = torch.argsort(targets * nodes + sources)
    return sources[order], targets[order]


def _below(bound: Tensor, uniform: Tensor) -> Tensor:
    """Whole numbers in [0, bound) from uniform ones in [0, 1)."""
    return torch.minimum((uniform * bound).long(), bound - 1)


def _rank(key: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    """Place of every entry in its group by ascending key; keys have to rise with the group."""
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
    joined[last_resort[torch.cat([owner.new_ones(1, dtype=torch.bool), owner.diff() > 0])[: len(owner)]]] = True
    return joined


def _subset(
    features: Tensor, sources: Tensor, targets: Tensor, kept: Tensor, graph: Tensor, graphs: int, symmetric: bool
) -> GraphBatch:
    """The kept nodes with their edges, numbered anew."""
    number = kept.long().cumsum(0) - 1
    starts = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(graph[kept], minlength=graphs).cumsum(0)])
    return GraphBatch(features[kept], number[sources], number[targets], starts, symmetric)
