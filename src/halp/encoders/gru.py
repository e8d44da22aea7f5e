"""The GRU encoder of the paper: whole-sequence kernels, in the paper's words or as the authors' code runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        self.inputs, self.hidden, self.output_size = inputs, hidden, 2 * hidden * (THIRDS if pooling == "thirds" else 1)
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
        return sequences([self], [clips])[0]

    def frames_first(self, clips: Tensor) -> Tensor:
        """What the first layer reads, `(T, B, inputs)`: joints, coordinates, persons, the order of the authors' weights."""
        x = clips.permute(1, 0, 3, 4, 2).flatten(2)
        if x.shape[2] != self.inputs:
            raise InputError(
                f"the encoder reads {self.inputs} numbers a frame; clips of shape {tuple(clips.shape)} have {x.shape[2]} "
                "(persons × joints × coordinates); was it trained on another topology?"
            )
        return x if self.input_norm is None else self.input_norm(x.reshape(-1, self.inputs)).view_as(x)

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


def sequences(encoders: Sequence[GRUEncoder], clips: Sequence[Tensor]) -> list[Tensor]:
    """Feature maps `(B, T, 2·hidden)` of encoders of one shape, each for its own clips; layer by layer they go together."""
    maps = [encoder.frames_first(x) for encoder, x in zip(encoders, clips)]
    backwards = [encoder.direction == "bidirectional" for encoder in encoders]
    for layers in zip(*(cast(Iterable[Iterable[nn.GRU]], encoder.layers) for encoder in encoders)):
        inputs = [one for x, flip in zip(maps, backwards) for one in (x, x.flip(0) if flip else x)]
        states = run_grus([gru for pair in layers for gru in pair], inputs)
        maps = [
            torch.cat([first, second.flip(0) if flip else second], dim=2)
            for first, second, flip in zip(states[::2], states[1::2], backwards)
        ]
    return [x.transpose(0, 1) for x in maps]


def go_together(encoders: Sequence[nn.Module]) -> bool:
    """Whether encoders are GRUs of one shape and there are cores to take them through time at once.

    The two GRUs of a layer keep two cores busy; on so few, encoders one after the other make better use of the cache.
    """
    grus = [encoder for encoder in encoders if isinstance(encoder, GRUEncoder)]
    shapes = {(len(encoder.layers), encoder.hidden) for encoder in grus}
    return 1 < len(grus) == len(encoders) and len(shapes) == 1 and torch.get_num_threads() > 2


def encode_together(encoders: Sequence[GRUEncoder], clips: Sequence[Tensor]) -> list[Tensor]:
    """Features of several encoders of one shape, each for its own clips."""
    return [encoder.pool(x) for encoder, x in zip(encoders, sequences(encoders, clips))]
