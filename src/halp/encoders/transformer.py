"""A transformer over patches of joints in time, as in masked prediction (after MAMP); any topology.

A token is one joint over `patch` frames. Persons are sequences of their own; one who is absent (all zeros)
does not take part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halp.core.config import CheckedSettings, limited
from halp.core.errors import InputError
from halp.encoders import check_joints, register_encoder
from halp.skeleton import Topology


@dataclass(frozen=True)
class TransformerSettings(CheckedSettings):
    """Sizes for a CPU by default; MAMP has patches of 4 frames, width 256, 8 layers and 8 heads."""

    patch: int = limited(8, least=1)  # frames per token
    width: int = limited(128, least=1)
    layers: int = limited(4, least=1)
    heads: int = limited(4, least=1)
    frames: int = limited(32, least=1)  # the most frames a clip has
    dropout: float = limited(0.0, least=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for whole, part in (("width", "heads"), ("frames", "patch")):
            if getattr(self, whole) % getattr(self, part):
                raise InputError(
                    f"encoder: {whole} = {getattr(self, whole)} must be a multiple of {part} ="
                    f" {getattr(self, part)}"
                )


def attend(mixed: Tensor, heads: int, dropout: nn.Module | None = None, mask: Tensor | None = None) -> Tensor:
    """Attention, from queries, keys and values side by side: `(N, tokens, 3·width)` → `(N, tokens, width)`.

    `dropout`, where given, is applied to the weights; a `mask` `(N, tokens)`, without dropout, says which
    tokens are attended to.
    """
    number, tokens, triple = mixed.shape
    size = triple // 3 // heads
    query, key, value = mixed.view(number, tokens, 3, heads, size).permute(2, 0, 3, 1, 4)
    if dropout is None:
        visible = None if mask is None else mask[:, None, None]
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=visible)
    else:
        attended = dropout(torch.softmax(query @ key.transpose(2, 3) * size**-0.5, dim=3)) @ value
    return attended.transpose(1, 2).reshape(number, tokens, triple // 3)


class TransformerBlock(nn.Module):
    """Pre-norm attention and feed-forward (width `feed`, by default four times the input's) of tokens."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, feed: int | None = None) -> None:
        super().__init__()
        inner = 4 * width if feed is None else feed
        self.heads = heads
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.dropout(self.out(attend(self.mix(self.attention_norm(x)), self.heads, mask=mask)))
        return x + self.dropout(self.feed(self.feed_norm(x)))


@register_encoder("transformer", TransformerSettings)
class TransformerEncoder(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, width)`, the mean over the tokens of present persons.

    Persons share its weights.
    """

    def __init__(self, settings: TransformerSettings, topology: Topology, persons: int) -> None:
        super().__init__()
        self.joints, self.coordinates, self.patch = len(topology), topology.dimensions, settings.patch
        self.output_size, self.most_frames = settings.width, settings.frames
        self.embed = nn.Linear(settings.patch * self.coordinates, settings.width)
        self.joint_place = nn.Parameter(torch.empty(self.joints, settings.width))
        self.time_place = nn.Parameter(torch.empty(settings.frames // settings.patch, settings.width))
        for place in (self.joint_place, self.time_place):
            nn.init.trunc_normal_(place, std=0.02)
        self.blocks = nn.ModuleList(
            TransformerBlock(settings.width, settings.heads, settings.dropout) for _ in range(settings.layers)
        )
        self.norm = nn.LayerNorm(settings.width)

    def forward(self, clips: Tensor) -> Tensor:
        return self.pool(self.sequence(clips), persons_present(clips))

    def sequence(self, clips: Tensor) -> Tensor:
        """The feature map before pooling, `(B, P, tokens, width)`."""
        tokens = self.encode(self.patches(clips))
        return tokens.unflatten(0, (clips.shape[0], clips.shape[2]))

    def pool(self, x: Tensor, present: Tensor) -> Tensor:
        """Mean over tokens and present persons `(B, P)`; over all persons if none is present."""
        weight = torch.where(present.any(1, keepdim=True), present, torch.ones_like(present)).to(x.dtype)
        return (x.mean(2) * weight[:, :, None]).sum(1) / weight.sum(1, keepdim=True)

    def patches(self, clips: Tensor) -> Tensor:
        """Patches of coordinates `(B·P, tokens, patch·C)`; tokens run over time, then joints."""
        batch, frames, persons, joints, coordinates = check_joints(clips, self.joints, self.coordinates)
        if frames % self.patch or frames > self.most_frames:
            raise InputError(
                f"the encoder reads at most {self.most_frames} frames, a multiple of {self.patch}, and clips"
                f" have {frames}; set views.frames and encoder.frames to fit"
            )
        x = clips.permute(0, 2, 1, 3, 4).reshape(
            batch * persons, frames // self.patch, self.patch, joints, coordinates
        )
        return x.transpose(2, 3).reshape(batch * persons, -1, self.patch * coordinates)

    def places(self, tokens: int) -> Tensor:
        """Embeddings `(tokens, width)` of where and when a token is."""
        times = self.time_place[: tokens // self.joints]
        return (times[:, None] + self.joint_place).flatten(0, 1)

    def encode(self, patches: Tensor, visible: Tensor | None = None) -> Tensor:
        """Tokens `(N, tokens, width)` of patches; only those at the indices `visible` `(N, k)`, if given."""
        x = self.embed(patches) + self.places(patches.shape[1])
        if visible is not None:
            x = x.gather(1, visible[:, :, None].expand(-1, -1, x.shape[2]))
        for block in self.blocks:
            x = cast(TransformerBlock, block)(x)
        return self.norm(x)


def persons_present(clips: Tensor) -> Tensor:
    """`(B, P)`: which persons are present, that is, not all zeros."""
    return (clips != 0).any(4).any(3).any(1)
