"""The fusion encoder: joints, bones and motion read by one GRU, pooled at every layer; any skeleton.

Joint, bone and motion streams go side by side into one bidirectional GRU ("early fusion": one encoder instead
of three); with five gains also the geometry of the body, which no rotation changes: distances between joints
that no bone joins, and the cosines of the angles between bones. The feature is made of the mean and the
maximum over the thirds of a clip, of every layer, so that what training makes a deeper layer forget can still
be read from the one before. A projection whose numbers are found afterwards turns it into fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from halp.core.errors import InputError
from halp.core.initialisation import initialise
from halp.encoders import register_encoder
from halp.encoders.body_rows import in_tiles
from halp.encoders.recurrence import run_grus
from halp.skeleton import Topology

Counts = npt.NDArray[np.float32]
THIRDS = 3
STREAMS = 3  # joints, bones, motion
GEOMETRY = 2  # distances, angles
POOLINGS = 2  # mean and maximum


@dataclass(frozen=True)
class FusionSettings:
    """Size of the GRU; `outputs` above 0 adds a projection to this many features."""

    hidden: int = 96  # units of each GRU
    layers: int = 2
    outputs: int = 0
    # factors of standardised joints, bones, motion (and distances, angles)
    gains: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        if min(self.hidden, self.layers) < 1 or self.outputs < 0:
            raise InputError(
                f"encoder: hidden = {self.hidden} and layers = {self.layers} must be at least 1, "
                f"outputs = {self.outputs} not negative"
            )
        if len(self.gains) not in (STREAMS, STREAMS + GEOMETRY) or min(self.gains) < 0 or not any(self.gains):
            raise InputError(
                f"encoder: gains = {list(self.gains)} must be three numbers (joints, bones, motion) or five"
                " (and distances, angles), none negative, not all 0"
            )


class FusionEncoder(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, output_size)`; the maximum over separately encoded persons.

    A joint that is zero in all frames of a person is missing: it, its bones and its motion have the mean of
    the training data, which is what hidden joints look like during training. The centre joint, which
    normalisation puts at zero, is never missing. A person without any joint is absent and takes no part;
    where nobody is there, features are zero before the projection.
    """

    needs: Tensor

    def __init__(self, topology: Topology, settings: FusionSettings) -> None:
        super().__init__()
        self.parents = list(topology.parents)
        self.centre = topology.index(topology.centre) if topology.centre else None
        self.geometry = Geometry(self.parents) if len(settings.gains) > STREAMS else None
        # in NumPy: where only shapes are asked for, torch would load its compiler
        joints = np.eye(len(topology), dtype=np.float32)
        bones = joints + joints[self.parents]
        needs = [part.repeat(topology.dimensions, 0) for part in (joints, bones, joints)]
        needs += self.geometry.needs(joints, bones) if self.geometry else []
        self.widths = [len(part) for part in needs]
        # how often a channel takes a joint
        self.register_buffer("needs", torch.from_numpy(np.concatenate(needs).T.copy()), persistent=False)
        width = sum(self.widths)
        self.input_norm = nn.BatchNorm1d(width, affine=False)
        self.gains = settings.gains
        widths = [width] + [2 * settings.hidden] * (settings.layers - 1)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                [
                    nn.GRU(size, settings.hidden, batch_first=True),
                    nn.GRU(size, settings.hidden, batch_first=True),
                ]
            )
            for size in widths
        )
        self.pooled_size = settings.layers * POOLINGS * THIRDS * 2 * settings.hidden
        self.output_size = settings.outputs or self.pooled_size
        self.projection: Projection | None = (
            Projection(self.pooled_size, settings.outputs) if settings.outputs else None
        )

    def forward(self, clips: Tensor) -> Tensor:
        if clips.shape[3] != len(self.parents):
            raise InputError(f"the encoder reads {len(self.parents)} joints, not {clips.shape[3]}")
        frames, persons, *body = map(int, clips.shape[1:])  # constants of exported graphs
        bodies = clips.transpose(1, 2).reshape(-1, frames, *body)
        there = is_seen(bodies).view(-1, persons, 1)
        pooled = (
            self.describe(bodies) if self.training else describe_seen(self.describe, bodies, self.pooled_size)
        )
        pooled = pooled.view(-1, persons, self.pooled_size)
        largest = pooled.masked_fill(~there, -torch.inf).amax(1)
        features = torch.where(there.any(1), largest, torch.zeros_like(largest))
        return features if self.projection is None else self.projection(features)

    def describe(self, bodies: Tensor) -> Tensor:
        """Features `(B, F)` of bodies `(B, T, V, C)`, each alone."""
        return self.pool(self.sequences(bodies))

    def sequences(self, bodies: Tensor) -> list[Tensor]:
        """Feature maps `(B, T, 2·hidden)` of every layer for bodies `(B, T, V, C)`."""
        x = self.inputs(bodies).transpose(0, 1)
        maps = []
        for layer in cast(Iterable[Sequence[nn.GRU]], self.layers):
            first, second = run_grus(layer, [x, x.flip(0)])
            x = torch.cat([first, second.flip(0)], dim=2)
            maps.append(x.transpose(0, 1))
        return maps

    def inputs(self, bodies: Tensor) -> Tensor:
        """Standardised streams `(B, T, channels)`; 0, the mean, for what is missing."""
        x, known = self.streams(bodies)
        norm = self.input_norm
        if self.training or norm.running_mean is None or norm.running_var is None:
            normed = norm(x.flatten(0, 1)).view_as(x)
        else:  # written out: a BatchNorm without weights has no counterpart in ONNX
            normed = (x - norm.running_mean) * (norm.running_var + norm.eps).rsqrt()
        return normed * known * self.channel_gains(x)

    def channel_gains(self, like: Tensor) -> Tensor:
        """The gain of every channel `(channels,)`."""
        gains = torch.tensor(self.gains, dtype=like.dtype, device=like.device)
        return gains.repeat_interleave(torch.tensor(self.widths, device=like.device))

    def streams(self, bodies: Tensor) -> tuple[Tensor, Tensor]:
        """Joints, bones, motion and geometry `(B, T, channels)`, and a mask of known ones."""
        bones = bodies - bodies[:, :, self.parents]
        motion = nn.functional.pad(bodies[:, 1:] - bodies[:, :-1], (0, 0, 0, 0, 0, 1))
        frames, *body = map(int, bodies.shape[1:])
        x = torch.cat([bodies, bones, motion], dim=2).reshape(-1, frames, STREAMS * math.prod(body))
        if self.geometry is not None:
            x = torch.cat([x, self.geometry(bodies, bones)], dim=2)
        return x, self.known(bodies.abs().amax((1, 3)) != 0)[:, None].to(x.dtype)

    def known(self, seen: Tensor) -> Tensor:
        """Which channels are known `(B, channels)`, from the joints that are seen at all `(B, V)`."""
        if self.centre is not None:
            centre = torch.arange(len(self.parents), device=seen.device) == self.centre
            seen = seen | (centre & seen.any(1, keepdim=True))
        return (~seen).to(self.needs) @ self.needs == 0

    def pool(self, maps: Sequence[Tensor]) -> Tensor:
        """Mean and maximum over the thirds of the clip, of every layer, side by side."""
        columns = []
        for x in maps:
            parts = [x[:, third] for third in thirds(int(x.shape[1]))]
            columns += [part.mean(1) for part in parts] + [part.amax(1) for part in parts]
        return torch.cat(columns, dim=1)


