"""k nearest neighbours by cosine similarity: exact search in chunks, k = 1 as in the paper by default."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from halp.errors import InputError

Labels = npt.NDArray[np.int64]


def neighbours(
    train: npt.NDArray[np.float32], test: npt.NDArray[np.float32], k: int = 1, *, chunk: int = 1024
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Indices and cosine similarities `(N, k)` of the nearest training rows of every test row, nearest first."""
    if not 1 <= k <= len(train):
        raise InputError(f"k = {k} neighbours cannot be found among {len(train)} training clips")
    bank = F.normalize(torch.from_numpy(np.asarray(train, dtype=np.float32)), dim=1).T.contiguous()
    rows = torch.from_numpy(np.asarray(test, dtype=np.float32))
    indices = np.empty((len(test), k), dtype=np.int64)
    similarity = np.empty((len(test), k), dtype=np.float32)
    for first in range(0, len(test), chunk):
        part = slice(first, first + chunk)
        values, found = (F.normalize(rows[part], dim=1) @ bank).topk(k, dim=1)
        indices[part], similarity[part] = found.numpy(), values.numpy()
    return indices, similarity


def knn_predict(
    train: npt.NDArray[np.float32],
    labels: Labels,
    test: npt.NDArray[np.float32],
    k: int = 1,
    *,
    temperature: float | None = None,
) -> Labels:
    """Class of every test row by a vote of its k neighbours, plain or weighted by exp(similarity / temperature).

    >>> knn_predict(np.eye(2, dtype=np.float32), np.array([7, 9]), np.array([[0.1, 0.9]], dtype=np.float32)).tolist()
    [9]
    """
    found, similarity = neighbours(train, test, k)
    classes, position = np.unique(labels, return_inverse=True)
    votes = np.zeros((len(test), len(classes)))
    # plain votes are broken in favour of the nearest by a weight too small to matter otherwise
    weight = 1 + 1e-6 * similarity if temperature is None else np.exp(similarity.astype(np.float64) / temperature)
    for neighbour in range(k):
        np.add.at(votes, (np.arange(len(test)), position[found[:, neighbour]]), weight[:, neighbour])
    return classes[votes.argmax(1)]
