"""Motion direction prediction (H-Transformer): where do the joints go next, in frames that are hidden from the encoder?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.encoders.hierarchical import HierarchicalEncoder
from halp.errors import InputError, choose
from halp.losses.displacement import rising_coordinates
from halp.methods.base import BuildContext, register_method
from halp.methods.predictive import Predicted, PredictiveMethod, PredictiveSettings, WholeBatch, require_encoder
from halp.skeleton import Topology
from halp.streams import derive

HIDE = ("zero", "none")


@dataclass(frozen=True)
class MotionDirectionSettings(PredictiveSettings):
    """The defaults are H-Transformer's; `hide = "none"` is what its public code does."""

    share: float = 0.15  # of the frames that are asked for
    hide: str = "zero"
    units: int = 16  # per joint, of the head

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or self.units < 1:
            raise InputError(f"motion-direction: share = {self.share} has to lie in (0, 1] and units be at least 1")
        choose("hide", self.hide, HIDE)


class MotionDirectionMethod(PredictiveMethod):
    """Asks for the directions of all joints of the first person in some frames of every clip."""

    settings: MotionDirectionSettings

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        encoder = cast(HierarchicalEncoder, self.backbones[name])
        asked = batch.some_frames(clips.shape[1], self.settings.share).to(clips.device)
        states = encoder.sequence(clips, asked if self.settings.hide == "zero" else None)
        classes = rising_coordinates(derive(clips, "motion", self.topology)[:, :, 0])
        # joint v has classes of its own: the head has to tell joints apart, too
        classes = classes + 2 ** clips.shape[4] * torch.arange(clips.shape[3], device=clips.device)
        logits, wanted = self.decoders[name](states[asked]), classes[asked]
        error = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view(len(clips), -1)
        right = (logits.argmax(2) == wanted).to(error).view(len(clips), -1)
        metrics = {"direction_accuracy": batch.mean(right.mean(1))}
        return Predicted({"direction": batch.mean(error.mean(1))}, encoder.pool(states), metrics)


class Head(nn.Module):
    """Features `(N, F)` of frames → logits `(N, V, V·2^C)`: some units for each joint, then a layer that joints share."""

    def __init__(self, features: int, units: int, topology: Topology) -> None:
        super().__init__()
        joints, hidden = len(topology), 4 * units
        self.joints = joints
        self.body = nn.Sequential(nn.Linear(features, joints * units), nn.GELU(), nn.LayerNorm(joints * units))
        self.joint = nn.Sequential(nn.Linear(units, hidden), nn.GELU(), nn.LayerNorm(hidden))
        self.out = nn.Linear(hidden, joints * 2**topology.dimensions)

    def forward(self, features: Tensor) -> Tensor:
        return self.out(self.joint(self.body(features).unflatten(1, (self.joints, -1))))


@register_method(
    "motion-direction",
    MotionDirectionSettings,
    check=lambda _, recipe: require_encoder(recipe, ["hierarchical"], "hides frames of the first person"),
)
def build_motion_direction(settings: MotionDirectionSettings, context: BuildContext) -> MotionDirectionMethod:
    """Motion direction prediction in every stream of the recipe."""
    parts = context.build_pairs(lambda encoder: Head(encoder.frame_size, settings.units, context.topology))
    return MotionDirectionMethod(*parts, settings, context.topology)
