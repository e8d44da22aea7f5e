"""AS-CAL (Rao et al., Information Sciences 2021): MoCo with a momentum LSTM, whose mean state over time is
both the embedding and the feature. The loss is the core's InfoNCE; what is its own is the encoder, and views
that move one joint to the origin.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from halp.extend import CheckedSettings, Topology, joints_by_frame, limited, register_encoder

DIRECTIONS = {"forward": 1, "bidirectional": 2}  # how many LSTMs a layer has
POOLINGS = ("mean", "last")


@dataclass(frozen=True)
class LSTMSettings(CheckedSettings):
    """Layers of one LSTM each, or of two with `bidirectional`. The defaults are those of AS-CAL."""

    hidden: int = limited(256, least=1)
    layers: int = limited(1, least=1)
    direction: str = limited("forward", among=DIRECTIONS)
    pooling: str = limited("mean", among=POOLINGS)


@register_encoder("lstm", LSTMSettings)
class LSTMEncoder(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, hidden)`, twice that if bidirectional; persons side by side.

    `mean` averages the states of the last layer over time; `last` takes the one at the last frame, of both
    directions. Weights begin as torch's do, as in AS-CAL.
    """

    def __init__(self, settings: LSTMSettings, topology: Topology, persons: int) -> None:
        super().__init__()
        hidden, self.pooling = settings.hidden, settings.pooling
        self.inputs = persons * len(topology) * topology.dimensions
        self.output_size = self.frame_size = hidden * DIRECTIONS[settings.direction]
        self.lstm = nn.LSTM(
            self.inputs, hidden, settings.layers, bidirectional=settings.direction == "bidirectional"
        )

    def forward(self, clips: Tensor) -> Tensor:
        return self.pool(self.sequence(clips))

    def sequence(self, clips: Tensor) -> Tensor:
        """The feature map before pooling, `(B, T, output_size)`."""
        return self.lstm(joints_by_frame(clips, self.inputs))[0].transpose(0, 1)

    def pool(self, x: Tensor) -> Tensor:
        """Reduce a feature map over time."""
        return x.mean(1) if self.pooling == "mean" else x[:, -1]
