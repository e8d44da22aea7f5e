"""The GRU encoder of the paper: whole-sequence kernels, as in the paper or as in the authors' code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError
from halp.core.initialisation import initialise
from halp.encoders import register_encoder
from halp.encoders.fusion import thirds
from halp.encoders.recurrence import run_grus
from halp.skeleton import Topology

DIRECTIONS = ("bidirectional", "causal")
# How often the width of the feature map comes in the pooled feature.
POOLINGS = {"last": 1, "mean": 1, "max": 1, "mean+max": 2, "thirds": 3, "thirds-max": 3}


@dataclass(frozen=True)
class GRUSettings(CheckedSettings):
    """Two GRUs per layer. The defaults are those of the paper."""

    hidden: int = limited(1024, least=1)  # units of each GRU
    layers: int = limited(3, least=1)
    direction: str = limited("bidirectional", among=DIRECTIONS)
    pooling: str = limited("last", among=POOLINGS)
    input_norm: bool = True
    persons: int = limited(0, least=0)  # the first this many are read; 0: all
    gate_bias: float = 0.0  # of the reset and update gates before training; TensorFlow's cell has 1


def joints_by_frame(clips: Tensor, inputs: int) -> Tensor:
    """Clips as frames `(T, B, inputs)`: joints, coordinates, persons, the order of the authors' weights."""
    x = clips.permute(1, 0, 3, 4, 2).flatten(2)
    if x.shape[2] != inputs:
        raise InputError(
            f"the encoder reads {inputs} numbers per frame; clips of shape {tuple(clips.shape)} have"
            f" {x.shape[2]} (persons × joints × coordinates); was it trained on another topology?"
        )
    return x


class GRUEncoder(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, 2·hidden)`, a multiple with some poolings (`POOLINGS`).

    Every layer has two GRUs whose outputs are concatenated. `bidirectional`: the second reads the sequence
    backwards.
    `causal`: both read forwards, which is what the authors' frame-by-frame calls of a bidirectional GRU
    amount to.
    `last` pooling takes each GRU's final state (for a backward GRU that is the one at the first frame),
    `mean` averages over time, `thirds` over the beginning, the middle and the end of the clip, side by side;
    `max` and `thirds-max` take the maximum over the same frames instead, and `mean+max` both.
    """

    def __init__(self, inputs: int, settings: GRUSettings) -> None:
        """`inputs` are the numbers per frame of the persons that are read."""
        super().__init__()
        hidden, self.inputs = settings.hidden, inputs
        self.persons = settings.persons or None  # of a clip, from the first on, that are read; None: all
        self.direction, self.pooling = settings.direction, settings.pooling
        self.output_size = 2 * hidden * POOLINGS[settings.pooling]
        self.frame_size = 2 * hidden  # of the feature map before pooling
        self.input_norm = nn.BatchNorm1d(inputs) if settings.input_norm else None
        widths = [inputs] + [2 * hidden] * (settings.layers - 1)
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.GRU(width, hidden, batch_first=True), nn.GRU(width, hidden, batch_first=True)])
            for width in widths
        )

    def forward(self, clips: Tensor) -> Tensor:
        return self.pool(self.sequence(clips))

    def sequence(self, clips: Tensor) -> Tensor:
        """The feature map before pooling, `(B, T, 2·hidden)`."""
        x, backwards = self.frames_first(clips), self.direction == "bidirectional"
        for layer in cast(Iterable[Sequence[nn.GRU]], self.layers):
            first, second = run_grus(layer, [x, x.flip(0) if backwards else x])
            x = torch.cat([first, second.flip(0) if backwards else second], dim=2)
        return x.transpose(0, 1)

    def frames_first(self, clips: Tensor) -> Tensor:
        """Input of the first layer, `(T, B, inputs)`."""
        x = joints_by_frame(clips[:, :, : self.persons], self.inputs)
        return x if self.input_norm is None else self.input_norm(x.reshape(-1, self.inputs)).view_as(x)

    def pool(self, x: Tensor) -> Tensor:
        """Reduce a feature map over time."""
        if self.pooling == "mean":
            return x.mean(1)
        if self.pooling == "max":
            return x.amax(1)
        if self.pooling == "mean+max":
            return torch.cat([x.mean(1), x.amax(1)], dim=1)
        if self.pooling in ("thirds", "thirds-max"):
            parts = [x[:, third] for third in thirds(int(x.shape[1]))]
            return torch.cat(
                [part.mean(1) if self.pooling == "thirds" else part.max(1).values for part in parts], dim=1
            )
        if self.direction == "causal":
            return x[:, -1]
        half = x.shape[2] // 2
        return torch.cat([x[:, -1, :half], x[:, 0, half:]], dim=1)


@register_encoder("gru", GRUSettings)
def build_gru(settings: GRUSettings, topology: Topology, persons: int) -> nn.Module:
    """The GRU encoder for all joints of all persons side by side."""
    read = min(settings.persons or persons, persons)
    inputs = read * len(topology) * topology.dimensions
    encoder = initialise(GRUEncoder(inputs, replace(settings, persons=read if read < persons else 0)))
    if settings.gate_bias:
        with torch.no_grad():
            for name, bias in encoder.named_parameters():
                if "bias_ih" in name:
                    bias[: 2 * settings.hidden].fill_(settings.gate_bias)
    return encoder
