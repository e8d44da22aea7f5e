"""The graph encoder against loops over nodes and edges, and against torch_geometric where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from graph_samples import gin_by_loops, random_graphs
from torch import nn

from halp.graphs import GIN, GraphBatch, GraphContrast
from halp.graphs.gin import Neighbours, sum_pool


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    """Weights and features in double precision, and always the same: normalisation magnifies rounding."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def in_double(batch: GraphBatch) -> GraphBatch:
    return replace(batch, features=batch.features.double())


def lopsided() -> GraphBatch:
    """Edges in one direction only, a node without edges, a graph without nodes in the middle and one at the end."""
    sources, targets = torch.tensor([1, 2, 2, 0, 4]), torch.tensor([0, 0, 1, 2, 5])
    features = torch.randn(7, 3, generator=torch.Generator().manual_seed(1))
    return GraphBatch(features, sources, targets, torch.tensor([0, 4, 4, 7, 7]))


@pytest.mark.parametrize("inputs", [4, 40])
@pytest.mark.parametrize("loops", ["public", "all", "none"])
def test_encoder_equals_loops_over_nodes_and_edges(inputs: int, loops: str) -> None:
    graphs = random_graphs(5, seed=3, largest=9, labels=inputs).with_self_loops(loops)
    batch = in_double(graphs.batch(torch.tensor([4, 0, 2, 1])))
    encoder = GIN(inputs, width=6)
    torch.testing.assert_close(encoder(batch), gin_by_loops(encoder, batch))


def test_encoder_of_directed_edges_and_empty_graphs_equals_loops() -> None:
    batch, encoder = lopsided(), GIN(3, width=2)
    out = encoder(batch)
    torch.testing.assert_close(out, gin_by_loops(encoder, batch))
    assert out[1].abs().max() == 0
    assert out[3].abs().max() == 0


def test_gradients_of_both_sums_are_exact() -> None:
    batch = lopsided()
    rows = torch.randn(7, 2, requires_grad=True)
    assert torch.autograd.gradcheck(Neighbours(batch), (rows,))
    assert torch.autograd.gradcheck(lambda x: sum_pool(x, batch.starts, batch.graph), (rows,))


def test_a_batch_that_says_symmetric_has_the_same_gradient_as_one_that_does_not() -> None:
    batch = random_graphs(4, seed=5).batch(torch.arange(4))
    plain = GraphBatch(batch.features, batch.sources, batch.targets, batch.starts, symmetric=False)
    gradients = []
    for one in (batch, plain):
        rows = batch.features.clone().requires_grad_()
        Neighbours(one)(rows).square().sum().backward()
        gradients.append(rows.grad)
    assert torch.equal(*gradients)


def test_weights_are_xavier_uniform_and_biases_zero() -> None:
    model = GraphContrast(7, 32, 3, torch.Generator().manual_seed(0))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            bound = (6 / (module.in_features + module.out_features)) ** 0.5
            assert 0.8 * bound < module.weight.abs().max() <= bound
            assert module.bias.abs().max() == 0
    assert model.encoder.output_size == 96


@pytest.mark.parametrize("inputs", [5, 37])
def test_encoder_equals_torch_geometric(inputs: int) -> None:
    geometric = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed (extra: graphs)")
    batch = in_double(random_graphs(6, seed=9, labels=inputs).with_self_loops("public").batch(torch.arange(6)))
    encoder = GIN(inputs)
    x, edges, pooled = batch.features, torch.stack([batch.sources, batch.targets]), []
    for layer in encoder.layers:
        convolution = geometric.GINConv(nn.Sequential(layer.first, nn.ReLU(), layer.second))
        x = layer.norm(convolution(x, edges).relu())
        pooled.append(geometric.global_add_pool(x, batch.graph, size=len(batch)))
    torch.testing.assert_close(encoder(batch), torch.cat(pooled, 1))
