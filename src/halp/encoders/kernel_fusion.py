"""The fusion encoder plus response rates of fixed convolution kernels: the encoder of `halp-base`.

Kernels, dilations and pooling are those of MiniRocket and MultiRocket (Dempster et al., 2021; Tan et al.,
2022), written from their description: 84 kernels of nine places, weight 2 at three of them and −1 at the
others, at several dilations, each on the sum of a few random channels. A kernel gives two numbers: the share
of frames in which its response exceeds a bias, and by how much it does so there. A response near the bias
counts in part, so that rounding (another batch size, another engine) never moves a feature by a whole frame.
Biases are quantiles of responses to training data (`fit`): no label, no gradient. One bank of kernels reads
joints, bones and motion; if the encoder has five gains, two more read distances and angles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, cast

import torch
from torch import Tensor, nn

from halp.core.cores import run_in_threads
from halp.core.errors import InputError
from halp.core.initialisation import initialise
from halp.encoders import register_encoder
from halp.encoders.body_rows import (
    BODIES,
    Mixture,
    body_rows,
    can_use_row_kernels,
    kernel_sums,
    mixture,
    read_both_ways,
    spare_channels,
    write_streams,
)
from halp.encoders.fusion import POOLINGS, STREAMS, THIRDS, FusionEncoder, FusionSettings, thirds
from halp.encoders.steady import steady
from halp.skeleton import Topology

LENGTH = 9
PLACES = tuple(combinations(range(LENGTH), 3))
DILATIONS = (1, 2, 3, 4, 6, 7)  # the longest kernel spans 57 of the 64 frames that the encoder reads
MOST_CHANNELS = 9
GOLDEN = (5**0.5 - 1) / 2
LEAST_SPREAD = 0.2  # of the median spread of a feature
BLUR = 0.1  # of a response's standard deviation: around the bias, within which a frame counts in part


@dataclass(frozen=True)
class KernelFusionSettings:
    """Size of the GRU, which reads every `step`-th frame; `gains`: factors of its standardised streams.

    Without layers there is no GRU: the kernels alone. `invariant` directions of the features, those that
    views of a clip move most, are fitted and shrunk (`Invariance`). Clips with more jitter than `steady`, in
    units of the normalised body, are smoothed first (`halp.encoders.steady`); 0 smooths none.
    """

    hidden: int = 96
    layers: int = 2
    gains: tuple[float, ...] = (0.3, 0.3, 1.5)
    step: int = 2
    invariant: int = 0
    steady: float = 0.0

    def __post_init__(self) -> None:
        self.fusion()
        if self.step < 1 or self.invariant < 0 or self.steady < 0:
            raise InputError(
                f"encoder: step = {self.step} must be at least 1, invariant = {self.invariant} and steady ="
                f" {self.steady} at least 0"
            )

    def fusion(self) -> FusionSettings:
        """The settings of the GRU."""
        return FusionSettings(hidden=self.hidden, layers=self.layers or 1, gains=self.gains)


class KernelShares(nn.Module):
    """`(B, T, channels)` → `(B, 2 · kernels)`: share of frames above the bias, mean excess there."""

    mix: Tensor
    bias: Tensor
    blur: Tensor
    weight: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        count = len(DILATIONS) * len(PLACES)
        # which channels a kernel sums
        self.register_buffer("mix", torch.empty(channels, count, dtype=torch.uint8))
        # where only shapes are asked for, torch would load its compiler to compute them
        if not self.mix.is_meta:
            sizes = (
                (2 ** (torch.rand(count) * torch.log2(torch.tensor(MOST_CHANNELS + 1.0))))
                .long()
                .clamp(1, channels)
            )
            ranks = torch.rand(channels, count).argsort(0).argsort(0)
            self.mix.copy_(ranks < sizes)
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
        return kernel_shares([self], [series])

    @torch.no_grad()
    def fit(self, series: Tensor) -> None:
        """Biases as quantiles of the responses to these series, spread evenly over the kernels."""
        responses = self.responses(series).transpose(0, 1).flatten(1)
        shares = (torch.arange(1, len(self.bias) + 1, dtype=torch.float64) * GOLDEN) % 1
        order = responses.sort(dim=1).values
        places = (shares * (order.shape[1] - 1)).round().long().to(order.device)
        self.bias.copy_(order.gather(1, places[:, None])[:, 0])
        self.blur.copy_((BLUR * responses.std(1)).clamp(min=1e-6))


def kernel_shares(banks: Sequence[KernelShares], series: Sequence[Tensor]) -> Tensor:
    """What several banks give, each for its own series, side by side; a dilation of all banks at a time."""
    frames, count = int(series[0].shape[1]), len(banks) * len(PLACES)  # constants of exported graphs
    mixed = torch.cat(
        [
            (bank.mix.to(one).T @ one.transpose(1, 2)).view(-1, len(DILATIONS), len(PLACES), frames)
            for bank, one in zip(banks, series)
        ],
        dim=2,
    )
    bias, blur = (
        torch.cat([getattr(bank, name).view(len(DILATIONS), -1) for bank in banks], 1)
        for name in ("bias", "blur")
    )
    scale = 6 / blur  # in these units "above the bias, in part around it" is a hard sigmoid
    weight = torch.cat([bank.weight for bank in banks])[..., None]
    shares, excesses = [], []
    for rows, dilation, unit, shift in zip(mixed.unbind(1), DILATIONS, scale, -bias * scale):
        # a dilated convolution is a plain one over interleaved frames, which is several times as fast
        spare = -frames % dilation
        rows = nn.functional.pad(rows, (0, spare)) if spare else rows
        responses = nn.functional.conv2d(
            rows.view(-1, count, (frames + spare) // dilation, dilation),
            weight * unit[:, None, None, None],
            shift,
            padding=(LENGTH // 2, 0),
            groups=count,
        ).view(-1, count, frames + spare)[..., :frames]
        shares.append(nn.functional.hardsigmoid(responses).sum(2))
        excesses.append(responses.relu().sum(2))
    share, excess = torch.stack(shares, 1), torch.stack(excesses, 1) / scale
    both = torch.stack([share / frames, excess / share.clamp(min=1)], 1)
    both = both.view(-1, 2, len(DILATIONS), len(banks), len(PLACES))
    return both.permute(0, 3, 1, 2, 4).reshape(-1, 2 * len(DILATIONS) * count)


class Invariance(nn.Module):
    """Features `(B, F)` with most of the variation between views of a clip removed: `x − V (1 − s) Vᵀ x`.

    V `(F, r)` are the directions that views move most. Of each so much is left that views move it about as
    much as the other directions, less the larger the floor: the closed form of `(S + floor)^(−1/2) x` for the
    covariance S between views, where all but r of its eigenvalues are taken for equal. Nothing is dropped,
    and r · F numbers replace F².
    """

    directions: Tensor
    left: Tensor

    def __init__(self, features: int, directions: int) -> None:
        super().__init__()
        self.register_buffer("directions", torch.zeros(features, directions, dtype=torch.float16))
        self.register_buffer("left", torch.ones(directions))

    def forward(self, features: Tensor) -> Tensor:
        directions = self.directions.to(features.dtype)
        return features - ((features @ directions) * (1 - self.left.to(features.dtype))) @ directions.T

    @torch.no_grad()
    def fit(self, views: Tensor, floor: float = 0.1, seed: int = 0) -> None:
        """Fit to features `(views, clips, F)`, several views per clip; `floor`: share of mean variance."""
        # who only reads a shipped encoder does not wait for it
        from sklearn.utils.extmath import randomized_svd

        count, clips, features = views.shape
        gaps = (views - views.mean(0)).flatten(0, 1)
        number = self.left.numel()
        _, scales, directions = randomized_svd(gaps.numpy(), number, n_iter=2, random_state=seed)
        moved = torch.from_numpy(scales).square() / (clips * (count - 1))
        total = float(gaps.square().sum()) / (clips * (count - 1))
        rest = (total - float(moved.sum())) / (features - number)
        floor = floor * total / features
        self.directions.copy_(torch.from_numpy(directions.T.copy()))
        self.left.copy_(((rest + floor) / (moved + floor)).sqrt())


class KernelFusionEncoder(FusionEncoder):
    """Maxima over thirds of a GRU's layers and kernel shares, standardised; persons as in `fusion`."""

    shift: Tensor
    spread: Tensor

    def __init__(self, topology: Topology, settings: KernelFusionSettings) -> None:
        super().__init__(topology, settings.fusion())
        self.step, self.steady = settings.step, settings.steady
        if not settings.layers:
            self.layers, self.pooled_size = nn.ModuleList(), 0
        self.banks = [sum(self.widths[:STREAMS]), *self.widths[STREAMS:]]
        self.kernels = KernelShares(self.banks[0])
        self.geometry_kernels = nn.ModuleList(KernelShares(width) for width in self.banks[1:])
        sizes = [self.kernels.output_size] * len(self.banks)
        self.pooled_size = self.output_size = self.pooled_size // POOLINGS + sum(sizes)
        self._prepared: tuple[Any, list[Tensor], list[Mixture], Tensor] | None = None
        self.register_buffer("shift", torch.zeros(self.output_size))
        self.register_buffer("spread", torch.ones(self.output_size))
        self.invariance = (
            Invariance(self.output_size, settings.invariant) if settings.invariant else nn.Identity()
        )

    def train(self, mode: bool = True) -> KernelFusionEncoder:
        """Set the mode of the GRU alone: the kernels were fitted to inputs centred by fixed statistics."""
        super().train(mode)
        self.input_norm.eval()
        return self

    def forward(self, clips: Tensor) -> Tensor:
        clips = steady(clips, 0.0 if self.training else self.steady)
        return cast(Tensor, self.invariance((super().forward(clips) - self.shift) / self.spread))

    def describe(self, bodies: Tensor) -> Tensor:
        if can_use_row_kernels(bodies) and not self.training and not any(self.gains[STREAMS:]):
            return torch.cat(
                run_in_threads([partial(self._describe_rows, part) for part in bodies.split(BODIES)])
            )
        maps = self.sequences(bodies[:, :: self.step]) if len(self.layers) else []
        thirds = [self.pool([one])[:, THIRDS * one.shape[2] :] for one in maps]  # the maxima follow the means
        return torch.cat([*thirds, kernel_shares(self._all_kernels(), self.centred(bodies))], dim=1)

    def _describe_rows(self, bodies: Tensor) -> Tensor:
        """`describe` on the CPU, without gradients."""
        x, norm = body_rows(bodies), self.input_norm
        mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
        shares = self._shares_in_rows(x, mean)
        if not len(self.layers):
            return shares.T
        factor = (variance + norm.eps).rsqrt() * self.channel_gains(x)
        x = x[:, :, :: self.step].contiguous()
        streams = x.new_empty(sum(self.widths[:STREAMS]), *x.shape[2:])
        self._write_series(streams, x, mean, factor)
        states, columns = streams.transpose(0, 1).contiguous(), []
        for layer in cast(Iterable[Sequence[nn.GRU]], self.layers):
            states = read_both_ways(layer, states)
            columns += [states[third].amax(0) for third in thirds(len(states))]
        return torch.cat([*columns, shares]).T

    def _write_series(self, out: Tensor, x: Tensor, mean: Tensor, factor: Tensor | None = None) -> None:
        """Streams `(channels, T, B)` of rows `(V, C, T, B)`, centred and scaled; 0 for missing values."""
        channels = len(out)
        known = self.known(x.abs().amax((1, 2)).T != 0).to(x.dtype)
        known = known if factor is None else known * factor
        write_streams(out, x, self.parents, self.geometry if channels == sum(self.widths) else None)
        out.sub_(mean[:channels, None, None]).mul_(known.T[:channels, None].contiguous())

    def _shares_in_rows(self, x: Tensor, mean: Tensor) -> Tensor:
        """What all banks give, `(2 · kernels, B)`, for rows `(V, C, T, B)`."""
        frames, bodies = x.shape[2:]
        mixtures, unit = self._mixtures(frames)
        channels, kernels = sum(self.widths), len(self.banks) * len(PLACES)
        table = x.new_empty(channels + spare_channels(kernels, frames), frames, bodies)
        self._write_series(table[:channels], x, mean)
        spare = x.new_empty(kernels, frames, bodies)
        sums = [
            kernel_sums(table, part, PLACES, LENGTH, dilation, spare)
            for part, dilation in zip(mixtures, DILATIONS)
        ]
        # (dilations, banks, kernels, B) → banks first, as they are one after the other
        count, excess = (
            torch.stack(part).unflatten(1, (len(self.banks), -1)).transpose(0, 1) for part in zip(*sums)
        )
        return torch.stack([count / frames, excess * unit / count.clamp(min=1)], 1).flatten(0, 3)

    def _mixtures(self, frames: int) -> tuple[list[Mixture], Tensor]:
        """For each dilation, the inputs of all banks' kernels and units of their responses; cached."""
        banks = self._all_kernels()
        parts = [part for bank in banks for part in (bank.mix, bank.bias, bank.blur)]
        changes = [-1 if part.is_inference() else part._version for part in parts]
        kept = self._prepared
        if kept is None or kept[0] != (frames, changes) or any(a is not b for a, b in zip(kept[1], parts)):
            mix = torch.block_diag(*(bank.mix for bank in banks)).unflatten(
                1, (len(banks), len(DILATIONS), -1)
            )
            # in units of a sixth of the blur, "above the bias, in part around it" is a hard sigmoid
            unit, bias = (
                torch.stack(values).unflatten(1, (len(DILATIONS), -1))
                for values in ([bank.blur / 6 for bank in banks], [bank.bias for bank in banks])
            )
            mixtures = [
                mixture(
                    mix[:, :, i].flatten(1), 1 / unit[:, i].flatten(), (-bias / unit)[:, i].flatten(), frames
                )
                for i in range(len(DILATIONS))
            ]
            kept = self._prepared = ((frames, changes), parts, mixtures, unit[..., None])
        return kept[2], kept[3]

    def centred(self, bodies: Tensor) -> Sequence[Tensor]:
        """Inputs of all banks `(B, T, channels)`: streams, centred by the training data; 0 if missing."""
        x, known = self.streams(bodies)
        mean = self.input_norm.running_mean
        return ((x if mean is None else x - mean.to(x.dtype)) * known).split(self.banks, dim=2)

    def _all_kernels(self) -> list[KernelShares]:
        return [self.kernels, *cast(Iterable[KernelShares], self.geometry_kernels)]

    @torch.no_grad()
    def fit(self, clips: Tensor) -> None:
        """Set biases, shift and spread from training clips `(B, T, P, V, C)`; the GRU does not change."""
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
