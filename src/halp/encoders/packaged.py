"""An encoder that knows what it was trained on: topology, stream, persons, frames and normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from halp.errors import InputError
from halp.skeleton import Topology
from halp.views import derive


class PackagedEncoder(nn.Module):
    """Joint clips `(B, T, P, V, C)` → features `(B, F)`; it derives its own stream. Fewer persons are filled with zeros."""

    def __init__(
        self,
        encoder: Any,
        topology: Topology,
        *,
        stream: str = "joint",
        persons: int = 2,
        frames: int = 64,
        normalisation: Sequence[str] = (),
        origin: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.topology, self.stream, self.persons, self.frames = topology, stream, persons, frames
        self.normalisation = list(normalisation)
        self.origin = dict(origin or {})

    @property
    def output_size(self) -> int:
        return int(self.encoder.output_size)

    def forward(self, clips: Tensor) -> Tensor:
        expected = (len(self.topology), self.topology.dimensions)
        if clips.ndim != 5 or tuple(clips.shape[3:]) != expected or clips.shape[2] > self.persons:
            raise InputError(
                f"this encoder takes clips (batch, frames, persons ≤ {self.persons}, joints = {expected[0]}, coordinates = "
                f"{expected[1]}) of topology '{self.topology.name}', not a tensor of shape {tuple(clips.shape)}; "
                "map the clips onto that topology by joint name first"
            )
        if clips.shape[2] < self.persons:
            clips = nn.functional.pad(clips, (0, 0, 0, 0, 0, self.persons - clips.shape[2]))
        return self.encoder(derive(clips, self.stream, self.topology))
