"""Linear evaluation: a linear classifier on frozen, cached features, by the paper's SGD schedule or exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from halp.errors import choose
from halp.progress import Bar

SOLVERS = ("sgd", "exact")


@dataclass(frozen=True)
class LinearSettings:
    """The defaults are the paper's protocol, on features of `crops` random training crops that are computed once.

    `exact` minimises the regularised cross entropy by L-BFGS on standardised features instead.
    """

    solver: str = "sgd"
    crops: int = 4
    epochs: int = 80
    batch_size: int = 64
    learning_rate: float = 0.1
    milestones: tuple[int, ...] = (50, 70)
    penalty: float = 1e-3  # of the exact solver


def fit_linear(
    crops: Sequence[npt.NDArray[np.float32]],
    labels: npt.NDArray[np.int64],
    settings: LinearSettings,
    generator: torch.Generator,
    *,
    progress: bool = True,
) -> nn.Module:
    """Train a linear classifier; `crops` holds the features `(N, F)` of each set of training crops."""
    features = torch.from_numpy(np.stack(crops))
    target = torch.from_numpy(labels)
    classes = int(labels.max()) + 1
    if choose("solver", settings.solver, SOLVERS) == "exact":
        return _fit_exactly(features.flatten(0, 1), target.repeat(len(crops)), classes, settings.penalty)
    return _fit_by_sgd(features, target, classes, settings, generator, progress)


def _fit_by_sgd(
    features: Tensor, target: Tensor, classes: int, settings: LinearSettings, generator: torch.Generator, progress: bool
) -> nn.Module:
    """The paper's schedule; every epoch sees one crop of each clip, drawn anew from the cached ones."""
    layer = nn.Linear(features.shape[2], classes)
    with torch.no_grad():
        layer.weight.normal_(0, 0.01, generator=generator)
        layer.bias.zero_()
    optimiser = torch.optim.SGD(layer.parameters(), lr=settings.learning_rate, momentum=0.9)
    clips = features.shape[1]
    with Bar("linear evaluation", settings.epochs, shown=progress) as bar:
        for epoch in range(settings.epochs):
            rate = settings.learning_rate * 0.1 ** sum(epoch >= milestone for milestone in settings.milestones)
            optimiser.param_groups[0]["lr"] = rate
            crop = torch.randint(len(features), (clips,), generator=generator)
            for rows in torch.randperm(clips, generator=generator).split(settings.batch_size):
                loss = nn.functional.cross_entropy(layer(features[crop[rows], rows]), target[rows])
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
            bar.advance()
    return layer.requires_grad_(False)


class _Standardised(nn.Module):
    def __init__(self, mean: Tensor, scale: Tensor, layer: nn.Linear) -> None:
        super().__init__()
        self.mean, self.scale, self.layer = mean, scale, layer

    def forward(self, features: Tensor) -> Tensor:
        return self.layer((features - self.mean) / self.scale)


def _fit_exactly(features: Tensor, target: Tensor, classes: int, penalty: float) -> nn.Module:
    mean, scale = features.mean(0), features.std(0).clamp_min(1e-6)
    x = (features - mean) / scale
    layer = nn.Linear(x.shape[1], classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimiser = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-6)

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(layer(x), target) + penalty / 2 * layer.weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return _Standardised(mean, scale, layer).requires_grad_(False)


def predict_linear(classifier: nn.Module, features: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Most likely class of every row."""
    with torch.inference_mode():
        return classifier(torch.from_numpy(features)).argmax(1).numpy()
