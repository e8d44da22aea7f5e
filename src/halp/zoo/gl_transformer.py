"""GL-Transformer (Kim et al., ECCV 2022): how has every joint moved since 1, 5 and 10 frames before?
Directions and magnitudes are classes, asked for in every frame, so that an encoder has to look at other
frames to answer.

The encoder attends to the joints within each frame, then to whole frames, block by block. A token is one
joint of one person in one frame. Joints are read relative to the centre joint of their person, which itself
is read where it is: what the body does and where it goes are told apart by two embeddings.
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
    centre_joint,
    check_joints,
    limited,
    persons_present,
    register_encoder,
    register_method,
)


@torch.no_grad()
def displacement_classes(
    places: Tensor, interval: int, bin: float, bins: int, present: Tensor
) -> tuple[Tensor, Tensor]:
    """Classes of direction and magnitude, `(B, T, P, V)` each, of x(t − interval) − x(t).

    Before the interval has passed the first frame counts. Direction: the signs (−, 0, +) of the coordinates
    as digits to base 3, the first the lowest. Magnitude: 0 for none at all, then `bins` of equal width, the
    last one open; `bins` + 1 for a person who is not `present` `(B, P)`.

    >>> x = torch.tensor([0.0, 0.0, -0.025])[None, :, None, None, None].expand(-1, -1, -1, -1, 3)
    >>> [classes.flatten().tolist() for classes in displacement_classes(x, 1, 0.01, 14, torch.ones(1, 1).bool())]
    [[13, 13, 26], [0, 0, 5]]
    """
    before = torch.arange(places.shape[1], device=places.device).sub(interval).clamp_min(0)
    moved = places[:, before] - places
    digits = moved.sign().long() + 1
    direction = (digits * 3 ** torch.arange(places.shape[4], device=places.device)).sum(4)
    length = moved.square().sum(4).sqrt()
    magnitude = (torch.div(length, bin, rounding_mode="floor") + 1).clamp_max(bins).long()
    magnitude = magnitude.masked_fill(length == 0, 0)
    return direction, magnitude.masked_fill(~present[:, None, :, None], bins + 1)


def token_weights(
    intervals: int, joints: int, centre: int, weight: float, *, all_intervals: bool = True
) -> Tensor:
    """Weights `(R, V)` for `weighted_cross_entropy`: mean over joints, plus `weight` times the centre.

    Without `all_intervals` the centre counts as such in the first interval alone and among the joints in the
    others.
    """
    is_centre = torch.zeros(intervals, joints, dtype=torch.bool)
    is_centre[: None if all_intervals else 1, centre] = True
    return torch.where(is_centre, weight / is_centre.sum(), 1 / (~is_centre).sum().clamp_min(1))


def weighted_cross_entropy(logits: Tensor, classes: Tensor, weight: Tensor) -> Tensor:
    """Cross-entropy of `(B, T, R, P, V, K)` logits: mean over frames and persons, weights `(R, V)`."""
    error = F.cross_entropy(logits.movedim(5, 1), classes, reduction="none")
    return (error.mean((1, 3)) * weight).sum((1, 2))


@dataclass(frozen=True)
class GlobalLocalSettings(CheckedSettings):
    """Sizes for a CPU by default; GL-Transformer has width 48, 4 layers, 8 heads and 300 frames, padded."""

    # per joint; a frame has as many times that as there are joints of all persons
    width: int = limited(8, least=1)
    layers: int = limited(2, least=1)
    heads: int = limited(4, least=1)
    frames: int = limited(32, least=1)  # the most frames a clip has
    expansion: int = limited(2, least=1)  # of the feed-forward layers
    dropout: float = limited(0.1, least=0, below=1)
    attention_dropout: float = limited(0.1, least=0, below=1)
    path_dropout: float = limited(0.1, least=0, below=1)  # of the last block; grows from 0 in the first

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise InputError(f"encoder: width = {self.width} must be a multiple of heads = {self.heads}")


class Attention(nn.Module):
    """Pre-norm attention among tokens `(N, tokens, width)`."""

    def __init__(self, width: int, settings: GlobalLocalSettings) -> None:
        super().__init__()
        self.heads, self.norm = settings.heads, nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.weight_dropout, self.dropout = (
            nn.Dropout(settings.attention_dropout),
            nn.Dropout(settings.dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.out(attend(self.mix(self.norm(x)), self.heads, self.weight_dropout)))


class PathDropout(nn.Module):
    """Drops a block's residual for whole entries of the first axis."""

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


