"""How weights begin: the authors' rule, for encoders and projection heads alike."""

from __future__ import annotations

from torch import nn


def initialise(module: nn.Module) -> nn.Module:
    """Every weight matrix Xavier-uniform, the rest as torch does."""
    for parameter in module.parameters():
        if parameter.ndim == 2:
            nn.init.xavier_uniform_(parameter)
    return module
