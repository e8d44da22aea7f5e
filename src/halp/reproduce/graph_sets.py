"""Labelled graphs from the TU collection: `NAME.npz`, or its text files, checked and put together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from halp.core.errors import InputError
from halp.data.readers.archives import load_npz
from halp.zoo.graph_batches import GraphSet

Integers = npt.NDArray[np.int64]
ARRAYS = {"edge_index": 2, "node_labels": 1, "graph_ptr": 1, "labels": 1}  # with their numbers of axes


def read_graphs(folder: Path | str, name: str) -> GraphSet:
    """The set `name` of a folder: `NAME.npz`, or the TU collection's text files in `NAME/` or the folder."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            f"'{folder}' is not a folder; --data takes the folder that holds {name}.npz or {name}_A.txt"
        )
    if (folder / f"{name}.npz").is_file():
        return _read_npz(folder / f"{name}.npz")
    for home in (folder / name, folder):
        if (home / f"{name}_A.txt").is_file():
            return _read_text(home, name)
    known = sorted(
        {path.stem for path in folder.glob("*.npz")} | {path.stem[:-2] for path in folder.glob("**/*_A.txt")}
    )
    has = f"it has {', '.join(known)}" if known else "it has no graph sets at all"
    raise InputError(f"'{folder}' has neither {name}.npz nor {name}_A.txt; {has}")


def _read_npz(path: Path) -> GraphSet:
    arrays = load_npz(path)
    for key, axes in ARRAYS.items():
        if key not in arrays:
            raise InputError(f"'{path}' has no array {key}; a graph set needs {', '.join(ARRAYS)}")
        if (
            arrays[key].dtype.kind not in "iu"
            or arrays[key].ndim != axes
            or (axes == 2 and len(arrays[key]) != 2)
        ):
            raise InputError(
                f"'{path}': {key} must hold integers with {axes} axes, edge_index of shape (2, E), "
                f"not {arrays[key].dtype} {arrays[key].shape}"
            )
    edges, nodes, starts, labels = (arrays[key].astype(np.int64) for key in ARRAYS)
    if (
        len(starts) != len(labels) + 1
        or starts[0] != 0
        or starts[-1] != len(nodes)
        or (np.diff(starts) < 1).any()
    ):
        raise InputError(
            f"'{path}': graph_ptr must rise from 0 to the number of nodes ({len(nodes)}) in {len(labels)}"
            " steps, one per label; an empty graph is not allowed"
        )
    return assemble(path.stem, str(path), edges, nodes, starts, labels)


def _read_text(folder: Path, name: str) -> GraphSet:
    """Ids count from 1, and the nodes of a graph are contiguous."""
    edges = _read_integers(folder / f"{name}_A.txt", columns=2).T - 1
    indicator, labels = (
        _read_integers(folder / f"{name}_graph_{part}.txt")[:, 0] for part in ("indicator", "labels")
    )
    path = folder / f"{name}_node_labels.txt"
    nodes = _read_integers(path)[:, 0] if path.is_file() else np.zeros(len(indicator), np.int64)
    if len(nodes) != len(indicator):
        raise InputError(
            f"'{path}' has {len(nodes)} lines for the {len(indicator)} nodes of {name}_graph_indicator.txt"
        )
    sizes = (
        np.bincount(indicator - 1, minlength=len(labels))
        if len(indicator) and indicator.min() > 0
        else np.zeros(0)
    )
    if len(sizes) != len(labels) or (np.diff(indicator) < 0).any() or (sizes < 1).any():
        raise InputError(
            f"'{folder / name}_graph_indicator.txt' must rise from 1 to {len(labels)}, the number of lines of"
            f" {name}_graph_labels.txt, with at least one node per graph"
        )
    starts = np.concatenate([[0], sizes.cumsum()]).astype(np.int64)
    lowest = nodes.min() if len(nodes) else 0
    return assemble(name, str(folder / f"{name}_A.txt"), edges, nodes - lowest, starts, labels)


def assemble(
    name: str, where: str, edges: Integers, nodes: Integers, starts: Integers, labels: Integers
) -> GraphSet:
    """Check and assemble the parts of a set: edges in both directions, no loops, classes from 0."""
    if not len(labels):
        raise InputError(f"'{where}' holds no graphs")
    if edges.size and (edges.min() < 0 or edges.max() >= len(nodes)):
        worst = int(edges.max() if edges.max() >= len(nodes) else edges.min())
        raise InputError(f"'{where}': an edge names node {worst}; nodes are 0 to {len(nodes) - 1}")
    if nodes.min() < 0 or nodes.max() > 100_000:
        raise InputError(f"'{where}': node labels must be in 0 … 100000, not {nodes.min()} … {nodes.max()}")
    graph = np.repeat(np.arange(len(labels)), np.diff(starts))
    crossing = np.flatnonzero(graph[edges[0]] != graph[edges[1]])
    if len(crossing):
        first, second = edges[:, crossing[0]]
        raise InputError(
            f"'{where}': edge {crossing[0]} joins nodes {first} and {second} of two different graphs"
        )
    edges = edges[:, edges[0] != edges[1]]
    codes = np.unique(np.concatenate([edges[1] * len(nodes) + edges[0], edges[0] * len(nodes) + edges[1]]))
    classes = np.unique(labels, return_inverse=True)[1].reshape(-1)
    parts = (codes % len(nodes), codes // len(nodes), nodes, starts, classes.astype(np.int64))
    return GraphSet(name, *(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))


def _read_integers(path: Path, columns: int = 1) -> Integers:
    """Rows of integers separated by commas, one row per line."""
    try:
        lines = path.read_text(encoding="utf-8").rstrip().splitlines()
    except FileNotFoundError:
        raise InputError(
            f"there is no file '{path}'; a TU set has NAME_A, _graph_indicator and _graph_labels"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read as text ({error})") from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append([int(cell) for cell in line.split(",")])
            np.array(rows[-1], np.int64)
        except (ValueError, OverflowError):
            rows.append([])
        if len(rows[-1]) != columns:
            raise InputError(f"'{path}', line {number}: expected {columns} integer(s), found '{line[:40]}'")
    return np.array(rows, np.int64).reshape(-1, columns)
