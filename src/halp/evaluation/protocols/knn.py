"""Protocols by cosine similarity: `knn` (exact; k = 1 in the paper), `retrieval`, `autoencoder-knn`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError
from halp.core.sampling import generator
from halp.evaluation.protocol import Features, Labels, Predictions, ProtocolContext, register_protocol

_TRAIN_BLOCK = 8192


def neighbours(
    train: npt.NDArray[np.float32], test: npt.NDArray[np.float32], k: int = 1, *, chunk: int = 1024
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Indices and cosine similarities `(N, k)` of the nearest training rows of every test row, nearest first.

    Blocks of both sides are compared and only the best k so far are kept, so nothing as large as either side
    is copied.
    """
    if not 1 <= k <= len(train):
        raise InputError(f"k = {k} neighbours cannot be found among {len(train)} training clips")
    best = torch.full((len(test), k), -torch.inf)
    index = torch.full((len(test), k), -1)
    for first in range(0, len(train), max(_TRAIN_BLOCK, k)):
        bank = _unit(train[first : first + max(_TRAIN_BLOCK, k)]).T
        for start in range(0, len(test), chunk):
            rows = slice(start, start + chunk)
            values, places = _largest(_unit(test[rows]) @ bank, min(k, bank.shape[1]))
            if first == 0 and values.shape[1] == k:
                best[rows], index[rows] = values, places
                continue
            both = torch.cat([best[rows], values], 1)
            best[rows], place = _largest(both, k)
            index[rows] = torch.cat([index[rows], places + first], 1).gather(1, place)
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
    nearest, similarity = neighbours(train, test, k)
    votes = np.zeros((len(test), classes))
    # plain votes are broken in favour of the nearest by a weight too small to matter otherwise
    weight = (
        1 + 1e-6 * similarity if temperature is None else np.exp(similarity.astype(np.float64) / temperature)
    )
    for neighbour in range(k):
        np.add.at(votes, (np.arange(len(test)), labels[nearest[:, neighbour]]), weight[:, neighbour])
    return votes


def knn_predict(
    train: npt.NDArray[np.float32],
    labels: Labels,
    test: npt.NDArray[np.float32],
    k: int = 1,
    *,
    temperature: float | None = None,
) -> Labels:
    """Class of every test row by its k neighbours' vote, plain or weighted by exp(similarity / temperature).

    >>> knn_predict(np.eye(2, dtype=np.float32), np.array([7, 9]), np.array([[0.1, 0.9]], dtype=np.float32)).tolist()
    [9]
    """
    classes, position = np.unique(labels, return_inverse=True)
    votes = knn_votes(train, position, test, k, classes=len(classes), temperature=temperature)
    return classes[votes.argmax(1)]


def class_similarities(
    train: npt.NDArray[np.float32],
    labels: Labels,
    test: npt.NDArray[np.float32],
    *,
    classes: int,
    chunk: int = 1024,
) -> npt.NDArray[np.float32]:
    """Cosine similarity `(N, classes)` to the nearest training row of each class; −1 if it has none."""
    result = np.full((len(test), classes), -1, dtype=np.float32)
    for label in np.unique(labels):
        _, similarity = neighbours(train[labels == label], test, 1, chunk=chunk)
        result[:, label] = similarity[:, 0]
    return result


@dataclass(frozen=True)
class KnnSettings(CheckedSettings):
    """k = 1 by cosine similarity is the paper's; votes are weighted by exp(similarity / temperature)."""

    k: int = 1
    temperature: float | None = limited(None, above=0)
    similarity: str = limited("cosine", among=("cosine",))


@register_protocol("knn", KnnSettings)
def evaluate_knn(context: ProtocolContext, settings: KnnSettings) -> Predictions:
    """Classify every test clip by a vote of its k nearest training clips."""
    train, test = context.features[context.train], context.features[context.test]
    votes = knn_votes(
        train,
        context.train_labels,
        test,
        settings.k,
        classes=context.classes,
        temperature=settings.temperature,
    )
    return Predictions(votes.argmax(1))


