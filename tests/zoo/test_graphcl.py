"""GraphCL: batches, augmentations, encoder and loss against loops, training and forks to the bit, the SVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from graph_samples import edges_of, gin_by_loops, nt_xent_by_loops, random_graphs
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from halp.core.errors import InputError
from halp.hallucinate import HallucinatedPositives
from halp.reproduce.graph_sets import assemble
from halp.reproduce.graphs import C_GRID, override, svm_accuracies
from halp.zoo.graph_batches import GraphBatch, GraphSet, augment, grown_subgraph
from halp.zoo.graphcl import (
    GIN,
    GraphSettings,
    GraphTraining,
    SumRows,
    nt_xent_without_positive,
    sum_pool,
    unit_or_zero,
)

SEEDS = st.integers(0, 10_000)
SMALL = (
    "epochs=3",
    "batch_size=16",
    "width=4",
    "layers=2",
    "halp.start_epoch=1",
    "halp.prototypes=4",
    "halp.count=5",
)


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def looped(count: int, seed: int) -> GraphBatch:
    """A batch whose features are the node's own number, so that a node can be found again."""
    batch = random_graphs(count, seed=seed).with_self_loops().batch(torch.arange(count))
    numbers = torch.arange(len(batch.features), dtype=torch.float32)[:, None]
    return GraphBatch(numbers, batch.sources, batch.targets, batch.starts, symmetric=True)


def origin(view: GraphBatch) -> list[int]:
    return view.features[:, 0].long().tolist()


def old_edges(view: GraphBatch) -> set[tuple[int, int]]:
    names = origin(view)
    return {(names[a], names[b]) for a, b in edges_of(view)}


def neighbours(graphs: GraphSet) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {node: set() for node in range(len(graphs.node_labels))}
    for source, target in zip(graphs.sources.tolist(), graphs.targets.tolist()):
        found[target].add(source)
    return found


