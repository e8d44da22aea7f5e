"""TU graph sets from a local folder: one `NAME.npz` per set, or the collection's own text files `NAME_A.txt` and so on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from halp.clips.readers.archives import load_npz
from halp.errors import InputError
from halp.graphs.data import GraphSet

Integers = npt.NDArray[np.int64]
_ARRAYS = ("edge_index", "node_labels", "graph_ptr", "labels")


def read_graphs(folder: Path | str, name: str) -> GraphSet:
    """The set `name` of a folder: `NAME.npz`, or text files in `NAME/` or in the folder itself."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"'{folder}' is not a folder; --data takes the folder that holds {name}.npz or {name}_A.txt")
    if (folder / f"{name}.npz").is_file():
        return read_npz(folder / f"{name}.npz")
    for home in (folder / name, folder):
        if (home / f"{name}_A.txt").is_file():
            return read_tu_text(home, name)
    known = sorted(
        {path.stem for path in folder.glob("*.npz")} | {path.stem[:-2] for path in folder.glob("**/*_A.txt")}
    )
    has = f"it has {', '.join(known)}" if known else "it has no graph sets at all"
    raise InputError(f"'{folder}' has neither {name}.npz nor {name}_A.txt; {has}")


def read_npz(path: Path) -> GraphSet:
    """A set saved as edge_index (2, E), node_labels (n,), graph_ptr (N + 1,) and labels (N,), with node ids over the set."""
    arrays = load_npz(path)
    missing = [key for key in _ARRAYS if key not in arrays]
    if missing:
        raise InputError(f"'{path}' has no array {missing[0]}; a graph set needs {', '.join(_ARRAYS)}")
    edges, nodes, starts, labels = (arrays[key] for key in _ARRAYS)
    for key, array, axes in (
        ("edge_index", edges, 2),
        ("node_labels", nodes, 1),
        ("graph_ptr", starts, 1),
        ("labels", labels, 1),
    ):
        if array.dtype.kind not in "iu" or array.ndim != axes:
            raise InputError(f"'{path}': {key} has to hold integers with {axes} axes, not {array.dtype} {array.shape}")
    if len(edges) != 2:
        raise InputError(f"'{path}': edge_index has to be of shape (2, E), not {edges.shape}")
    starts = starts.astype(np.int64)
    if len(starts) != len(labels) + 1 or starts[0] != 0 or starts[-1] != len(nodes) or (np.diff(starts) < 1).any():
        raise InputError(
            f"'{path}': graph_ptr has to rise from 0 to the number of nodes ({len(nodes)}) in {len(labels)} steps, "
            "one per label; an empty graph is not allowed"
        )
    return assemble(
        path.stem, str(path), edges.astype(np.int64), nodes.astype(np.int64), starts, labels.astype(np.int64)
    )


def read_tu_text(folder: Path, name: str) -> GraphSet:
    """The text format of the TU collection; ids there count from 1, and all nodes of a graph stand together."""
    edges = _read_integers(folder / f"{name}_A.txt", columns=2).T - 1
    indicator = _read_integers(folder / f"{name}_graph_indicator.txt")[:, 0]
    labels = _read_integers(folder / f"{name}_graph_labels.txt")[:, 0]
    path = folder / f"{name}_node_labels.txt"
    nodes = _read_integers(path)[:, 0] if path.is_file() else np.zeros(len(indicator), np.int64)
    if len(nodes) != len(indicator):
        raise InputError(
            f"'{path}' has {len(nodes)} lines for the {len(indicator)} nodes of {name}_graph_indicator.txt"
        )
    sizes = np.bincount(indicator - 1, minlength=len(labels)) if len(indicator) and indicator.min() > 0 else np.zeros(0)
    if len(sizes) != len(labels) or (np.diff(indicator) < 0).any() or (sizes < 1).any():
        raise InputError(
            f"'{folder / name}_graph_indicator.txt' has to rise from 1 to {len(labels)}, the number of lines of "
            f"{name}_graph_labels.txt, with at least one node per graph"
        )
    starts = np.concatenate([[0], sizes.cumsum()]).astype(np.int64)
    return assemble(
        name, str(folder / f"{name}_A.txt"), edges, nodes - (nodes.min() if len(nodes) else 0), starts, labels
    )


def assemble(name: str, where: str, edges: Integers, nodes: Integers, starts: Integers, labels: Integers) -> GraphSet:
    """Check the parts of a set and put them together: both directions of every edge once, no loops, classes from 0."""
    if not len(labels):
        raise InputError(f"'{where}' holds no graphs")
    if edges.size and (edges.min() < 0 or edges.max() >= len(nodes)):
        worst = int(edges.max() if edges.max() >= len(nodes) else edges.min())
        raise InputError(f"'{where}': an edge names node {worst}, but nodes are 0 to {len(nodes) - 1} (counted from 0)")
    if nodes.min() < 0 or nodes.max() > 100_000:
        raise InputError(f"'{where}': node labels have to be in 0 … 100000, not {nodes.min()} … {nodes.max()}")
    graph = np.repeat(np.arange(len(labels)), np.diff(starts))
    crossing = np.flatnonzero(graph[edges[0]] != graph[edges[1]])
    if len(crossing):
        one, other = edges[:, crossing[0]]
        raise InputError(f"'{where}': edge {crossing[0]} joins nodes {one} and {other} of two different graphs")
    edges = edges[:, edges[0] != edges[1]]
    codes = np.unique(np.concatenate([edges[1] * len(nodes) + edges[0], edges[0] * len(nodes) + edges[1]]))
    classes = np.unique(labels, return_inverse=True)[1].reshape(-1)
    parts = (codes % len(nodes), codes // len(nodes), nodes, starts, classes.astype(np.int64))
    return GraphSet(name, *(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))


def _read_integers(path: Path, columns: int = 1) -> Integers:
    """Rows of integers separated by commas, one row per line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise InputError(
            f"there is no file '{path}'; a TU set has NAME_A, _graph_indicator and _graph_labels"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read as text ({error})") from None
    while lines and not lines[-1].strip():
        lines.pop()
    cells = [line.split(",") for line in lines]
    wrong = next((number for number, row in enumerate(cells) if len(row) != columns), None)
    try:
        if wrong is None:
            return np.array([int(cell) for row in cells for cell in row], np.int64).reshape(-1, columns)
    except (ValueError, OverflowError):
        wrong = next(number for number, row in enumerate(cells) if not all(_is_integer(cell) for cell in row))
    raise InputError(f"'{path}', line {wrong + 1}: expected {columns} integer(s), found '{lines[wrong][:40]}'")


def _is_integer(text: str) -> bool:
    try:
        return abs(int(text)) < 2**62
    except ValueError:
        return False
