"""Pose and view apart (SeBiReNet): a pose and its rotated copy have the same code of the pose, and codes of the view to swap.

Poses are trained one by one: some frames of every clip, some joints of each removed, decoded whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from halp.augment.paper import rotation_matrices
from halp.encoders.sebirenet import PoseDecoder, SeBiReNet, around_centre
from halp.encoders.transformer import persons_present
from halp.errors import InputError
from halp.initialisation import initialise
from halp.losses.pose import bone_lengths, half_square, orthogonality
from halp.methods.base import BuildContext, register_method
from halp.methods.predictive import Predicted, PredictiveMethod, PredictiveSettings, WholeBatch, require_encoder


@dataclass(frozen=True)
class DisentanglementSettings(PredictiveSettings):
    """The defaults are those of the public code of SeBiReNet; `frames` is ours."""

    frames: int = 8  # poses of every clip that a step trains on
    removed: int = 5  # 1 to so many joints are removed from a pose
    crossed_weight: float = 0.01  # of poses decoded with the other's view
    invariance_weight: float = 1.0
    orthogonality_weight: float = 5.0

    def __post_init__(self) -> None:
        if min(self.frames, self.removed) < 1:
            raise InputError("disentanglement: frames and removed have to be at least 1")
        if min(self.weights.values()) < 0:
            raise InputError("disentanglement: crossed, invariance and orthogonality weights cannot be negative")

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the losses by name."""
        return {
            "crossed": self.crossed_weight,
            "invariance": self.invariance_weight,
            "orthogonality": self.orthogonality_weight,
        }


class DisentanglementMethod(PredictiveMethod):
    """An autoencoder of poses whose code is the product of a pose and a view."""

    settings: DisentanglementSettings

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        encoder, decoder = cast(SeBiReNet, self.backbones[name]), cast(PoseDecoder, self.decoders[name])
        poses, removed, rotation = self._draw(clips, encoder, batch)
        whole = torch.stack([poses, (poses.flatten(1, 3) @ rotation).view_as(poses)])
        seen = whole.masked_fill(removed[..., None], 0)
        # both at once, and all four decodings below: the cells of the tree are many and small
        code, view = (part.chunk(2) for part in encoder.codes(seen.flatten(0, 3)))
        there = persons_present(clips).to(poses)
        found = self._losses(decoder, whole.flatten(1, 3), code, view)
        losses = {part: batch.mean(_mean_of_present(value, there)) for part, value in found.items()}
        features = code[0].reshape(len(clips), -1, encoder.frame_size).mean(1)
        return Predicted(losses, features)

    def _draw(self, clips: Tensor, encoder: SeBiReNet, batch: WholeBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Some poses `(B, k, P, V, C)` of every clip around its centre, joints removed from each, and a rotation per clip."""
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
        own, crossed = decoder(torch.cat(products)).view(2, *whole.shape)
        lengths = [bone_lengths(poses.flatten(0, 1), self.topology.bones) for poses in (own, whole)]
        return {
            "pose": half_square((own - whole).transpose(0, 1)),
            "bones": half_square((lengths[0] - lengths[1]).unflatten(0, (2, -1)).transpose(0, 1)),
            "crossed": half_square((crossed - whole).transpose(0, 1)),
            "invariance": half_square(code[0] - code[1]),
            "orthogonality": orthogonality(view[0]) + orthogonality(view[1]),
        }


def _mean_of_present(per_pose: Tensor, there: Tensor) -> Tensor:
    """Mean over the poses of persons who are there `(B, P)`, from a number per pose `(B·k·P,)`: `(B,)`; 0 for nobody."""
    value = per_pose.view(len(there), -1, there.shape[1]).mean(1)
    return (value * there).sum(1) / there.sum(1).clamp_min(1)


def _check(settings: DisentanglementSettings, recipe: Any) -> None:
    require_encoder(recipe, ["sebirenet"], "needs codes of pose and view")
    if settings.frames > recipe.views.frames:
        raise InputError(
            f"disentanglement.frames = {settings.frames} is more than a view has: views.frames = {recipe.views.frames}"
        )


@register_method("disentanglement", DisentanglementSettings, check=_check)
def build_disentanglement(settings: DisentanglementSettings, context: BuildContext) -> DisentanglementMethod:
    """Pose and view apart, in every stream of the recipe."""
    if settings.removed >= len(context.topology):
        raise InputError(
            f"disentanglement.removed = {settings.removed} joints leave nothing of topology '{context.topology.name}'"
        )
    parts = context.build_pairs(lambda encoder: initialise(PoseDecoder(encoder)))
    return DisentanglementMethod(*parts, settings, context.topology)
