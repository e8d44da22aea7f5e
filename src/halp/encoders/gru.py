"""The GRU encoder of the paper: whole-sequence kernels, in the paper's words or as the authors' code runs it."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from halp.encoders.recurrence import run_grus
from halp.errors import InputError, choose

DIRECTIONS = ("bidirectional", "causal")
POOLINGS = ("last", "mean", "thirds")
THIRDS = 3


class GRUEncoder(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, 2·hidden)`, three times as many with the pooling `thirds`.

    Every layer has two GRUs whose outputs are concatenated. `bidirectional`: the second reads the sequence backwards.
    `causal`: both read forwards, which is what the authors' frame-by-frame calls of a bidirectional GRU amount to.
    `last` pooling takes each GRU's final state (for a backward GRU that is the one at the first frame), `mean` averages
    over time, `thirds` over the beginning, the middle and the end of the clip, side by side.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int = 1024,
        layers: int = 3,
        direction: str = "bidirectional",
        pooling: str = "last",
        input_norm: bool = True,
    ) -> None:
        super().__init__()
        if min(hidden, layers) < 1:
            raise InputError(f"encoder: hidden = {hidden} and layers = {layers} have to be at least 1")
        self.direction = choose("direction", direction, DIRECTIONS)
        self.pooling = choose("pooling", pooling, POOLINGS)
        self.inputs, self.output_size = inputs, 2 * hidden * (THIRDS if pooling == "thirds" else 1)
        self.input_norm = nn.BatchNorm1d(inputs) if input_norm else None
        widths = [inputs] + [2 * hidden] * (layers - 1)
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.GRU(width, hidden, batch_first=True), nn.GRU(width, hidden, batch_first=True)])
            for width in widths
        )

    def forward(self, clips: Tensor) -> Tensor:
        return self.pool(self.sequence(clips))

    def sequence(self, clips: Tensor) -> Tensor:
        """The feature map before pooling, `(B, T, 2·hidden)`."""
        # time first; joints, coordinates, persons: the order of the authors' weights
        x = clips.permute(1, 0, 3, 4, 2).flatten(2)
        if x.shape[2] != self.inputs:
            raise InputError(
                f"the encoder reads {self.inputs} numbers a frame; clips of shape {tuple(clips.shape)} have {x.shape[2]} "
                "(persons × joints × coordinates); was it trained on another topology?"
            )
        if self.input_norm is not None:
            x = self.input_norm(x.reshape(-1, self.inputs)).view_as(x)
        for layer in self.layers:
            pair = [cast(nn.GRU, gru) for gru in cast(nn.ModuleList, layer)]
            if self.direction == "causal":
                x = torch.cat(run_grus(pair, [x, x]), dim=2)
            else:
                forward, backward = run_grus(pair, [x, x.flip(0)])
                x = torch.cat([forward, backward.flip(0)], dim=2)
        return x.transpose(0, 1)

    def pool(self, x: Tensor) -> Tensor:
        """Reduce a feature map over time."""
        if self.pooling == "mean":
            return x.mean(1)
        if self.pooling == "thirds":
            return nn.functional.adaptive_avg_pool1d(x.transpose(1, 2), THIRDS).transpose(1, 2).flatten(1)
        if self.direction == "causal":
            return x[:, -1]
        half = x.shape[2] // 2
        return torch.cat([x[:, -1, :half], x[:, 0, half:]], dim=1)
