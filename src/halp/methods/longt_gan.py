"""LongT GAN: fill hidden frames of a clip from its code, so well that a discriminator takes the filled clip for a true one.

Published code alternates between two optimisers. Here both sides move in the same step by one optimiser: the discriminator
sees the filled clip without gradient to what filled it, and what filled it sees a discriminator whose weights are constant.
The gradients are those of the two losses apart; only the discriminator that a step plays against is one update older.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from halp.encoders.recurrence import GRUStack
from halp.errors import InputError, choose
from halp.initialisation import initialise
from halp.losses.adversarial import discriminator_loss, fooling_loss
from halp.losses.reconstruction import squared_error
from halp.methods.base import BuildContext, register_method
from halp.methods.predictive import Predicted, PredictiveMethod, PredictiveSettings, WholeBatch, refuse_pieces

ENCODED = ("whole", "masked")


@dataclass(frozen=True)
class LongTGANSettings(PredictiveSettings):
    """None of these numbers is public: they are ours."""

    mask: float = 0.5  # share of the frames that are hidden from the decoder
    encoded: str = "whole"  # what the encoder reads: the whole clip, or only what the decoder sees, too
    width: int = 256  # units of the decoder
    layers: int = 1
    discriminator: int = 128  # units of the discriminator
    adversarial: float = 0.01  # weight of fooling the discriminator beside the squared error

    def __post_init__(self) -> None:
        if not 0 < self.mask < 1:
            raise InputError(f"longt-gan: mask = {self.mask} has to lie in (0, 1)")
        if min(self.width, self.layers, self.discriminator) < 1 or self.adversarial < 0:
            raise InputError(
                f"longt-gan: width, layers and discriminator have to be at least 1 and adversarial = {self.adversarial} "
                "not negative"
            )
        choose("encoded", self.encoded, ENCODED)

    @property
    def weights(self) -> dict[str, float]:
        return {"fooling": self.adversarial}


class LongTGANMethod(PredictiveMethod):
    """The code of a clip is its features; the decoder gets it with every frame."""

    settings: LongTGANSettings

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        parts = cast(Inpainter, self.decoders[name])
        hidden = batch.some_frames(clips.shape[1], self.settings.mask).to(clips.device)
        masked = clips.masked_fill(hidden[:, :, None, None, None], 0)
        features = self.backbones[name](clips if self.settings.encoded == "whole" else masked)
        frames = clips.flatten(2)
        found = parts.decode(masked.flatten(2), features)
        filled = torch.where(hidden[:, :, None], found, frames)
        true, made = parts.discriminate(frames), parts.discriminate(filled.detach())
        with constant(parts.discriminator):
            judged = parts.discriminate(filled)
        losses = {
            "frames": batch.mean(squared_error(found, frames, hidden)),
            "fooling": batch.mean(fooling_loss(judged)),
            "discriminator": batch.mean(discriminator_loss(true, made)),
        }
        right = batch.mean(((true > 0).to(true) + (made < 0).to(made)) / 2)
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
    """What is computed inside treats the weights of a module as constants; gradients pass through to its input."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


@register_method("longt-gan", LongTGANSettings, check=lambda _, recipe: refuse_pieces(recipe))
def build_longt_gan(settings: LongTGANSettings, context: BuildContext) -> LongTGANMethod:
    """LongT GAN in every stream of the recipe, with any encoder."""
    parts = context.build_pairs(
        lambda encoder: initialise(Inpainter(context.numbers_per_frame, encoder.output_size, settings))
    )
    return LongTGANMethod(*parts, settings, context.topology)