def thirds(frames: int) -> list[slice]:
    """Thirds of a clip, overlapping if three does not divide it (adaptive pooling, which ONNX lacks)."""
    return [slice(frames * i // THIRDS, -(-frames * (i + 1) // THIRDS)) for i in range(THIRDS)]


def is_seen(bodies: Tensor) -> Tensor:
    """Which of the bodies `(B, T, V, C)` have a joint in any frame `(B,)`."""
    return bodies.abs().amax((1, 2, 3)) != 0


def describe_seen(describe: Callable[[Tensor], Tensor], bodies: Tensor, *shape: int) -> Tensor:
    """What a function makes of each body `(B, *shape)`; those that are not seen have zeros and cost nothing."""
    seen = is_seen(bodies)
    if torch.compiler.is_exporting():
        return describe(bodies) * seen.view(-1, *[1] * len(shape))
    if torch.jit.is_tracing():  # no branches: the first body is described in any case
        chosen = torch.cat([torch.ones_like(seen[:1]), seen[1:]])
        place = chosen.to(torch.int64).cumsum(0) - 1
        return describe(bodies[chosen.nonzero()[:, 0]])[place] * seen.view(-1, *[1] * len(shape))
    made = bodies.new_zeros(len(bodies), *shape)
    if bool(seen.any()):
        made[seen] = in_tiles(describe, bodies[seen])
    return made


class Geometry(nn.Module):
    """Distances between joints not joined by a bone, and cosines between bones: invariant to rotation."""

    pairs: Tensor
    bones: Tensor
    angles: Tensor

    def __init__(self, parents: Sequence[int]) -> None:
        super().__init__()
        apart = [(i, j) for j in range(len(parents)) for i in range(j) if parents[j] != i and parents[i] != j]
        bones = [joint for joint, parent in enumerate(parents) if joint != parent]
        self.register_buffer("pairs", torch.tensor(apart).view(-1, 2).T, persistent=False)
        self.register_buffer("bones", torch.tensor(bones, dtype=torch.long), persistent=False)
        between = list(combinations(range(len(bones)), 2))
        self.compared = apart, [(bones[i], bones[j]) for i, j in between]  # joints, and bones by their ends
        self.register_buffer("angles", torch.tensor(between).view(-1, 2).T, persistent=False)

    def needs(self, joints: Counts, bones: Counts) -> list[Counts]:
        """How often each distance and each cosine takes a joint, `(pairs, V)` and `(angles, V)`."""
        joined = [np.array(pairs, dtype=np.int64).reshape(-1, 2) for pairs in self.compared]
        return [joints[joined[0]].sum(1), bones[joined[1]].sum(1)]

    def forward(self, bodies: Tensor, bones: Tensor) -> Tensor:
        """Distances and cosines `(B, T, pairs + angles)` of bodies and bones; 0 for bones of length 0."""
        if self.training:
            apart = bodies[:, :, self.pairs[0]] - bodies[:, :, self.pairs[1]]
            ends = nn.functional.normalize(bones[:, :, self.bones], dim=3)
            cosines = (ends @ ends.transpose(2, 3))[:, :, self.angles[0], self.angles[1]]
            return torch.cat([apart.square().sum(3).clamp_min(1e-12).sqrt(), cosines], dim=2)
        # picking joints by one product with zeros and ones is exact, and much faster than by index
        frames, coordinates = int(bodies.shape[1]), int(bodies.shape[3])

        def pick(x: Tensor, sides: Tensor) -> list[Tensor]:
            """Both sides `(B, T, C, n)` of what is compared."""
            rows = x.transpose(2, 3).reshape(-1, int(x.shape[2]))
            chosen = nn.functional.one_hot(sides, rows.shape[1]).to(rows)
            return [(rows @ side.T).view(-1, frames, coordinates, len(side)) for side in chosen]

        first, second = pick(bodies, self.pairs)
        ends = bones[:, :, self.bones]
        start, end = pick(ends / ends.square().sum(3, keepdim=True).clamp_min(1e-24).sqrt(), self.angles)
        distances = (first - second).square().sum(2).clamp_min(1e-12).sqrt()
        return torch.cat([distances, (start * end).sum(2)], dim=2)


class Projection(nn.Module):
    """`(x − shift) / spread @ matrix` with fixed numbers; half-precision matrix, to keep packages small."""

    shift: Tensor
    spread: Tensor
    matrix: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(inputs))
        self.register_buffer("spread", torch.ones(inputs))
        self.register_buffer("matrix", torch.zeros(inputs, outputs, dtype=torch.float16))

    def forward(self, features: Tensor) -> Tensor:
        return ((features - self.shift) / self.spread) @ self.matrix.to(features.dtype)


@register_encoder("fusion", FusionSettings)
def build_fusion(settings: FusionSettings, topology: Topology, persons: int) -> nn.Module:
    """The fusion encoder for any number of persons."""
    return initialise(FusionEncoder(topology, settings))
