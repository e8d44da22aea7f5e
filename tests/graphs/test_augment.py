"""Augmentations by brute force: what may stay, what has to go, and how often, in both readings."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from graph_samples import edges_of, random_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from halp.graphs import AugmentSettings, GraphBatch, augment
from halp.graphs.augment import grown_subgraph, walked_subgraph
from halp.graphs.readers import assemble

SEEDS = st.integers(0, 10_000)


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def looped(count: int, seed: int, rule: str = "public") -> GraphBatch:
    """A batch whose features are the node's own number, so that a node can be found again."""
    batch = random_graphs(count, seed=seed).with_self_loops(rule).batch(torch.arange(count))
    numbers = torch.arange(len(batch.features), dtype=torch.float32)[:, None]
    return GraphBatch(numbers, batch.sources, batch.targets, batch.starts, symmetric=True)


def origin(view: GraphBatch) -> list[int]:
    return view.features[:, 0].long().tolist()


def old_edges(view: GraphBatch) -> set[tuple[int, int]]:
    names = origin(view)
    return {(names[a], names[b]) for a, b in edges_of(view)}


@settings(deadline=None)
@given(SEEDS)
def test_node_drop_takes_a_tenth_of_the_nodes_and_those_left_without_an_edge(seed: int) -> None:
    batch = looped(6, seed)
    view = augment(batch, AugmentSettings(set="nodes"), draws(seed))
    stays, before = set(origin(view)), edges_of(batch)
    for graph in range(len(batch)):
        nodes = set(range(int(batch.starts[graph]), int(batch.starts[graph + 1])))
        here = nodes & stays
        assert here, "a graph vanished"
        # dropping these and removing what has no edge left gives what is there, for some choice of n // 10 nodes
        gone = nodes - here
        isolated = {node for node in gone if not any(a in here | {node} and b == node for a, b in before if a in nodes)}
        dropped = len(nodes) // 10
        assert len(gone - isolated) <= dropped
        assert len(gone) >= dropped - (len(here) == 1)
    assert old_edges(view) == {(a, b) for a, b in before if a in stays and b in stays and a != b}


