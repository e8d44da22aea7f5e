"""AimCLR's losses and its drop of salient features, loop by loop in plain NumPy float64; nothing here imports
`halp`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from slow_streams import softmax

Matrix = NDArray[np.float64]


def columns(query: Matrix, key: Matrix, queue: Matrix, temperature: float) -> list[float]:
    """Logits of one query: its key first, then every row of the queue."""
    return [float(np.dot(query, other)) / temperature for other in [key, *queue]]


def distribution_match(
    query: Matrix, extreme: Matrix, key: Matrix, queue: Matrix, temperature: float
) -> float:
    """− mean over the batch of Σ_j p_j(normal) log p_j(extreme), over all columns."""
    total = 0.0
    for b in range(len(query)):
        target = softmax(columns(query[b], key[b], queue, temperature))
        found = softmax(columns(extreme[b], key[b], queue, temperature))
        total -= sum(p * math.log(q) for p, q in zip(target, found))
    return total / len(query)


def positives(queries: list[Matrix], queue: Matrix, b: int, top: int) -> set[int]:
    """Rows of the queue that any query of clip b has among its nearest."""
    found: set[int] = set()
    for query in queries:
        near = [float(np.dot(query[b], row)) for row in queue]
        found |= set(sorted(range(len(queue)), key=lambda i: -near[i])[:top])
    return found


def nearest_positives(
    queries: list[Matrix], key: Matrix, queue: Matrix, temperature: float, top: int, reading: str
) -> float:
    """The first query's contrast with its key and all rows in the union as positives."""
    total = 0.0
    for b in range(len(key)):
        p = softmax(columns(queries[0][b], key[b], queue, temperature))
        chosen = [p[0], *(p[1 + row] for row in positives(queries, queue, b, top))]
        if reading == "mean":
            total -= sum(math.log(one) for one in chosen) / len(chosen)
        else:
            total -= math.log(sum(chosen))
    return total / len(key)


def energy_drop(x: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Maps `(N, T, V, C)`: joints, then cells, of high attention set to zero, the rest scaled by size / kept
    each time.
    """
    number, frames, joints, channels = x.shape
    a = np.zeros(x.shape)
    for n in range(number):
        for c in range(channels):
            cells = [x[n, t, v, c] for t in range(frames) for v in range(joints)]
            mean = sum(cells) / len(cells)
            variance = sum((cell - mean) ** 2 for cell in cells) / (len(cells) - 1)
            for t in range(frames):
                for v in range(joints):
                    energy = (x[n, t, v, c] - mean) ** 2 / (4 * (variance + 1e-4)) + 0.5
                    a[n, t, v, c] = 1 / (1 + math.exp(-energy))
    keep_joint = [[a[n, :, v].mean() < threshold for v in range(joints)] for n in range(number)]
    joint_scale = number * joints / sum(map(sum, keep_joint))
    cell_scale = a.size / sum(value < threshold for value in a.flatten())
    out = np.zeros(x.shape)
    for n, t, v, c in np.ndindex(*x.shape):
        if keep_joint[n][v] and a[n, t, v, c] < threshold:
            out[n, t, v, c] = x[n, t, v, c] * joint_scale * cell_scale
    return out
