"""Weight initialisation: the authors' for encoders and projection heads, and ST-GCN's."""

from __future__ import annotations

from torch import nn


def initialise(module: nn.Module) -> nn.Module:
    """Every weight matrix Xavier-uniform, the rest as torch does."""
    for parameter in module.parameters():
        if parameter.ndim == 2:
            nn.init.xavier_uniform_(parameter)
    return module


def initialise_normal(module: nn.Module, spread: float = 0.02) -> nn.Module:
    """Linear and convolutional weights N(0, spread), scales of BatchNorm N(1, spread), biases 0."""
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm)):
            for name, parameter in part.named_parameters(recurse=False):
                if name == "bias":
                    nn.init.zeros_(parameter)
                else:
                    nn.init.normal_(parameter, float(parameter.ndim == 1), spread)
    return module
