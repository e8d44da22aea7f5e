"""The LSTM encoder of AS-CAL: all joints of a frame at once, and the mean of the states over time as the feature."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from torch import Tensor, nn

from halp.encoders import register_encoder
from halp.encoders.gru import joints_by_frame
from halp.errors import InputError, choose
from halp.skeleton import Topology

DIRECTIONS = {"forward": 1, "bidirectional": 2}  # how many LSTMs a layer has
POOLINGS = ("mean", "last")


@dataclass(frozen=True)
class LSTMSettings:
    """Layers of one LSTM each, or of two with `bidirectional`. The defaults are those of AS-CAL."""

    hidden: int = 256
    layers: int = 1
    direction: str = "forward"
    pooling: str = "mean"

    def __post_init__(self) -> None:
        if min(self.hidden, self.layers) < 1:
            raise InputError(f"encoder: hidden = {self.hidden} and layers = {self.layers} have to be at least 1")
        choose("direction", self.direction, DIRECTIONS)
        choose("pooling", self.pooling, POOLINGS)


class LSTMEncoder(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, hidden)`, twice as many if bidirectional.

    `mean` averages the states of the last layer over time; `last` takes the one at the last frame, of both directions.
    """

    def __init__(
        self, inputs: int, hidden: int = 256, layers: int = 1, direction: str = "forward", pooling: str = "mean"
    ) -> None:
        super().__init__()
        LSTMSettings(hidden, layers, direction, pooling)  # refuses what is out of range
        self.inputs, self.pooling, self.output_size = inputs, pooling, hidden * DIRECTIONS[direction]
        self.lstm = nn.LSTM(inputs, hidden, layers, bidirectional=direction == "bidirectional")

    def forward(self, clips: Tensor) -> Tensor:
        return self.pool(self.sequence(clips))

    def sequence(self, clips: Tensor) -> Tensor:
        """The feature map before pooling, `(B, T, output_size)`."""
        return self.lstm(joints_by_frame(clips, self.inputs))[0].transpose(0, 1)

    def pool(self, x: Tensor) -> Tensor:
        """Reduce a feature map over time."""
        return x.mean(1) if self.pooling == "mean" else x[:, -1]


@register_encoder("lstm", LSTMSettings)
def build_lstm(settings: LSTMSettings, topology: Topology, persons: int) -> nn.Module:
    """The LSTM encoder for all joints of all persons side by side; weights begin as torch's do, as in AS-CAL."""
    return LSTMEncoder(persons * len(topology) * topology.dimensions, **dataclasses.asdict(settings))