@hypothesis_settings(deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_a_batch_has_the_chosen_graphs_one_after_the_other(seed: int, chosen: list[int]) -> None:
    graphs = random_graphs(6, seed=seed, largest=7)
    batch, known = graphs.batch(torch.tensor(chosen)), neighbours(graphs)
    assert bool((batch.targets.diff() >= 0).all())
    expected, node = set(), 0
    for number, graph in enumerate(chosen):
        first, last = int(graphs.starts[graph]), int(graphs.starts[graph + 1])
        for old in range(first, last):
            expected |= {(other - first + int(batch.starts[number]), node) for other in known[old]}
            assert int(batch.graph[node]) == number
            assert batch.features[node].tolist() == [float(i == graphs.node_labels[old]) for i in range(4)]
            node += 1
    assert edges_of(batch) == expected
    assert len(batch.features) == node


def test_public_self_loops_leave_out_the_last_node_with_an_edge_and_all_behind_it() -> None:
    edges = np.array([[0, 1, 4, 5], [1, 2, 5, 6]])  # nodes 3, 7 and 8 have no edge, graph 2 has none at all
    graphs = assemble(
        "three", "three", edges, np.zeros(9, np.int64), np.array([0, 4, 8, 9]), np.array([0, 1, 0])
    )
    looped = graphs.with_self_loops()
    assert [node for node, near in neighbours(looped).items() if node in near] == [0, 1, 4, 5]
    assert bool((looped.targets.diff() >= 0).all())


@hypothesis_settings(deadline=None)
@given(SEEDS)
def test_node_drop_takes_a_tenth_of_the_nodes_and_those_left_without_an_edge(seed: int) -> None:
    batch = looped(6, seed)
    view = augment(batch, draws(seed))
    stays, before = set(origin(view)), edges_of(batch)
    dropping = torch.randint(2, (6,), generator=draws(seed)) == 0
    for graph in range(len(batch)):
        nodes = set(range(int(batch.starts[graph]), int(batch.starts[graph + 1])))
        if not dropping[graph]:
            continue
        here = nodes & stays
        assert here, "a graph vanished"
        # dropping these and removing what has no edge left gives what is there, for some choice of n // 10
        # nodes
        gone = nodes - here
        isolated = {
            node
            for node in gone
            if not any(a in here | {node} and b == node for a, b in before if a in nodes)
        }
        dropped = len(nodes) // 10
        assert len(gone - isolated) <= dropped
        assert len(gone) >= dropped - (len(here) == 1)
    assert old_edges(view) == {(a, b) for a, b in before if a in stays and b in stays and a != b}


@hypothesis_settings(deadline=None)
@given(SEEDS)
def test_subgraph_is_connected_to_its_start_and_of_the_right_size(seed: int) -> None:
    batch = looped(6, seed)
    members = grown_subgraph(batch, draws(seed))
    edges = edges_of(batch)
    for graph in range(len(batch)):
        first, last = int(batch.starts[graph]), int(batch.starts[graph + 1])
        kept = {node for node in range(first, last) if members[node]}
        assert 1 <= len(kept) <= (last - first) // 5 + 1
        # some node of it is joined to all others
        assert any(all(other == node or (node, other) in edges for other in kept) for node in kept)
        reached, frontier = set(), {min(kept)}
        while frontier:
            reached |= frontier
            frontier = {b for a, b in edges if a in frontier and b in kept} - reached
        assert reached == kept


def public_subgraph_by_loops(
    neighbours: dict[int, set[int]], nodes: int, draw: np.random.Generator
) -> frozenset[int]:
    """Members as the public code draws them, try by try."""
    members = [int(draw.integers(nodes))]
    frontier = sorted(neighbours[members[0]])
    for _ in range(nodes):
        if len(members) > nodes // 5 or not frontier:
            break
        found = int(draw.choice(frontier))
        if found not in members:
            members.append(found)
    return frozenset(members)


@pytest.mark.heavy
def test_public_subgraphs_are_as_frequent_as_those_drawn_try_by_try() -> None:
    # a ring of eleven with spokes from node 0, node 10 without a self-loop: few tries often find too few
    # neighbours
    pairs = [(i, (i + 1) % 11) for i in range(11)] + [(0, 5), (0, 7)]
    one = assemble(
        "ring", "ring", np.array(pairs).T, np.zeros(11, np.int64), np.array([0, 11]), np.array([0])
    )
    one = one.with_self_loops()
    copies = 20_000
    batch = one.batch(torch.zeros(copies, dtype=torch.long))
    members = grown_subgraph(batch, draws(0)).view(copies, 11)
    ours = Counter(frozenset(row.nonzero()[:, 0].tolist()) for row in members)
    neighbours: dict[int, set[int]] = {node: set() for node in range(11)}
    for a, b in zip(one.sources.tolist(), one.targets.tolist()):
        neighbours[a].add(b)
    draw = np.random.default_rng(0)
    loops = Counter(public_subgraph_by_loops(neighbours, 11, draw) for _ in range(copies))
    assert set(ours) >= {members for members, count in loops.items() if count > 20}
    for which in set(ours) | set(loops):
        expected = loops[which] / copies
        assert abs(ours[which] / copies - expected) < 5 * (2 * max(expected, 1e-3) / copies) ** 0.5, which


@hypothesis_settings(deadline=None)
@given(SEEDS)
def test_no_graph_vanishes_and_no_loop_remains(seed: int) -> None:
    batch = random_graphs(8, seed=seed, largest=4, density=0.1).with_self_loops().batch(torch.arange(8))
    view = augment(batch, draws(seed))
    assert len(view) == 8
    assert int(view.sizes.min()) >= 1
    assert all(a != b for a, b in edges_of(view))
    assert all(int(view.graph[a]) == int(view.graph[b]) for a, b in edges_of(view))
    reversed_edges = {(b, a) for a, b in edges_of(view)}
    assert view.symmetric
    assert reversed_edges == edges_of(view)


def test_every_graph_gets_one_augmentation_of_the_set_uniformly() -> None:
    graphs = random_graphs(1, seed=0, largest=60, density=0.5)
    assert int(graphs.starts[-1]) >= 20
    batch = graphs.with_self_loops().batch(torch.zeros(2000, dtype=torch.long))
    view = augment(batch, draws(0))
    dropped = view.sizes == batch.sizes - batch.sizes // 10
    assert bool((dropped | (view.sizes <= batch.sizes // 5 + 1)).all())
    assert abs(float(dropped.float().mean()) - 0.5) < 0.05


@pytest.fixture
def double() -> Iterator[None]:
    """Weights and features in double precision, and always the same: normalisation magnifies rounding."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def in_double(batch: GraphBatch) -> GraphBatch:
    return replace(batch, features=batch.features.double())


def lopsided() -> GraphBatch:
    """Edges in one direction only, a node without edges, a graph without nodes in the middle and one at the
    end.
    """
    sources, targets = torch.tensor([1, 2, 2, 0, 4]), torch.tensor([0, 0, 1, 2, 5])
    features = torch.randn(7, 3, generator=torch.Generator().manual_seed(1))
    return GraphBatch(features, sources, targets, torch.tensor([0, 4, 4, 7, 7]))


@pytest.mark.parametrize("inputs", [4, 40])
def test_encoder_equals_loops_over_nodes_and_edges(double: None, inputs: int) -> None:
    graphs = random_graphs(5, seed=3, largest=9, labels=inputs).with_self_loops()
    batch = in_double(graphs.batch(torch.tensor([4, 0, 2, 1])))
    encoder = GIN(inputs, width=6)
    torch.testing.assert_close(encoder(batch), gin_by_loops(encoder, batch))


def test_encoder_of_directed_edges_and_empty_graphs_equals_loops(double: None) -> None:
    batch, encoder = lopsided(), GIN(3, width=2)
    out = encoder(batch)
    torch.testing.assert_close(out, gin_by_loops(encoder, batch))
    assert out[1].abs().max() == 0
    assert out[3].abs().max() == 0


def test_gradients_of_both_sums_are_exact(double: None) -> None:
    batch = lopsided()
    rows = torch.randn(7, 2, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: SumRows.apply(x, *batch.incoming, *batch.outgoing), (rows,))
    assert torch.autograd.gradcheck(lambda x: sum_pool(x, batch.starts, batch.graph), (rows,))


def test_a_batch_that_says_symmetric_has_the_same_gradient_as_one_that_does_not() -> None:
    batch = random_graphs(4, seed=5).batch(torch.arange(4))
    plain = GraphBatch(batch.features, batch.sources, batch.targets, batch.starts, symmetric=False)
    gradients = []
    for sample in (batch, plain):
        rows = batch.features.clone().requires_grad_()
        SumRows.apply(rows, *sample.incoming, *sample.outgoing).square().sum().backward()
        gradients.append(rows.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("rows", [2, 7])
def test_loss_equals_loops(rows: int) -> None:
    query, key = torch.randn(2, rows, 5, dtype=torch.float64)
    loss = nt_xent_without_positive(unit_or_zero(query), unit_or_zero(key), 0.2)
    assert float(loss) == pytest.approx(nt_xent_by_loops(query, key, 0.2), rel=1e-9)


def test_a_row_of_zeros_gives_a_finite_loss_and_gradient() -> None:
    query = torch.randn(4, 3)
    query[2] = 0
    query.requires_grad_()
    loss = nt_xent_without_positive(unit_or_zero(query), unit_or_zero(torch.randn(4, 3)))
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert query.grad is not None
    assert bool(torch.isfinite(query.grad).all())
    assert query.grad.abs().max() < 100


def settings(*more: str) -> GraphSettings:
    return override(GraphSettings(), [*SMALL, *more])


def weights(training: GraphTraining) -> list[torch.Tensor]:
    return [value.clone() for value in training.model.state_dict().values()]


def equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_weight_zero_equals_graphcl_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = random_graphs(40)
    without = weights(GraphTraining(graphs, settings("halp.weight=0"), 3).run())
    never = weights(GraphTraining(graphs, settings("halp.start_epoch=3"), 3).run())
    assert equal(without, never)
    # computed after all, but counted with weight zero: the term changes neither draws nor statistics of
    # GraphCL
    forced = GraphTraining(graphs, settings("halp.weight=1"), 3)
    original = HallucinatedPositives.forward
    monkeypatch.setattr(HallucinatedPositives, "forward", lambda self, *given: 0.0 * original(self, *given))
    assert equal(without, weights(forced.run()))


def test_halp_changes_the_weights_from_its_start_epoch_on() -> None:
    graphs = random_graphs(40)
    one, other = GraphTraining(graphs, settings(), 0), GraphTraining(graphs, settings("halp.weight=0"), 0)
    assert equal(weights(one.run(1)), weights(other.run(1)))
    assert not equal(weights(one.run(2)), weights(other.run(2)))


@pytest.mark.parametrize("source", ["batch", "keys"])
def test_a_fork_equals_a_training_from_scratch_to_the_bit(source: str) -> None:
    graphs, chosen = random_graphs(40), settings(f"halp.source={source}")
    trunk = GraphTraining(graphs, chosen, 1).run(1)
    graphcl = trunk.fork(weight=0.0)
    assert equal(weights(graphcl.run()), weights(GraphTraining(graphs, settings("halp.weight=0"), 1).run()))
    assert equal(weights(trunk.run()), weights(GraphTraining(graphs, chosen, 1).run()))


def test_a_last_batch_of_one_graph_is_left_out() -> None:
    training = GraphTraining(random_graphs(33), settings(), 0).run()
    assert all(bool(torch.isfinite(value).all()) for value in weights(training))
    assert len(training.embed()) == 33
    with pytest.raises(InputError, match="at least two"):
        GraphTraining(random_graphs(1), settings(), 0)


@pytest.mark.parametrize("more", [(), ("halp.source=keys",)])
def test_graphs_that_nearly_vanish_give_finite_weights(more: tuple[str, ...]) -> None:
    # single nodes, no edges at all in many graphs, and a last batch of three rows for four prototypes
    graphs = random_graphs(35, largest=3, density=0.2)
    training = GraphTraining(graphs, settings(*more), 0).run()
    assert all(bool(torch.isfinite(value).all()) for value in weights(training))
    assert np.isfinite(training.embed()).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epoch=3", "did you mean 'epochs'"),
        ("epochs", "key=value"),
        ("epochs=3.5", "whole number"),
        ("epochs=many", "whole number"),
        ("epochs=0", "must be at least 1"),
        ("batch_size=1", "at least 2"),
        ("learning_rate=true", "a number"),
        ("halp=1", "is a section"),
        ("epochs.x=1", "is not a section"),
        ("halp.source=batches", "did you mean 'batch'"),
        ("halp.prototypes=1", "at least two"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        settings(text)


def test_a_training_that_diverges_says_so() -> None:
    with pytest.raises(InputError, match="lower learning_rate"):
        GraphTraining(random_graphs(40), settings("learning_rate=1e30"), 0).run()


def samples(count: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two overlapping classes, with columns of very different scale as sums over nodes have them."""
    draw = np.random.default_rng(seed)
    labels = (draw.random(count) < 0.4).astype(np.int64)
    features = draw.normal(size=(count, 12)) + 0.6 * labels[:, None] * (np.arange(12) < 5)
    return (features * np.geomspace(0.1, 100, 12)[::-1]).astype(np.float32), labels


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.slow
def test_accuracies_equal_those_of_a_plain_grid_search(seed: int, scaled: bool) -> None:
    features, labels = samples(seed=seed)
    plain = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(features, labels):
        model = make_pipeline(StandardScaler(), SVC()) if scaled else make_pipeline(SVC())
        search = GridSearchCV(model, {"svc__C": C_GRID}, cv=5, scoring="accuracy")
        search.fit(features[train].astype(np.float64), labels[train])
        plain.append(search.score(features[test].astype(np.float64), labels[test]))
    ours = svm_accuracies(features, labels, seed=seed, folds=5, scaled=scaled)
    assert ours == pytest.approx(plain, abs=1e-12)


def test_too_few_graphs_of_a_class_and_embeddings_that_are_not_finite_are_refused() -> None:
    features, labels = samples(40)
    with pytest.raises(InputError, match="stratified folds"):
        svm_accuracies(features, np.arange(40) // 39, seed=0)
    with pytest.raises(InputError, match="diverged"):
        svm_accuracies(features * np.nan, labels, seed=0)
