"""SeBiReNet (Nie et al., ECCV 2020): pose and view apart. A pose and its rotated copy have the same code of
the pose, and codes of the view to swap; poses are trained singly: some frames of every clip, with some joints
removed, decoded whole.

The encoder reads every pose by itself, along the tree of its joints. A GRU cell per joint reads the joint and
the states of its children, from the leaves to the root; then another one per joint reads the joint and the
state of its parent, back from the root, starting from the state that the first had left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.extend import (
    BuildContext,
    CheckedSettings,
    InputError,
    Predicted,
    PredictiveMethod,
    Topology,
    WholeBatch,
    centre_joint,
    check_joints,
    initialise,
    limited,
    persons_present,
    register_encoder,
    register_method,
    rotation_matrices,
)


@dataclass(frozen=True)
class SeBiReNetSettings(CheckedSettings):
    """The defaults are those of the public code; `parts` is ours."""

    units: int = limited(32, least=2)  # of every cell; the codes have half as many per joint
    parts: int = limited(3, least=1)  # pieces of the clip whose mean codes stand side by side

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.units % 2:
            raise InputError(f"encoder: units = {self.units} must be even")


class JointTree(nn.Module):
    """States `(N, V, units)` of all joints from their numbers `(N, V, inputs)`, leaves to root and back."""

    def __init__(self, inputs: int, units: int, parents: Sequence[int]) -> None:
        super().__init__()
        self.units, self.parents = units, list(parents)
        self.below = [
            [child for child, parent in enumerate(parents) if parent == joint != child]
            for joint in range(len(parents))
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


@register_encoder("sebirenet", SeBiReNetSettings)
class SeBiReNet(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, parts · V · units/2)`: pose codes, averaged."""

    def __init__(self, settings: SeBiReNetSettings, topology: Topology, persons: int) -> None:
        super().__init__()
        self.joints, self.coordinates, self.centre = (
            len(topology),
            topology.dimensions,
            centre_joint(topology),
        )
        self.parts, self.code_size = settings.parts, settings.units // 2
        self.frame_size = self.joints * self.code_size
        self.output_size = self.parts * self.frame_size
        self.tree = JointTree(self.coordinates, settings.units, topology.parents)
        self.pose = nn.Linear(settings.units, self.code_size)
        self.view = nn.Linear(self.joints * settings.units, self.code_size**2)

    def forward(self, clips: Tensor) -> Tensor:
        return self.pool(self.sequence(clips))

    def codes(self, poses: Tensor) -> tuple[Tensor, Tensor]:
        """Code of the pose `(N, V, K)` and of the view `(N, K, K)`; their product is decoded."""
        states = self.tree(poses)
        view = self.view(states.flatten(1)).view(-1, self.code_size, self.code_size)
        return torch.tanh(self.pose(states)), view

    def sequence(self, clips: Tensor) -> Tensor:
        """The feature map before pooling, `(B, T, V · K)`, mean over the persons who are there."""
        batch, frames, persons, *_ = check_joints(clips, self.joints, self.coordinates)
        code, _ = self.codes(around_centre(clips, self.centre).flatten(0, 2))
        present = persons_present(clips)
        weight = torch.where(present.any(1, keepdim=True), present, torch.ones_like(present)).to(code)[
            :, None, :, None
        ]
        return (code.view(batch, frames, persons, -1) * weight).sum(2) / weight.sum(2)

    def pool(self, x: Tensor) -> Tensor:
        """Means over equal parts of the clip, concatenated."""
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


def half_square(difference: Tensor) -> Tensor:
    """½ Σ of the squares of everything that belongs to a row: `(N, …)` → `(N,)`.

    >>> half_square(torch.tensor([[1.0, 3.0], [0.0, 2.0]])).tolist()
    [5.0, 2.0]
    """
    return difference.flatten(1).square().sum(1) / 2


def bone_lengths(poses: Tensor, bones: Sequence[tuple[int, int]]) -> Tensor:
    """Distances `(N, bones)` of joints and parents in poses `(N, V, C)`; bones: (child, parent)."""
    child, parent = ([bone[end] for bone in bones] for end in (0, 1))
    return torch.linalg.vector_norm(poses[:, child] - poses[:, parent], dim=2)


def orthogonality(matrices: Tensor) -> Tensor:
    """½ ‖M·Mᵀ − 1‖² of each matrix `(N, K, K)`: 0 for rotations.

    >>> orthogonality(torch.eye(2)[None]).tolist()
    [0.0]
    """
    return half_square(matrices @ matrices.transpose(1, 2) - torch.eye(matrices.shape[1]).to(matrices))


