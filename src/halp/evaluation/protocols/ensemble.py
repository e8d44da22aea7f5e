"""The protocol `ensemble`: late fusion of the scores of several encoders, joined by clip name, weighted and summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from halp.config import CheckedSettings, limited
from halp.errors import InputError, check_choice
from halp.evaluation.protocol import EncoderGroup, Predictions, ProtocolContext, register_protocol
from halp.evaluation.protocols.knn import class_similarities
from halp.evaluation.protocols.linear import LinearSettings, linear_logits

BASES = ("linear", "knn")
FUSIONS = ("sum", "probabilities")


@dataclass(frozen=True)
class Scores:
    """What one encoder says of clips: their names `(N,)` and a score per class `(N, C)`, in the same order."""

    names: npt.NDArray[np.str_]
    values: npt.NDArray[np.floating[Any]]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.values) or len(set(self.names.tolist())) != len(self.names):
            raise InputError("scores need one row and one name per clip, and every name once")

    def ordered(self, names: npt.NDArray[np.str_]) -> npt.NDArray[np.floating[Any]]:
        """Rows in the order of these names; a clip that one side lacks is named."""
        place = {name: row for row, name in enumerate(self.names.tolist())}
        lacking = [name for name in names.tolist() if name not in place]
        if lacking or len(names) != len(place):
            odd = lacking or sorted(set(place) - set(names.tolist()))
            raise InputError(
                f"clip '{odd[0]}' is scored by one part of the ensemble only ({len(odd)} such clips); "
                "evaluate all parts on the same split"
            )
        return self.values[[place[name] for name in names.tolist()]]


def fuse(parts: Sequence[Scores], weights: Sequence[float] = (), *, fusion: str = "sum") -> Scores:
    """Weighted sum of the parts' scores, joined by clip name; `probabilities` takes the softmax of each part first.

    >>> a = Scores(np.array(["x", "y"]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    >>> b = Scores(np.array(["y", "x"]), np.array([[0.0, 3.0], [0.0, 2.0]]))
    >>> fuse([a, b]).values.tolist()
    [[1.0, 2.0], [0.0, 4.0]]
    """
    if not parts:
        raise InputError("an ensemble needs at least one part")
    weights = list(weights) or [1.0] * len(parts)
    if len(weights) != len(parts):
        raise InputError(f"{len(weights)} weights do not fit an ensemble of {len(parts)} parts; give one per part")
    check_choice("fusion", fusion, FUSIONS)
    names = parts[0].names
    total = np.zeros(parts[0].values.shape, dtype=np.float64)
    for part, weight in zip(parts, weights):
        values = part.ordered(names).astype(np.float64)
        if values.shape != total.shape:
            raise InputError(f"parts of the ensemble differ in classes: scores {total.shape} and {values.shape}")
        total += weight * (softmax(values, axis=1) if fusion == "probabilities" else values)
    return Scores(names, total)


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
    batch_size: int = 1024
    learning_rate: float = 0.1
    milestones: tuple[int, ...] = (50, 70)
    penalty: float = 1e-2


@register_protocol("ensemble", EnsembleSettings, fuses_encoders=True)
def evaluate_ensemble(context: ProtocolContext, settings: EnsembleSettings) -> Predictions:
    """Classify the test clips by the fused scores of all encoders; the metrics are the accuracies of each alone."""
    group = context.encoder
    if not isinstance(group, EncoderGroup):
        group = EncoderGroup({group.stream: group})
    names, truth = context.store.names[context.test], context.labels[context.test]
    parts = [member_scores(replace(context, encoder=encoder, given=None), settings) for _, encoder in group.items()]
    alone = [part.ordered(names).argmax(1) == truth for part in parts]
    metrics = {name: round(100 * float(right.mean()), 4) for (name, _), right in zip(group.items(), alone)}
    fused = fuse(parts, settings.weights, fusion=settings.fusion).ordered(names)
    return Predictions(fused.argmax(1), metrics)


def member_scores(context: ProtocolContext, settings: EnsembleSettings) -> Scores:
    """What one encoder of an ensemble says of the test clips, by their names."""
    if settings.base == "knn":
        train, test = context.features[context.train], context.features[context.test]
        values: Any = class_similarities(train, context.train_labels, test, classes=context.classes)
    else:
        of_both = {field.name for field in fields(LinearSettings)} & {field.name for field in fields(settings)}
        values = linear_logits(context, LinearSettings(**{name: getattr(settings, name) for name in of_both}))
    return Scores(context.store.names[context.test], values)
