"""P&C (Predict & Cluster; Su et al., CVPR 2020): encode a clip to one state; a weak decoder restores it.

A decoder that learns well could do without a good state, so that P&C holds something of it back: the state
that it starts every frame from (`fixed-state`, FS) or its recurrent weights (`fixed-weights`, FW). The state
is what is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.extend import (
    BuildContext,
    CheckedSettings,
    Predicted,
    PredictiveMethod,
    WholeBatch,
    initialise,
    limited,
    register_method,
)


def frame_distance(found: Tensor, target: Tensor) -> Tensor:
    """P&C: absolute differences summed over the numbers of a frame, mean over frames; `(B, T, N)` → `(B,)`.

    >>> frame_distance(torch.zeros(1, 2, 3), torch.tensor([[[1.0, -1.0, 0.0], [2.0, 0.0, 0.0]]])).tolist()
    [2.0]
    """
    return (found - target).abs().sum(2).mean(1)


DECODERS = ("fixed-state", "fixed-weights", "free")
TARGETS = ("same", "next")


@dataclass(frozen=True)
class PredictClusterSettings(CheckedSettings):
    """`free` trains the whole decoder, as the public code does where it means to fix the weights."""

    decoder: str = limited("fixed-state", among=DECODERS)
    # what frame t of the decoder is compared with: frame t, or the next as in the authors' NTU code
    target: str = limited("same", among=TARGETS)


@register_method("predict-cluster", PredictClusterSettings)
class PredictClusterMethod(PredictiveMethod):
    """The features of a clip are the decoder's state; it decodes the persons that the encoder reads."""

    settings: PredictClusterSettings

    def decoder(self, encoder: Any, settings: PredictClusterSettings, context: BuildContext) -> nn.Module:
        numbers = context.numbers_per_frame // context.persons * (_persons_read(encoder) or context.persons)
        if settings.decoder == "fixed-state":
            return initialise(FixedStateDecoder(numbers, encoder.output_size))
        return initialise(
            FreeRunningDecoder(numbers, encoder.output_size, fixed=settings.decoder == "fixed-weights")
        )

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        encoder = self.backbones[name]
        features, frames = encoder(clips), clips[:, :, : _persons_read(encoder)].flatten(2)
        later = int(self.settings.target == "next")
        decoded = self.decoders[name](features, frames[:, : len(frames[0]) - later])
        return Predicted({"frames": batch.mean(frame_distance(decoded, frames[:, later:]))}, features)


def _persons_read(encoder: nn.Module) -> int | None:
    """How many persons of a clip, from the first on, an encoder reads; None for all."""
    persons: int | None = getattr(encoder, "persons", None)
    return persons


class FixedStateDecoder(nn.Module):
    """FS: x̂(t) = x̂(t − 1) + W·GRU(x̂(t − 1), state) from the true first frame, with a fixed state."""

    def __init__(self, numbers: int, width: int) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(numbers, width), nn.Linear(width, numbers)

    def forward(self, state: Tensor, frames: Tensor) -> Tensor:
        """Predicted frames `(B, T, N)`; the true ones give their number and the first of them."""
        # of the gates; the same for every frame
        share = F.linear(state, self.cell.weight_hh, self.cell.bias_hh)
        x, decoded = frames[:, 0], []
        for _ in range(frames.shape[1]):
            x = x + self.out(self._next(x, state, share))
            decoded.append(x)
        return torch.stack(decoded, dim=1)

    def _next(self, x: Tensor, state: Tensor, share: Tensor) -> Tensor:
        (r_state, z_state, n_state), given = (
            share.chunk(3, 1),
            F.linear(x, self.cell.weight_ih, self.cell.bias_ih),
        )
        r_input, z_input, n_input = given.chunk(3, 1)
        new = torch.tanh(n_input + torch.sigmoid(r_input + r_state) * n_state)
        return torch.lerp(new, state.to(new.dtype), torch.sigmoid(z_input + z_state))


class FreeRunningDecoder(nn.Module):
    """A GRU from the encoder's state, without input; FW: its weights stay as initialised."""

    def __init__(self, numbers: int, width: int, fixed: bool) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(numbers, width, batch_first=True), nn.Linear(width, numbers)
        self.gru.requires_grad_(not fixed)

    def forward(self, state: Tensor, frames: Tensor) -> Tensor:
        """Predicted frames `(B, T, N)`; of the true ones only the shape counts."""
        states, _ = self.gru(torch.zeros_like(frames), state[None].contiguous())
        return self.out(states)
