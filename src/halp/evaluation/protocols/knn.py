"""The protocol `knn`: k nearest neighbours by cosine similarity, exact, block by block; k = 1 as in the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from halp.errors import InputError, choose
from halp.evaluation.context import Labels, Predictions, ProtocolContext
from halp.evaluation.protocol import register_protocol

_TRAIN_BLOCK = 8192


def neighbours(
    train: npt.NDArray[np.float32], test: npt.NDArray[np.float32], k: int = 1, *, chunk: int = 1024
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Indices and cosine similarities `(N, k)` of the nearest training rows of every test row, nearest first.

    Blocks of both sides are compared and only the best k so far are kept, so nothing as large as either side is copied.
    """
    if not 1 <= k <= len(train):
        raise InputError(f"k = {k} neighbours cannot be found among {len(train)} training clips")
    best = torch.full((len(test), k), -torch.inf)
    index = torch.full((len(test), k), -1)
    for first in range(0, len(train), max(_TRAIN_BLOCK, k)):
        bank = _unit(train[first : first + max(_TRAIN_BLOCK, k)]).T
        for start in range(0, len(test), chunk):
            rows = slice(start, start + chunk)
            values, found = _largest(_unit(test[rows]) @ bank, min(k, bank.shape[1]))
            if first == 0 and values.shape[1] == k:
                best[rows], index[rows] = values, found
                continue
            both = torch.cat([best[rows], values], 1)
            best[rows], place = _largest(both, k)
            index[rows] = torch.cat([index[rows], found + first], 1).gather(1, place)
    return index.numpy(), best.numpy()


def _unit(rows: npt.NDArray[np.float32]) -> Tensor:
    # a copy of the block: rows may be a read-only memory map
    return F.normalize(torch.from_numpy(np.array(rows, dtype=np.float32)), dim=1)


def _largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of every row, largest first; a plain maximum is much quicker than a selection of one."""
    if k == 1:
        top, place = values.max(1, keepdim=True)
        return top, place
    top, place = values.topk(k, dim=1)
    return top, place


def knn_votes(
    train: npt.NDArray[np.float32],
    labels: Labels,
    test: npt.NDArray[np.float32],
    k: int = 1,
    *,
    classes: int,
    temperature: float | None = None,
) -> npt.NDArray[np.float64]:
    """Votes `(N, classes)` of the k neighbours, plain or weighted by exp(similarity / temperature)."""
    found, similarity = neighbours(train, test, k)
    votes = np.zeros((len(test), classes))
    # plain votes are broken in favour of the nearest by a weight too small to matter otherwise
    weight = 1 + 1e-6 * similarity if temperature is None else np.exp(similarity.astype(np.float64) / temperature)
    for neighbour in range(k):
        np.add.at(votes, (np.arange(len(test)), labels[found[:, neighbour]]), weight[:, neighbour])
    return votes


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
    classes, position = np.unique(labels, return_inverse=True)
    votes = knn_votes(train, position, test, k, classes=len(classes), temperature=temperature)
    return classes[votes.argmax(1)]


def class_similarities(
    train: npt.NDArray[np.float32], labels: Labels, test: npt.NDArray[np.float32], *, classes: int, chunk: int = 1024
) -> npt.NDArray[np.float32]:
    """Cosine similarity `(N, classes)` to the nearest training row of every class; −1 where a class has none."""
    result = np.full((len(test), classes), -1, dtype=np.float32)
    for label in np.unique(labels):
        _, similarity = neighbours(train[labels == label], test, 1, chunk=chunk)
        result[:, label] = similarity[:, 0]
    return result


@dataclass(frozen=True)
class KnnSettings:
    """k = 1 by cosine similarity is the paper's; a temperature weights votes by exp(similarity / temperature)."""

    k: int = 1
    temperature: float | None = None
    similarity: str = "cosine"

    def __post_init__(self) -> None:
        choose("similarity", self.similarity, ("cosine",))
        if self.temperature is not None and not self.temperature > 0:
            raise InputError(f"knn: temperature = {self.temperature} has to be above 0")


@register_protocol("knn", KnnSettings)
def evaluate_knn(context: ProtocolContext, settings: KnnSettings) -> Predictions:
    """Classify every test clip by a vote of its k nearest training clips."""
    train, test = context.features[context.train], context.features[context.test]
    votes = knn_votes(
        train, context.train_labels, test, settings.k, classes=context.classes, temperature=settings.temperature
    )
    return Predictions(votes.argmax(1))
