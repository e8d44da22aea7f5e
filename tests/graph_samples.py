"""Graphs as dictionaries and GraphCL's parts as loops, written from the equations."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from halp.reproduce.graph_sets import assemble
from halp.zoo.graph_batches import GraphBatch, GraphSet
from halp.zoo.graphcl import GIN


def random_graphs(
    count: int, *, seed: int = 0, largest: int = 30, density: float = 0.2, labels: int = 4
) -> GraphSet:
    """Random graphs of 1 to `largest` nodes, some with isolated nodes; two classes by turns."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(1, largest + 1, count)
    starts = np.concatenate([[0], sizes.cumsum()])
    pairs = [
        (start + i, start + j)
        for start, size in zip(starts, sizes)
        for i in range(size)
        for j in range(i)
        if draw.random() < density
    ]
    edges = np.array(pairs, np.int64).reshape(-1, 2).T
    nodes = draw.integers(0, labels, starts[-1])
    nodes[0] = labels - 1
    return assemble("random", "random", edges, nodes, starts, np.arange(count) % 2)


def edges_of(batch: GraphBatch) -> set[tuple[int, int]]:
    """Edges (source, target) of a batch; no edge may be there twice."""
    listed = list(zip(batch.sources.tolist(), batch.targets.tolist()))
    assert len(set(listed)) == len(listed)
    return set(listed)


def gin_by_loops(encoder: GIN, batch: GraphBatch) -> Tensor:
    """The encoder in training mode, node by node; normalisation from the formula."""
    x, rows = batch.features, []
    edges = list(zip(batch.sources.tolist(), batch.targets.tolist()))
    for layer in encoder.layers:
        summed = [x[i].clone() for i in range(len(x))]
        for source, target in edges:
            summed[target] = summed[target] + x[source]
        hidden = torch.stack([(layer.first.weight @ row + layer.first.bias).clamp_min(0) for row in summed])
        out = torch.stack([(layer.second.weight @ row + layer.second.bias).clamp_min(0) for row in hidden])
        mean, variance = out.mean(0), out.var(0, unbiased=False)
        x = (out - mean) / (variance + layer.norm.eps).sqrt() * layer.norm.weight + layer.norm.bias
        pooled = [x.new_zeros(x.shape[1]) for _ in range(len(batch))]
        for node, graph in enumerate(batch.graph.tolist()):
            pooled[graph] = pooled[graph] + x[node]
        rows.append(torch.stack(pooled))
    return torch.cat(rows, 1)


def nt_xent_by_loops(query: Tensor, key: Tensor, temperature: float) -> float:
    """−mean log(exp s_ii / Σ exp s_ij), over j ≠ i below."""
    total, rows = 0.0, len(query)
    for i in range(rows):
        below = 0.0
        for j in range(rows):
            cosine = float(query[i] @ key[j]) / (float(query[i].norm()) * float(key[j].norm()))
            if j == i:
                own = cosine / temperature
            if j != i:
                below += math.exp(cosine / temperature)
        total -= math.log(math.exp(own) / below)
    return total / rows
