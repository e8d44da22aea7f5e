"""The encoder of SeBiReNet: every pose by itself, along the tree of its joints, as a code of the pose and one of the view.

A GRU cell per joint reads the joint and the states of its children, from the leaves to the root; then another one per joint
reads the joint and the state of its parent, back from the root, starting from the state that the first had left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.encoders import check_joints, register_encoder
from halp.encoders.global_local import centre_joint
from halp.encoders.transformer import persons_present
from halp.errors import InputError
from halp.skeleton import Topology


@dataclass(frozen=True)
class SeBiReNetSettings:
    """The defaults are those of the public code; `parts` is ours."""

    units: int = 32  # of every cell; the codes have half as many per joint
    parts: int = 3  # pieces of the clip whose mean codes stand side by side

    def __post_init__(self) -> None:
        if self.units < 2 or self.units % 2 or self.parts < 1:
            raise InputError(
                f"encoder: units = {self.units} has to be even, at least 2, and parts = {self.parts} at least 1"
            )


class JointTree(nn.Module):
    """States `(N, V, units)` of all joints from their numbers `(N, V, inputs)`, leaves to root and back."""

    def __init__(self, inputs: int, units: int, parents: Sequence[int]) -> None:
        super().__init__()
        self.units, self.parents = units, list(parents)
        self.below = [
            [child for child, parent in enumerate(parents) if parent == joint != child] for joint in range(len(parents))
        ]
        self.order = _from_the_roots(parents)
        up = (inputs + units * len(children) for children in self.below)
        down = (inputs + units * (parent != joint) for joint, parent in enumerate(parents))
        self.up = nn.ModuleList(nn.GRUCell(width, units) for width in up)
        self.down = nn.ModuleList(nn.GRUCell(width, units) for width in down)

    def forward(self, joints: Tensor) -> Tensor:
        states: list[Tensor] = [joints.new_zeros(len(joints), self.units)] * len(self.parents)
        for joint in reversed(self.order):
            lower = [states[child] for child in self.below[joint]]
            states[joint] = self.up[joint](torch.cat([joints[:, joint], *lower], dim=1), states[joint])
        for joint in self.order:
            upper = [states[self.parents[joint]]] if self.parents[joint] != joint else []
            states[joint] = self.down[joint](torch.cat([joints[:, joint], *upper], dim=1), states[joint])
        return torch.stack(states, dim=1)


def _from_the_roots(parents: Sequence[int]) -> list[int]:
    """All joints, each after its parent."""

    def depth(joint: int) -> int:
        return 0 if parents[joint] == joint else 1 + depth(parents[joint])

    return sorted(range(len(parents)), key=depth)


class SeBiReNet(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, parts · V · units/2)`: codes of the pose, mean over persons and frames."""

    def __init__(self, topology: Topology, settings: SeBiReNetSettings) -> None:
        super().__init__()
        self.joints, self.coordinates, self.centre = len(topology), topology.dimensions, centre_joint(topology)
        self.parts, self.code_size = settings.parts, settings.units // 2
        self.frame_size = self.joints * self.code_size
        self.output_size = self.parts * self.frame_size
        self.tree = JointTree(self.coordinates, settings.units, topology.parents)
        self.pose = nn.Linear(settings.units, self.code_size)
        self.view = nn.Linear(self.joints * settings.units, self.code_size**2)

    def forward(self, clips: Tensor) -> Tensor:
        return self.pool(self.sequence(clips))

    def codes(self, poses: Tensor) -> tuple[Tensor, Tensor]:
        """Code of the pose `(N, V, K)` and of the view `(N, K, K)`; their product is what is decoded."""
        states = self.tree(poses)
        view = self.view(states.flatten(1)).view(-1, self.code_size, self.code_size)
        return torch.tanh(self.pose(states)), view

    def sequence(self, clips: Tensor) -> Tensor:
        """The feature map before pooling, `(B, T, V · K)`, mean over the persons who are there."""
        batch, frames, persons, *_ = check_joints(clips, self.joints, self.coordinates)
        code, _ = self.codes(around_centre(clips, self.centre).flatten(0, 2))
        present = persons_present(clips)
        weight = torch.where(present.any(1, keepdim=True), present, torch.ones_like(present)).to(code)[:, None, :, None]
        return (code.view(batch, frames, persons, -1) * weight).sum(2) / weight.sum(2)

    def pool(self, x: Tensor) -> Tensor:
        """Means over equal parts of the clip, side by side."""
        return F.adaptive_avg_pool1d(x.transpose(1, 2), self.parts).transpose(1, 2).flatten(1)


class PoseDecoder(nn.Module):
    """Poses `(N, V, C)` from the product of both codes `(N, V, K)`."""

    def __init__(self, encoder: SeBiReNet) -> None:
        super().__init__()
        half, size = encoder.code_size, encoder.coordinates
        self.enter = nn.Sequential(nn.Linear(half, half), nn.Tanh(), nn.Linear(half, 2 * half), nn.Tanh())
        self.tree, self.out = JointTree(2 * half, size, encoder.tree.parents), nn.Linear(size, size)

    def forward(self, code: Tensor) -> Tensor:
        return cast(Tensor, self.out(self.tree(self.enter(code))))


def around_centre(clips: Tensor, centre: int) -> Tensor:
    """Clips `(B, T, P, V, C)` with every joint, the centre too, relative to the centre of its person."""
    return clips - clips[:, :, :, centre : centre + 1]


@register_encoder("sebirenet", SeBiReNetSettings)
def build_sebirenet(settings: SeBiReNetSettings, topology: Topology, persons: int) -> nn.Module:
    """The encoder of SeBiReNet for any topology."""
    return SeBiReNet(topology, settings)
