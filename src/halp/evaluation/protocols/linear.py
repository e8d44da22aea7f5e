"""Protocol `linear`: a classifier on frozen features, by CMD's SGD schedule or by scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError, check_choice
from halp.core.progress import Bar
from halp.core.sampling import generator
from halp.core.schedules import stepped_rate
from halp.evaluation.logistic import LogisticPath
from halp.evaluation.protocol import Features, Predictions, ProtocolContext, register_protocol
from halp.evaluation.protocols.ridge import Fold, group_folds

SOLVERS = ("sgd", "exact")
# of equally good ones the largest is taken
PENALTIES = tuple(float(10.0 ** (half / 2)) for half in range(2, -8, -1))
FOLDS = 3  # over subjects or cameras, to choose a penalty
_CHOSEN_WITH = 5000  # training clips that a penalty is chosen with; of more a part, evenly spaced
SCALES = ("each", "one")
HEADS = ("linear", "mlp")
# Raw coordinates are hundreds of metres-valued columns, on which SGD at rate 0.1 diverges; a baseline with a
# penalty of its own choice is a fair one. They share a unit, so they share one scale: divided by its own
# spread, a joint that hardly moves counts as much as a hand (9 to 19 points less by kNN on three of the four
# Kinect sets).
BASELINE_SETTINGS: dict[str, Any] = {
    "solver": "exact",
    "scale": "one",
    "head": "linear",
    "fresh": False,
    "crops": 0,
    "penalty": 0.0,
}
Crops = Sequence[Features] | Callable[[int], Features]
BuildHead = Callable[[int, torch.Generator], nn.Module]


@dataclass(frozen=True)
class LinearSettings(CheckedSettings):
    """Defaults: CMD's schedule, as in the paper, on features of `crops` random crops, encoded once.

    `fresh` encodes new crops in every epoch instead, as the authors do. `exact` minimises the regularised
    cross entropy by L-BFGS on standardised features. `crops = 0` trains on the central crops that are tested
    on. `head = "mlp"` is the head of the paper's text, a linear layer that of its authors' code
    (docs/fidelity.md).
    """

    solver: str = limited("sgd", among=SOLVERS)
    head: str = limited("linear", among=HEADS)
    hidden: int = limited(512, least=1)  # of an MLP head
    crops: int = limited(4, least=0)
    fresh: bool = False
    epochs: int = limited(80, least=1)
    batch_size: int = limited(64, least=1)
    learning_rate: float = 0.1
    milestones: tuple[int, ...] = (50, 70)
    penalty: float = 1e-2  # of the exact solver; 0: chosen by folds of the training clips
    # of the exact solver: standardise each feature, or all by one scale
    scale: str = limited("each", among=SCALES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver == "exact" and (self.head != "linear" or self.fresh):
            raise InputError("the exact solver is for a linear head on cached crops; choose solver = sgd")


def build_head(kind: str, inputs: int, classes: int, draws: torch.Generator, hidden: int = 512) -> nn.Module:
    """A classifier `(B, inputs)` → `(B, classes)`: one layer (authors' initialisation) or an MLP."""
    last = nn.Linear(inputs if check_choice("head", kind, HEADS) == "linear" else hidden, classes)
    with torch.no_grad():
        last.weight.normal_(0, 0.01, generator=draws)
        last.bias.zero_()
        if kind == "linear":
            return last
        first = nn.Linear(inputs, hidden)
        nn.init.kaiming_uniform_(first.weight, nonlinearity="relu", generator=draws)
        first.bias.zero_()
    return nn.Sequential(first, nn.ReLU(), last)


def fit_linear(
    crops: Crops,
    labels: npt.NDArray[np.int64],
    settings: LinearSettings,
    draws: torch.Generator,
    *,
    classes: int | None = None,
    progress: bool = True,
    build: BuildHead | None = None,
) -> nn.Module:
    """Train a classifier on the features of training crops.

    `crops` holds the features `(N, F)` of each set of crops, or is a function that gives those of an epoch.
    `build` makes another classifier than the settings' head from the number of classes and a generator, for
    SGD.
    """
    target = torch.from_numpy(np.asarray(labels))
    classes = int(labels.max()) + 1 if classes is None else classes
    if callable(crops):
        return _fit_by_sgd(
            lambda n: torch.from_numpy(crops(n)), target, classes, settings, draws, progress, build
        )
    features = torch.from_numpy(np.stack(crops))
    if settings.solver == "exact":
        rows, wanted = features.flatten(0, 1), target.repeat(len(crops))
        return _fit_exactly(rows, wanted, classes, [settings.penalty], settings.scale)[0]
    clips = torch.arange(len(target))

    def draw(epoch: int) -> Tensor:
        if len(features) == 1:
            return features[0]
        return features[torch.randint(len(features), clips.shape, generator=draws), clips]

    return _fit_by_sgd(draw, target, classes, settings, draws, progress, build)


def _fit_by_sgd(
    draw: Callable[[int], Tensor],
    target: Tensor,
    classes: int,
    settings: LinearSettings,
    draws: torch.Generator,
    progress: bool,
    build: BuildHead | None = None,
) -> nn.Module:
    """CMD's schedule; every epoch sees one crop of each clip."""
    head: nn.Module | None = None
    with Bar("linear evaluation", settings.epochs, shown=progress) as bar:
        for epoch in range(settings.epochs):
            features = draw(epoch)
            if head is None:
                if build is None:
                    head = build_head(settings.head, features.shape[1], classes, draws, settings.hidden)
                else:
                    head = build(classes, draws)
                optimiser = torch.optim.SGD(head.parameters(), lr=settings.learning_rate, momentum=0.9)
            optimiser.param_groups[0]["lr"] = stepped_rate(
                settings.learning_rate, epoch, settings.milestones, 0.1
            )
            for rows in torch.randperm(len(target), generator=draws).split(settings.batch_size):
                loss = nn.functional.cross_entropy(head(features[rows]), target[rows])
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
            bar.advance()
    if head is None:
        raise InputError("linear: epochs must be at least 1")
    return head.requires_grad_(False)


class _Standardised(nn.Module):
    def __init__(self, mean: Tensor, scale: Tensor, layer: nn.Linear) -> None:
        super().__init__()
        self.mean, self.scale, self.layer = mean, scale, layer

    def forward(self, features: Tensor) -> Tensor:
        return self.layer((features - self.mean) / self.scale)


def _fit_exactly(
    features: Tensor, target: Tensor, classes: int, penalties: Sequence[float], scale: str = "each"
) -> list[nn.Module]:
    """One classifier per penalty, each started from the one before."""
    # a single clip has no spread; its features are left as wide as they are
    spread = features.std(0).clamp_min(1e-6) if len(features) > 1 else torch.ones(features.shape[1])
    if scale == "one":
        spread = torch.full_like(spread, float(spread.square().mean().sqrt()))
    mean = features.mean(0)
    rows = ((features - mean) / spread).double().numpy()
    path = LogisticPath(rows, target.numpy(), classes, iterations=1000, tolerance=1e-6)
    # the mean cross entropy + penalty / 2 · ‖weights‖²; of two classes there is one vector, halved between them
    vectors = 2 if len(path.there) == 2 else 1
    found: list[nn.Module] = []
    for penalty in penalties:
        layer = nn.Linear(features.shape[1], classes)
        weight, bias = path.fit(vectors / (len(rows) * penalty))
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.copy_(torch.from_numpy(bias))
        found.append(_Standardised(mean, spread, layer).requires_grad_(False))
    return found


def choose_penalty(
    features: Features,
    labels: npt.NDArray[np.int64],
    folds: Sequence[Fold],
    classes: int,
    scale: str = "each",
) -> float:
    """The penalty with the highest cross-validated accuracy of the exact classifier."""
    right = np.zeros(len(PENALTIES))
    for fitted, held_out in folds:
        train, target = torch.from_numpy(features[fitted]), torch.from_numpy(labels[fitted])
        for place, classifier in enumerate(_fit_exactly(train, target, classes, PENALTIES, scale)):
            right[place] += (
                linear_scores(classifier, features[held_out]).argmax(1) == labels[held_out]
            ).sum()
    return PENALTIES[int(right.argmax())]


def linear_scores(classifier: nn.Module, features: Features) -> npt.NDArray[np.float32]:
    """Logits `(N, C)` of every row."""
    with torch.inference_mode():
        return classifier(torch.from_numpy(np.array(features, dtype=np.float32))).numpy()


@register_protocol("linear", LinearSettings, baseline_settings=BASELINE_SETTINGS)
def evaluate_linear(context: ProtocolContext, settings: LinearSettings) -> Predictions:
    """Classify the test clips by a classifier on the frozen features of the training clips."""
    return Predictions(linear_logits(context, settings).argmax(1))


def linear_logits(context: ProtocolContext, settings: LinearSettings) -> npt.NDArray[np.float32]:
    """Train a classifier on the training clips and give its logits `(N, C)` of the test clips."""
    crops: Any
    if settings.fresh:
        crops = partial(context.fresh_crops, "linear epoch")
    else:
        crops = [context.cached_crops(number) for number in range(settings.crops)] or [
            context.features[context.train]
        ]
    if settings.solver == "exact" and not settings.penalty:
        settings = replace(settings, penalty=_chosen_penalty(context, settings.scale))
    draws = generator(context.seed, "linear")
    classifier = fit_linear(
        crops, context.train_labels, settings, draws, classes=context.classes, progress=context.progress
    )
    return linear_scores(classifier, context.features[context.test])


def _chosen_penalty(context: ProtocolContext, scale: str) -> float:
    """Chosen by folds over subjects or cameras, like the split; 1 if there is too little to hold out."""
    step = -(-len(context.train) // _CHOSEN_WITH)
    rows, groups = context.train[::step], context.groups[::step]
    folds = group_folds(groups, FOLDS)
    if not folds:
        return 1.0
    return choose_penalty(context.features[rows], context.labels[rows], folds, context.classes, scale)
