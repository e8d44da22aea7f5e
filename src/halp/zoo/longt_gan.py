"""LongT GAN (Zheng et al., AAAI 2018): fill hidden frames of a clip from its code, so well that a
discriminator takes the filled clip for a true one. No code of it is public; the sizes are ours.

Published code alternates between two optimisers. Here both sides move in the same step by one optimiser: the
discriminator sees the filled clip without gradient to what filled it, and what filled it sees a discriminator
whose weights are constant. The gradients are those of the two losses apart; only the discriminator that a
step plays against is one update older.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.extend import (
    BuildContext,
    CheckedSettings,
    GRUStack,
    Predicted,
    PredictiveMethod,
    WholeBatch,
    initialise,
    limited,
    register_method,
)
from halp.losses import squared_error


def discriminator_loss(true: Tensor, made: Tensor) -> Tensor:
    """−log σ(D(true)) − log(1 − σ(D(made))): large logits for true clips, small ones for made; `(B,)`.

    >>> import torch
    >>> [round(value, 4) for value in discriminator_loss(torch.tensor([0.0, 9.0]), torch.tensor([0.0, -9.0])).tolist()]
    [1.3863, 0.0002]
    """
    return F.softplus(-true) + F.softplus(made)


def fooling_loss(made: Tensor) -> Tensor:
    """−log σ(D(made)), the non-saturating loss of the generator: `(B,)`.

    >>> import torch
    >>> round(float(fooling_loss(torch.tensor(0.0))), 4)
    0.6931
    """
    return F.softplus(-made)


ENCODED = ("whole", "masked")


@dataclass(frozen=True)
class LongTGANSettings(CheckedSettings):
    """None of these numbers is public: they are ours."""

    mask: float = limited(0.5, above=0, below=1)  # share of the frames that are hidden from the decoder
    # what the encoder reads: the whole clip, or only what the decoder sees, too
    encoded: str = limited("whole", among=ENCODED)
    width: int = limited(256, least=1)  # units of the decoder
    layers: int = limited(1, least=1)
    discriminator: int = limited(128, least=1)  # units of the discriminator
    # weight of fooling the discriminator beside the squared error
    adversarial: float = limited(0.01, least=0)

    @property
    def weights(self) -> dict[str, float]:
        return {"fooling": self.adversarial}


@register_method("longt-gan", LongTGANSettings)
class LongTGANMethod(PredictiveMethod):
    """The code of a clip is its features; the decoder gets it with every frame."""

    settings: LongTGANSettings

    def decoder(self, encoder: Any, settings: LongTGANSettings, context: BuildContext) -> nn.Module:
        return initialise(Inpainter(context.numbers_per_frame, encoder.output_size, settings))

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        parts = cast(Inpainter, self.decoders[name])
        hidden = batch.some_frames(clips.shape[1], self.settings.mask).to(clips.device)
        masked = clips.masked_fill(hidden[:, :, None, None, None], 0)
        features = self.backbones[name](clips if self.settings.encoded == "whole" else masked)
        frames = clips.flatten(2)
        decoded = parts.decode(masked.flatten(2), features)
        filled = torch.where(hidden[:, :, None], decoded, frames)
        true, fake = parts.discriminate(frames), parts.discriminate(filled.detach())
        with constant(parts.discriminator):
            judged = parts.discriminate(filled)
        losses = {
            "frames": batch.mean(squared_error(decoded, frames, hidden)),
            "fooling": batch.mean(fooling_loss(judged)),
            "discriminator": batch.mean(discriminator_loss(true, fake)),
        }
        right = batch.mean(((true > 0).to(true) + (fake < 0).to(fake)) / 2)
        return Predicted(losses, features, {"discriminator_accuracy": right})


class Inpainter(nn.Module):
    """A GRU that fills frames, and the GRU that judges the result."""

    def __init__(self, numbers: int, code: int, settings: LongTGANSettings) -> None:
        super().__init__()
        self.decoder = GRUStack(numbers + code, settings.width, settings.layers)
        self.out = nn.Linear(settings.width, numbers)
        self.discriminator = nn.ModuleDict(
            {"gru": GRUStack(numbers, settings.discriminator), "out": nn.Linear(settings.discriminator, 1)}
        )

    def decode(self, masked: Tensor, code: Tensor) -> Tensor:
        """Frames `(B, T, N)` from those that can be seen and the code `(B, F)`."""
        given = torch.cat([masked, code[:, None].expand(-1, masked.shape[1], -1)], dim=2)
        return self.out(self.decoder(given))

    def discriminate(self, frames: Tensor) -> Tensor:
        """Logits `(B,)`, large for clips that seem true, from the last state."""
        return self.discriminator["out"](self.discriminator["gru"](frames)[:, -1])[:, 0]


@contextmanager
def constant(module: nn.Module) -> Iterator[None]:
    """In this context the module's weights are constant; gradients flow through to its input."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