def retrieve(
    gallery: npt.NDArray[np.float32],
    gallery_labels: Labels,
    queries: npt.NDArray[np.float32],
    query_labels: Labels,
    *,
    at: Sequence[int] = (1, 5, 10),
    chunk: int = 256,
) -> tuple[dict[str, float], Labels]:
    """Mean average precision, precision among the first k (per cent), and the nearest clips `(N,)`.

    Queries whose class the gallery lacks have no average precision and are left out of its mean.
    """
    if not at or min(at) < 1:
        raise InputError(f"retrieval: precision is computed at ranks of at least 1, not {list(at)}")
    bank = _unit(gallery).T
    known = torch.from_numpy(np.asarray(gallery_labels))
    rank = torch.arange(1, len(gallery) + 1, dtype=torch.double)
    precisions: dict[int, list[Tensor]] = {k: [] for k in at}
    averages, nearest = [], []
    for first in range(0, len(queries), chunk):
        order = (_unit(queries[first : first + chunk]) @ bank).argsort(dim=1, descending=True, stable=True)
        wanted = torch.from_numpy(np.asarray(query_labels[first : first + chunk]))
        right = (known[order] == wanted[:, None]).double()
        hits = right.cumsum(1)
        total = hits[:, -1]
        averages.append(((right * hits / rank).sum(1) / total)[total > 0])
        for k in at:
            reach = min(k, len(gallery))
            precisions[k].append(hits[:, reach - 1] / reach)
        nearest.append(order[:, 0])
    metrics = {"map": _per_cent(torch.cat(averages))}
    metrics |= {f"precision@{k}": _per_cent(torch.cat(values)) for k, values in precisions.items()}
    return metrics, torch.cat(nearest).numpy()


def _per_cent(values: Tensor) -> float:
    return round(100 * float(values.mean()), 4) if len(values) else 0.0


@dataclass(frozen=True)
class RetrievalSettings:
    """Test clips ask for training clips of their class; `at` are the ranks at which precision is computed."""

    at: tuple[int, ...] = (1, 5, 10)


@register_protocol("retrieval", RetrievalSettings)
def evaluate_retrieval(context: ProtocolContext, settings: RetrievalSettings) -> Predictions:
    """Rank the training clips for every test clip; the predicted class is that of the nearest."""
    labels, features = context.labels, context.features
    metrics, nearest = retrieve(
        features[context.train],
        labels[context.train],
        features[context.test],
        labels[context.test],
        at=settings.at,
    )
    return Predictions(labels[context.train][nearest], metrics)


DECAY, DECAY_STEPS = 0.95, 50  # the rate falls by this factor after this many steps


@dataclass(frozen=True)
class AutoencoderKnnSettings(CheckedSettings):
    """Defaults of the public code of P&C, which then keeps the best epoch of pre-training on the test set."""

    widths: tuple[int, ...] = limited((1024, 512, 125), least=1)  # the last is the code
    epochs: int = limited(400, least=1)
    batch_size: int = limited(64, least=1)
    learning_rate: float = limited(1e-3, above=0)
    k: int = limited(1, least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.widths:
            raise InputError("autoencoder-knn: widths = [] leaves no code; name at least one")


class Autoencoder(nn.Module):
    """Linear layers with tanh in between down to the code (with tanh), and the same widths back up."""

    def __init__(self, widths: tuple[int, ...], draws: torch.Generator) -> None:
        super().__init__()
        self.encode = nn.Sequential(*_layers(widths))
        self.decode = nn.Sequential(*list(_layers(widths[::-1]))[:-1])
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter, generator=draws)
            else:
                nn.init.zeros_(parameter)

    def forward(self, features: Tensor) -> Tensor:
        return self.decode(self.encode(features))


def _layers(widths: tuple[int, ...]) -> Iterator[nn.Module]:
    for before, after in pairwise(widths):
        yield nn.Linear(before, after)
        yield nn.Tanh()


def fit_autoencoder(
    features: Tensor, settings: AutoencoderKnnSettings, draws: torch.Generator
) -> tuple[nn.Module, float]:
    """An autoencoder of the rows `(N, F)` by squared error, and that error, averaged over the last epoch."""
    model = Autoencoder((features.shape[1], *settings.widths), draws)
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, DECAY_STEPS, DECAY)
    errors: list[float] = []
    with torch.enable_grad():
        for _ in range(settings.epochs):
            errors = []
            for rows in torch.randperm(len(features), generator=draws).split(settings.batch_size):
                error = F.mse_loss(model(features[rows]), features[rows])
                optimiser.zero_grad()
                error.backward()
                optimiser.step()
                schedule.step()
                errors.append(error.item())
    return model.encode.eval(), float(np.mean(errors))


@register_protocol("autoencoder-knn", AutoencoderKnnSettings)
def evaluate_autoencoder_knn(context: ProtocolContext, settings: AutoencoderKnnSettings) -> Predictions:
    """Classify every test clip by its nearest training clips, by the cosine of the autoencoder's codes."""
    draws = generator(context.seed, "autoencoder")
    train, test = (
        torch.from_numpy(np.array(context.features[part])) for part in (context.train, context.test)
    )
    encode, error = fit_autoencoder(train, settings, draws)
    with torch.no_grad():
        codes: list[Features] = [encode(part).numpy() for part in (train, test)]
    votes = knn_votes(codes[0], context.train_labels, codes[1], settings.k, classes=context.classes)
    return Predictions(votes.argmax(1), {"autoencoder_error": error})
