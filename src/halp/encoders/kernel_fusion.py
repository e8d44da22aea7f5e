"""The fusion encoder and, beside it, how often fixed convolution kernels respond: the encoder of `halp-base`.

Kernels, dilations and pooling are those of MiniRocket and MultiRocket (Dempster et al., 2021; Tan et al., 2022), written from
their description: 84 kernels of nine places, weight 2 at three of them and −1 at the others, at several dilations, each
on the sum of a few random channels. A kernel gives two numbers: the share of frames in which its response exceeds a
bias, and by how much it does so there. A response near the bias counts in part, so that rounding (another batch size, another
engine) never moves a feature by a whole frame. Biases are quantiles of responses to training data (`fit`): no label, no gradient.
One bank of kernels reads joints, bones and motion; where the encoder has five gains, two more read distances and angles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import cast

import torch
from torch import Tensor, nn

from halp.encoders import register_encoder
from halp.encoders.fusion import POOLINGS, STREAMS, THIRDS, FusionEncoder, FusionSettings
from halp.errors import InputError
from halp.initialisation import initialise
from halp.skeleton import Topology

LENGTH = 9
PLACES = list(combinations(range(LENGTH), 3))
DILATIONS = (1, 2, 3, 4, 6, 7)  # the longest kernel spans 57 of the 64 frames that the encoder reads
MOST_CHANNELS = 9
GOLDEN = (5**0.5 - 1) / 2
LEAST_SPREAD = 0.2  # of the median spread of a feature
BLUR = 0.1  # of a response's standard deviation: around the bias, within which a frame counts in part


@dataclass(frozen=True)
class KernelFusionSettings:
    """Size of the GRU, which reads every `step`-th frame; `gains` are factors of its standardised streams, three or five."""

    hidden: int = 96
    layers: int = 2
    gains: tuple[float, ...] = (0.3, 0.3, 1.5)
    step: int = 2

    def __post_init__(self) -> None:
        self.fusion()
        if self.step < 1:
            raise InputError(f"encoder: step = {self.step} has to be at least 1")

    def fusion(self) -> FusionSettings:
        """What the GRU takes of it."""
        return FusionSettings(hidden=self.hidden, layers=self.layers, gains=self.gains)


class KernelShares(nn.Module):
    """Series `(B, T, channels)` → `(B, 2 · kernels)`: share of frames above the bias, and mean excess in those frames."""

    mix: Tensor
    bias: Tensor
    blur: Tensor
    weight: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        count = len(DILATIONS) * len(PLACES)
        sizes = (2 ** (torch.rand(count) * torch.log2(torch.tensor(MOST_CHANNELS + 1.0)))).long().clamp(1, channels)
        ranks = torch.rand(channels, count).argsort(0).argsort(0)
        self.register_buffer("mix", (ranks < sizes).to(torch.uint8))  # which channels a kernel sums
        self.register_buffer("bias", torch.zeros(count))
        self.register_buffer("blur", torch.full((count,), BLUR))
        weight = torch.full((len(PLACES), 1, LENGTH), -1.0)
        for kernel, places in enumerate(PLACES):
            weight[kernel, 0, list(places)] = 2.0
        self.register_buffer("weight", weight, persistent=False)
        self.output_size = 2 * count

    def responses(self, series: Tensor) -> Tensor:
        """Responses `(B, kernels, T)`, with zeros outside the series."""
        mixed = (series @ self.mix.to(series.dtype)).transpose(1, 2)
        found = [
            nn.functional.conv1d(
                part, self.weight, padding=LENGTH // 2 * dilation, dilation=dilation, groups=len(PLACES)
            )
            for part, dilation in zip(mixed.split(len(PLACES), dim=1), DILATIONS)
        ]
        return torch.cat(found, dim=1)

    def forward(self, series: Tensor) -> Tensor:
        above = self.responses(series) - self.bias[:, None]
        frames = (above / self.blur[:, None] + 0.5).clamp(0, 1).sum(2)
        excess = above.clamp(min=0).sum(2) / frames.clamp(min=1)
        return torch.cat([frames / series.shape[1], excess], dim=1)

    @torch.no_grad()
    def fit(self, series: Tensor) -> None:
        """Biases as quantiles of the responses to these series; the quantiles are spread evenly over the kernels."""
        responses = self.responses(series).transpose(0, 1).flatten(1)
        shares = (torch.arange(1, len(self.bias) + 1, dtype=torch.float64) * GOLDEN) % 1
        order = responses.sort(dim=1).values
        places = (shares * (order.shape[1] - 1)).round().long().to(order.device)
        self.bias.copy_(order.gather(1, places[:, None])[:, 0])
        self.blur.copy_((BLUR * responses.std(1)).clamp(min=1e-6))


class KernelFusionEncoder(FusionEncoder):
    """Maxima over thirds of a GRU's layers and kernel shares, standardised by fixed numbers; persons as in `fusion`."""

    shift: Tensor
    spread: Tensor

    def __init__(self, topology: Topology, settings: KernelFusionSettings) -> None:
        super().__init__(topology, settings.fusion())
        self.step = settings.step
        self.banks = [sum(self.widths[:STREAMS]), *self.widths[STREAMS:]]
        self.kernels = KernelShares(self.banks[0])
        self.geometry_kernels = nn.ModuleList(KernelShares(width) for width in self.banks[1:])
        sizes = [self.kernels.output_size] * len(self.banks)
        self.pooled_size = self.output_size = self.pooled_size // POOLINGS + sum(sizes)
        self.register_buffer("shift", torch.zeros(self.output_size))
        self.register_buffer("spread", torch.ones(self.output_size))

    def forward(self, clips: Tensor) -> Tensor:
        return (super().forward(clips) - self.shift) / self.spread

    def describe(self, bodies: Tensor) -> Tensor:
        maps = self.sequences(bodies[:, :: self.step])
        thirds = [self.pool([one])[:, THIRDS * one.shape[2] :] for one in maps]  # the maxima follow the means
        shares = [bank(series) for bank, series in zip(self._all_kernels(), self.centred(bodies))]
        return torch.cat([*thirds, *shares], dim=1)

    def centred(self, bodies: Tensor) -> Sequence[Tensor]:
        """What every bank reads `(B, T, channels)`: streams less their mean in the training data; 0 for what is missing."""
        x, known = self.streams(bodies)
        mean = self.input_norm.running_mean
        return ((x if mean is None else x - mean.to(x.dtype)) * known).split(self.banks, dim=2)

    def _all_kernels(self) -> list[KernelShares]:
        return [self.kernels, *cast(Iterable[KernelShares], self.geometry_kernels)]

    @torch.no_grad()
    def fit(self, clips: Tensor) -> None:
        """Set biases, shift and spread by clips `(B, T, P, V, C)` of training data; the GRU stays as it is."""
        self.eval()
        for bank, series in zip(self._all_kernels(), self.centred(clips.transpose(1, 2).flatten(0, 1))):
            bank.fit(series)
        features = super().forward(clips)
        spread = features.std(0)
        self.shift.copy_(features.mean(0))
        # what hardly varies in the training data would drown everything else where it does
        self.spread.copy_(spread.clamp(min=max(1e-3, LEAST_SPREAD * float(spread.median()))))


@register_encoder("kernel-fusion", KernelFusionSettings)
def build_kernel_fusion(settings: KernelFusionSettings, topology: Topology, persons: int) -> nn.Module:
    """The fusion encoder with kernel shares, for any number of persons."""
    return initialise(KernelFusionEncoder(topology, settings))
