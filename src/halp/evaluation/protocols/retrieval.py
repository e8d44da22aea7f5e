"""The protocol `retrieval`: how well training clips of the same class are ranked for a test clip, by cosine similarity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from halp.errors import InputError
from halp.evaluation.protocol import Labels, Predictions, ProtocolContext, register_protocol


def retrieve(
    gallery: npt.NDArray[np.float32],
    gallery_labels: Labels,
    queries: npt.NDArray[np.float32],
    query_labels: Labels,
    *,
    at: Sequence[int] = (1, 5, 10),
    chunk: int = 256,
) -> tuple[dict[str, float], Labels]:
    """Mean average precision and precision among the first k, in per cent, and the index of the nearest clip `(N,)`.

    Queries whose class the gallery lacks have no average precision and are left out of its mean.
    """
    if not at or min(at) < 1:
        raise InputError(f"retrieval: precision is taken among the first clips, at least 1, not {list(at)}")
    bank = F.normalize(torch.from_numpy(np.array(gallery, dtype=np.float32)), dim=1).T
    known = torch.from_numpy(np.asarray(gallery_labels))
    rank = torch.arange(1, len(gallery) + 1, dtype=torch.double)
    precisions: dict[int, list[torch.Tensor]] = {k: [] for k in at}
    averages, nearest = [], []
    for first in range(0, len(queries), chunk):
        rows = F.normalize(torch.from_numpy(np.array(queries[first : first + chunk], dtype=np.float32)), dim=1)
        order = (rows @ bank).argsort(dim=1, descending=True, stable=True)
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


def _per_cent(values: torch.Tensor) -> float:
    return round(100 * float(values.mean()), 4) if len(values) else 0.0


@dataclass(frozen=True)
class RetrievalSettings:
    """Test clips ask for training clips of their class; `at` are the ranks whose precision is taken."""

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