@pytest.mark.parametrize("isolated", ["leave", "stay"])
def test_where_isolated_nodes_stay_exactly_a_tenth_is_dropped(isolated: str) -> None:
    batch = looped(40, 1)
    view = augment(batch, AugmentSettings(set="nodes", isolated=isolated), draws(0))
    exact = torch.equal(view.sizes, batch.sizes - batch.sizes // 10)
    assert exact == (isolated == "stay")
    assert len(batch.features) == len(origin(looped(40, 1))), "the batch itself was changed"


@settings(deadline=None)
@given(SEEDS, st.sampled_from(["public", "intended"]))
def test_subgraph_is_connected_to_its_start_and_of_the_right_size(seed: int, reading: str) -> None:
    batch = looped(6, seed)
    members = (grown_subgraph if reading == "public" else walked_subgraph)(batch, draws(seed))
    edges = edges_of(batch)
    for graph in range(len(batch)):
        first, last = int(batch.starts[graph]), int(batch.starts[graph + 1])
        kept = {node for node in range(first, last) if members[node]}
        assert 1 <= len(kept) <= (last - first) // 5 + 1
        if reading == "public":  # some node of it is joined to all others
            assert any(all(other == node or (node, other) in edges for other in kept) for node in kept)
        reached, frontier = set(), {min(kept)}
        while frontier:
            reached |= frontier
            frontier = {b for a, b in edges if a in frontier and b in kept} - reached
        assert reached == kept


def public_subgraph_by_loops(neighbours: dict[int, set[int]], nodes: int, draw: np.random.Generator) -> frozenset[int]:
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


def test_public_subgraphs_are_as_frequent_as_those_drawn_try_by_try() -> None:
    # a ring of eleven with spokes from node 0, node 10 without a self-loop: few tries often find too few neighbours
    pairs = [(i, (i + 1) % 11) for i in range(11)] + [(0, 5), (0, 7)]
    one = assemble("ring", "ring", np.array(pairs).T, np.zeros(11, np.int64), np.array([0, 11]), np.array([0]))
    one = one.with_self_loops("public")
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


@settings(deadline=None)
@given(SEEDS)
def test_public_edges_drop_a_tenth_of_the_directed_edges_and_add_none(seed: int) -> None:
    batch = looped(5, seed)
    view = augment(batch, AugmentSettings(set="edges", isolated="stay", view_self_loops=True), draws(seed))
    before, after, graph = edges_of(batch), edges_of(view), batch.graph.tolist()
    assert after <= before
    lost = Counter(graph[b] for _, b in before - after)
    total = Counter(graph[b] for _, b in before)
    assert all(lost[number] == total[number] // 10 for number in range(5))
    assert not view.symmetric


@settings(deadline=None)
@given(SEEDS)
def test_intended_edges_drop_a_tenth_of_the_pairs_and_add_at_most_as_many(seed: int) -> None:
    batch = looped(5, seed)
    view = augment(
        batch, AugmentSettings(set="edges", reading="intended", isolated="stay", view_self_loops=True), draws(seed)
    )
    before, after, graph = edges_of(batch), edges_of(view), batch.graph.tolist()
    assert {(b, a) for a, b in after} == after, "an edge in one direction only"
    assert bool((view.targets.diff() >= 0).all())
    for number in range(5):
        pairs = {(a, b) for a, b in before if a < b and graph[a] == number}
        kept = {(a, b) for a, b in after if a < b and graph[a] == number}
        assert len(pairs - kept) == len(pairs) // 10
        assert len(kept - pairs) <= len(pairs) // 10
    assert all(graph[a] == graph[b] for a, b in after)
    assert {(a, b) for a, b in after if a == b} == {(a, b) for a, b in before if a == b}


def test_intended_edges_do_add_some() -> None:
    batch = looped(5, 2)
    view = augment(
        batch, AugmentSettings(set="edges", reading="intended", isolated="stay", view_self_loops=True), draws(0)
    )
    assert edges_of(view) - edges_of(batch)


def test_attributes_of_a_tenth_of_the_nodes_become_noise() -> None:
    batch = random_graphs(200, seed=1).with_self_loops("all").batch(torch.arange(200))
    view = augment(batch, AugmentSettings(set="attributes", isolated="stay"), draws(0))
    noisy = (view.features != batch.features).any(1)
    assert torch.equal(torch.bincount(batch.graph[noisy], minlength=200), batch.sizes // 10)
    noise = view.features[noisy]
    assert abs(float(noise.mean()) - 0.5) < 0.05
    assert abs(float(noise.std()) - 0.5) < 0.05


@settings(deadline=None)
@given(SEEDS, st.sampled_from(["random2", "random3", "random4"]), st.sampled_from(["public", "intended"]))
def test_no_graph_vanishes_and_no_loop_remains(seed: int, which: str, reading: str) -> None:
    batch = random_graphs(8, seed=seed, largest=4, density=0.1).with_self_loops("public").batch(torch.arange(8))
    view = augment(batch, AugmentSettings(set=which, reading=reading), draws(seed))
    assert len(view) == 8
    assert int(view.sizes.min()) >= 1
    assert all(a != b for a, b in edges_of(view))
    assert all(int(view.graph[a]) == int(view.graph[b]) for a, b in edges_of(view))
    reversed_edges = {(b, a) for a, b in edges_of(view)}
    assert not view.symmetric or reversed_edges == edges_of(view)


def test_a_last_graph_whose_only_node_has_no_edge_stays_in_the_batch() -> None:
    graphs = assemble("two", "two", np.array([[0], [1]]), np.zeros(3, np.int64), np.array([0, 2, 3]), np.array([0, 1]))
    view = augment(graphs.with_self_loops("public").batch(torch.arange(2)), AugmentSettings(set="subgraph"), draws(0))
    assert len(view) == 2
    assert view.sizes[1] == 1


def test_every_graph_gets_one_augmentation_of_the_set_uniformly() -> None:
    graphs = random_graphs(1, seed=0, largest=60, density=0.5)
    assert int(graphs.starts[-1]) >= 20
    batch = graphs.with_self_loops("all").batch(torch.zeros(2000, dtype=torch.long))
    view = augment(batch, AugmentSettings(set="random2"), draws(0))
    dropped = view.sizes == batch.sizes - batch.sizes // 10
    assert bool((dropped | (view.sizes <= batch.sizes // 5 + 1)).all())
    assert abs(float(dropped.float().mean()) - 0.5) < 0.05
