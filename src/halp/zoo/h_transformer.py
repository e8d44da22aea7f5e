"""H-Transformer (Cheng et al., ICME 2021): in which direction do the joints of hidden frames move?

The encoder joins body parts step by step as a clip goes through a stack of attention layers. A token is the
pose of one frame. It begins as five parts side by side (trunk, arms, legs), with a head of attention for
each; then every limb stands beside a copy of the trunk, and the number of heads falls from four to two to
one, the whole body.
"""

from __future__ import annotations

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
    attend,
    check_joints,
    derive,
    limited,
    register_encoder,
    register_method,
)

HEADS = (5, 4, 2, 1)  # of the four stages
PARTS = 5
SPLITS = 8  # a part has an eighth of the width: four pairs of trunk and limb make the whole


@dataclass(frozen=True)
class HierarchicalSettings(CheckedSettings):
    """Sizes for a CPU by default; H-Transformer has width 2048, 4 or 8 layers and 150 frames."""

    width: int = limited(64, least=1)
    layers: int = limited(4, least=1)
    feed: int = limited(128, least=1)  # units of the feed-forward layers
    frames: int = limited(32, least=1)  # the most frames a clip has
    dropout: float = limited(0.1, least=0, below=1)
    attention_dropout: float = limited(0.1, least=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % SPLITS or self.layers % len(HEADS):
            raise InputError(
                f"encoder: width = {self.width} must be a multiple of {SPLITS} and layers = {self.layers} one"
                f" of {len(HEADS)}, for as many stages"
            )


class PostNormBlock(nn.Module):
    """Attention and feed-forward, LayerNorm after each sum, as in BERT: `(N, tokens, width)` → the same."""

    def __init__(self, width: int, heads: int, settings: HierarchicalSettings) -> None:
        super().__init__()
        self.heads = heads
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, settings.feed), nn.GELU(), nn.Linear(settings.feed, width))
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.weight_dropout, self.dropout = (
            nn.Dropout(settings.attention_dropout),
            nn.Dropout(settings.dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        attended = self.out(attend(self.mix(x), self.heads, self.weight_dropout))
        x = self.attention_norm(x + self.dropout(attended))
        return self.feed_norm(x + self.dropout(self.feed(x)))


@register_encoder("hierarchical", HierarchicalSettings)
class HierarchicalEncoder(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, width)`, the mean over frames, of the first person."""

    hides_frames = True  # `sequence` takes which frames are hidden

    def __init__(self, settings: HierarchicalSettings, topology: Topology, persons: int) -> None:
        super().__init__()
        self.joints, self.coordinates, self.most_frames = len(topology), topology.dimensions, settings.frames
        self.output_size = self.frame_size = settings.width
        self.parts, self.part_size = list(body_parts(topology).values()), settings.width // SPLITS
        self.embeddings = nn.ModuleList(
            nn.Linear(len(part) * self.coordinates, self.part_size, bias=False) for part in self.parts
        )
        first = PARTS * self.part_size
        self.places = nn.Parameter(torch.empty(settings.frames, first))
        self.norm, self.dropout = nn.LayerNorm(first), nn.Dropout(settings.dropout)
        stage = settings.layers // len(HEADS)
        self.part_blocks = nn.ModuleList(PostNormBlock(first, HEADS[0], settings) for _ in range(stage))
        self.body_blocks = nn.ModuleList(
            PostNormBlock(settings.width, heads, settings) for heads in HEADS[1:] for _ in range(stage)
        )
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.trunc_normal_(parameter, std=0.02)

    def forward(self, clips: Tensor) -> Tensor:
        return self.pool(self.sequence(clips))

    def sequence(self, clips: Tensor, hidden: Tensor | None = None) -> Tensor:
        """The feature map before pooling, `(B, T, width)`; `hidden` frames `(B, T)` are read as zeros."""
        _, frames, *_ = check_joints(clips, self.joints, self.coordinates)
        if frames > self.most_frames:
            raise InputError(
                f"the encoder reads at most {self.most_frames} frames, and clips have {frames}; set"
                " views.frames and encoder.frames to fit"
            )
        poses = fit_to_unit_cube(clips[:, :, 0])
        if hidden is not None:
            poses = poses.masked_fill(hidden[:, :, None, None], 0)
        parts = [embed(poses[:, :, part].flatten(2)) for embed, part in zip(self.embeddings, self.parts)]
        x = self.dropout(self.norm(torch.cat(parts, dim=2) + self.places[:frames]))
        for block in self.part_blocks:
            x = block(x)
        x = join_limbs_with_trunk(x, self.part_size)
        for block in self.body_blocks:
            x = block(x)
        return x

    def pool(self, x: Tensor) -> Tensor:
        """Mean over frames."""
        return x.mean(1)


def fit_to_unit_cube(poses: Tensor) -> Tensor:
    """Poses `(B, T, V, C)` stretched to [−1, 1] along each axis per clip; 0 for axes without extent."""
    low, high = poses.amin((1, 2), keepdim=True), poses.amax((1, 2), keepdim=True)
    extent = high - low
    scaled = 2 * (poses - low) / torch.where(extent > 0, extent, torch.ones_like(extent)) - 1
    return scaled.masked_fill(extent == 0, 0)


def join_limbs_with_trunk(x: Tensor, size: int) -> Tensor:
    """Parts `(…, 5·size)` as four pairs of trunk and limb, `(…, 8·size)`."""
    trunk, *limbs = x.split(size, dim=-1)
    return torch.cat([part for limb in limbs for part in (trunk, limb)], dim=-1)


def body_parts(topology: Topology) -> dict[str, list[int]]:
    """The joints of trunk, arms and legs; a topology without one of them is refused."""
    parts = topology.body_parts
    for part, joints in parts.items():
        if not joints:
            raise InputError(
                f"encoder 'hierarchical' needs joints of every limb by name, and topology '{topology.name}'"
                f" has none of '{part}' (such as {'elbow' if part.startswith('arm') else 'knee'}_left);"
                " choose another encoder"
            )
    return parts


@torch.no_grad()
def rising_coordinates(moved: Tensor) -> Tensor:
    """Classes `(…)` of displacements `(…, C)`: bit i is set if coordinate i grows.

    >>> rising_coordinates(torch.tensor([[0.1, 0.0, 0.3], [-0.1, 0.2, -0.3]])).tolist()
    [5, 2]
    """
    return ((moved > 0).long() * 2 ** torch.arange(moved.shape[-1], device=moved.device)).sum(-1)


HIDE = ("zero", "none")


@dataclass(frozen=True)
class MotionDirectionSettings(CheckedSettings):
    """The defaults are H-Transformer's; `hide = "none"` is what its public code does."""

    share: float = limited(0.15, above=0, most=1)  # of the frames that are asked for
    hide: str = limited("zero", among=HIDE)
    units: int = limited(16, least=1)  # per joint, of the head


@register_method("motion-direction", MotionDirectionSettings)
class MotionDirectionMethod(PredictiveMethod):
    """Asks for the directions of all joints of the first person in some frames of every clip."""

    settings: MotionDirectionSettings
    needs = ("sequence", "pool", "frame_size", "hides_frames")
    why = "method 'motion-direction' hides frames from the encoder"

    def decoder(self, encoder: Any, settings: MotionDirectionSettings, context: BuildContext) -> nn.Module:
        return Head(encoder.frame_size, settings.units, context.topology)

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        encoder = cast(Any, self.backbones[name])
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
    """Features `(N, F)` of frames → logits `(N, V, V·2^C)`: units per joint, then a shared layer."""

    def __init__(self, features: int, units: int, topology: Topology) -> None:
        super().__init__()
        joints, hidden = len(topology), 4 * units
        self.joints = joints
        self.body = nn.Sequential(
            nn.Linear(features, joints * units), nn.GELU(), nn.LayerNorm(joints * units)
        )
        self.joint = nn.Sequential(nn.Linear(units, hidden), nn.GELU(), nn.LayerNorm(hidden))
        self.out = nn.Linear(hidden, joints * 2**topology.dimensions)

    def forward(self, features: Tensor) -> Tensor:
        return self.out(self.joint(self.body(features).unflatten(1, (self.joints, -1))))
