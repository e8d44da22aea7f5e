"""P&C (Predict & Cluster): encode a clip into one state, decode the clip from it with a decoder that is kept weak.

A decoder that learns well could do without a good state, so that P&C holds something of it back: the state that it starts
every frame from (`fixed-state`, FS) or its recurrent weights (`fixed-weights`, FW). The state is what is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.errors import choose
from halp.initialisation import initialise
from halp.losses.reconstruction import frame_distance
from halp.methods.base import BuildContext, register_method
from halp.methods.predictive import Predicted, PredictiveMethod, PredictiveSettings, WholeBatch, refuse_pieces

DECODERS = ("fixed-state", "fixed-weights", "free")


@dataclass(frozen=True)
class PredictClusterSettings(PredictiveSettings):
    """`free` trains all of the decoder, which is what the public code does where it means to fix the weights."""

    decoder: str = "fixed-state"

    def __post_init__(self) -> None:
        choose("decoder", self.decoder, DECODERS)


class PredictClusterMethod(PredictiveMethod):
    """The features of a clip are the decoder's state."""

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        features, frames = self.backbones[name](clips), clips.flatten(2)
        found = self.decoders[name](features, frames)
        return Predicted({"frames": batch.mean(frame_distance(found, frames))}, features)


class FixedStateDecoder(nn.Module):
    """FS: x̂(t) = x̂(t − 1) + W·GRU(x̂(t − 1), state) from the first true frame on, always with the encoder's state."""

    def __init__(self, numbers: int, width: int) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(numbers, width), nn.Linear(width, numbers)

    def forward(self, state: Tensor, frames: Tensor) -> Tensor:
        """Predicted frames `(B, T, N)`; the true ones give their number and the first of them."""
        share = F.linear(state, self.cell.weight_hh, self.cell.bias_hh)  # of the gates; the same for every frame
        x, found = frames[:, 0], []
        for _ in range(frames.shape[1]):
            x = x + self.out(self._next(x, state, share))
            found.append(x)
        return torch.stack(found, dim=1)

    def _next(self, x: Tensor, state: Tensor, share: Tensor) -> Tensor:
        (r_state, z_state, n_state), given = share.chunk(3, 1), F.linear(x, self.cell.weight_ih, self.cell.bias_ih)
        r_input, z_input, n_input = given.chunk(3, 1)
        new = torch.tanh(n_input + torch.sigmoid(r_input + r_state) * n_state)
        return torch.lerp(new, state.to(new.dtype), torch.sigmoid(z_input + z_state))


class FreeRunningDecoder(nn.Module):
    """A GRU that starts from the encoder's state and reads nothing; FW: its weights stay as they were drawn."""

    def __init__(self, numbers: int, width: int, fixed: bool) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(numbers, width, batch_first=True), nn.Linear(width, numbers)
        self.gru.requires_grad_(not fixed)

    def forward(self, state: Tensor, frames: Tensor) -> Tensor:
        """Predicted frames `(B, T, N)`; of the true ones only the shape counts."""
        states, _ = self.gru(torch.zeros_like(frames), state[None].contiguous())
        return self.out(states)


def _decoder(kind: str, numbers: int, width: int) -> nn.Module:
    if kind == "fixed-state":
        return initialise(FixedStateDecoder(numbers, width))
    return initialise(FreeRunningDecoder(numbers, width, fixed=kind == "fixed-weights"))


@register_method("predict-cluster", PredictClusterSettings, check=lambda _, recipe: refuse_pieces(recipe))
def build_predict_cluster(settings: PredictClusterSettings, context: BuildContext) -> PredictClusterMethod:
    """P&C in every stream of the recipe, with any encoder: the decoder is as wide as its features."""
    parts = context.build_pairs(
        lambda encoder: _decoder(settings.decoder, context.numbers_per_frame, encoder.output_size)
    )
    return PredictClusterMethod(*parts, settings, context.topology)
