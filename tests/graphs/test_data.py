"""Graph sets, their batches, and the readers of both formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from graph_samples import edges_of, random_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from halp.errors import InputError
from halp.graphs import GraphSet, read_graphs
from halp.graphs.readers import assemble


def neighbours(graphs: GraphSet) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {node: set() for node in range(len(graphs.node_labels))}
    for source, target in zip(graphs.sources.tolist(), graphs.targets.tolist()):
        found[target].add(source)
    return found


@settings(deadline=None)
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
    graphs = assemble("three", "three", edges, np.zeros(9, np.int64), np.array([0, 4, 8, 9]), np.array([0, 1, 0]))
    looped = graphs.with_self_loops("public")
    assert [node for node, near in neighbours(looped).items() if node in near] == [0, 1, 4, 5]
    assert bool((looped.targets.diff() >= 0).all())
    every = graphs.with_self_loops("all")
    assert all(node in near for node, near in neighbours(every).items())
    assert neighbours(graphs.with_self_loops("none")) == neighbours(graphs)


def test_edges_are_read_in_both_directions_once_and_without_loops() -> None:
    edges = np.array([[0, 0, 1, 2, 1], [1, 1, 0, 2, 2]])
    graphs = assemble("one", "one", edges, np.zeros(3, np.int64), np.array([0, 3]), np.array([7]))
    assert neighbours(graphs) == {0: {1}, 1: {0, 2}, 2: {1}}
    assert graphs.labels.tolist() == [0]


def save_npz(folder: Path, **changes: object) -> None:
    arrays: dict[str, object] = {
        "edge_index": np.array([[0, 1, 2, 3], [1, 0, 3, 2]]),
        "node_labels": np.array([0, 1, 0, 2]),
        "graph_ptr": np.array([0, 2, 4]),
        "labels": np.array([0, 1]),
    }
    arrays |= changes
    np.savez(folder / "TOY.npz", **{key: value for key, value in arrays.items() if value is not None})  # type: ignore[arg-type]


def save_text(folder: Path, **changes: str | None) -> None:
    texts: dict[str, str | None] = {
        "A": "1, 2\n2, 1\n3, 4\n4, 3\n",
        "graph_indicator": "1\n1\n2\n2\n",
        "graph_labels": "-1\n1\n",
        "node_labels": "3\n4\n3\n5\n",
    }
    for key, text in (texts | changes).items():
        if text is not None:
            (folder / f"TOY_{key}.txt").write_text(text)


def test_text_and_npz_give_the_same_graphs(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b" / "TOY").mkdir(parents=True)
    save_npz(tmp_path / "a")
    save_text(tmp_path / "b" / "TOY")
    one, other = read_graphs(tmp_path / "a", "TOY"), read_graphs(tmp_path / "b", "TOY")
    for name in ("sources", "targets", "starts", "labels", "node_labels"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_a_text_set_without_node_labels_has_one_label(tmp_path: Path) -> None:
    save_text(tmp_path, node_labels=None)
    assert read_graphs(tmp_path, "TOY").feature_size == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": None}, "no array labels"),
        ({"edge_index": np.array([[0.5], [1.0]])}, "integers"),
        ({"edge_index": np.array([[0, 1, 2]])}, r"\(2, E\)"),
        ({"edge_index": np.array([[0], [4]])}, "names node 4"),
        ({"edge_index": np.array([[0], [-1]])}, "names node -1"),
        ({"edge_index": np.array([[0], [2]])}, "two different graphs"),
        ({"graph_ptr": np.array([0, 2, 5])}, "graph_ptr"),
        ({"graph_ptr": np.array([0, 0, 4])}, "graph_ptr"),
        ({"graph_ptr": np.zeros(0, np.int64), "labels": np.zeros(0, np.int64)}, "graph_ptr"),
        ({"node_labels": np.array([0, 1, -1, 2])}, "node labels"),
        ({"labels": np.array(["a", "b"], dtype=object)}, "Python objects"),
    ],
)
def test_a_bad_npz_is_refused_in_one_sentence(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    save_npz(tmp_path, **changes)
    with pytest.raises(InputError, match=words) as caught:
        read_graphs(tmp_path, "TOY")
    assert "TOY.npz" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"A": "1, 2\n2; 1\n"}, "TOY_A.txt', line 2"),
        ({"A": "1, 2\n2, x\n"}, "TOY_A.txt', line 2"),
        ({"A": "1, 9\n"}, "names node 8"),
        ({"A": "0, 1\n"}, "names node -1"),
        ({"A": f"1, {10**30}\n"}, "TOY_A.txt', line 1"),
        ({"graph_indicator": "1\n2\n1\n2\n"}, "has to rise"),
        ({"graph_indicator": "0\n1\n1\n2\n"}, "has to rise"),
        ({"graph_indicator": "1\n1\n1\n1\n"}, "has to rise"),
        ({"graph_indicator": ""}, "has to rise|has 4 lines"),
        ({"graph_labels": None}, "no file"),
        ({"node_labels": "1\n2\n"}, "2 lines for the 4 nodes"),
    ],
)
def test_bad_text_files_are_refused_in_one_sentence(tmp_path: Path, changes: dict[str, str | None], words: str) -> None:
    save_text(tmp_path, **changes)
    with pytest.raises(InputError, match=words):
        read_graphs(tmp_path, "TOY")


def test_a_folder_without_the_set_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no graph sets at all"):
        read_graphs(tmp_path, "MUTAG")
    save_npz(tmp_path)
    with pytest.raises(InputError, match="it has TOY"):
        read_graphs(tmp_path, "MUTAG")
    with pytest.raises(InputError, match="is not a folder"):
        read_graphs(tmp_path / "TOY.npz", "TOY")
    (tmp_path / "TOY.npz").write_bytes((tmp_path / "TOY.npz").read_bytes()[:100])
    with pytest.raises(InputError, match="not a whole"):
        read_graphs(tmp_path, "TOY")


@pytest.mark.parametrize(("name", "graphs", "nodes", "width"), [("MUTAG", 188, 3371, 7), ("PROTEINS", 1113, 43471, 3)])
def test_the_published_sets_have_their_published_sizes(
    shared: Path, name: str, graphs: int, nodes: int, width: int
) -> None:
    known = read_graphs(shared / "data" / "graphs", name)
    assert (len(known), len(known.node_labels), known.feature_size) == (graphs, nodes, width)