@register_encoder("global-local", GlobalLocalSettings)
class GlobalLocalEncoder(nn.Module):
    """Clips `(B, T, P, V, C)` → features `(B, P·V·width)`, the mean of those of all frames."""

    def __init__(self, settings: GlobalLocalSettings, topology: Topology, persons: int) -> None:
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
                f"the encoder reads {self.persons} persons and at most {self.most_frames} frames; clips of"
                f" shape {tuple(clips.shape)} have {persons} and {frames}"
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


def relative_to_centre(clips: Tensor, centre: int) -> Tensor:
    """Clips `(B, T, P, V, C)` with joints relative to the person's centre, which stays as it is."""
    middle = clips[:, :, :, centre : centre + 1]
    is_centre = torch.arange(clips.shape[3], device=clips.device)[:, None] == centre
    return torch.where(is_centre, clips, clips - middle)


CENTRES = ("all", "first")


@dataclass(frozen=True)
class DisplacementSettings(CheckedSettings):
    """The defaults are those of the public code of GL-Transformer, in metres and frames."""

    intervals: tuple[int, ...] = limited((1, 5, 10), least=1)
    bin: float = limited(0.01, above=0)  # width of a class of magnitudes, in the store's unit
    bins: int = limited(14, least=1)
    magnitude_weight: float = limited(1.0, least=0)
    centre_weight: float = limited(0.05, least=0)  # of the centre joint beside the others
    # in which intervals it is weighted so; "first" as the public code does
    centre_intervals: str = limited("all", among=CENTRES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.intervals or len(set(self.intervals)) != len(self.intervals):
            raise InputError(
                f"displacement: intervals = {list(self.intervals)} must be numbers of frames, each once"
            )

    @property
    def weights(self) -> dict[str, float]:
        return {"magnitude": self.magnitude_weight}


@register_method("displacement", DisplacementSettings)
class DisplacementMethod(PredictiveMethod):
    """Linear heads on the features of every frame, two for each interval."""

    settings: DisplacementSettings
    needs = ("sequence", "pool", "frame_size")
    why = "method 'displacement' predicts from the features of single frames"

    @classmethod
    def check(cls, settings: DisplacementSettings, recipe: Any) -> None:
        super().check(settings, recipe)
        if max(settings.intervals) >= recipe.views.frames:
            raise InputError(
                f"displacement.intervals = {list(settings.intervals)} do not fit in views.frames ="
                f" {recipe.views.frames}"
            )

    def decoder(self, encoder: Any, settings: DisplacementSettings, context: BuildContext) -> nn.Module:
        return Heads(encoder.frame_size, settings, context.topology, context.persons)

    def predict(self, name: str, clips: Tensor, batch: WholeBatch) -> Predicted:
        encoder = cast(Any, self.backbones[name])
        states, centre = encoder.sequence(clips), centre_joint(self.topology)
        places, present = relative_to_centre(clips, centre), persons_present(clips)
        tokens = self._token_weights(centre).to(states.device)
        losses, metrics = {}, {}
        tasks = zip(("direction", "magnitude"), self.decoders[name](states), self._targets(places, present))
        for task, logits, classes in tasks:
            losses[task] = batch.mean(weighted_cross_entropy(logits, classes, tokens))
            right = (logits.argmax(5) == classes).to(logits.dtype)
            metrics[f"{task}_accuracy"] = batch.mean(right.flatten(1).mean(1))
        return Predicted(losses, encoder.pool(states), metrics)

    def _token_weights(self, centre: int) -> Tensor:
        """How much every joint counts in every interval, `(R, V)`."""
        settings, everywhere = self.settings, self.settings.centre_intervals == "all"
        shape = (len(settings.intervals), len(self.topology), centre)
        return token_weights(*shape, settings.centre_weight, all_intervals=everywhere)

    def _targets(self, places: Tensor, present: Tensor) -> tuple[Tensor, ...]:
        """Classes of direction and of magnitude, `(B, T, R, P, V)`."""
        settings = self.settings
        pairs = [
            displacement_classes(places, interval, settings.bin, settings.bins, present)
            for interval in settings.intervals
        ]
        return tuple(torch.stack(classes, dim=2) for classes in zip(*pairs))


class Heads(nn.Module):
    """Logits of directions and magnitudes, `(B, T, R, P, V, K)` each, from features `(B, T, F)`."""

    def __init__(
        self, features: int, settings: DisplacementSettings, topology: Topology, persons: int
    ) -> None:
        super().__init__()
        self.shape = (len(settings.intervals), persons, len(topology))
        tokens = len(settings.intervals) * persons * len(topology)
        self.direction = nn.Linear(features, tokens * 3**topology.dimensions)
        self.magnitude = nn.Linear(features, tokens * (settings.bins + 2))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        shape = (*features.shape[:2], *self.shape, -1)
        return self.direction(features).view(shape), self.magnitude(features).view(shape)
