"""The protocol `autoencoder-knn` of P&C: 1-NN on the code of an autoencoder that was trained on the training clips' features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.errors import InputError
from halp.evaluation.context import Predictions, ProtocolContext
from halp.evaluation.features import Features
from halp.evaluation.protocol import register_protocol
from halp.evaluation.protocols.knn import knn_votes
from halp.sampling import generator

DECAY, DECAY_STEPS = 0.95, 50  # the rate falls by this factor after so many steps


@dataclass(frozen=True)
class AutoencoderKnnSettings:
    """The defaults are those of the public code of P&C, which then keeps the best epoch of pre-training on the test set."""

    widths: tuple[int, ...] = (1024, 512, 125)  # the last is the code
    epochs: int = 400
    batch_size: int = 64
    learning_rate: float = 1e-3
    k: int = 1

    def __post_init__(self) -> None:
        if not self.widths or min(*self.widths, self.epochs, self.batch_size, self.k) < 1 or self.learning_rate <= 0:
            raise InputError(
                "autoencoder-knn: widths, epochs, batch_size and k have to be at least 1, the rate above 0"
            )


class Autoencoder(nn.Module):
    """Linear layers with tanh between them down to the code, which has one too, and the same widths back up."""

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
    """An autoencoder of the rows `(N, F)` by their squared error, and that error, mean over the last epoch."""
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
    train, test = (torch.from_numpy(np.array(context.features[part])) for part in (context.train, context.test))
    encode, error = fit_autoencoder(train, settings, draws)
    with torch.no_grad():
        codes: list[Features] = [encode(part).numpy() for part in (train, test)]
    votes = knn_votes(codes[0], context.train_labels, codes[1], settings.k, classes=context.classes)
    return Predictions(votes.argmax(1), {"autoencoder_error": error})
