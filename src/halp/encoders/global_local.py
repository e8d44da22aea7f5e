"""The encoder of GL-Transformer: attention among the joints within each frame, then among whole frames, block by block.

A token is one joint of one person in one frame. Joints are read relative to the centre joint of their person, which itself
is read where it is: what the body does and where it goes are told apart by two embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halp.encoders import check_joints, register_encoder
from halp.encoders.transformer import attend
from halp.errors import InputError
from halp.skeleton import Topology


@dataclass(frozen=True)
class GlobalLocalSettings:
    """Sizes for a CPU by default; GL-Transformer has width 48, 4 layers, 8 heads and 300 frames, padded."""

    width: int = 8  # per joint; a frame has as many times that as there are joints of all persons
    layers: int = 2
    heads: int = 4
    frames: int = 32  # the most frames a clip has
    expansion: int = 2  # of the feed-forward layers
    dropout: float = 0.1
    attention_dropout: float = 0.1
    path_dropout: float = 0.1  # of the last block; grows from 0 in the first

    def __post_init__(self) -> None:
        sizes = (self.width, self.layers, self.heads, self.frames, self.expansion)
        if min(sizes) < 1 or self.width % self.heads:
            raise InputError(
                f"encoder: width, layers, heads, frames and expansion have to be at least 1 and width = {self.width} a "
                f"multiple of heads = {self.heads}"
            )
        if not all(0 <= share < 1 for share in (self.dropout, self.attention_dropout, self.path_dropout)):
            raise InputError("encoder: dropout, attention_dropout and path_dropout have to lie in [0, 1)")


class Attention(nn.Module):
    """Pre-norm attention among tokens `(N, tokens, width)`."""

    def __init__(self, width: int, settings: GlobalLocalSettings) -> None:
        super().__init__()
        self.heads, self.norm = settings.heads, nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.weight_dropout, self.dropout = nn.Dropout(settings.attention_dropout), nn.Dropout(settings.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.out(attend(self.mix(self.norm(x)), self.heads, self.weight_dropout)))


class PathDropout(nn.Module):
    """Leaves out what a block would add, for whole entries of the first axis."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.draw = nn.Dropout(share)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.draw(x.new_ones(len(x), 1, 1)) if self.training else x


class GlobalLocalBlock(nn.Module):
    """Joints within a frame, then frames, then a feed-forward layer: `(B, T, tokens, width)` → the same.

    Learned places of all tokens are added before either attention.
    """

    def __init__(self, tokens: int, path: float, settings: GlobalLocalSettings) -> None:
        super().__init__()
        whole, hidden = tokens * settings.width, settings.expansion * tokens * settings.width
        self.places = nn.Parameter(torch.zeros(settings.frames, tokens, settings.width))
        self.joints, self.times = Attention(settings.width, settings), Attention(whole, settings)
        layers = [nn.LayerNorm(whole), nn.Linear(whole, hidden), nn.GELU(), nn.Dropout(settings.dropout)]
        self.feed = nn.Sequential(*layers, nn.Linear(hidden, whole), nn.Dropout(settings.dropout))
        self.path = PathDropout(path)

    def forward(self, x: Tensor) -> Tensor:
        places = self.places[: x.shape[1]]
        within = (x + places).flatten(0, 1)
        within = within + self.path(self.joints(within))
        across = (within.view_as(x) + places).flatten(2)
        across = across + self.path(self.times(across))
        return (across + self.path(self.feed(across))).view_as(x)


class GlobalLocalEncoder(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, P·V·width)`, the mean of those of all frames."""

    def __init__(self, topology: Topology, persons: int, settings: GlobalLocalSettings) -> None:
        super().__init__()
        self.joints, self.coordinates, self.persons = len(topology), topology.dimensions, persons
        self.centre, self.most_frames = centre_joint(topology), settings.frames
        tokens = persons * self.joints
        self.output_size = self.frame_size = tokens * settings.width
        self.embed, self.embed_centre = (nn.Linear(self.coordinates, settings.width) for _ in range(2))
        self.dropout = nn.Dropout(settings.dropout)
        last = max(settings.layers - 1, 1)
        paths = [settings.path_dropout * layer / last for layer in range(settings.layers)]
        self.blocks = nn.ModuleList(GlobalLocalBlock(tokens, path, settings) for path in paths)
        size = self.output_size
        halves = ((nn.Linear(size, size), nn.GELU(), nn.LayerNorm(size)) for _ in range(2))
        self.mlp = nn.Sequential(nn.LayerNorm(size), *(layer for half in halves for layer in half))

    def forward(self, clips: Tensor) -> Tensor:
        return self.pool(self.sequence(clips))

    def sequence(self, clips: Tensor) -> Tensor:
        """The feature map before pooling, `(B, T, output_size)`."""
        _, frames, persons, *_ = check_joints(clips, self.joints, self.coordinates)
        if persons != self.persons or frames > self.most_frames:
            raise InputError(
                f"the encoder reads {self.persons} persons and at most {self.most_frames} frames; clips of shape "
                f"{tuple(clips.shape)} have {persons} and {frames}"
            )
        x = self.embed(relative_to_centre(clips, self.centre))
        middle = torch.arange(self.joints, device=clips.device)[:, None] == self.centre
        x = self.dropout(torch.where(middle, self.embed_centre(clips), x).flatten(2, 3))
        for block in self.blocks:
            x = block(x)
        return self.mlp(x.flatten(2))

    def pool(self, x: Tensor) -> Tensor:
        """Mean over frames."""
        return x.mean(1)


def centre_joint(topology: Topology) -> int:
    """Index of the joint that stands for the place of the body: the topology's centre, else its first root."""
    if topology.centre:
        return topology.index(topology.centre)
    return next(joint for joint, parent in enumerate(topology.parents) if joint == parent)


def relative_to_centre(clips: Tensor, centre: int) -> Tensor:
    """Clips `(B, T, P, V, C)` with every joint relative to the centre of its person, and the centre where it is."""
    middle = clips[:, :, :, centre : centre + 1]
    is_centre = torch.arange(clips.shape[3], device=clips.device)[:, None] == centre
    return torch.where(is_centre, clips, clips - middle)


@register_encoder("global-local", GlobalLocalSettings)
def build_global_local(settings: GlobalLocalSettings, topology: Topology, persons: int) -> nn.Module:
    """The encoder of GL-Transformer for any topology."""
    return GlobalLocalEncoder(topology, persons, settings)
