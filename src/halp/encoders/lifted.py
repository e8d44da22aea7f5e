"""2D key points → the body in 3D, independent of the camera → features: the encoder of `halp-view`.

A small network over time (`Lifter`) reads where joints lie in the picture and says where they lie in the
body's own frame, with the mean trunk upright and the mean shoulders along x, from wherever the camera looks.
The kernel-fusion encoder reads the lifted body. Lifting needs motion capture and virtual cameras, no labels
(`halp.methods.lift`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from halp.core.cores import run_in_threads
from halp.core.errors import InputError
from halp.core.initialisation import initialise
from halp.encoders import register_encoder
from halp.encoders.body_rows import BODIES, body_rows, can_use_row_kernels, convolve_rows
from halp.encoders.fusion import Projection, describe_seen, is_seen
from halp.encoders.kernel_fusion import Invariance, KernelFusionEncoder, KernelFusionSettings
from halp.encoders.steady import steady
from halp.skeleton import Topology, get_topology


@dataclass(frozen=True)
class LiftedSettings(KernelFusionSettings):
    """The lifting network (`width` channels, `blocks` dilated convolutions) and the encoder of what it lifts.

    It lifts every `stride`-th frame, those between lie half-way. With `picture_gains` the kernels of a second
    reader see the picture itself. `outputs` above 0 adds a projection to this many features.
    """

    layers: int = 0
    gains: tuple[float, ...] = (0.3, 0.3, 1.5, 0.0, 0.0)
    width: int = 192
    blocks: int = 4
    stride: int = 1
    picture_gains: tuple[float, ...] = ()
    outputs: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.width, self.blocks) < 1 or self.outputs < 0 or self.stride not in (1, 2):
            raise InputError(
                f"encoder: width = {self.width} and blocks = {self.blocks} must be at least 1, "
                f"outputs = {self.outputs} not negative, stride = {self.stride} is 1 or 2"
            )


class Lifter(nn.Module):
    """Bodies in the image `(B, T, V, 2)` → in 3D `(B, T, V, 3)`, centred, in the body's own frame.

    The network says how deep a joint lies and what is wrong with its place in the picture; the rest is a
    rotation.
    """

    def __init__(self, topology: Topology, width: int, blocks: int) -> None:
        super().__init__()
        self.topology, self.joints, self.centre = topology, len(topology), topology.index(topology.centre)
        self.enter = nn.Conv1d(5 * self.joints, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i) for i in range(blocks)
        )
        self.context = nn.Linear(width, width)  # which way the body faces is a matter of the whole clip
        self.leave = nn.Conv1d(width, 3 * self.joints, 1)
        self.size = nn.Linear(width, 1)

    def forward(self, bodies: Tensor) -> Tensor:
        if can_use_row_kernels(bodies):
            parts = run_in_threads([partial(self._in_rows, part) for part in bodies.split(BODIES)])
            return torch.cat(parts)
        frames = int(bodies.shape[1])  # a constant of exported graphs
        seen = (bodies.abs().amax((1, 3)) != 0).to(bodies.dtype)  # (B, V)
        motion = nn.functional.pad(bodies[:, 1:] - bodies[:, :-1], (0, 0, 0, 0, 0, 1))
        rows = torch.cat([bodies, 4 * motion], dim=2).view(-1, frames, 4 * self.joints)
        x = torch.cat([rows, seen[:, None].expand(-1, frames, -1)], dim=2).transpose(1, 2)
        x = self.enter(x).relu()
        half = len(self.blocks) // 2
        for i, block in enumerate(self.blocks):
            if i == half:
                x = x + self.context(x.mean(2)).relu()[:, :, None]
            x = x + block(x).relu()
        change = self.leave(x).transpose(1, 2).reshape(-1, frames, self.joints, 3)
        return self._placed(bodies, change, x.mean(2))

    def _in_rows(self, bodies: Tensor) -> Tensor:
        """The same on the CPU, without gradients."""
        x = body_rows(bodies)
        frames, count = x.shape[2:]
        motion = nn.functional.pad(x[:, :, 1:] - x[:, :, :-1], (0, 0, 0, 1)).mul_(4)
        known = (x.abs().amax((1, 2)) != 0).to(x.dtype)[:, None].expand(-1, frames, -1)
        x = convolve_rows(torch.cat([x.flatten(0, 1), motion.flatten(0, 1), known]), self.enter).relu_()
        for i, block in enumerate(self.blocks):
            if i == len(self.blocks) // 2:
                x += (self.context.weight @ x.mean(1) + self.context.bias[:, None]).relu_()[:, None]
            x += convolve_rows(x, cast(nn.Conv1d, block)).relu_()
        change = convolve_rows(x, self.leave).view(self.joints, 3, frames, count)
        return self._placed(bodies, change.permute(3, 2, 0, 1), x.mean(1).T)

    def _placed(self, bodies: Tensor, change: Tensor, context: Tensor) -> Tensor:
        """Bodies in their own frame: change `(B, T, V, 3)`, mean state of the clip `(B, width)`."""
        lifted = 2 * nn.functional.pad(bodies, (0, 1)) + change
        lifted = lifted - lifted[:, :, self.centre : self.centre + 1]
        return own_frame(lifted * self.size(context).exp()[:, :, None, None], self.topology)


def own_frame(bodies: Tensor, topology: Topology) -> Tensor:
    """Bodies `(B, T, V, 3)`, each turned so that its mean trunk lies on z and its mean shoulder line on x."""
    mean = bodies.mean(1)

    def line(start: str, end: str) -> Tensor:
        return mean[:, topology.index(end)] - mean[:, topology.index(start)]

    def unit(axis: Tensor) -> Tensor:
        return axis / (axis.square().sum(1, keepdim=True) + 1e-6).sqrt()

    z = unit(line("hip_center", "shoulder_center"))
    across = line("shoulder_left", "shoulder_right")
    x = unit(across - (across * z).sum(1, keepdim=True) * z)
    frame = torch.stack([x, torch.linalg.cross(z, x), z], dim=2)
    frames, joints = int(bodies.shape[1]), int(bodies.shape[2])
    return (bodies.reshape(-1, frames * joints, 3) @ frame).view(-1, frames, joints, 3)


class LiftedEncoder(nn.Module):
    """Clips `(B, T, P, V, C)`, of which x and y are read → features `(B, F)`; persons as in `fusion`."""

    def __init__(self, topology: Topology, settings: LiftedSettings) -> None:
        super().__init__()
        space = get_topology("body-16")
        if topology.joints != space.joints:
            raise InputError(
                f"encoder 'lifted' reads the joints of 'body-16', not those of '{topology.name}'; map the"
                " clips by name first"
            )
        self.lifter = Lifter(space, settings.width, settings.blocks)
        inner = KernelFusionSettings(settings.hidden, settings.layers, settings.gains, settings.step)
        self.reader = KernelFusionEncoder(space, inner)
        self.picture_reader: KernelFusionEncoder | None = None
        features = self.reader.output_size
        if settings.picture_gains:
            inner = KernelFusionSettings(layers=0, gains=settings.picture_gains)
            self.picture_reader = KernelFusionEncoder(get_topology("body-16-2d"), inner)
            features += self.picture_reader.output_size
        self.stride, self.steady = settings.stride, settings.steady
        self.invariance = Invariance(features, settings.invariant) if settings.invariant else nn.Identity()
        self.output_size = settings.outputs or features
        self.projection: Projection | None = (
            Projection(features, settings.outputs) if settings.outputs else None
        )

    def lift(self, clips: Tensor, stride: int = 1) -> Tensor:
        """The clips in space `(B, T, P, V, 3)`, every other frame interpolated at stride 2."""
        frames, persons, joints = map(int, clips.shape[1:4])  # constants of exported graphs
        count = -(-frames // stride)
        bodies = clips[:, ::stride, :, :, :2].transpose(1, 2).reshape(-1, count, joints, 2)
        if self.training:
            lifted = self.lifter(bodies) * is_seen(bodies)[:, None, None, None]
        else:
            lifted = describe_seen(self.lifter, bodies, count, joints, 3)
        if stride == 2:
            later = torch.cat([lifted[:, 1:], lifted[:, -1:]], dim=1)
            lifted = torch.stack([lifted, (lifted + later) / 2], dim=2)
            lifted = lifted.view(-1, 2 * count, joints, 3)[:, :frames]
        return lifted.reshape(-1, persons, frames, joints, 3).transpose(1, 2)

    def forward(self, clips: Tensor) -> Tensor:
        features = self.invariance(self.read(steady(clips, 0.0 if self.training else self.steady)))
        return features if self.projection is None else self.projection(features)

    def read(self, clips: Tensor) -> Tensor:
        """Features of the lifted body, then of the picture."""
        features = self.reader(self.lift(clips, self.stride))
        if self.picture_reader is None:
            return cast(Tensor, features)
        return torch.cat([features, self.picture_reader(clips[..., :2])], dim=1)

    @torch.no_grad()
    def fit(self, clips: Tensor) -> None:
        """Fit means, kernels, shift and spread to training clips; lifting network and GRU do not change."""
        self.eval()
        readers = [(self.reader, self.lift(clips, self.stride))]
        if self.picture_reader is not None:
            readers.append((self.picture_reader, clips[..., :2]))
        for reader, read in readers:
            streams, _ = reader.streams(read.transpose(1, 2).flatten(0, 1))
            variance, mean = torch.var_mean(streams, (0, 1))
            cast(Tensor, reader.input_norm.running_mean).copy_(mean)
            cast(Tensor, reader.input_norm.running_var).copy_(variance)
            reader.fit(read)


@register_encoder("lifted", LiftedSettings)
def build_lifted(settings: LiftedSettings, topology: Topology, persons: int) -> nn.Module:
    """The lifting encoder, for any number of persons."""
    return initialise(LiftedEncoder(topology, settings))
