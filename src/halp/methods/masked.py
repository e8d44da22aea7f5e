"""Masked motion prediction (after MAMP, smaller): hide joint patches, mostly moving ones; predict motion.

No queue, no key encoder, one view, and a decoder of its own. The target of a patch is its motion x(t + 1) −
x(t), standardised to mean 0 and variance 1 within the patch; the loss is the squared error over hidden
patches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from halp.core.config import CheckedSettings, limited
from halp.encoders.transformer import TransformerBlock, TransformerEncoder, persons_present
from halp.methods.base import BuildContext, register_method
from halp.methods.predictive import Predicted, PredictiveMethod, WholeBatch
from halp.skeleton.streams import derive

TARGETS = ("motion", "coordinates")


@dataclass(frozen=True)
class MaskedSettings(CheckedSettings):
    """Masked prediction. Mask and temperature are MAMP's for few tokens; the decoder is sized for a CPU."""

    mask: float = limited(0.8, above=0, below=1)  # share of the tokens that are hidden
    temperature: float = limited(0.8, least=0)  # of the motion-aware mask; 0 hides at random
    decoder_layers: int = limited(1, least=1)
    decoder_heads: int = limited(4, least=1)
    target: str = limited("motion", among=TARGETS)


@register_method("masked", MaskedSettings)
class MaskedMethod(PredictiveMethod):
    """A transformer encoder sees the visible patches; a small decoder predicts the hidden ones."""

    settings: MaskedSettings
    profiled = "halp: masked prediction"
    needs = ("patches", "places", "encode")
    why = "method 'masked' hides tokens"

    def decoder(self, encoder: Any, settings: MaskedSettings, context: BuildContext) -> nn.Module:
        return Decoder(encoder, settings)

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        encoder = cast(TransformerEncoder, self.backbones[name])
        noise = batch.rand(clips.shape[2], self._tokens(encoder, clips)).to(clips.device)
        per_clip, features = self._predict(name, encoder, clips, noise)
        return Predicted({"masked": batch.mean(per_clip)}, features)

    @staticmethod
    def _tokens(encoder: TransformerEncoder, clips: Tensor) -> int:
        return clips.shape[1] // encoder.patch * clips.shape[3]

    def _predict(
        self, name: str, encoder: TransformerEncoder, clips: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Squared error of each clip `(B,)`, averaged over hidden patches, and its mean visible token."""
        present = persons_present(clips)
        # where nobody is there, all zeros count
        present = torch.where(present.any(1, keepdim=True), present, torch.ones_like(present))
        patches = encoder.patches(clips)
        moved = motion_of_patches(patches, encoder.joints)
        score = mask_scores(moved, noise.flatten(0, 1), self.settings.temperature)
        count = max(1, round((1 - self.settings.mask) * patches.shape[1]))
        order = score.argsort(1)
        visible, hidden = order[:, :count], order[:, count:]
        target = self._target(clips, encoder)
        tokens = encoder.encode(patches, visible)
        predicted = self.decoders[name](tokens, visible, encoder.places(patches.shape[1]))
        error = (predicted - target).square().mean(2).gather(1, hidden).mean(1)
        weight = present.flatten().to(error)
        batch = (len(clips), clips.shape[2])
        per_clip = (error * weight).view(batch).sum(1) / weight.view(batch).sum(1)
        features = (tokens.mean(1) * weight[:, None]).view(*batch, -1).sum(1) / weight.view(batch).sum(
            1, keepdim=True
        )
        return per_clip, features.detach()

    @torch.no_grad()
    def _target(self, clips: Tensor, encoder: TransformerEncoder) -> Tensor:
        if self.settings.target == "coordinates":
            return encoder.patches(clips)
        return standardise(encoder.patches(derive(clips, "motion", self.topology)))


class Decoder(nn.Module):
    """Fills the hidden places with one learned token, mixes all of them, and predicts every patch."""

    def __init__(self, encoder: TransformerEncoder, settings: MaskedSettings) -> None:
        super().__init__()
        width = encoder.output_size
        self.enter = nn.Linear(width, width)
        self.hidden_token = nn.Parameter(torch.empty(width))
        nn.init.trunc_normal_(self.hidden_token, std=0.02)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, settings.decoder_heads) for _ in range(settings.decoder_layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, encoder.patch * encoder.coordinates)

    def forward(self, tokens: Tensor, visible: Tensor, places: Tensor) -> Tensor:
        """Predicted patches `(N, tokens, patch·C)` from visible tokens `(N, k, width)` and their indices."""
        x = self.hidden_token.expand(len(tokens), len(places), -1)
        seen = self.enter(tokens).to(x.dtype)  # of lower precision under autocast
        x = x.scatter(1, visible[:, :, None].expand(-1, -1, tokens.shape[2]), seen) + places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@torch.no_grad()
def motion_of_patches(patches: Tensor, joints: int) -> Tensor:
    """Motion of each token `(N, tokens)`: mean absolute difference to the patch before; the first copies."""
    x = patches.unflatten(1, (-1, joints))
    moved = (x[:, 1:] - x[:, :-1]).abs().mean(3)
    if moved.shape[1] == 0:
        return patches.new_zeros(patches.shape[:2])
    return torch.cat([moved[:, :1], moved], dim=1).flatten(1)


@torch.no_grad()
def mask_scores(moved: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """Scores `(N, tokens)`, lowest visible: log-softmax of motion plus Gumbel noise (U(0, 1) given)."""
    gumbel = -torch.log(-torch.log(noise.clamp(1e-6, 1 - 1e-6)))
    if temperature == 0:
        return gumbel
    largest = moved.amax(1, keepdim=True).clamp_min(1e-12)
    return torch.log_softmax(moved / (temperature * largest), dim=1) + gumbel


def standardise(patches: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Every patch with mean 0 and variance 1; a patch that does not move is 0."""
    variance, mean = torch.var_mean(patches, dim=-1, keepdim=True)
    return (patches - mean) / (variance + epsilon).sqrt()
