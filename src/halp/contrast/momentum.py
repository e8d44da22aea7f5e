"""The query encoder and its momentum twin."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.encoders import initialise


class Branch(nn.Module):
    """Encoder and projector: clips `(B, T, P, V, C)` → unit vectors `(B, dimension)`."""

    def __init__(self, encoder: Any, dimension: int = 128) -> None:
        super().__init__()
        self.encoder = encoder
        width = encoder.output_size
        self.projector = initialise(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, dimension)))

    def forward(self, clips: Tensor) -> Tensor:
        # float32 on the sphere, whatever precision the encoder runs in
        return F.normalize(self.projector(self.encoder(clips)).float(), dim=1)


class MomentumPair(nn.Module):
    """Two equal branches; the key branch follows the query branch by a moving average of its parameters.

    BatchNorm statistics are no parameters: each branch keeps those of its own forward passes.
    """

    def __init__(self, query: Branch, momentum: float = 0.999) -> None:
        super().__init__()
        self.query = query
        self.key = copy.deepcopy(query).requires_grad_(False)
        self.momentum = momentum

    @torch.no_grad()
    def follow(self) -> None:
        """Move the key parameters towards the query's: k ← m·k + (1 − m)·q, all tensors in one call."""
        keys = [parameter.data for parameter in self.key.parameters()]
        queries = [parameter.data for parameter in self.query.parameters()]
        torch._foreach_lerp_(keys, queries, 1 - self.momentum)