@dataclass(frozen=True)
class DisentanglementSettings(CheckedSettings):
    """The defaults are those of the public code of SeBiReNet; `frames` is ours."""

    frames: int = limited(8, least=1)  # poses of every clip that a step trains on
    removed: int = limited(5, least=1)  # 1 to this many joints are removed from a pose
    crossed_weight: float = limited(0.01, least=0)  # of poses decoded with the other's view
    invariance_weight: float = limited(1.0, least=0)
    orthogonality_weight: float = limited(5.0, least=0)

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the losses by name."""
        return {
            "crossed": self.crossed_weight,
            "invariance": self.invariance_weight,
            "orthogonality": self.orthogonality_weight,
        }


@register_method("disentanglement", DisentanglementSettings)
class DisentanglementMethod(PredictiveMethod):
    """An autoencoder of poses whose code is the product of a pose and a view."""

    settings: DisentanglementSettings
    needs = ("codes", "centre", "code_size", "frame_size")
    why = "method 'disentanglement' needs codes of pose and view"

    @classmethod
    def check(cls, settings: DisentanglementSettings, recipe: Any) -> None:
        super().check(settings, recipe)
        if settings.frames > recipe.views.frames:
            raise InputError(
                f"disentanglement.frames = {settings.frames} is more than a view has: views.frames ="
                f" {recipe.views.frames}"
            )

    def decoder(self, encoder: Any, settings: DisentanglementSettings, context: BuildContext) -> nn.Module:
        if settings.removed >= len(context.topology):
            raise InputError(
                f"disentanglement.removed = {settings.removed} joints leave nothing of topology"
                f" '{context.topology.name}'"
            )
        return initialise(PoseDecoder(encoder))

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        encoder, decoder = cast(Any, self.backbones[name]), cast(PoseDecoder, self.decoders[name])
        poses, removed, rotation = self._draw(clips, encoder, batch)
        whole = torch.stack([poses, (poses.flatten(1, 3) @ rotation).view_as(poses)])
        seen = whole.masked_fill(removed[..., None], 0)
        # both at once, and all four decodings below: the cells of the tree are many and small
        code, view = (part.chunk(2) for part in encoder.codes(seen.flatten(0, 3)))
        present = persons_present(clips).to(poses)
        per_pose = self._losses(decoder, whole.flatten(1, 3), code, view)
        losses = {part: batch.mean(_mean_of_present(value, present)) for part, value in per_pose.items()}
        features = code[0].reshape(len(clips), -1, encoder.frame_size).mean(1)
        return Predicted(losses, features)

    def _draw(self, clips: Tensor, encoder: Any, batch: WholeBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Poses `(B, k, P, V, C)` of every clip, centred, with joints removed, and a rotation per clip."""
        frames, persons, joints = clips.shape[1:4]
        order = batch.rand(frames).argsort(1)[:, : self.settings.frames].to(clips.device)
        index = order[:, :, None, None, None].expand(-1, -1, *clips.shape[2:])
        poses = around_centre(clips.gather(1, index), encoder.centre)
        count = 1 + (batch.rand(order.shape[1], persons, 1) * self.settings.removed).long()
        removed = batch.rand(order.shape[1], persons, joints).argsort(3).argsort(3) < count
        angles = (2 * batch.rand(clips.shape[4]) - 1) * math.pi
        return poses, removed.to(clips.device), rotation_matrices(angles).to(clips)

    def _losses(
        self, decoder: PoseDecoder, whole: Tensor, code: Sequence[Tensor], view: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        """All losses of every pose `(N,)`; each argument has the pose itself and its rotated copy."""
        products = [code[0] @ view[0], code[1] @ view[1], code[1] @ view[0], code[0] @ view[1]]
        straight, crossed = decoder(torch.cat(products)).view(2, *whole.shape)
        lengths = [bone_lengths(poses.flatten(0, 1), self.topology.bones) for poses in (straight, whole)]
        return {
            "pose": half_square((straight - whole).transpose(0, 1)),
            "bones": half_square((lengths[0] - lengths[1]).unflatten(0, (2, -1)).transpose(0, 1)),
            "crossed": half_square((crossed - whole).transpose(0, 1)),
            "invariance": half_square(code[0] - code[1]),
            "orthogonality": orthogonality(view[0]) + orthogonality(view[1]),
        }


def _mean_of_present(per_pose: Tensor, there: Tensor) -> Tensor:
    """Mean over poses of present persons `(B, P)`, from a number per pose: `(B,)`; 0 for nobody."""
    value = per_pose.view(len(there), -1, there.shape[1]).mean(1)
    return (value * there).sum(1) / there.sum(1).clamp_min(1)
