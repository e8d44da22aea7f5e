"""An encoder with reduced or no sensitivity to sides: it reads every clip and its mirror image."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from halp.core.errors import check_choice
from halp.encoders.pretrained import PretrainedEncoder
from halp.skeleton import Topology

SIDES = ("matter", "soft", "same")
SOFT = 0.5  # weight of what tells the sides apart


class BothSides(nn.Module):
    """Mean of the features of a clip and its mirror image; `soft` appends half their difference.

    The mirror image has left and right joints exchanged and x negated: clips are turned so that shoulders lie
    along x.
    """

    mirror: Tensor

    def __init__(self, inner: Any, topology: Topology, sides: str) -> None:
        super().__init__()
        self.inner, self.sides = inner, sides
        self.register_buffer("mirror", torch.tensor(topology.mirror), persistent=False)
        self.output_size = int(inner.output_size) * (2 if sides == "soft" else 1)

    def forward(self, clips: Tensor) -> Tensor:
        image = clips[:, :, :, self.mirror]
        own, other = self.inner(clips), self.inner(torch.cat([-image[..., :1], image[..., 1:]], dim=-1))
        mean = (own + other) / 2
        return mean if self.sides == "same" else torch.cat([mean, SOFT * (own - other) / 2], dim=1)


def with_sides(encoder: PretrainedEncoder, sides: str) -> PretrainedEncoder:
    """The encoder for which left and right matter (itself), matter less (`soft`), or do not (`same`)."""
    if check_choice("sides", sides, SIDES) == "matter":
        return encoder
    both = encoder.around(BothSides(encoder.encoder, encoder.topology, sides), encoder.origin)
    both.architecture = encoder.architecture
    return both


def sides_of(encoder: PretrainedEncoder) -> str:
    """Which of the three modes an encoder has."""
    return encoder.encoder.sides if isinstance(encoder.encoder, BothSides) else "matter"


def one_sided(encoder: PretrainedEncoder) -> Any:
    """The network that reads a clip once."""
    return encoder.encoder.inner if isinstance(encoder.encoder, BothSides) else encoder.encoder
