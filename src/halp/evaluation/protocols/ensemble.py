"""The protocol `ensemble`: late fusion of the scores of several encoders, weighted and summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError, check_choice
from halp.evaluation.protocol import EncoderGroup, Predictions, ProtocolContext, register_protocol
from halp.evaluation.protocols.knn import class_similarities
from halp.evaluation.protocols.linear import LinearSettings, linear_logits

BASES = ("linear", "knn")
FUSIONS = ("sum", "probabilities")
Scores = npt.NDArray[np.floating[Any]]


def fuse(parts: Sequence[Scores], weights: Sequence[float] = (), *, fusion: str = "sum") -> Scores:
    """Weighted sum of the parts' scores `(N, C)` of the same clips; `probabilities` takes the softmax of each part first.

    >>> fuse([np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]])], weights=[1.0, 0.5]).tolist()
    [[1.0, 1.0]]
    """
    weights = list(weights) or [1.0] * len(parts)
    if len(weights) != len(parts):
        raise InputError(f"{len(weights)} weights do not fit an ensemble of {len(parts)} parts; give one per part")
    check_choice("fusion", fusion, FUSIONS)
    total = np.zeros(parts[0].shape, dtype=np.float64)
    for part, weight in zip(parts, weights):
        values = part.astype(np.float64)
        total += weight * (softmax(values, axis=1) if fusion == "probabilities" else values)
    return total


@dataclass(frozen=True)
class EnsembleSettings(CheckedSettings):
    """`base` scores each stream (logits of a linear classifier, or similarity to the nearest clip of each class)."""

    base: str = limited("linear", among=BASES)
    weights: tuple[float, ...] = ()  # one per member, in their order; all equal where none is given
    fusion: str = limited("sum", among=FUSIONS)
    solver: str = "sgd"  # of the linear base, as are the following
    head: str = "linear"
    hidden: int = 512
    crops: int = 4
    epochs: int = 80
    batch_size: int = 64  # CMD's, as in `linear`
    learning_rate: float = 0.1
    milestones: tuple[int, ...] = (50, 70)
    penalty: float = 1e-2


@register_protocol("ensemble", EnsembleSettings, fuses_encoders=True)
def evaluate_ensemble(context: ProtocolContext, settings: EnsembleSettings) -> Predictions:
    """Classify the test clips by the fused scores of all encoders; the metrics are the accuracies of each alone."""
    group = context.encoder
    if not isinstance(group, EncoderGroup):
        group = EncoderGroup({group.stream: group})
    parts = [member_scores(replace(context, encoder=encoder, given=None), settings) for _, encoder in group.items()]
    alone = [part.argmax(1) == context.labels[context.test] for part in parts]
    metrics = {name: round(100 * float(right.mean()), 4) for (name, _), right in zip(group.items(), alone)}
    return Predictions(fuse(parts, settings.weights, fusion=settings.fusion).argmax(1), metrics)


def member_scores(context: ProtocolContext, settings: EnsembleSettings) -> Scores:
    """What one encoder of an ensemble says of the test clips."""
    if settings.base == "knn":
        train, test = context.features[context.train], context.features[context.test]
        return class_similarities(train, context.train_labels, test, classes=context.classes)
    of_both = {field.name for field in fields(LinearSettings)} & {field.name for field in fields(settings)}
    return linear_logits(context, LinearSettings(**{name: getattr(settings, name) for name in of_both}))
