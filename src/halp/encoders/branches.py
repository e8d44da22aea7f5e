"""The two-branch encoder: attention over frames and over joints, which are identified by name.

Joints, bones and motion go into both branches together (early fusion). No weight depends on the layout: what
belongs to a joint is a row of a table over all joint names, that is, over body part, side and place in the
limb. An encoder trained on one topology loads for another one of as many coordinates, and joints of the same
name have the same weights there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError
from halp.core.initialisation import initialise
from halp.encoders import check_joints, register_encoder
from halp.encoders.fusion import THIRDS, thirds
from halp.encoders.transformer import TransformerBlock
from halp.skeleton import LIMBS, Topology, parents_by_name

MODALITIES = 3  # joints, bones, motion
PARTS = 5  # trunk, arms, legs
OTHER = "other"  # a joint whose name is not known
MIDDLE = ("hip_center", "spine_lower", "spine", "chest", "shoulder_center", "neck", "head", "nose", OTHER)
PAIRED = ("eye_inner", "eye", "eye_outer", "ear", "mouth", *LIMBS["arm"], *LIMBS["leg"], OTHER)
NAMES = (*MIDDLE, *(f"{stem}_{side}" for side in ("left", "right") for stem in PAIRED))


@dataclass(frozen=True)
class BranchesSettings(CheckedSettings):
    """Sizes of both branches; views have exactly this many frames."""

    width: int = limited(256, least=1)
    layers: int = limited(1, least=1)
    heads: int = limited(4, least=1)
    feed: int = limited(512, least=1)  # width of the feed-forward layers
    frames: int = limited(32, least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise InputError(f"encoder: width = {self.width} must be a multiple of heads = {self.heads}")


def name_rows(topology: Topology) -> Tensor:
    """For every joint `(V,)` the row of `NAMES` that it has; those of unknown names share one for each side.

    >>> from halp.skeleton import topology_for
    >>> [NAMES[row] for row in name_rows(topology_for(["head", "knee_left", "wing_left", "tail"], 3))]
    ['head', 'knee_left', 'other_left', 'other']
    """
    rows = {name: row for row, name in enumerate(NAMES)}
    if not rows.keys() & set(topology.joints):
        raise InputError(
            f"encoder 'branches' knows joints by their names, and topology '{topology.name}' has none that it"
            f" knows (such as {', '.join(NAMES[:3])}, elbow_left); rename its joints or choose another"
            " encoder"
        )
    sides = [f"{OTHER}_{joint.rpartition('_')[2]}" for joint in topology.joints]
    return torch.tensor(
        [rows.get(joint, rows.get(side, rows[OTHER])) for joint, side in zip(topology.joints, sides)]
    )


class NamedLinear(nn.Module):
    """A linear map of all joints of a frame, `(…, V·C)` → `(…, width)`; weights are found by joint name."""

    rows: Tensor

    def __init__(self, rows: Tensor, coordinates: int, width: int) -> None:
        super().__init__()
        self.register_buffer("rows", rows, persistent=False)
        self.weight = nn.Parameter(torch.empty(len(NAMES), coordinates, width).normal_(std=width**-0.5))
        self.bias = nn.Parameter(torch.empty(width).normal_(std=width**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight[self.rows].flatten(0, 1) + self.bias


class Branch(nn.Module):
    """Inputs of every modality `(N, tokens, inputs)` → tokens `(N, tokens, width)` after attention."""

    def __init__(self, first: Callable[[], nn.Module], settings: BranchesSettings) -> None:
        """`first` makes the layer that reads a modality."""
        super().__init__()
        width = settings.width
        self.embeddings = nn.ModuleList(
            nn.Sequential(first(), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(MODALITIES)
        )
        self.fuse = nn.Linear(width, width)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, settings.heads, feed=settings.feed) for _ in range(settings.layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, inputs: Sequence[Tensor], places: Tensor, mask: Tensor | None = None) -> Tensor:
        """`places` `(tokens, width)` are position embeddings; `mask` `(N, tokens)` marks the valid tokens."""
        embedded = [embed(x) for embed, x in zip(self.embeddings, inputs)]
        x = self.fuse(torch.stack(embedded).mean(0)) + places
        for block in self.blocks:
            x = cast(TransformerBlock, block)(x, mask)
        return self.norm(x)


@register_encoder("branches", BranchesSettings)
class BranchesEncoder(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, 10·width)`; the maximum over separately encoded persons.

    Features are maxima over the frames of each third of the clip and of the whole, and over the joints of
    each of five body parts and of the whole body. A joint that is zero in all frames is missing, except for
    the centre joint, which normalisation puts there: it is masked out of attention and of the maxima, as are
    the bones at it. A person without any joint is absent. A maximum over nothing (nobody there, a part
    without joints) is zero.
    """

    names: Tensor
    times: Tensor

    def __init__(self, settings: BranchesSettings, topology: Topology, persons: int) -> None:
        super().__init__()
        self.joints, self.coordinates, self.frames = len(topology), topology.dimensions, settings.frames
        self.parents, self.parts = list(parents_by_name(topology.joints)), list(topology.body_parts.values())
        self.centre = topology.index(topology.centre) if topology.centre else None
        self.output_size = (THIRDS + 1 + PARTS + 1) * settings.width
        rows, width = name_rows(topology), settings.width
        self.input_norm = nn.BatchNorm1d(MODALITIES * self.coordinates)
        self.frame_branch = Branch(lambda: NamedLinear(rows, self.coordinates, width), settings)
        self.joint_branch = Branch(lambda: nn.Linear(settings.frames * self.coordinates, width), settings)
        self.joint_names = nn.Embedding(len(NAMES), width)
        self.register_buffer("names", rows, persistent=False)
        self.register_buffer("times", sinusoids(settings.frames, width), persistent=False)
        initialise(self)

    def forward(self, clips: Tensor) -> Tensor:
        batch, frames, persons, *_ = check_joints(clips, self.joints, self.coordinates)
        if frames != self.frames:
            raise InputError(
                f"the encoder reads clips of {self.frames} frames, and these have {frames}; set views.frames"
                " and encoder.frames to the same number"
            )
        largest = self.describe(clips.transpose(1, 2).flatten(0, 1)).view(batch, persons, -1).amax(1)
        return largest.masked_fill(largest == -torch.inf, 0)

    def describe(self, bodies: Tensor) -> Tensor:
        """Features `(N, F)` of separate bodies `(N, T, V, C)`; −∞ where a maximum is over nothing."""
        seen = self.seen(bodies)
        present = seen.any(1, keepdim=True)
        streams = self.inputs(bodies, seen)
        frames = self.frame_branch([x.flatten(2) for x in streams], self.times)
        # attention among no tokens at all is undefined: an absent person keeps all of them until the maximum
        # is taken
        trajectories = [x.transpose(1, 2).flatten(2) for x in streams]
        joints = self.joint_branch(trajectories, self.joint_names(self.names), seen | ~present)
        return self.pool(
            frames.masked_fill(~present[:, :, None], -torch.inf),
            joints.masked_fill(~seen[:, :, None], -torch.inf),
        )

    def seen(self, bodies: Tensor) -> Tensor:
        """Which joints `(N, V)` are present; the centre is, if any other joint is."""
        seen = (bodies != 0).any(3).any(1)
        if self.centre is None:
            return seen
        centre = torch.arange(self.joints, device=bodies.device) == self.centre
        return seen | (centre & seen.any(1, keepdim=True))

    def inputs(self, bodies: Tensor, seen: Tensor) -> Sequence[Tensor]:
        """Standardised joints, bones and motion, each `(N, T, V, C)`; 0 for what is missing."""
        bones = bodies - bodies[:, :, self.parents]
        motion = nn.functional.pad(bodies[:, 1:] - bodies[:, :-1], (0, 0, 0, 0, 0, 1))
        x = torch.cat([bodies, bones, motion], dim=3)
        normed = self.input_norm(x.flatten(0, 2)).view_as(x).chunk(MODALITIES, dim=3)
        known = (seen, seen & seen[:, self.parents], seen)
        return [values * there[:, None, :, None] for values, there in zip(normed, known)]

    def pool(self, frames: Tensor, joints: Tensor) -> Tensor:
        """Maxima over thirds and all of the frames `(N, T, width)`, parts and all of the joints."""
        of_thirds = torch.stack([frames[:, third].amax(1) for third in thirds(self.frames)], dim=1)
        nothing = torch.full_like(joints[:, 0], -torch.inf)
        parts = torch.stack([joints[:, part].amax(1) if part else nothing for part in self.parts], dim=1)
        maxima = [of_thirds, of_thirds.amax(1, keepdim=True), parts, parts.amax(1, keepdim=True)]
        return torch.cat(maxima, dim=1).flatten(1)


def sinusoids(frames: int, width: int) -> Tensor:
    """Fixed embeddings `(frames, width)` of frame times: sines, then cosines, of increasing periods."""
    rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(frames)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]
