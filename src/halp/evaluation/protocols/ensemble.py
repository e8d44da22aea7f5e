"""The protocol `ensemble`: late fusion of the scores of several encoders, weighted and summed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError, check_choice
from halp.core.sampling import generator
from halp.evaluation.protocol import (
    EncoderEnsemble,
    Features,
    Predictions,
    ProtocolContext,
    register_protocol,
)
from halp.evaluation.protocols.knn import class_similarities
from halp.evaluation.protocols.linear import (
    LinearSettings,
    build_head,
    fit_linear,
    linear_logits,
    linear_scores,
)

BASES = ("linear", "knn", "joint")
FUSIONS = ("sum", "probabilities")
Scores = npt.NDArray[np.floating[Any]]


def fuse(parts: Sequence[Scores], weights: Sequence[float] = (), *, fusion: str = "sum") -> Scores:
    """Weighted sum of the parts' scores `(N, C)`; `probabilities` takes each part's softmax first.

    >>> fuse([np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]])], weights=[1.0, 0.5]).tolist()
    [[1.0, 1.0]]
    """
    weights = list(weights) or [1.0] * len(parts)
    if len(weights) != len(parts):
        raise InputError(f"{len(weights)} weights do not fit {len(parts)} parts; give one per part")
    check_choice("fusion", fusion, FUSIONS)
    from scipy.special import softmax  # slow to import

    total = np.zeros(parts[0].shape, dtype=np.float64)
    for part, weight in zip(parts, weights):
        values = part.astype(np.float64)
        total += weight * (softmax(values, axis=1) if fusion == "probabilities" else values)
    return total


@dataclass(frozen=True)
class EnsembleSettings(CheckedSettings):
    """`base` scores each stream: `linear` by its logits, `knn` by similarity to each class's nearest clip.

    `joint` trains one classifier on all streams at once, the mean of a layer's logits per stream, as
    CrosSCLR's code does. The defaults are CMD's schedule, as in the protocol `linear`; AimCLR and CrosSCLR
    have their own in their tables.
    """

    base: str = limited("linear", among=BASES)
    weights: tuple[float, ...] = ()  # one per member, in their order; all equal if none is given
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
    """Classify test clips by the fused scores of all encoders; metrics are each encoder's own accuracies."""
    group = context.encoder
    if not isinstance(group, EncoderEnsemble):
        group = EncoderEnsemble({group.stream: group})
    members = [replace(context, encoder=encoder, given=None) for _, encoder in group.items()]
    if settings.base == "joint":
        return Predictions(joint_logits(members, linear_settings(settings)).argmax(1))
    parts = [member_scores(member, settings) for member in members]
    alone = [part.argmax(1) == context.labels[context.test] for part in parts]
    metrics = {name: round(100 * float(right.mean()), 4) for (name, _), right in zip(group.items(), alone)}
    return Predictions(fuse(parts, settings.weights, fusion=settings.fusion).argmax(1), metrics)


def member_scores(context: ProtocolContext, settings: EnsembleSettings) -> Scores:
    """The scores of one encoder of an ensemble for the test clips."""
    if settings.base == "knn":
        train, test = context.features[context.train], context.features[context.test]
        return class_similarities(train, context.train_labels, test, classes=context.classes)
    return linear_logits(context, linear_settings(settings))


def linear_settings(settings: EnsembleSettings) -> LinearSettings:
    """The settings of the linear base."""
    of_both = {field.name for field in fields(LinearSettings)} & {field.name for field in fields(settings)}
    return LinearSettings(**{name: getattr(settings, name) for name in of_both})


class MeanOfStreams(nn.Module):
    """A classifier of several streams: features side by side `(B, Σ F)` → mean of a layer's logits each."""

    def __init__(self, widths: Sequence[int], classes: int, draws: torch.Generator) -> None:
        super().__init__()
        self.widths = list(widths)
        self.heads = nn.ModuleList(build_head("linear", width, classes, draws) for width in widths)

    def forward(self, features: Tensor) -> Tensor:
        parts = features.split(self.widths, dim=1)
        return torch.stack([head(part) for head, part in zip(self.heads, parts)]).mean(0)


def joint_logits(members: Sequence[ProtocolContext], settings: LinearSettings) -> Scores:
    """Logits `(N, C)` of the test clips by one classifier that is trained on the features of all members."""
    if settings.solver != "sgd" or settings.head != "linear":
        raise InputError(
            "ensemble: base = 'joint' trains linear layers by SGD; choose solver = sgd and head = linear"
        )
    first = members[0]

    def side_by_side(of: Callable[[ProtocolContext], Features]) -> Features:
        return np.concatenate([of(member) for member in members], axis=1)

    crops = [side_by_side(methodcaller("cached_crops", number)) for number in range(settings.crops)]
    crops = crops or [side_by_side(lambda member: member.features[member.train])]
    widths = [member.features.shape[1] for member in members]
    classifier = fit_linear(
        crops,
        first.train_labels,
        settings,
        generator(first.seed, "linear"),
        classes=first.classes,
        progress=first.progress,
        build=lambda classes, draws: MeanOfStreams(widths, classes, draws),
    )
    return linear_scores(classifier, side_by_side(lambda member: member.features[member.test]))
